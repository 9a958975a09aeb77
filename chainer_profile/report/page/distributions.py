"""Samples -> what a page shows of them: a histogram, the course over the trials, and words.

All samples of a long run are too many for a page: of each row it gets the counts of a histogram and
a few numbers for every block of successive trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.checks import DRIFT, UNSTABLE
from chainer_profile.basics.describe import MIN_TRIALS, NS, Statistics, describe, halves_differ
from chainer_profile.basics.units import (
    duration_unit,
    format_duration,
    format_interval,
    format_percent,
    in_unit,
    plural,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BINS = 40
MAX_BLOCKS = 100
#: Blocks of all rows together: with very many rows each of them has fewer.
_ALL_BLOCKS = 60_000
#: The largest number of an unsigned integer of 8 bits: finer than a dot of the chart.
LEVELS = 255


@dataclass(frozen=True, eq=False)
class Distribution:
    """One row's samples, reduced. Times are numbers of ``unit``.

    Attributes:
        unit: ``s``, ``ms``, ``us`` or ``ns``.
        low: Left end of the histogram.
        high: Its right end.
        counts: Trials in each of its bins of equal width.
        beyond: Trials that are longer than its right end.
        block: Number of trials of a block; the last one may have fewer.
        floor: The time that level 0 of the blocks stands for.
        ceiling: The time that level :data:`LEVELS` stands for.
        levels: Of every block the 5th percentile, median and 95th percentile, (3, blocks), in
            levels.
        text: The samples in words, four sentences or empty: their times, how much they vary,
            whether they drift, and what the histogram does not show.
    """

    unit: str
    low: float
    high: float
    counts: NDArray[np.uint32]
    beyond: int
    block: int
    floor: float
    ceiling: float
    levels: NDArray[np.uint8]
    text: tuple[str, str, str, str]


def blocks_of(n_rows: int) -> int:
    """The most blocks for each of so many rows, so that the page stays small."""
    return max(2, min(MAX_BLOCKS, _ALL_BLOCKS // max(1, n_rows)))


def distribution(samples_ns: NDArray[np.int64], most_blocks: int = MAX_BLOCKS) -> Distribution:
    """Reduce one row's samples.

    Args:
        samples_ns: Times in nanoseconds in the order of the trials, (trials,), at least one.
        most_blocks: Blocks of successive trials at most.
    """
    statistics = describe(samples_ns)
    unit = duration_unit(statistics.median_s)
    scale = in_unit(NS, unit)
    low_ns, high_ns, counts = _histogram(samples_ns, statistics)
    block, times_ns = _blocks(samples_ns, most_blocks)
    floor, ceiling = float(times_ns.min()), float(times_ns.max())
    span = ceiling - floor
    levels = np.zeros_like(times_ns) if span == 0 else (times_ns - floor) / span * LEVELS
    beyond = len(samples_ns) - int(counts.sum())
    return Distribution(
        unit=unit,
        low=low_ns * scale,
        high=high_ns * scale,
        counts=counts,
        beyond=beyond,
        block=block,
        floor=floor * scale,
        ceiling=ceiling * scale,
        levels=np.rint(levels).astype(np.uint8),
        text=_text(samples_ns, statistics, unit, beyond),
    )


def _histogram(
    samples_ns: NDArray[np.int64], statistics: Statistics
) -> tuple[float, float, NDArray[np.uint32]]:
    """Ends and counts; a few very long trials do not press all others into one bin."""
    least, most = int(samples_ns.min()), int(samples_ns.max())
    high = min(most, max(least, round(2 * statistics.p99_s / NS) - least))
    # The clock counts whole nanoseconds: narrower bins would be empty in turn.
    bins = min(MAX_BINS, max(1, int(2 * len(samples_ns) ** 0.4)), high - least + 1)
    # Wide enough to be seen where all trials took the same time.
    beside = 0.5 if high > least else max(0.5, 0.02 * least)
    left, right = least - beside, high + beside
    within = samples_ns[samples_ns <= high]
    at = ((within - left) / (right - left) * bins).astype(np.intp)
    return left, right, np.bincount(np.minimum(at, bins - 1), minlength=bins).astype(np.uint32)


def _blocks(samples_ns: NDArray[np.int64], most: int) -> tuple[int, NDArray[np.float64]]:
    """Trials of a block, and 5th percentile, median and 95th percentile of each, (3, blocks)."""
    size = -(-len(samples_ns) // most)
    full = len(samples_ns) // size
    parts = [
        samples_ns[: full * size].reshape(full, size),
        samples_ns[full * size :].reshape(1, -1),
    ]
    quantiles = [np.quantile(part, (0.05, 0.5, 0.95), axis=1) for part in parts if part.size]
    return size, np.concatenate(quantiles, axis=1)


def _text(
    samples_ns: NDArray[np.int64], statistics: Statistics, unit: str, beyond: int
) -> tuple[str, str, str, str]:
    if statistics.count == 1:
        return f"One trial: {format_duration(statistics.mean_s)}.", "", "", ""
    longer = ""
    if beyond:
        longer = (
            f"{plural(beyond, 'trial')} took longer than the histogram shows, up to "
            f"{format_duration(statistics.max_s)}."
        )
    return (
        f"{plural(statistics.count, 'trial')}: median {format_duration(statistics.median_s)}, mean "
        f"{format_duration(statistics.mean_s)}, 5th to 95th percentile "
        f"{format_interval(statistics.p5_s, statistics.p95_s, unit)}.",
        f"{'Noisy' if statistics.spread >= UNSTABLE else 'Steady'}: the standard deviation is "
        f"{format_percent(statistics.spread)} of the mean.",
        _drift(samples_ns),
        longer,
    )


def _drift(samples_ns: NDArray[np.int64]) -> str:
    """Whether the second half took longer than the first, as :mod:`.checks` asks of trials."""
    if len(samples_ns) < 2 * MIN_TRIALS or not samples_ns.any():
        return "These are too few trials to tell whether it drifts."
    first, last = np.array_split(samples_ns, 2)
    if not first.any():
        return "Most of the first half is too short for the clock."
    change, certain = halves_differ(samples_ns)
    if certain and abs(change) >= DRIFT:
        usual = float(np.median(first))
        if usual and abs(float(np.median(last)) / usual - 1) < DRIFT:
            return (
                f"A few slow trials make the second half of the run {format_percent(abs(change))} "
                f"{'slower' if change > 0 else 'faster'} than the first; the medians of the halves "
                f"differ by less than {format_percent(DRIFT, 0)}."
            )
        return (
            f"It drifts: the second half of the run was {format_percent(abs(change))} "
            f"{'slower' if change > 0 else 'faster'} than the first."
        )
    return f"No drift of {format_percent(DRIFT, 0)} or more between the halves of the run."
