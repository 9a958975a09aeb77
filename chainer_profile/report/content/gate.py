"""The words of a comparison's gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chainer_profile.basics import units
from chainer_profile.comparison.compare import Comparison
from chainer_profile.report import text as words
from chainer_profile.report.content.comparison_words import side_name, towards, unclear_line
from chainer_profile.report.text import printable


@dataclass(frozen=True)
class Gate:
    """A gate: it fails above this fraction, and may look at CPU time."""

    fail_above: float
    cpu: bool = False


def failures(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """The changes for which a gate fails, a line each."""
    for slower in comparison.slower_than(gate.fail_above, gate.cpu):
        sure = words.interval_text(slower.low, slower.high, "{:.2f}".format)
        name, ratio = printable(slower.name), units.format_factor(slower.ratio)
        yield f"{name}: {ratio} slower" + (sure and f" ({sure})")


def not_judged(comparison: Comparison, gate: Gate) -> str:
    """Why a gate can neither fail nor pass; empty where it can."""
    asked = gate.fail_above, gate.cpu
    if not comparison.enough_trials(gate.cpu):
        return f"{side_name(comparison.after)} has too few trials for a verdict"
    if comparison.unclear(*asked) and not comparison.slower_than(*asked):
        return unclear_line(comparison, gated=True).rstrip(".") or _ran_once(comparison)
    return ""


def _ran_once(comparison: Comparison) -> str:
    slower = towards(comparison.totals["ratio"].iloc[0])
    return (
        f"The {comparison.headline} is {slower}, but each program ran once, which does not show "
        "how much of that is noise: record five runs of each in turn"
    )


def gate_line(comparison: Comparison, gate: Gate) -> str:
    limit = f"{units.format_significant(gate.fail_above * 100, 2)} %"
    if why := not_judged(comparison, gate):
        return f"Gate: not judged. {why}."
    of = "" if comparison.headline else " Only layers are compared, not trials."
    if gate.cpu:
        of = " It considers only the CPU time of a trial."
    if failed := len(comparison.slower_than(gate.fail_above, gate.cpu)):
        return f"Gate: FAILED, {units.format_count(failed)} slower by more than {limit}.{of}"
    return f"Gate: passed, nothing is significantly slower by more than {limit}.{of}"
