"""Comparison -> its blocks, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chainer_profile.basics import units
from chainer_profile.comparison.compare import Comparison
from chainer_profile.comparison.sides import Side
from chainer_profile.report import document as doc
from chainer_profile.report import text as words
from chainer_profile.report.content import comparison_tables as tables
from chainer_profile.report.content.comparison_words import (
    counts_line,
    differences_line,
    machine_line,
    notes,
    side_name,
    verdict,
)
from chainer_profile.report.content.gate import Gate, failures, gate_line
from chainer_profile.report.document import text

#: The file of the table.
CSV = "comparison.csv"


def report(
    comparisons: Sequence[Comparison], plots: Sequence[str], **shown: Any
) -> list[doc.Block]:
    """The report of comparisons of one run with others, each with its picture's file."""
    names = ", ".join(comparison.after.name for comparison in comparisons)
    title = f"{names} compared with {comparisons[0].before.name}"
    blocks: list[doc.Block] = [doc.Heading(1, title)]
    for comparison, plot in zip(comparisons, plots, strict=True):
        if len(comparisons) > 1:
            blocks.append(doc.Heading(2, comparison.after.name))
        blocks += compared(comparison, anchor=plot, **shown)
        blocks.append(doc.Figure(plot, "Times of the layers in both runs", ""))
    return [*blocks, text("All layers: ", doc.file(CSV))]


def compared(
    comparison: Comparison,
    *,
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    gate: Gate | None = None,
    hint: str = "",
    anchor: str = "",
) -> Iterator[doc.Block]:
    """The verdict, its doubts, the program, trials, layers (see :func:`.shown_layers`), the sides.

    The anchors of the layers' rows begin with ``anchor``.
    """
    yield text(doc.strong(verdict(comparison)))
    if gate is not None:
        yield text(doc.strong(gate_line(comparison, gate)), below=True)
        yield from doc.listing(failures(comparison, gate))
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
    """A side in a line: ``A: resnet20, ..., 1,000 profiled trials, 2026-01-02T03:04:05Z``."""
    run = side.runs[0]
    parts = [words.model_name(run.settings), words.settings_text(run.settings)]
    if side.programs:
        parts.insert(0, words.printable(side.programs[0].script))
    if len(side.runs) == 1:
        parts.append(words.profiled_text(run))
    else:
        trials = [units.format_count(run.n_trials) for run in side.runs]
        shown = trials[0] if len(set(trials)) == 1 else " + ".join(trials)
        parts.append(f"{units.plural(len(side.runs), 'run')} of {shown} profiled trials")
    started = sorted({run.environment.started for run in side.runs} - {""})
    parts.append(" to ".join(dict.fromkeys((*started[:1], *started[-1:]))))
    commits = dict.fromkeys(run.environment.commit for run in side.runs if run.environment.commit)
    parts.append(f"commit {' and '.join(commits)}" if commits else "")
    return f"{side_name(side)}: {', '.join(filter(None, parts))}"
