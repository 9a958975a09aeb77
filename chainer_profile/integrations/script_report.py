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
from chainer_profile.runs.wanted import named
from chainer_profile.runs.written import write

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

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
    from chainer_profile.record.versioned import build

    ended = build(Ended, job)
    problems = list(ended.problems)
    summary = None
    try:
        # Of the main thing alone: further reports would take a second each.
        summary = _write(ended.saved[0], ended) if ended.saved else None
    except ProfileError as error:
        problems.append(str(error))
    ns = max(0, time.perf_counter_ns() - ended.at_ns)
    spent = (*ended.budget.spent, Spent(PROFILER, REPORTS, ns))
    budget = replace(ended.budget, wall_ns=ended.budget.wall_ns + ns, spent=spent)
    written = list(ended.saved)
    if ended.folder is not None:
        try:
            write(Path(ended.folder), {BUDGET: write_json(budget).encode()})
            written = written or [ended.folder]
        except ProfileError as error:
            problems.append(str(error))
    if not ended.quiet:
        _say(budget, summary, dict.fromkeys(problems), _written(written, ended.first_rank))


def _write(folder: str, ended: Ended) -> Summary | None:
    """Write the reports of the main folder; gives its summary where more is to be said of it."""
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.write import write_reports

    wanted = named(ended.formats)
    if ended.quiet and not wanted.any:
        return None
    summary = summarise(load_run(Path(folder)))
    if wanted.any:
        write_reports(Path(folder), summary, wanted)
    return summary


def _written(folders: Sequence[str], first_rank: bool) -> str:
    places = [os.path.relpath(place) for place in folders]
    if not places:
        return ""
    ranks = Path(places[0]).parent
    more = f"; to merge the ranks, run {TYPED} ranks {ranks}" if first_rank else ""
    if len(places) > 1:
        more = f"; for the reports of the calls in test mode, run {TYPED} report {places[1]}{more}"
    return f"Written to {', '.join(places)}{more}"


def _say(budget: Budget, summary: Summary | None, problems: Iterable[str], written: str) -> None:
    from chainer_profile.report.content.budget import overview
    from chainer_profile.report.document import text
    from chainer_profile.report.writers import terminal

    notes = [text(problem, note=True) for problem in problems]
    last = [text(written)] if written else []
    console = terminal.standard_output()
    shown = terminal.first_screen(overview(budget, summary), console.width, "report.md has all")
    terminal.show([*shown, *notes, *last], console)
