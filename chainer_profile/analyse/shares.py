"""The time that shares are fractions of."""

from __future__ import annotations

from typing import NamedTuple

from chainer_profile.analyse.summary import Summary


class Whole(NamedTuple):
    """The time that shares are fractions of."""

    seconds: float
    name: str  #: ``trial``, ``iteration`` or ``layers' time``.


def whole_time(summary: Summary) -> Whole:
    """The mean time of a profiled trial, or of all layers if trials were not profiled."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        iterates = summary.recording.of_program and summary.several_phases
        return Whole(profiled.mean_s, "iteration" if iterates else "trial")
    return Whole(float(summary.layers["mean_s"].sum()), "layers' time")


def part_of_whole(summary: Summary, time_s: float) -> float:
    """A time as a fraction of the :func:`whole_time`."""
    whole_s, _ = whole_time(summary)
    return float(time_s) / whole_s if whole_s else 0.0
