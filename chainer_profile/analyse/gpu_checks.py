"""Findings on a GPU's clocks, and on trials that could not be held."""

from __future__ import annotations

import math
from collections.abc import Iterator

from chainer_profile.analyse.findings import NOTE, WARNING, Finding
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_count, format_percent
from chainer_profile.record.recording import COMPLETE, GpuState, Recording

#: A larger relative change of the GPU's clock is a finding.
CLOCK_CHANGE = 0.05
#: Lower clocks that somebody has chosen are no fault; they make runs comparable.
_CHOSEN = "clocks set by an application"


def throttled(summary: Summary) -> Iterator[Finding]:
    reasons = _throttles(summary.recording)
    if not reasons:
        return
    before, after = _clocks(summary.recording)
    clock = f"; its clock was {_clock_change(before, after)}" if before else ""
    yield Finding(
        "throttled",
        WARNING,
        f"The GPU had lowered its clocks ({', '.join(reasons)}){clock}.",
        "Its layers can be faster than this. Cool it, or raise its power limit; to compare runs, "
        "fix a clock that it can hold (nvidia-smi --lock-gpu-clocks).",
        off=abs(after / before - 1) if before else math.inf,
    )


def gpu_clock(summary: Summary) -> Iterator[Finding]:
    before, after = _clocks(summary.recording)
    rose = after > before
    if abs(after - before) <= CLOCK_CHANGE * before:
        return
    change, clocks = abs(after / before - 1), _clock_change(before, after)
    if rose:
        yield Finding(
            "gpu-clock",
            NOTE,
            f"The GPU's clock rose by {format_percent(change)}: {clocks}.",
            "An idle GPU has a low clock and raises it during the warm-up. If the first trials are "
            "slower than later ones, use more warm-up trials.",
        )
    elif not _throttles(summary.recording):  # throttled() reports those
        yield Finding(
            "gpu-clock",
            WARNING,
            f"The GPU's clock fell by {format_percent(change)}: {clocks}.",
            "Times before and after the change differ. Fix the clock (nvidia-smi "
            "--lock-gpu-clocks), or let the GPU warm up longer.",
            off=change,
        )


def _states(recording: Recording) -> list[GpuState]:
    states = recording.conditions.gpu_before, recording.conditions.gpu_after
    return [state for state in states if state is not None]


def _throttles(recording: Recording) -> list[str]:
    """Reasons why the GPU lowered its clocks, except that somebody chose lower clocks."""
    reasons = dict.fromkeys(reason for state in _states(recording) for reason in state.throttle)
    return [reason for reason in reasons if reason != _CHOSEN]


def _clocks(recording: Recording) -> tuple[int, int]:
    """The GPU's clock in MHz before the warm-up and after the trials; both 0 if one is unknown."""
    clocks = [state.sm_mhz for state in _states(recording) if state.sm_mhz]
    return (clocks[0], clocks[1]) if len(clocks) == 2 else (0, 0)


def _clock_change(before: int, after: int) -> str:
    return f"{format_count(before)} MHz before the warm-up, {format_count(after)} MHz at the end"


def no_held_trials(summary: Summary) -> Iterator[Finding]:
    use, recording = summary.device, summary.recording
    # A run that was cut short has not come to them, and one with rows by link makes none.
    if use is None or use.busy_s is not None or recording.by_link or recording.ended != COMPLETE:
        return
    yield Finding(
        "no-held-trials",
        NOTE,
        "No trial could be held back until all of it was launched, so it is unknown how long the "
        "GPU works and how long it waits.",
        "The network waits for the GPU midway, or launches more than the GPU's queue holds. Read "
        "the layers' times as work and waiting together, or look at a trace of Nsight Systems "
        "(docs/gpu.md).",
    )
