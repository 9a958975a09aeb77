"""What ``run`` writes and says of a program that has ended, in an interpreter of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import PROG
from chainer_profile.record.budget import BUDGET, PROFILER, REPORTS, Budget, Spent, write_json
from chainer_profile.runs.written import write_files

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

#: This module, for the interpreter that runs it.
REPORTING = __name__


@dataclass(frozen=True)
class Ended:
    """A program that has ended.

    Attributes:
        budget: Where its time went.
        at_ns: When that was, by ``perf_counter_ns``, which all processes share.
        folder: Its main folder; None where it could not be taken.
        saved: The folders that hold a recording, the main one first.
        problems: What went wrong with the profile.
        formats: Reports beside the usual ones.
        usual: Whether the usual ones are wanted.
        quiet: Say nothing.
        first_rank: Whether it is the first of several ranks.
    """

    budget: Budget
    at_ns: int
    folder: str | None
    saved: tuple[str, ...]
    problems: tuple[str, ...]
    formats: tuple[str, ...]
    usual: bool
    quiet: bool
    first_rank: bool


def main(job: Mapping[str, Any]) -> None:
    """Write the reports of a program that has ended, and say where its time went."""
    from chainer_profile.record.versioned import build

    ended = build(Ended, job)
    problems = list(ended.problems)
    summaries: dict[str, Summary] = {}
    for folder in ended.saved:
        try:
            _write(folder, ended, summaries)
        except ProfileError as error:
            problems.append(str(error))
    ns = max(0, time.perf_counter_ns() - ended.at_ns)
    spent = (*ended.budget.spent, Spent(PROFILER, REPORTS, ns))
    budget = replace(ended.budget, wall_ns=ended.budget.wall_ns + ns, spent=spent)
    written = list(ended.saved)
    if ended.folder is not None:
        try:
            write_files(Path(ended.folder), {BUDGET: write_json(budget).encode()})
            written = written or [ended.folder]
        except ProfileError as error:
            problems.append(str(error))
    if not ended.quiet:
        summary = None if ended.folder is None else summaries.get(ended.folder)
        _say(budget, summary, dict.fromkeys(problems), _written(written, ended.first_rank))


def _write(folder: str, ended: Ended, summaries: dict[str, Summary]) -> None:
    """Write the reports of a folder, and keep its summary where more is to be said of it.

    Raises:
        ProfileError: There is no recording, or a report cannot be written.
    """
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.wanted import Wanted
    from chainer_profile.runs.write import write_reports

    wanted = Wanted(ended.formats, usual=ended.usual)
    if wanted.any or folder == ended.folder:
        summaries[folder] = summary = summarise(load_run(Path(folder)))
        if wanted.any:
            write_reports(Path(folder), summary, wanted)


def _written(folders: Sequence[str], first_rank: bool) -> str:
    """What is said of the folders that were written."""
    places = [os.path.relpath(place) for place in folders]
    if not places:
        return ""
    ranks = Path(places[0]).parent
    more = f"; {PROG} ranks {ranks} puts the ranks together" if first_rank else ""
    return f"Written to {', '.join(places)}{more}"


def _say(budget: Budget, summary: Summary | None, problems: Iterable[str], written: str) -> None:
    from rich.console import Console

    from chainer_profile.report.content.budget import overview
    from chainer_profile.report.document import text
    from chainer_profile.report.writers import terminal

    notes = [text(problem, note=True) for problem in problems]
    last = [text(written)] if written else []
    terminal.show([*overview(budget, summary), *notes, *last], Console())
