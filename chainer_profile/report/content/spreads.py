"""Summary -> how the times of every layer are spread over the trials, to be drawn small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration, plural
from chainer_profile.report.tables import SPREAD, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: Bars of a histogram, and medians of a course, at most; layers at a time, so that a long run's
#: times are not there twice.
_BINS, _BLOCKS, _AT_ONCE = 20, 24, 64


def spreads(summary: Summary) -> list[Spread]:
    """Of every layer a histogram of its times, and their course over the trials."""
    self_ns = summary.recording.self_ns
    parts = range(0, self_ns.shape[1], _AT_ONCE)
    return [one for at in parts for one in _spreads(self_ns[:, at : at + _AT_ONCE])]


def _spreads(times_ns: NDArray[np.int64]) -> Iterator[Spread]:
    """How the times of some layers are spread, in the order of the trials: (trials, layers)."""
    count = len(times_ns)
    least, most = times_ns.min(axis=0), times_ns.max(axis=0)
    # A few very long trials do not press all others into one bar.
    last = min(count - 1, int(0.99 * count))
    high = np.partition(times_ns, last, axis=0)[last]
    blocks = np.array_split(times_ns, min(_BLOCKS, count))
    course = np.array([np.median(block, axis=0) for block in blocks])
    for at in range(times_ns.shape[1]):
        # The clock counts whole nanoseconds: narrower bars would be empty in turn.
        bins = min(_BINS, max(1, int(2 * count**0.4)), int(high[at] - least[at]) + 1)
        span = max(1, int(high[at] - least[at]))
        places = np.minimum((times_ns[:, at] - least[at]) * (bins / span), bins - 1)
        counts = np.bincount(places.astype(np.intp), minlength=bins)
        level = np.clip((course[:, at] - least[at]) / span, 0, 1)
        longest = format_duration(int(most[at]) * NS)
        yield Spread(
            np.ceil(counts / counts.max() * SPREAD).astype(int).tolist(),
            np.rint(level * SPREAD).astype(int).tolist(),
            f"{plural(count, 'trial')}: {format_duration(int(least[at]) * NS)} to {longest}",
        )
