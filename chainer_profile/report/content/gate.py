"""Whether a comparison passes a gate, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chainer_profile.basics import units
from chainer_profile.comparison.compare import Comparison
from chainer_profile.report import text as words
from chainer_profile.report.content.comparison_words import factor_text, side_name, unclear_line
from chainer_profile.report.text import printable


@dataclass(frozen=True)
class Gate:
    """A limit for slower times, above which a comparison fails."""

    fail_above: float  #: The largest accepted slowdown, as a fraction of the time before.
    cpu: bool = False  #: Whether to judge only the CPU time of a trial.


def failures(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """A line for each change that makes the gate fail."""
    for slower in comparison.slower_than(gate.fail_above, gate.cpu):
        sure = words.interval_text(slower.low, slower.high, "{:.2f}".format)
        name, ratio = printable(slower.name), units.format_factor(slower.ratio)
        yield f"{name}: {ratio} slower" + (sure and f" ({sure})")


def why_not_judged(comparison: Comparison, gate: Gate) -> str:
    """Why a gate can neither fail nor pass; empty if it can."""
    limits = gate.fail_above, gate.cpu
    if not comparison.enough_trials(gate.cpu):
        return f"{side_name(comparison.after)} has too few trials for a verdict"
    if comparison.unclear(*limits) and not comparison.slower_than(*limits):
        return unclear_line(comparison, gated=True).rstrip(".") or _ran_once(comparison)
    return ""


def _ran_once(comparison: Comparison) -> str:
    """The reason that each program ran once, which does not show how much is noise."""
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
    of = "" if comparison.headline else " Only layers are compared, not trials."
    if gate.cpu:
        of = " It considers only the CPU time of a trial."
    if failed := len(comparison.slower_than(gate.fail_above, gate.cpu)):
        return f"Gate: FAILED, {units.format_count(failed)} slower by more than {limit}.{of}"
    return f"Gate: passed, nothing is significantly slower by more than {limit}.{of}"
