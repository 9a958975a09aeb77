"""The time that shares are fractions of."""

from __future__ import annotations

from chainer_profile.analyse.summary import Summary


def whole(summary: Summary) -> tuple[float, str]:
    """Seconds that shares are fractions of, and their name: ``trial``, ``iteration``, ..."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        iterates = summary.recording.of_program and summary.several_phases
        return profiled.mean_s, "iteration" if iterates else "trial"
    return float(summary.layers["mean_s"].sum()), "layers' time"


def part_of_whole(summary: Summary, time_s: float) -> float:
    """A time as a fraction of the :func:`whole`."""
    whole_s, _ = whole(summary)
    return float(time_s) / whole_s if whole_s else 0.0
