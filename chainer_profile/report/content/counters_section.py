"""Summary -> what the counters pass says: for the terminal, and as a part of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chainer_profile.analyse.counted import counters_by, trial_counters
from chainer_profile.basics.units import (
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.report.document import text
from chainer_profile.report.tables import Table, columns, headed, listed, with_content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.counted import TrialCounters
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block


def counters(summary: Summary) -> Iterator[Block]:
    """What the thread did: CPU time, faults and switches; and the system's part of a trial."""
    trial, counted = trial_counters(summary.recording), summary.recording.counters
    if trial is None or counted is None:
        return
    sentence = (
        f"In {plural(counted.trials, 'trial')} made for this, the calling thread used "
        f"{format_duration(trial.cpu_s)} of CPU time in {format_duration(trial.wall_s)}"
    )
    if not math.isnan(trial.system_share):
        sentence += (
            f". The system takes {format_percent(trial.system_share)} of it "
            f"({format_duration(trial.system_s)}){_faults(trial)}"
        )
    yield text(f"{sentence}. Other threads of BLAS are not in it.")
    yield _table(summary, "function")
    if summary.several_phases:
        yield _table(summary, "phase")


def _faults(trial: TrialCounters) -> str:
    faults = plural(round(trial.page_faults), "page fault")
    if math.isnan(trial.fault_s):
        return (
            f". A trial has {faults}. What one costs was not measured, so the tables do not tell "
            "which layers page faults limit"
        )
    at_least = format_duration(trial.page_faults * trial.fault_s)
    return f". A trial has {faults} of at least {format_duration(trial.fault_s)} each: {at_least}"


_COLUMNS = columns("""
name Index | | text
wall counted_s | wall ms !2 | ms
cpu | cpu ms = CPU [ms] | ms
page_faults | page faults | number
waits | !4 | number
preemptions | !3 | number
""")


def _table(summary: Summary, by: str) -> Table:
    rows = counters_by(summary.layers, by)
    found = [headed(_COLUMNS["name"], by), *listed(_COLUMNS)[1:]]
    return Table(with_content(found, rows), rows, f"CPU time and page faults by {by}")
