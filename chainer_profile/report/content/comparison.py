"""Comparison -> its blocks, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chainer_profile.basics import units
from chainer_profile.comparison.compare import Comparison
from chainer_profile.comparison.sides import Side
from chainer_profile.report import document as doc
from chainer_profile.report.content import comparison_tables as tables
from chainer_profile.report.content.comparison_words import (
    counts_line,
    differences_line,
    machine_line,
    notes,
    side_name,
    verdict,
)
from chainer_profile.report.content.gate import Gate, failure_lines, gate_line
from chainer_profile.report.document import text
from chainer_profile.report.text import model_name, printable, profiled_text, settings_text

#: The file of the table.
CSV = "comparison.csv"


def report(
    comparisons: Sequence[Comparison], plots: Sequence[str], **options: Any
) -> list[doc.Block]:
    """The report of one or several comparisons with the same run.

    Args:
        comparisons: The comparisons, which have the same first side.
        plots: The file of each comparison's picture.
        options: Arguments of :func:`comparison_blocks`.
    """
    names = ", ".join(comparison.after.name for comparison in comparisons)
    title = f"{names} compared with {comparisons[0].before.name}"
    blocks: list[doc.Block] = [doc.Heading(1, title)]
    for comparison, plot in zip(comparisons, plots, strict=True):
        if len(comparisons) > 1:
            blocks.append(doc.Heading(2, comparison.after.name))
        blocks += comparison_blocks(comparison, anchor=plot, **options)
        blocks.append(doc.Figure(plot, "Times of the layers in both runs", ""))
    return [*blocks, text("All layers: ", doc.file(CSV))]


def comparison_blocks(
    comparison: Comparison,
    *,
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    gate: Gate | None = None,
    hint: str = "",
    anchor: str = "",
) -> Iterator[doc.Block]:
    """The blocks of a comparison: its verdict, notes, tables of times, and both sides.

    Args:
        comparison: The comparison.
        sort: The order of the layers; see :func:`.select_layers`.
        limit: Most rows of the table of layers; None for all.
        everything: Whether to show unchanged layers too.
        gate: A gate to judge; None for none.
        hint: How to see the omitted rows.
        anchor: The beginning of the anchors of the layers' rows.
    """
    yield text(doc.strong(verdict(comparison)))
    if gate is not None:
        yield text(doc.strong(gate_line(comparison, gate)), below=True)
        yield from doc.listing(failure_lines(comparison, gate))
    if len(comparison.totals):  # or it is the verdict
        yield text(counts_line(comparison), below=True)
    loud = comparison.moved or comparison.other_machine
    yield text(machine_line(comparison), note=loud, below=True)
    yield from doc.below(notes(comparison), note=not comparison.judged)
    yield from tables.programs(comparison)
    yield from tables.trials(comparison)
    yield from tables.layers(comparison, sort, limit, everything, hint, anchor)
    yield from map(text, tables.unmatched_lines(comparison))
    sides = (("Before: ", comparison.before), ("After: ", comparison.after))
    yield doc.points(
        [*(start + _side(side) for start, side in sides), differences_line(comparison)]
    )


def _side(side: Side) -> str:
    """Describe a side in one line: ``A: resnet20, ..., 1,000 profiled trials, 2026-01-02...``."""
    run = side.runs[0]
    parts = [model_name(run.settings), settings_text(run.settings)]
    if side.programs:
        parts.insert(0, printable(side.programs[0].script))
    if len(side.runs) == 1:
        parts.append(profiled_text(run))
    else:
        trials = [units.format_count(run.n_trials) for run in side.runs]
        shown = trials[0] if len(set(trials)) == 1 else " + ".join(trials)
        parts.append(f"{units.plural(len(side.runs), 'run')} of {shown} profiled trials")
    started = sorted({run.environment.started for run in side.runs} - {""})
    parts.append(" to ".join(dict.fromkeys((*started[:1], *started[-1:]))))
    commits = dict.fromkeys(run.environment.commit for run in side.runs if run.environment.commit)
    parts.append(f"commit {' and '.join(commits)}" if commits else "")
    return f"{side_name(side)}: {', '.join(filter(None, parts))}"
