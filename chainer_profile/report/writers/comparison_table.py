"""Comparison -> what is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from chainer_profile.comparison.compare import FASTER, SLOWER
from chainer_profile.report.aligned import aligned_table
from chainer_profile.report.content.comparison_text import (
    counts_line,
    differences_line,
    failures,
    gate_line,
    hidden_line,
    layer_columns,
    machine_line,
    notes,
    rows,
    shown_layers,
    side_text,
    total_columns,
    unmatched_lines,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console

    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.report.columns import Column

_STYLES = {SLOWER: "bold red", FASTER: "bold green"}


def render(
    comparison: Comparison,
    console: Console,
    *,
    sort: str = "change",
    limit: int | None = 20,
    everything: bool = False,
    fail_above: float | None = None,
    cpu: bool = False,
) -> None:
    """Print what was compared, what else differs, totals, layers and the gate's result.

    Args:
        comparison: A comparison.
        console: Where to print; it decides about colour and width.
        sort: One of :data:`~.comparison_text.SORTS`.
        limit: Rows of the layer table at most; None for all.
        everything: Show unchanged layers too.
        fail_above: The fraction above which a gate fails, if there is one.
        cpu: Whether the gate looks at CPU time.
    """

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    say(f"before  {side_text(comparison.before)}")
    say(f"after   {side_text(comparison.after)}")
    say(differences_line(comparison), "yellow" if comparison.differences else "dim")
    loud = comparison.moved or comparison.other_machine
    say(machine_line(comparison), "yellow" if loud else "dim")
    for note in notes(comparison):
        say(note, "dim" if comparison.judged else "yellow")
    if len(comparison.totals):
        say("")
        _print_table(console, total_columns(), comparison.totals)
    say("")
    say(counts_line(comparison))
    layers = shown_layers(comparison, sort=sort, everything=everything)
    shown = layers if limit is None else layers.head(limit)
    if len(shown):
        _print_table(console, layer_columns(comparison), shown)
    if hidden := hidden_line(len(layers) - len(shown)):
        say(hidden)
    if len(shown):
        say("Times are medians in ms; 95 % is the interval of the factor.", "dim")
    for line in unmatched_lines(comparison):
        say(line)
    if fail_above is not None:
        failed = failures(comparison, fail_above, cpu)
        say("")
        say(gate_line(comparison, fail_above, cpu), "bold red" if failed else "bold")


def _print_table(console: Console, columns: Sequence[Column], table: pd.DataFrame) -> None:
    lines = aligned_table(columns, rows(table), console.width)
    styles = ["bold", "dim", *(_STYLES.get(verdict, "") for verdict in table["verdict"])]
    for line, style in zip(lines, styles, strict=True):
        console.print(Text(line, style=style), soft_wrap=True)
