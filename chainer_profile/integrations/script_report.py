"""The reports of ``run`` after a program has ended, made in a separate interpreter."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import TYPED
from chainer_profile.record.budget import (
    BUDGET,
    PROFILER,
    REPORTS,
    TEST,
    TRAINING,
    Budget,
    Spent,
    write_json,
)
from chainer_profile.runs.formats import NONE
from chainer_profile.runs.output_files import write

if TYPE_CHECKING:
    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.program import ProgramTime
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.related import RelatedResults
    from chainer_profile.report.document import Block, Text

#: A program that ran for less time gets no page and no pictures, which take two seconds.
_SHORT_NS = 20_000_000_000
_FILES_IF_SHORT = ("report.md", "advice.md", "layers.csv", "links.csv")
#: Rows are left out so that the report has at most this number of lines on the screen.
_MAX_LINES = 24
#: Name of this module, for the interpreter that runs it.
REPORTING = __name__


@dataclass(frozen=True)
class Ended:
    """A program that has ended, and the options of its reports."""

    budget: Budget
    at_ns: int  #: End of the program by ``perf_counter_ns``, which all processes share.
    folder: str | None  #: Main folder; None if it could not be made or locked.
    saved: tuple[str, ...]  #: Folders with a recording, the main one first.
    problems: tuple[str, ...]  #: Problems with the profile, to print.
    formats: tuple[str, ...]  #: Values of ``--format``.
    quiet: bool
    first_rank: bool  #: Whether it is the first of several ranks.


def main(job: Mapping[str, Any]) -> None:
    """Write the reports of a program that has ended, and print where its time went.

    ``job`` has the fields of :class:`Ended`.
    """
    from chainer_profile.analyse.program import ProgramTime, own_ns
    from chainer_profile.record.versioned import build
    from chainer_profile.report.content.related import RelatedResults
    from chainer_profile.report.document import text

    ended = build(Ended, job)
    problems = list(ended.problems)
    summary, related = None, RelatedResults()
    is_short = not ended.formats and own_ns(ended.budget) < _SHORT_NS
    try:
        # Only the main folder gets reports, because each one takes a second.
        if ended.saved and not (ended.quiet and NONE in ended.formats):
            folder = Path(ended.saved[0])
            summary, related = _write_reports(folder, ended.budget, ended.formats, is_short)
    except ProfileError as error:
        problems.append(str(error))
    ns = max(0, time.perf_counter_ns() - ended.at_ns)
    budget = ended.budget if related.program is None else related.program.budget
    spent = (*budget.spent, Spent(PROFILER, REPORTS, ns))
    budget = replace(budget, wall_ns=budget.wall_ns + ns, spent=spent)
    written = list(ended.saved)
    if ended.folder is not None:
        try:
            write(Path(ended.folder), {BUDGET: write_json(budget)})
            written = written or [ended.folder]
        except ProfileError as error:
            problems.append(str(error))
    if not ended.quiet:
        program = replace(related.program or ProgramTime(budget), budget=budget)
        last = [text(problem, note=True) for problem in dict.fromkeys(problems)]
        if written:
            last.append(text(_written_to(written, ended, is_short)))
        _print(program, summary, related.advice, last)


def _write_reports(
    folder: Path, budget: Budget, formats: Sequence[str], is_short: bool
) -> tuple[Summary, RelatedResults]:
    """Write the reports of a folder; return the summary and the related results that they show.

    Before that, measure the time to move examples, and write it to the budget.
    """
    from chainer_profile.analyse.changes import MUCH
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.integrations.moving import with_moving
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.write import related_results, write_reports

    recording = load_run(folder)
    moving = with_moving(budget, recording, MUCH)
    if moving is not budget:
        write(folder, {BUDGET: write_json(moving)})
    summary = summarise(recording)
    if NONE not in formats:
        write_reports(folder, summary, formats, only=_FILES_IF_SHORT if is_short else None)
    return summary, related_results(folder, summary.recording)


def _written_to(folders: Sequence[str], ended: Ended, is_short: bool) -> str:
    """A line with the folder of the files, and the commands that make more reports."""
    paths = [os.path.relpath(folder) for folder in folders]
    commands = []
    if ended.first_rank:
        commands.append(f"to merge the ranks, run {TYPED} report {Path(paths[0]).parent}")
    if is_short and ended.saved:
        commands.append(f"for the page and pictures, run {TYPED} report {paths[0]}")
    else:
        kinds = {TRAINING: "another training", TEST: "calls in test mode"}
        for path in paths[1:]:
            kind = Path(path).name.partition("-")[0]
            if kind in kinds:
                commands.append(f"for the reports of {kinds[kind]}, run {TYPED} report {path}")
                break
    return "; ".join([f"Written to {paths[0]}", *commands])


def _print(
    program: ProgramTime, summary: Summary | None, advice: Advice | None, last: Iterable[Text]
) -> None:
    """Print the overview of a program, with as many rows as fit the screen, and the last lines."""
    from chainer_profile.report.content.budget import overview
    from chainer_profile.report.writers import terminal

    console = terminal.standard_output()
    width = console.width

    def fits(blocks: Sequence[Block]) -> bool:
        return terminal.count_of_lines(blocks, width) <= _MAX_LINES

    terminal.show(overview(program, summary, last, advice=advice, width=width, fits=fits), console)
