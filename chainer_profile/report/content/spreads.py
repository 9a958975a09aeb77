"""Summary -> how the times of every layer are spread over the trials, to be drawn small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration, plural
from chainer_profile.report.tables import SPREAD, Spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: Bars of a histogram, and medians of a course, at most.
_BINS, _BLOCKS = 20, 24


def spreads(summary: Summary) -> list[Spread]:
    """Of every layer a histogram of its times, and their course over the trials."""
    self_ns = summary.recording.self_ns
    return [spread(np.ascontiguousarray(self_ns[:, at])) for at in range(self_ns.shape[1])]


def spread(times_ns: NDArray[np.int64]) -> Spread:
    """How the times of one layer are spread, in the order of the trials."""
    ordered = np.sort(times_ns)
    count, least, most = len(ordered), int(ordered[0]), int(ordered[-1])
    # A few very long trials do not press all others into one bar.
    high = int(ordered[min(count - 1, int(0.99 * count))])
    # The clock counts whole nanoseconds: narrower bars would be empty in turn.
    bins = min(_BINS, max(1, int(2 * count**0.4)), high - least + 1)
    width = max(1, high - least) / bins
    at = np.minimum((times_ns - least) / width, bins - 1).astype(np.intp)
    counts = np.bincount(at, minlength=bins)
    parts = np.array_split(times_ns, min(_BLOCKS, count))
    course = np.array([np.median(part) for part in parts])
    return Spread(
        np.ceil(counts / counts.max() * SPREAD).astype(int).tolist(),
        np.rint(np.clip((course - least) / (width * bins), 0, 1) * SPREAD).astype(int).tolist(),
        f"{plural(count, 'trial')}: {format_duration(least * NS)} to {format_duration(most * NS)}",
    )
