"""The time of a whole program -> what would shorten it, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from chainer_profile.analyse.extensions import beside_the_network
from chainer_profile.analyse.findings import LEAST_GAIN, STEP, Finding, gain_without, in_order, step
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_percent
from chainer_profile.record.budget import (
    CALLS,
    ITERATIONS,
    PROFILER,
    Budget,
    Spent,
)

#: Share of the program from which moving its network is advised on.
_MOVED = 0.05


def own_ns(budget: Budget) -> int:
    """Nanoseconds of the program without the profiler."""
    return budget.wall_ns - budget.of(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """What would shorten the program; with what would shorten its trials, by what that is of it."""
    found = [*beside_the_network(budget, own_ns(budget)), *_moved(budget)]
    if summary is not None:
        trains = summary.recording.settings.phase == "train"
        share = share_of(budget.of(ITERATIONS if trains else CALLS), budget)
        for one in summary.findings:
            if one.severity == STEP and one.gain:
                found.append(replace(one, gain=gain_without(share * (1 - 1 / one.gain))))
    return in_order(one for one in found if one.gain is None or one.gain >= LEAST_GAIN)


def _moved(budget: Budget) -> Iterator[Finding]:
    moved = sum(one.ns for one in budget.looked if re.search(r"\bto_(gpu|device)\b", one.name))
    if moved >= _MOVED * own_ns(budget) > 0:
        share = moved / own_ns(budget)
        text = f"Repeated to_gpu calls take {format_percent(share)} of the program."
        yield step("moved", text, "Move a network once, before the loop.")
