"""Statistics of trial times, which are skewed, drift, and are correlated with their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import atan, ceil, cos, lgamma, log, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Seconds per nanosecond.
NS = 1e-9
CONFIDENCE = 0.95
#: Fewer trials get no interval: their correlation cannot be estimated.
MIN_TRIALS = 30
#: Approximate number of batches of successive trials, and the least number of trials in a batch.
BATCHES, MIN_BATCH_LENGTH = 30, 3
#: Approximate number of batches in a second, coarser division. It shows longer disturbances.
LONG_BATCHES = 15
#: Approximate number of batches whose medians limit the interval of the median.
LIMITING_BATCHES = 20
#: Upper bound of the estimated correlation of neighbouring batches.
MAX_CORRELATION = 0.9
#: The batches widen an interval if they make it at least this multiple of the interval for
#: independent trials. A smaller multiple can be chance, unless neighbouring trials resemble each
#: other by this many standard errors.
MIN_WIDENING, MIN_RESEMBLANCE = 1.5, 2.0
_QUANTILES = {"p5_s": 0.05, "median_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
# Number of values that are described at once, which bounds the memory for copies.
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
    """Compare the mean trial times of the first and the second half of a run.

    Returns the relative change, and whether it is significant at 95 %. Each half needs
    :data:`MIN_TRIALS` trials or more, and a mean above 0.
    """
    halves = np.array_split(samples, 2)
    first, second = (float(half.mean()) for half in halves)
    batch_means = [batches(half[None]).mean(axis=2) for half in halves]
    error = float(np.hypot(*(standard_errors(means)[0] for means in batch_means)))
    degrees = sum(means.shape[1] for means in batch_means) - 2
    significant = abs(second - first) > error * student_quantile(degrees)
    return second / first - 1, bool(significant)


def batches(
    rows: NDArray[Any], target: int = BATCHES, min_length: int = MIN_BATCH_LENGTH
) -> NDArray[Any]:
    """Split series, (series, trials), into about ``target`` batches, (series, batches, length).

    The first trials are dropped if they do not fill a batch.
    """
    count = rows.shape[1]
    length = max(min_length, count // target)
    number = count // length
    return rows[:, count - number * length :].reshape(len(rows), number, length)


def standard_errors(batch_means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard errors of the means of series, (series,), from batch means, (series, batches).

    Successive trials are not independent (caches, clock frequency, other programs), so the plain
    std / sqrt(n) is too small. The means of batches are nearly independent (Law and Kelton,
    Simulation Modeling and Analysis, the method of batch means). If neighbouring batches are still
    correlated, the variance is multiplied by (1 + r) / (1 - r), as for an autoregressive series
    (Tafazzoli and Wilson, Skart, IIE Transactions 43, 2011).
    """
    number = batch_means.shape[1]
    deviations = batch_means - batch_means.mean(axis=1, keepdims=True)
    squares = (deviations * deviations).sum(axis=1)
    products = (deviations[:, 1:] * deviations[:, :-1]).sum(axis=1)
    lag_1 = products / np.where(squares > 0, squares, 1)
    # Correct the bias of the correlation in short series (Kendall, Biometrika 41, 1954), and add
    # its standard error to be on the safe side. At 0.9, 30 batches are worth less than 2.
    correlation = np.clip((number * lag_1 + 1) / (number - 3), 0, 1)
    uncertainty = np.sqrt((1 - correlation * correlation) / number)
    correlation += np.where(correlation > 0, uncertainty, 0)
    correlation = np.minimum(correlation, MAX_CORRELATION)
    variance = squares / (number - 1) / number * (1 + correlation) / (1 - correlation)
    errors: NDArray[np.float64] = np.sqrt(variance)
    return errors


def describe(samples_ns: NDArray[np.int64]) -> Statistics:
    """Describe trial times in nanoseconds, (trials,), in the order of the trials."""
    table = describe_columns(samples_ns[:, None])
    return Statistics(len(samples_ns), **{name: float(values[0]) for name, values in table.items()})


def describe_columns(samples_ns: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Describe every column of times in nanoseconds, (trials, columns), as :func:`describe` does.

    Returns the fields of :class:`Statistics` without ``count``, each as an array, (columns,).
    """
    count, width = samples_ns.shape
    if count == 0:
        raise ValueError("statistics need at least one sample")
    step = max(1, _CHUNK // count)
    # A table without columns is one empty chunk, so that the result has its keys.
    chunks = [
        _describe_rows(np.ascontiguousarray(samples_ns[:, start : start + step].T))
        for start in range(0, max(1, width), step)
    ]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def _describe_rows(rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Describe every row of times in nanoseconds, (series, trials)."""
    count = rows.shape[1]
    # Sums of integers are exact: the layers' means add up to the mean of the trial.
    means = rows.sum(axis=1) / count
    ordered = np.sort(rows, axis=1)
    positions = np.array(list(_QUANTILES.values())) * (count - 1)
    below = positions.astype(np.intp)
    above = np.minimum(below + 1, count - 1)
    quantiles = ordered[:, below] + (positions - below) * (ordered[:, above] - ordered[:, below])
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
    """Confidence interval of the median of correlated trials, (trials,) in their order.

    Both ends are NaN for fewer than :data:`MIN_TRIALS` trials. Otherwise the interval lies within
    the sample, and no distribution is assumed. It combines three estimates:

    1. If the trials are independent, the ranks of the ends follow from the binomial distribution
       (:func:`median_interval`). The interval has at least these ranks.
    2. If they are correlated, the ranks are ``count / 2 -/+ t * error``: Student's ``t``, and the
       standard error of the number of trials below the median, from the shares in batches
       (:func:`standard_errors`). The half width is the root mean square of two divisions into
       batches; one alone is too often narrow by chance, and ``--until-ci`` would end the run then.
       Such ranks are right for every distribution (Woodruff, Journal of the American Statistical
       Association 47, 1952): if the median can be in either of two modes, the interval has both.
       Student intervals of the batches' medians miss the other mode.
    3. If the machine drifts slowly, all trials of a batch are on one side of the median, however
       small the drift is. The ranks then reach the extremes of the sample, which are single slow
       trials. So the interval ends at the least and the greatest median of about 20 batches. The
       median of n independent batches lies outside of them with a probability of 2 ** (1 - n).

    ``benchmarks/coverage.py`` shows how wide the interval is, and how often it contains the true
    median.
    """
    rows = samples[None]
    low, high = _interval(rows, np.sort(rows, axis=1), confidence)
    return float(low[0]), float(high[0])


def _interval(
    rows: NDArray[np.int64], ordered: NDArray[np.int64], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends of the medians' intervals, each (series,).

    ``ordered`` has the times of ``rows``, (series, trials), each row sorted.
    """
    count = rows.shape[1]
    if count < MIN_TRIALS:
        unknown = np.full(len(rows), np.nan)
        return unknown, unknown
    if_independent = _ranks_outside(count, confidence)
    half_widths = _half_widths(rows, ordered, confidence, count / 2 - if_independent)
    outside = np.clip(np.floor(count / 2 - half_widths), 1, if_independent)
    first = outside.astype(np.intp)[:, None] - 1
    low, high = (np.take_along_axis(ordered, rank, axis=1) for rank in (first, count - 1 - first))
    smallest, largest = _extreme_medians(rows)
    return (
        np.minimum(ordered[:, if_independent - 1], np.maximum(low[:, 0], smallest)),
        np.maximum(ordered[:, -if_independent], np.minimum(high[:, 0], largest)),
    )


def _half_widths(
    rows: NDArray[np.int64],
    ordered: NDArray[np.int64],
    confidence: float,
    if_independent: float,
) -> NDArray[np.float64]:
    """Half widths of the medians' intervals in ranks, (series,); 0 if trials seem independent.

    ``if_independent`` is the half width for independent trials.
    """
    count = rows.shape[1]
    median = (ordered[:, [(count - 1) // 2]] + ordered[:, [count // 2]]) / 2
    sides = np.sign(rows - median)
    squares = np.zeros(len(rows))
    for target in (BATCHES, LONG_BATCHES):
        shares = batches(sides, target).mean(axis=2) / 2
        quantile = student_quantile(shares.shape[1] - 1, confidence)
        squares += (quantile * count * standard_errors(shares)) ** 2 / 2
    half_widths: NDArray[np.float64] = np.sqrt(squares)
    # For independent trials the sum of the products has the variance ``count``.
    resemblance = (sides[:, 1:] * sides[:, :-1]).sum(axis=1) / sqrt(count)
    by_chance = (resemblance < MIN_RESEMBLANCE) & (half_widths < MIN_WIDENING * if_independent)
    half_widths[by_chance] = 0
    return half_widths


def _extreme_medians(
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and greatest median of the batches of every series, each (series,)."""
    # A second division is half a batch earlier: a slow period may lie across two batches.
    half_batch = rows.shape[1] // LIMITING_BATCHES // 2
    parts = (rows, rows[:, : rows.shape[1] - half_batch])
    medians = np.hstack(
        [np.median(batches(part, LIMITING_BATCHES, min_length=1), axis=2) for part in parts]
    )
    return medians.min(axis=1), medians.max(axis=1)


@lru_cache(maxsize=64)
def _ranks_outside(count: int, confidence: float) -> int:
    """Rank of each end of the median's interval, from its side; 0 if ``count`` is too small."""
    # The probabilities are 0 at ten standard deviations below the middle.
    first = max(0, int(count / 2 - 5 * sqrt(count)))
    below = range(first, (count + 1) // 2)
    log_ways = [lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in below]
    probabilities = np.cumsum(np.exp(np.array(log_ways) - count * log(2)))
    return first + int((probabilities <= (1 - confidence) / 2).sum())


@lru_cache(maxsize=64)
def student_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Half width of a two-sided confidence interval in standard errors, by Student's t."""
    # By bisection: importing SciPy takes longer than all statistics of a report.
    low, high = 0.0, 1e9
    while low < (middle := (low + high) / 2) < high:
        is_below = _student_probability(middle, degrees) < confidence
        low, high = (middle, high) if is_below else (low, middle)
    return low


def _student_probability(limit: float, degrees: int) -> float:
    """Probability that ``-limit <= t <= limit`` (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle, odd = atan(limit / sqrt(degrees)), degrees % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for power in range(1 + odd, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * power / (power + 1)
    probability = sin(angle) * total
    return (angle + probability) * 2 / pi if odd else probability


def median_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % confidence interval of the median of independent values; NaN for fewer than 6 values.

    No distribution is assumed: the number of values below the median is binomial. The interval is
    the narrowest that misses the median with a probability of at most 2.5 % on each side
    (Conover, Practical Nonparametric Statistics). Fewer than 6 values cannot reach 95 %.
    """
    outside = _ranks_outside(len(values), CONFIDENCE)
    if not outside:
        return float("nan"), float("nan")
    ordered = np.sort(values)
    return float(ordered[outside - 1]), float(ordered[-outside])


# -- stopping when the interval is narrow enough

#: Number of trials at the first look, and the factor from each look to the next.
FIRST_LOOK = 200
GROWTH = 1.5


class PreciseEnough:
    """A rule that ends the trials when the median's interval is narrow enough.

    The half width of the interval must be at most the fraction ``wanted`` of the median. If one
    looks often enough, some interval is narrow by chance. So looks are few, each at 1.5 times the
    trials of the look before, and the k-th look uses an interval that misses the median with a
    probability of at most 5 % / (k (k + 1)). These add up to 5 % for any number of looks (alpha
    spending: Lan and DeMets, Biometrika 70, 1983). ``benchmarks/coverage.py`` shows how often the
    reported interval contains the true median.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self._looks = 0
        self._next = FIRST_LOOK

    def due(self, count: int) -> bool:
        """Whether it is time for the next look after ``count`` trials."""
        return count >= self._next

    def reached(self, samples: NDArray[np.int64]) -> bool:
        """Look at the trials if a look is due: whether the interval is narrow enough.

        ``samples`` are all trials so far in their order, (trials,).
        """
        if not self.due(len(samples)):
            return False
        self._looks += 1
        self._next = ceil(GROWTH * len(samples))
        miss = (1 - CONFIDENCE) / (self._looks * (self._looks + 1))
        # A sample may look more correlated at one confidence: the reported interval counts as well.
        return all(self._is_narrow(samples, part) for part in (1 - miss, CONFIDENCE))

    def _is_narrow(self, samples: NDArray[np.int64], confidence: float) -> bool:
        low, high = trials_interval(samples, confidence)
        return bool((high - low) / 2 <= self.wanted * np.median(samples))
