"""Recording, summary or comparison -> one line that says what it is, or the terminal's table."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_count, format_duration, format_percent, plural
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.text import batch_text, model_name, printable, trial_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.record.recording import Recording

#: Characters of a line where there is no terminal that says how many.
WIDTH = 110
LIMIT = 20


def recording_line(recording: Recording) -> str:
    """What a recording is: ``<Recording of resnet20: 66 layers x 1,000 trials, ...>``."""
    settings = recording.settings
    parts = [
        f"{plural(len(recording.layers), 'layer')} x {plural(recording.n_trials, 'trial')}",
        trial_text(recording),
        batch_text(settings),
        printable(settings.device),
    ]
    if recording.variants:
        others = recording.all_trials - recording.n_trials
        parts.append(f"{format_count(others)} more trials of other kinds")
    if recording.ended != COMPLETE:
        parts.append(printable(recording.ended))
    return f"<Recording of {model_name(settings)}: {', '.join(parts)}>"


def summary_line(summary: Summary) -> str:
    """What a summary says in short: ``<Summary of resnet20: 6.722 ms a trial, 66 layers, ...>``."""
    layers = summary.layers
    hottest = layers.loc[layers["median_s"].idxmax()]
    trial = summary.totals.trial
    parts = [
        f"{format_duration(trial.median_s)} a trial" if trial else "trials not timed",
        plural(len(layers), "layer"),
        f"slowest {printable(str(hottest['label']))} at {printable(str(hottest['path']))} "
        f"({format_percent(float(hottest['share']))})",
        plural(len(summary.findings), "finding"),
    ]
    return f"<Summary of {model_name(summary.recording.settings)}: {', '.join(parts)}>"


def comparison_line(comparison: Comparison) -> str:
    """What a comparison says in short: ``<Comparison of A with B: clean trial 1.11x faster, ...>``.

    Verdicts are those of the comparison.
    """
    from chainer_profile.report.content.comparison_text import change, counts_line

    parts = []
    if comparison.headline:
        total = comparison.totals.loc[comparison.headline]
        said = change(float(total["ratio"]), str(total["verdict"]))
        parts.append(f"{comparison.headline} {said}")
    parts.append(counts_line(comparison).removesuffix("."))
    names = [printable(side.name) for side in (comparison.before, comparison.after)]
    return f"<Comparison of {names[0]} with {names[1]}: {', '.join(parts)}>"


def summary_text(
    summary: Summary,
    *,
    width: int = WIDTH,
    limit: int | None = LIMIT,
    group_by: str = "function",
    tree: bool = False,
    depth: int = DEFAULT_DEPTH,
) -> str:
    """What the terminal shows of a summary, without colour and without a line break at the end.

    Args:
        summary: The summary of a run.
        width: Characters of a line.
        limit: Rows of the layer table and of the groups at most; None for all.
        group_by: One of :data:`~chainer_profile.basics.words.GROUPS`.
        tree: Show the tree of links in place of the layers.
        depth: Levels of the tree below the network.
    """
    from chainer_profile.report.writers import table

    def draw(console: Console) -> None:
        table.render(summary, console, limit=limit, group_by=group_by, tree=tree, depth=depth)

    return _printed(draw, width)


def comparison_text(comparison: Comparison, *, width: int = WIDTH) -> str:
    """What the terminal shows of a comparison, in the same way."""
    from chainer_profile.report.writers import comparison_table

    return _printed(lambda console: comparison_table.render(comparison, console), width)


def _printed(draw: Callable[[Console], None], width: int) -> str:
    """What is printed on a terminal of this width that knows no colour."""
    from rich.console import Console

    file = io.StringIO()
    # In a notebook rich would show its own HTML in place of printing.
    draw(Console(file=file, width=width, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip("\n").split("\n"))
