"""The time of a whole program -> what would shorten it, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import LEAST_GAIN, STEP, Finding, gain_without, in_order
from chainer_profile.basics.units import format_percent, plural
from chainer_profile.record.budget import (
    CALLS,
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    PROFILER,
    SNAPSHOTS,
)

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget, Spent

#: Shares of the program from which something beside its network is advised on.
_MUCH, _MUCH_EVALUATION, _MOVED = 0.2, 0.3, 0.05


def own_ns(budget: Budget) -> int:
    """Nanoseconds of the program without the profiler."""
    return budget.wall_ns - budget.of(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """What would shorten the program; with what would shorten its trials, by what that is of it."""
    found = list(_beside_the_network(budget))
    if summary is not None:
        trains = summary.recording.settings.phase == "train"
        share = share_of(budget.of(ITERATIONS if trains else CALLS), budget)
        steps = [one for one in summary.findings if one.severity == STEP and one.gain]
        for one in steps:
            gain = 1 / (1 - share * (1 - 1 / (one.gain or 1.0)))
            found.append(replace(one, gain=gain))
    return in_order(one for one in found if one.gain is None or one.gain >= LEAST_GAIN)


def _beside_the_network(budget: Budget) -> Iterator[Finding]:
    for one in budget.part(EXTENSIONS):
        if share_of(one, budget) >= _MUCH:
            yield _takes(
                one,
                budget,
                f" in {plural(one.count, 'call')}",
                "Extend with a rarer trigger, such as trigger=(1, 'epoch').",
            )
    for one in budget.part(SNAPSHOTS):
        if share_of(one, budget) >= _MUCH:
            yield _takes(one, budget, "", "Take snapshots at a rarer trigger.")
    evaluation = budget.of(EVALUATION)
    if share_of(evaluation, budget) >= _MUCH_EVALUATION:
        advice = "Evaluate more rarely, on fewer examples, or in larger batches."
        yield _takes(evaluation, budget, "", advice)
    moved = sum(one.ns for one in budget.looked if re.search(r"\bto_(gpu|device)\b", one.name))
    if moved >= _MOVED * own_ns(budget) > 0:
        yield Finding(
            "moved",
            STEP,
            f"to_gpu takes {format_percent(moved / own_ns(budget))} of the program, again and "
            "again.",
            "Move a network once, before the loop.",
        )


def _takes(spent: Spent, budget: Budget, more: str, advice: str) -> Finding:
    share = share_of(spent, budget)
    text = f"{spent.name or spent.part} takes {format_percent(share)} of the program{more}."
    return Finding(spent.part, STEP, text, advice, gain=gain_without(share))
