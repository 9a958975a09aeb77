"""Comparisons -> ``comparison.md``, with the tables of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from chainer_profile.report.markdown_syntax import address, bullets, columns_table, link, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.comparison.compare import Comparison


def render(
    comparisons: Sequence[Comparison],
    *,
    plots: Sequence[str],
    table: str = "comparison.csv",
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    fail_above: float | None = None,
    cpu: bool = False,
) -> str:
    """The comparisons as Markdown (GitHub's tables).

    Args:
        comparisons: The comparisons, of the same run with others.
        plots: Address of the plot of each of them, as seen from the file.
        table: Address of the table of everything, likewise.
        sort: One of :data:`~.comparison_text.SORTS`.
        limit: Rows of a table of layers at most; None for all.
        everything: Show unchanged layers too.
        fail_above: The fraction above which a gate fails, if there is one.
        cpu: Whether the gate looks at CPU time.
    """
    names = ", ".join(text(comparison.after.name) for comparison in comparisons)
    blocks = [f"# {names} compared with {text(comparisons[0].before.name)}"]
    for comparison, plot in zip(comparisons, plots, strict=True):
        if len(comparisons) > 1:
            blocks.append(f"## {text(comparison.after.name)}")
        blocks += _about(comparison)
        blocks += _tables(comparison, sort, limit, everything)
        blocks.append(f"![Times of the layers in both runs]({address(plot)})")
        if fail_above is not None:
            blocks.append(f"**{text(gate_line(comparison, fail_above, cpu))}**")
            if failed := failures(comparison, fail_above, cpu):
                blocks.append(bullets(map(text, failed)))
    blocks.append(f"All layers, with all digits: {link(table)}")
    return "\n\n".join(blocks) + "\n"


def _about(comparison: Comparison) -> Iterator[str]:
    sides = (("Before: ", comparison.before), ("After: ", comparison.after))
    yield bullets(text(start + side_text(side)) for start, side in sides)
    lines = [differences_line(comparison), machine_line(comparison), *notes(comparison)]
    yield bullets(map(text, lines))


def _tables(
    comparison: Comparison, sort: str, limit: int | None, everything: bool
) -> Iterator[str]:
    if len(comparison.totals):
        yield columns_table(total_columns(), rows(comparison.totals))
    yield text(counts_line(comparison))
    layers = shown_layers(comparison, sort=sort, everything=everything)
    shown = layers if limit is None else layers.head(limit)
    if len(shown):
        yield columns_table(layer_columns(comparison), rows(shown))
    if hidden := hidden_line(len(layers) - len(shown), wide=False):
        yield text(hidden)
    for line in unmatched_lines(comparison):
        yield text(line)
