"""What ``run`` writes and says of a program that has ended, in an interpreter of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import TYPED
from chainer_profile.record.budget import BUDGET, PROFILER, REPORTS, Budget, Spent, write_json
from chainer_profile.runs.formats import NONE
from chainer_profile.runs.written import write

if TYPE_CHECKING:
    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.program import ProgramTime
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import Beside
    from chainer_profile.report.document import Block, Text

#: A shorter program gets no page and no pictures, which would take more than a second.
_SHORT_NS = 10_000_000_000
_OF_SHORT = ("report.md", "advice.md", "layers.csv", "links.csv")
#: Lines on the screen, at most, as far as rows can be left out.
_MOST_LINES = 24
#: This module, for the interpreter that runs it.
REPORTING = __name__


@dataclass(frozen=True)
class Ended:
    budget: Budget
    at_ns: int  #: By ``perf_counter_ns``, which all processes share.
    folder: str | None  #: Its main folder; None where it could not be taken.
    saved: tuple[str, ...]  #: The folders that hold a recording, the main one first.
    problems: tuple[str, ...]  #: What went wrong with the profile.
    formats: tuple[str, ...]  #: What ``--format`` takes.
    quiet: bool
    first_rank: bool  #: Of several ranks.


def main(job: Mapping[str, Any]) -> None:
    """Write the reports of a program that has ended, and say where its time went."""
    from chainer_profile.analyse.program import ProgramTime, own_ns
    from chainer_profile.record.versioned import build
    from chainer_profile.report.content.profile import Beside
    from chainer_profile.report.document import text

    ended = build(Ended, job)
    problems = list(ended.problems)
    summary, kept = None, Beside()
    is_short = not ended.formats and own_ns(ended.budget) < _SHORT_NS
    try:
        # Of the main folder alone: each further report would take a second.
        if ended.saved and not (ended.quiet and NONE in ended.formats):
            summary, kept = _write(Path(ended.saved[0]), ended.formats, is_short)
    except ProfileError as error:
        problems.append(str(error))
    ns = max(0, time.perf_counter_ns() - ended.at_ns)
    spent = (*ended.budget.spent, Spent(PROFILER, REPORTS, ns))
    budget = replace(ended.budget, wall_ns=ended.budget.wall_ns + ns, spent=spent)
    written = list(ended.saved)
    if ended.folder is not None:
        try:
            write(Path(ended.folder), {BUDGET: write_json(budget)})
            written = written or [ended.folder]
        except ProfileError as error:
            problems.append(str(error))
    if not ended.quiet:
        program = replace(kept.program or ProgramTime(budget), budget=budget)
        last = [text(problem, note=True) for problem in dict.fromkeys(problems)]
        if written:
            last.append(text(_places(written, ended, is_short)))
        _say(program, summary, kept.advice, last)


def _write(folder: Path, formats: Sequence[str], is_short: bool) -> tuple[Summary, Beside]:
    """Write the reports of a folder; gives what they are of, and what is kept beside that."""
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.write import beside, write_reports

    summary = summarise(load_run(folder))
    if NONE not in formats:
        write_reports(folder, summary, formats, only=_OF_SHORT if is_short else None)
    return summary, beside(folder, summary.recording)


def _places(folders: Sequence[str], ended: Ended, is_short: bool) -> str:
    """Where the files are, and which commands make more of them."""
    places = [os.path.relpath(folder) for folder in folders]
    more = []
    if ended.first_rank:
        more.append(f"to merge the ranks, run {TYPED} report {Path(places[0]).parent}")
    if is_short and ended.saved:
        more.append(f"for the page and pictures, run {TYPED} report {places[0]}")
    elif len(places) > 1:
        more.append(f"for the reports of calls in test mode, run {TYPED} report {places[1]}")
    return "; ".join([f"Written to {places[0]}", *more])


def _say(
    program: ProgramTime, summary: Summary | None, advice: Advice | None, last: Iterable[Text]
) -> None:
    from chainer_profile.report.content.budget import overview
    from chainer_profile.report.writers import terminal

    console = terminal.standard_output()
    width = console.width

    def fits(blocks: Sequence[Block]) -> bool:
        return terminal.count_of_lines(blocks, width) <= _MOST_LINES

    terminal.show(overview(program, summary, last, advice=advice, width=width, fits=fits), console)
