"""Statistics of timings, which are skewed, drift, and depend on their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import atan, ceil, cos, lgamma, log, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

NS = 1e-9
CONFIDENCE = 0.95
#: Fewer trials have no interval: their correlation cannot be estimated.
MIN_TRIALS = 30
#: Approximate number of batches of successive trials, and their least length in trials.
BATCHES, LEAST_LENGTH = 30, 3
#: Number of longer batches, which show disturbances that last longer.
LONG_BATCHES = 15
#: The largest correlation of neighbouring batches that is taken into account.
MOST_ALIKE = 0.9
#: Batches widen an interval if their error is at least so many times that of independent trials; a
#: smaller factor is chance.
LEAST_WIDENING = 1.2
_QUANTILES = {"p5_s": 0.05, "median_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
# Number of samples that are described at once, so that a long run's memory does not double.
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Statistics:
    """Statistics of a sample of times in seconds; ``std_s`` divides by count - 1 (NaN for 1 trial).

    ``ci_low_s`` and ``ci_high_s`` are the ends of the 95 % confidence interval of the median, NaN
    for fewer than 30 trials. Percentiles are interpolated linearly.
    """

    count: int
    mean_s: float
    std_s: float
    ci_low_s: float
    ci_high_s: float
    min_s: float
    p5_s: float
    median_s: float
    p95_s: float
    p99_s: float
    max_s: float

    @property
    def half_width(self) -> float:
        """Half width of the confidence interval, as a fraction of the median."""
        return (self.ci_high_s - self.ci_low_s) / 2 / self.median_s if self.median_s else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation as a fraction of the mean."""
        return self.std_s / self.mean_s if self.mean_s else 0.0


def halves_differ(samples: NDArray[np.int64]) -> tuple[float, bool]:
    """How much longer the second half of the trials took, as a fraction, and if beyond chance.

    Each half needs :data:`MIN_TRIALS` trials or more, and a mean above 0.
    """
    halves = np.array_split(samples, 2)
    first, last = (float(half.mean()) for half in halves)
    means = [batches(half[None]).mean(axis=2) for half in halves]
    error = float(np.hypot(*(standard_errors(values)[0] for values in means)))
    # Two means of many batches each: Student's t for their difference.
    degrees = sum(values.shape[1] for values in means) - 2
    certain = abs(last - first) > error * student_quantile(degrees)
    return last / first - 1, bool(certain)


def batches(rows: NDArray[Any], about: int = BATCHES) -> NDArray[Any]:
    """Successive samples, (series, samples), in batches of equal length, (series, batches, length).

    The first samples that would not fill a batch are left out.
    """
    count = rows.shape[1]
    length = max(LEAST_LENGTH, count // about)
    number = count // length
    return rows[:, count - number * length :].reshape(len(rows), number, length)


def standard_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard errors of the means of series, from values of successive batches, (series, batches).

    Successive trials are not independent (caches, clock frequency, other programs), so the plain
    std / sqrt(n) is too small. Batches nearly are (Law and Kelton, Simulation Modeling and
    Analysis, the method of batch means). Where they still resemble their neighbours the variance is
    multiplied by (1 + r) / (1 - r), as for an autoregressive series (Tafazzoli and Wilson, Skart,
    IIE Transactions 43, 2011).
    """
    number = values.shape[1]
    off = values - values.mean(axis=1, keepdims=True)
    squares = (off * off).sum(axis=1)
    following = (off[:, 1:] * off[:, :-1]).sum(axis=1) / np.where(squares > 0, squares, 1)
    # Neighbours' correlation without its bias in short series (Kendall, Biometrika 41, 1954), plus
    # its own standard error. At 0.9, 30 batches are worth less than 2.
    alike = np.clip((number * following + 1) / (number - 3), 0, 1)
    alike += np.where(alike > 0, np.sqrt((1 - alike * alike) / number), 0)
    alike = np.minimum(alike, MOST_ALIKE)
    variance = squares / (number - 1) / number * (1 + alike) / (1 - alike)
    errors: NDArray[np.float64] = np.sqrt(variance)
    return errors


def describe(samples_ns: NDArray[np.int64]) -> Statistics:
    """Statistics of a sample of times in nanoseconds, (trials,), in the order of the trials."""
    table = describe_columns(samples_ns[:, None])
    return Statistics(len(samples_ns), **{name: float(values[0]) for name, values in table.items()})


def describe_columns(samples_ns: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """The statistics of many samples, (trials, samples), bit for bit those of :func:`describe`.

    The keys are the fields of :class:`Statistics` without ``count``; each has a value per sample.
    """
    count, width = samples_ns.shape
    if count == 0:
        raise ValueError("statistics need at least one sample")
    step = max(1, _CHUNK // count)
    # Without samples there is one empty part, which has the keys.
    parts = [
        _describe_rows(np.ascontiguousarray(samples_ns[:, at : at + step].T))
        for at in range(0, max(1, width), step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _describe_rows(rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    count = rows.shape[1]
    # Sums of integers are exact, so means add up as the samples do.
    means = rows.sum(axis=1) / count
    ordered = np.sort(rows, axis=1)
    at = np.array(list(_QUANTILES.values())) * (count - 1)
    below = at.astype(np.intp)
    above = np.minimum(below + 1, count - 1)
    quantiles = ordered[:, below] + (at - below) * (ordered[:, above] - ordered[:, below])
    low, high = _interval(rows, ordered, CONFIDENCE)
    columns = {
        "mean_s": means,
        "std_s": rows.std(axis=1, ddof=1) if count > 1 else np.full(len(rows), np.nan),
        "ci_low_s": low,
        "ci_high_s": high,
        "min_s": ordered[:, 0],
        "max_s": ordered[:, -1],
        **dict(zip(_QUANTILES, quantiles.T, strict=True)),
    }
    return {name: values * NS for name, values in columns.items()}


def trials_interval(
    samples: NDArray[np.int64], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Interval of the median of correlated trials in their order; NaN for too few.

    Its ends are trials. Independent trials below the median have a binomial number
    (:func:`median_interval`); where trials resemble their neighbours, fewer lie on either side of
    the interval. The shares of trials below the median in batches of two lengths give their number
    (:func:`standard_errors`, Student's t). So the interval lies within the trials, and holds for
    any distribution. ``benchmarks/coverage.py`` shows how often it contains the true median.
    """
    rows = samples[None]
    low, high = _interval(rows, np.sort(rows, axis=1), confidence)
    return float(low[0]), float(high[0])


def _interval(
    rows: NDArray[np.int64], ordered: NDArray[np.int64], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the medians' intervals, (series,), from rows and the same rows sorted."""
    count = rows.shape[1]
    if count < MIN_TRIALS:
        nothing = np.full(len(rows), np.nan)
        return nothing, nothing
    median = (ordered[:, [(count - 1) // 2]] + ordered[:, [count // 2]]) / 2
    below = (rows < median) + (rows == median) / 2
    ranks = np.zeros(len(rows))  # from the middle to an end of the interval
    for about in (BATCHES, LONG_BATCHES):
        shares = batches(below, about).mean(axis=2)
        errors = standard_errors(shares) * count
        errors[errors < LEAST_WIDENING * sqrt(count) / 2] = 0
        ranks = np.maximum(ranks, student_quantile(shares.shape[1] - 1, confidence) * errors)
    independent = _ranks_outside(count, confidence)
    outside = np.clip(np.floor(count / 2 - ranks), 1, independent).astype(np.intp)[:, None]
    low, high = (np.take_along_axis(ordered, at, axis=1) for at in (outside - 1, count - outside))
    return low[:, 0].astype(np.float64), high[:, 0].astype(np.float64)


@lru_cache(maxsize=64)
def _ranks_outside(count: int, confidence: float) -> int:
    """The number of sorted values, of ``count``, on either side of their median's interval."""
    # Ten standard deviations below the middle the chances are 0.
    first = max(0, int(count / 2 - 5 * sqrt(count)))
    below = range(first, (count + 1) // 2)
    ways = [lgamma(count + 1) - lgamma(at + 1) - lgamma(count - at + 1) for at in below]
    chances = np.cumsum(np.exp(np.array(ways) - count * log(2)))
    return first + int((chances <= (1 - confidence) / 2).sum())


@lru_cache(maxsize=64)
def student_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Half of an interval of this confidence, in standard errors, by Student's distribution."""
    # Not SciPy's, whose import takes longer than all statistics of a report.
    low, high = 0.0, 1e9
    while low < (middle := (low + high) / 2) < high:
        is_below = _student_chance(middle, degrees) < confidence
        low, high = (middle, high) if is_below else (low, middle)
    return low


def _student_chance(most: float, degrees: int) -> float:
    """The chance of a value from ``-most`` to ``most`` (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle, odd = atan(most / sqrt(degrees)), degrees % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for power in range(1 + odd, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * power / (power + 1)
    chance = sin(angle) * total
    return (angle + chance) * 2 / pi if odd else chance


def median_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of the median of independent values; NaN for fewer than 6 values.

    No shape of the distribution is assumed: the number of values below the median is binomial, so
    the ranks are the innermost ones outside which it falls with at most 2.5 % on each side
    (Conover, Practical Nonparametric Statistics). Fewer than 6 values cannot reach 95 %.
    """
    outside = _ranks_outside(len(values), CONFIDENCE)
    if not outside:
        return float("nan"), float("nan")
    ordered = np.sort(values)
    return float(ordered[outside - 1]), float(ordered[-outside])


# -- when trials are enough

#: Trials before the first look, and the factor from each look to the next.
FIRST_LOOK = 200
GROWTH = 1.5


class PreciseEnough:
    """Whether half the median's interval is at most a wanted fraction of it, during the trials.

    With enough looks, an interval is narrow by chance. So looks are few, each at 1.5 times as many
    trials as the look before, and the k-th uses an interval that misses the median with a chance of
    at most 5 % / (k (k + 1)). These chances add up to 5 % for any number of looks (spending the
    error: Lan and DeMets, Biometrika 70, 1983). ``benchmarks/coverage.py`` shows how often the
    reported interval contains the true median.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self._looks = 0
        self._next = FIRST_LOOK

    def due(self, count: int) -> bool:
        """Whether the next look is at so many trials."""
        return count >= self._next

    def reached(self, samples: NDArray[np.int64]) -> bool:
        """Look, if it is time to; samples are all the trials so far, in their order, (trials,)."""
        if not self.due(len(samples)):
            return False
        self._looks += 1
        self._next = ceil(GROWTH * len(samples))
        chance = (1 - CONFIDENCE) / (self._looks * (self._looks + 1))
        low, high = trials_interval(samples, 1 - chance)
        return bool((high - low) / 2 <= self.wanted * np.median(samples))
