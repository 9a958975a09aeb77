"""Statistics of timings: skewed, drifting, and not independent of one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

NS = 1e-9
CONFIDENCE = 0.95
MAX_BATCHES = 30
_QUANTILES = {"p5_s": 0.05, "median_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}


@dataclass(frozen=True)
class Statistics:
    """One sample of times, in seconds.

    Attributes:
        count: Number of trials.
        mean_s: Arithmetic mean.
        std_s: Standard deviation with count - 1; NaN for one trial.
        ci_low_s: Lower end of the 95 % confidence interval of the mean; NaN for one trial.
        ci_high_s: Upper end.
        min_s: Smallest time.
        p5_s: 5th percentile, interpolated linearly, like the following ones.
        median_s: Median.
        p95_s: 95th percentile.
        p99_s: 99th percentile.
        max_s: Largest time.
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
        """Half width of the confidence interval, as a fraction of the mean."""
        return (self.ci_high_s - self.ci_low_s) / 2 / self.mean_s if self.mean_s else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation as a fraction of the mean."""
        return self.std_s / self.mean_s if self.mean_s else 0.0


def n_batches(count: int) -> int:
    """Batches for the interval of the mean of so many trials: about the root, 2 to 30."""
    return min(MAX_BATCHES, max(2, int(np.sqrt(count))))


def halves_differ(samples: NDArray[np.int64]) -> tuple[float, bool]:
    """How much longer the second half of some trials took than the first, and if beyond chance.

    Args:
        samples: Times in their order, two at least in each half, not all 0 in the first.

    Returns:
        The difference of the means as a fraction of the first, and whether its 95 % interval,
        by batch means, leaves out 0.
    """
    first, last = np.array_split(samples, 2)
    error = float(np.hypot(standard_error(first), standard_error(last)))
    # Two means of about equally many batches each: Student's t for their difference.
    degrees = n_batches(len(first)) + n_batches(len(last)) - 2
    certain = abs(last.mean() - first.mean()) > error * stdtrit(degrees, (1 + CONFIDENCE) / 2)
    return float(last.mean() / first.mean() - 1), bool(certain)


def standard_error(samples: NDArray[np.int64]) -> float:
    """Standard error of the mean by batch means, in the samples' unit; NaN for fewer than 2.

    Successive trials are not independent (caches, clock frequency, other programs), so the plain
    std / sqrt(n) is too small. The trials are cut into successive batches of equal length, at most
    30, whose means are nearly independent: the error is their standard deviation over the root of
    their number (Law and Kelton, Simulation Modeling and Analysis, the method of batch means).
    """
    if len(samples) < 2:
        return float("nan")
    batches = n_batches(len(samples))
    length = len(samples) // batches
    means = samples[len(samples) - batches * length :].reshape(batches, length).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(batches))


def half_width(samples: NDArray[np.int64]) -> float:
    """Half width of the 95 % interval of the mean, by batch means and Student's t."""
    degrees = n_batches(len(samples)) - 1
    return standard_error(samples) * float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def describe(samples_ns: NDArray[np.int64]) -> Statistics:
    """Statistics of one sample of times in nanoseconds, in the order of the trials, (trials,)."""
    count = len(samples_ns)
    if count == 0:
        raise ValueError("statistics of no samples")
    # The mean of integers is exact, so that means add up as the samples do.
    mean_s = int(samples_ns.sum()) / count * NS
    half_s = half_width(samples_ns) * NS
    ordered = np.sort(samples_ns)
    at = np.array(list(_QUANTILES.values())) * (count - 1)
    below = at.astype(np.intp)
    above = np.minimum(below + 1, count - 1)
    values = ordered[below] + (at - below) * (ordered[above] - ordered[below])
    return Statistics(
        count=count,
        mean_s=mean_s,
        std_s=float(samples_ns.std(ddof=1)) * NS if count > 1 else float("nan"),
        ci_low_s=mean_s - half_s,
        ci_high_s=mean_s + half_s,
        min_s=int(ordered[0]) * NS,
        max_s=int(ordered[-1]) * NS,
        **dict(zip(_QUANTILES, (values * NS).tolist(), strict=True)),
    )


def median_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of a median from order statistics; NaN for fewer than 6 values.

    No shape of the distribution is assumed: the number of values below the median is binomial, so
    the ranks are the innermost ones outside which it falls with at most 2.5 % on each side
    (Conover, Practical Nonparametric Statistics). Fewer than 6 values cannot reach 95 %.
    """
    count = len(values)
    outside = int((bdtr(np.arange(count), count, 0.5) <= (1 - CONFIDENCE) / 2).sum())
    if not outside:
        return float("nan"), float("nan")
    ordered = np.sort(values)
    return float(ordered[outside - 1]), float(ordered[-outside])
