"""Checks a comparison against a limit for slower times, and formats the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chainer_profile.basics import units
from chainer_profile.comparison.compare import Comparison
from chainer_profile.report.content.comparison_words import factor_text, side_name, unclear_line
from chainer_profile.report.text import interval_text, printable


@dataclass(frozen=True)
class Gate:
    """A limit for slower times. A comparison fails if a significant slowdown exceeds it."""

    fail_above: float  #: The largest accepted slowdown, as a fraction of the time before.
    cpu: bool = False  #: Whether only the CPU time of a trial is judged.


def failure_lines(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """Yield a line for each time that makes the gate fail: ``trial: 1.11x slower (...)``."""
    for slower in comparison.slower_than(gate.fail_above, gate.cpu):
        interval = interval_text(slower.low, slower.high, "{:.2f}".format)
        name, ratio = printable(slower.name), units.format_factor(slower.ratio)
        yield f"{name}: {ratio} slower" + (f" ({interval})" if interval else "")


def why_not_judged(comparison: Comparison, gate: Gate) -> str:
    """Explain why a gate can neither fail nor pass; empty if it can."""
    limits = gate.fail_above, gate.cpu
    if not comparison.enough_trials(gate.cpu):
        return f"{side_name(comparison.after)} has too few trials for a verdict"
    if comparison.unclear(*limits) and not comparison.slower_than(*limits):
        return unclear_line(comparison, gated=True).rstrip(".") or _ran_once_text(comparison)
    return ""


def _ran_once_text(comparison: Comparison) -> str:
    """Explain that programs that ran once do not show how much of a slowdown is noise."""
    slower = factor_text(comparison.totals["ratio"].iloc[0])
    return (
        f"The {comparison.headline} is {slower}, but each program ran once, which does not show "
        "how much of that is noise: record five runs of each in turn"
    )


def gate_line(comparison: Comparison, gate: Gate) -> str:
    """The result of a gate: ``Gate: passed, nothing is significantly slower by more than 5 %.``"""
    limit = f"{units.format_significant(gate.fail_above * 100, 2)} %"
    if why := why_not_judged(comparison, gate):
        return f"Gate: not judged. {why}."
    scope = "" if comparison.headline else " Only layers are compared, not trials."
    if gate.cpu:
        scope = " It considers only the CPU time of a trial."
    if failed := len(comparison.slower_than(gate.fail_above, gate.cpu)):
        return f"Gate: FAILED, {units.format_count(failed)} slower by more than {limit}.{scope}"
    return f"Gate: passed, nothing is significantly slower by more than {limit}.{scope}"
