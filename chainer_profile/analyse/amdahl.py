"""Gains of a trial by faster layers: Amdahl's law on the unprofiled trials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainer_profile.record.recording import Recording

#: How many times as fast layers may become, for a trial that is to be faster.
_LAYER_FACTORS = (2.0, 4.0, 10.0)


def trial_s(recording: Recording) -> float | None:
    """Median of the unprofiled trials, else of the profiled ones; None where layers add to none."""
    # A layer's inclusive time holds others', and a GPU runs beside the host.
    if recording.settings.inclusive or recording.on_device:
        return None
    times = recording.clean_ns if len(recording.clean_ns) else recording.trial_ns
    if times is None or not len(times):
        return None
    return float(np.median(times)) * 1e-9


def if_twice(recording: Recording, layers_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many times as fast a trial would be if one layer were twice as fast; NaN if unknown."""
    whole = trial_s(recording)
    if not whole:
        return np.full(len(layers_s), np.nan)
    return whole / (whole - np.minimum(layers_s, whole) / 2)


@dataclass(frozen=True)
class Way:
    """``count`` of the slowest layers, which take ``share`` of a trial, ``times`` as fast."""

    count: int
    times: float
    share: float


def ways(
    recording: Recording, layers_s: NDArray[np.float64], factor: float
) -> tuple[Way, ...] | None:
    """The fewest layers that become 2, 4 or 10 times as fast, for a trial ``factor`` times as fast.

    Least demanding first: empty where no layers are enough, None where a trial's time is not known.
    """
    whole = trial_s(recording)
    if not whole:
        return None
    slowest = np.sort(layers_s)[::-1]
    sums = np.minimum(slowest.cumsum(), whole)
    wanted = whole * (1 - 1 / factor)
    by_count: dict[int, Way] = {}
    for times in _LAYER_FACTORS:
        enough = np.flatnonzero(sums * (1 - 1 / times) >= wanted)
        if len(enough):
            count = int(enough[0]) + 1
            by_count.setdefault(count, Way(count, times, float(sums[enough[0]]) / whole))
    return tuple(by_count.values())
