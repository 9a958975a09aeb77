"""What ``--format`` asks for of the files of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import UsageError
from chainer_profile.runs.formats import FORMATS

if TYPE_CHECKING:
    from chainer_profile.report.content.profile import ReportTitle

#: The formats to ask for, and their files.
FILES = {format.name: format.file for format in FORMATS if format.name}
#: Beside those of the table: what commands write, and some that version 0.1.0 wrote.
_OTHER_FILES = re.compile(r"advice\.json|budget\.json|stacks\.speedscope\.json|layers-\d+\.csv")
#: Stands for the usual reports, where a short program gets fewer.
PAGE = "page"
#: Stands for all of them.
ALL = "all"
#: Stands for no report at all, not even the usual ones.
NONE = "none"


@dataclass(frozen=True)
class Wanted:
    formats: tuple[str, ...] = ()  #: Names of :data:`FILES`, beside the usual reports.
    title: ReportTitle | None = None
    trace_trial: int | None = None  #: Counted from 0: one that a trace shows beside the median one.
    usual: bool = True

    @property
    def any(self) -> bool:
        return self.usual or bool(self.formats)


def named(names: Sequence[str]) -> Wanted:
    """What the names of :func:`parse_formats` ask for."""
    return Wanted(tuple(name for name in names if name in FILES), usual=NONE not in names)


#: Nothing beside the usual reports.
USUAL = Wanted()


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats of a list such as ``json,trace``; ``all`` stands for all of them."""
    names = [name.strip() for name in text.split(",")]
    if NONE in names:
        if len(names) > 1:
            raise UsageError("none means no report: give it alone")
        return (NONE,)
    for name in names:
        if name not in (*FILES, PAGE, ALL):
            raise UsageError(
                f"unknown format {name!r}: choose {', '.join(FILES)}, {PAGE} or {ALL} (CSV, plots, "
                f"report.md and report.html are written anyway, except with {NONE})"
            )
    return tuple(FILES) if ALL in names else tuple(dict.fromkeys(names))


def check(wanted: Wanted, n_trials: int) -> None:
    """Refuse before a run, of so many trials at most, a trial that it will not have."""
    if wanted.trace_trial is None:
        return
    if "trace" not in wanted.formats:
        raise UsageError("--trace-trial is for a trace: add --format trace")
    if wanted.trace_trial >= n_trials:
        known = f"the trials are 0 to {n_trials - 1}" if n_trials else "there are no trials"
        raise UsageError(f"--trace-trial {wanted.trace_trial}: {known}")


def is_report(name: str) -> bool:
    """Whether a file of a run's folder is made from its recording."""
    files = {format.file for format in FORMATS}
    return name in files or _OTHER_FILES.fullmatch(name) is not None
