"""The report files of ``--format``, and the settings of their content."""

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
#: A trace that also shows a trial of this number.
_TRACE = re.compile(r"trace:([0-9]{1,9})")
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
    """The files that the names of :func:`parse_formats` ask for."""
    trials = [int(number) for name in names for number in _TRACE.findall(name)]
    formats = dict.fromkeys(name.partition(":")[0] for name in names)
    return Wanted(
        tuple(name for name in formats if name in FILES),
        trace_trial=trials[-1] if trials else None,
        usual=NONE not in names,
    )


#: Nothing beside the usual reports.
USUAL = Wanted()


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats of a list such as ``json,trace:17``; ``all`` stands for all of them."""
    names = [name.strip() for name in text.split(",")]
    if NONE in names:
        if len(names) > 1:
            raise UsageError("none means no report: give it alone")
        return (NONE,)
    for name in names:
        if name not in (*FILES, PAGE, ALL) and not _TRACE.fullmatch(name):
            raise UsageError(
                f"unknown format {name!r}: choose {', '.join(FILES)}, {PAGE} or {ALL} (CSV, plots, "
                f"report.md and report.html are written anyway, except with {NONE})"
            )
    everything = (*FILES, *filter(_TRACE.fullmatch, names))
    return everything if ALL in names else tuple(dict.fromkeys(names))


def check(wanted: Wanted, n_trials: int) -> None:
    """Refuse a trial of a trace that a run of at most so many trials will not have."""
    if wanted.trace_trial is not None and wanted.trace_trial >= n_trials:
        trials = f"the trials are 0 to {n_trials - 1}" if n_trials else "there are no trials"
        raise UsageError(f"--format trace:{wanted.trace_trial}: {trials}")


def is_report(name: str) -> bool:
    """Whether a file of a run's folder is made from its recording."""
    files = {format.file for format in FORMATS}
    return name in files or _OTHER_FILES.fullmatch(name) is not None
