"""Are two runs' times different, or is it noise? Samples of two sides -> ratios and p-values.

Arrays have a column for each layer: samples (trials, columns), blocks (blocks, columns) and runs
(runs, columns). Unknown values are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, polygamma, psi, stdtr, stdtrit

from chainer_profile.basics.describe import CONFIDENCE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "not significant", "not known"
#: A change beyond noise that the machine's own change may explain.
UNCLEAR = "machine or code"
#: One run of each program: how much of the difference is noise is not known.
ONCE = "one run each"
LEVEL = 0.05
#: Fewest trials for a verdict on one run of each side.
MIN_TRIALS = 4
MAX_BLOCKS = 50
_HALF_RESAMPLES = 1000
_SEEDS = (0, 1)
#: Standard deviation of the part of two runs' log ratio that all layers share.
COMMON_SPREAD = 0.03 * 2**0.5
#: Limits for the standard deviation of a layer's log ratio around that shared part.
MIN_SPREAD, MAX_SPREAD = 0.0075, 0.05 * 2**0.5
#: Uncertainty of short times in nanoseconds, which raises the upper limit.
_SHORT_NS = 1000.0
#: Fewest layers from which the part that a run's layers share is estimated.
MIN_COMMON = 10
#: Fewest layers of a group, and fewest layers of all, from which a shared part is estimated.
MIN_GROUP, _FEW = 5, 3
#: Degrees of freedom of the scatter, which has heavier tails than the normal distribution.
DEGREES = 10.0
#: The normal distribution's median absolute deviation is its standard deviation over this.
_MAD = 1.4826


# Successive trials of a run are not independent, so tests use the medians (or means) of blocks of
# trials. A layer's time also differs from run to run, for example because of the positions of
# arrays in memory, and more trials do not average this out. With several runs per side, its
# variance is measured. With one run per side, it is estimated from the usual difference that all
# layers share, and from the scatter of the layers around that shared part.


def n_blocks(count: int) -> int:
    """The number of blocks for ``count`` trials: one per trial up to 30, at most 50."""
    if count <= 30:
        return count
    return min(MAX_BLOCKS, max(30, count // 20))


def typical(samples: Any, by_means: bool, axis: int = 0) -> Floats:
    """The medians of samples along an axis, or their means."""
    values: Floats = np.mean(samples, axis) if by_means else np.median(samples, axis)
    return values


def block_times(samples_ns: Ints, by_means: bool = False) -> Floats:
    """Medians (or means) of successive blocks of equal length, (blocks, columns).

    Trials that do not fill a block are left out at the beginning.
    """
    count, columns = samples_ns.shape
    blocks = n_blocks(count)
    if not blocks:
        return np.zeros((0, columns))
    length = count // blocks
    used = samples_ns[count - blocks * length :]
    return typical(used.reshape(blocks, length, columns), by_means, axis=1)


def log_intervals(before: Floats, after: Floats, by_means: bool = False) -> tuple[Floats, Floats]:
    """95 % interval of the log ratio of two runs' medians (or means), from their blocks."""
    # Percentiles of 2,000 bootstrap ratios of medians or means (Efron and Tibshirani, An
    # Introduction to the Bootstrap, chapter 13). Each run uses both seeds, so that exchanging the
    # runs exactly inverts the interval.
    if min(len(before), len(after)) < 2:
        nothing = np.full(before.shape[1], np.nan)
        return nothing, nothing
    resampled = _resampled_means if by_means else _resampled_medians
    first = [resampled(blocks, _SEEDS[0]) for blocks in (before, after)]
    second = [resampled(blocks, _SEEDS[1]) for blocks in (before, after)]
    drawn = np.concatenate(
        [log_ratio(first[0], second[1]), log_ratio(second[0], first[1])], dtype=np.float64
    )
    tail = (1 - CONFIDENCE) / 2 * 100
    unknown = np.isnan(drawn).any(axis=0)
    low, high = np.percentile(np.where(unknown, 0.0, drawn), [tail, 100 - tail], axis=0)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def _times_drawn(count: int, seed: int) -> Ints:
    """How often each block is drawn in each resample, (resamples, blocks)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(count, np.full(count, 1 / count), size=_HALF_RESAMPLES)


def _resampled_means(blocks: Floats, seed: int) -> Floats:
    """Means of blocks that are drawn with replacement, (resamples, columns)."""
    means: Floats = _times_drawn(len(blocks), seed) @ blocks / len(blocks)
    return means


def _resampled_medians(blocks: Floats, seed: int) -> Floats:
    """Medians of blocks that are drawn with replacement, (resamples, columns)."""
    # Sort the values once. The median of a resample is the value at which the cumulative number of
    # draws passes one half.
    count = len(blocks)
    weights = _times_drawn(count, seed)
    out = np.empty((_HALF_RESAMPLES, blocks.shape[1]))
    for column in range(blocks.shape[1]):
        order = np.argsort(blocks[:, column], kind="stable")
        values = blocks[order, column]
        running = weights[:, order].cumsum(axis=1)
        upper = (running > count // 2).argmax(axis=1)
        lower = upper if count % 2 else (running >= count // 2).argmax(axis=1)
        out[:, column] = (values[lower] + values[upper]) / 2
    return out


def log_ratio(before: Floats, after: Floats) -> Floats:
    """Logarithm of after over before; NaN unless both are above 0."""
    timed = (before > 0) & (after > 0)
    logs = [np.log(np.where(timed, times, 1.0)) for times in (before, after)]
    return np.where(timed, logs[1] - logs[0], np.nan)


def rank_test(before: Floats, after: Floats) -> Floats:
    """Two-sided p-values of the Mann-Whitney test on blocks, (columns,); 1 for too few."""
    # The normal approximation with corrections for ties and for continuity (Conover, Practical
    # Nonparametric Statistics, section 5.1). SciPy's function is not used, because importing it
    # takes as long as a comparison.
    counts = len(before), len(after)
    if min(counts) < 2:
        return np.ones(before.shape[1])
    larger, equal = after[:, None] > before, after[:, None] == before
    above = larger.sum(axis=(0, 1)) + 0.5 * equal.sum(axis=(0, 1))
    pooled = np.concatenate([before, after])
    total = len(pooled)
    equals = (pooled[:, None] == pooled).sum(axis=1)
    ties = (equals.astype(np.float64) ** 2 - 1).sum(axis=0) / (total * (total - 1))
    deviation = np.sqrt(counts[0] * counts[1] / 12 * (total + 1 - ties))
    distance = np.maximum(np.abs(above - counts[0] * counts[1] / 2) - 0.5, 0)
    p_values = np.ones(before.shape[1])
    varies = deviation > 0
    p_values[varies] = 2 * ndtr(-distance[varies] / deviation[varies])
    return p_values


@dataclass(frozen=True)
class Groups:
    """Groups of layers that behave similarly, as a group number for each layer, (columns,)."""

    shape: Ints  #: Groups with the same function, phase and shapes.
    function: Ints  #: Groups with the same function and phase.


def common_part(logs: Floats, groups: Groups) -> tuple[Floats, Floats]:
    """The part of the log ratios that a column's group shares, and a correction, (columns,) each.

    The shared part is the median over columns with the same shapes; if there are few, with the same
    function; if there are few, over all columns. With fewer than 3 columns in all it is the column
    itself. The variance of the columns around it must be multiplied by the correction.
    """
    # A median is closer to its own columns. In simulations the variance of n columns around it was
    # too small by a factor of 1 + 2 / n.
    finite = np.isfinite(logs)
    if finite.sum() < _FEW:
        return np.where(finite, logs, 0.0), np.ones(len(logs))
    common = np.full(len(logs), np.median(logs[finite]))
    correction = np.full(len(logs), 1 + 2 / finite.sum())
    for numbers in (groups.function, groups.shape):
        for inside in _large_groups(numbers, finite):
            common[inside] = np.median(logs[inside & finite])
            correction[inside] = 1 + 2 / (inside & finite).sum()
    return common, correction


def spread(log_ratios: Floats, groups: Groups, times_ns: Floats, moved: float = 0.0) -> Floats:
    """Standard deviation of each layer's log ratio from run to run, estimated from all layers.

    Args:
        log_ratios: Log ratios of two runs, (columns,).
        groups: The groups of layers.
        times_ns: Times of the layers; short ones may scatter more.
        moved: Log factor by which the machine's speed changed, which adds scatter.
    """
    # Most layers do not change between two runs, and layers with the same function and shapes
    # behave similarly. So their scatter around the shared part is the scatter of a layer without a
    # change (an empirical null; Efron, Large-scale simultaneous hypothesis testing, JASA 99, 2004).
    # The median absolute deviation ignores a few changed layers. The result is limited to the
    # scatter between runs of the same code: it may be small by chance, or large because all layers
    # changed. Functions with few layers get the upper limit.
    upper_limits = np.sqrt(MAX_SPREAD**2 + (_SHORT_NS / np.maximum(times_ns, 1.0)) ** 2 + moved**2)
    deviations = upper_limits.copy()
    finite = np.isfinite(log_ratios)
    common, correction = common_part(log_ratios, groups)
    distances = np.abs(log_ratios - common) * np.sqrt(correction)
    for inside in _large_groups(groups.function, finite):
        deviations[inside] = _MAD * np.median(distances[inside & finite])
    limited: Floats = np.clip(deviations, MIN_SPREAD, upper_limits)
    return limited


def _large_groups(numbers: Ints, finite: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Yield the mask of each group with at least ``MIN_GROUP`` known columns."""
    for number in np.unique(numbers):
        inside = numbers == number
        if (inside & finite).sum() >= MIN_GROUP:
            yield inside


@dataclass(frozen=True)
class Judged:
    """The result of a test, (columns,) each."""

    log_ratio: Floats  #: Logarithm of after over before.
    low: Floats  #: Lower end of its 95 % interval; NaN if unknown.
    high: Floats
    p_value: Floats  #: Two-sided, not corrected; 1 if the log ratio is unknown.
    shift: Floats  #: The part of the log ratio that the machine may explain.


def judge_runs(
    before_ns: Ints, after_ns: Ints, run_spread: Floats, shift: Floats, by_means: bool = False
) -> Judged:
    """Compare one run with another, by the medians or the means of their trials.

    Args:
        before_ns: Samples of the first run, (trials, columns).
        after_ns: Samples of the second run.
        run_spread: Standard deviation of each log ratio from run to run, (columns,).
        shift: The part of each log ratio that the machine may explain, (columns,).
        by_means: Whether to compare means.
    """
    # Two tests must both find a difference, so the larger p-value counts. The Mann-Whitney test on
    # blocks considers noise within the runs. Student's t-test on the log ratio without the
    # machine's part considers the sum of the bootstrap variance and the variance between runs.
    blocks = block_times(before_ns, by_means), block_times(after_ns, by_means)
    ratios = log_ratio(typical(before_ns, by_means), typical(after_ns, by_means))
    low, high = log_intervals(*blocks, by_means)
    z = float(ndtri((1 + CONFIDENCE) / 2))
    error = np.hypot((high - low) / (2 * z), run_spread)
    p_values = np.fmax(rank_test(*blocks), _two_sided((ratios - shift) / error, DEGREES))
    # The bootstrap's interval need not be symmetric: each side is widened by itself.
    beyond = t_quantile(DEGREES) * run_spread
    return Judged(
        ratios,
        ratios - np.hypot(np.maximum(ratios - low, 0), beyond),
        ratios + np.hypot(np.maximum(high - ratios, 0), beyond),
        np.where(np.isnan(ratios), 1.0, p_values),
        shift,
    )


def judge_repeated(
    before: Floats,
    after: Floats,
    shift: Floats,
    kinds: Ints | None = None,
    correction: Floats | float = 1.0,
) -> Judged:
    """Compare several runs with several: the variance from run to run is measured.

    Student's t-test on the logarithms of the runs' medians. With few runs, the variance of a layer
    is poorly known. So it is moderated by the variance of all layers of its kind, or of all layers
    if there are few of its kind.

    Args:
        before: Logarithms of the times of the first side, (runs, columns).
        after: Logarithms of the times of the second side.
        shift: The part of each log ratio that the machine may explain, (columns,).
        kinds: The number of each layer's kind, (columns,); None for one kind.
        correction: Factor of the variances, from :func:`common_part`.
    """
    degrees = len(before) + len(after) - 2
    variance = repeated_variance(before, after) * correction
    finite = np.isfinite(variance)
    moderated, total = np.empty((2, len(variance)))
    everywhere = np.ones(len(variance), bool)
    for inside in (everywhere, *(() if kinds is None else _large_groups(kinds, finite))):
        variance_0, degrees_0 = variance_prior(variance[inside], degrees)
        weight = degrees_0 / (degrees_0 + degrees) if np.isfinite(degrees_0) else 1.0
        moderated[inside] = weight * variance_0 + (1 - weight) * variance[inside]
        # The layers together cannot provide more degrees of freedom.
        total[inside] = min(degrees_0 + degrees, max(1, (inside & finite).sum()) * degrees)
    ratios = after.mean(axis=0) - before.mean(axis=0)
    error = np.sqrt(moderated * (1 / len(before) + 1 / len(after)))
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(ratios == shift, 0.0, (ratios - shift) / error)
    half = t_quantile(total) * error
    p_values = np.where(np.isnan(ratios), 1.0, _two_sided(statistic, total))
    return Judged(ratios, ratios - half, ratios + half, p_values, shift)


def repeated_variance(before: Floats, after: Floats) -> Floats:
    """Variance from run to run, pooled over both sides, (columns,)."""
    squares = sum(((side - side.mean(axis=0)) ** 2).sum(axis=0) for side in (before, after))
    pooled: Floats = squares / (len(before) + len(after) - 2)
    return pooled


def variance_prior(variance: Floats, degrees: int) -> tuple[float, float]:
    """The prior variance of all columns and its degrees of freedom; 0, 0 for too few columns."""
    # From the moments of the logarithms of the columns' variances (Smyth, Linear models and
    # empirical Bayes methods for assessing differential expression in microarray experiments,
    # Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6.2).
    logs = np.log(variance[np.isfinite(variance) & (variance > 0)])
    if len(logs) < 3:
        return 0.0, 0.0
    half = degrees / 2
    centred = logs - psi(half) + np.log(half)
    excess = float(centred.var(ddof=1)) - float(polygamma(1, half))
    if excess <= 0:  # chance explains the differences between the columns
        return float(np.exp(centred.mean())), float("inf")
    half_0 = _trigamma_inverse(excess)
    return float(np.exp(centred.mean() + psi(half_0) - np.log(half_0))), 2 * half_0


def _trigamma_inverse(value: float) -> float:
    """The inverse of the trigamma function for a positive value, by Newton's method (Smyth)."""
    if value > 1e7:
        return 1 / float(np.sqrt(value))
    if value < 1e-6:
        return 1 / value
    at = 0.5 + 1 / value
    for _ in range(50):
        here = float(polygamma(1, at))
        step = here * (1 - here / value) / float(polygamma(2, at))
        at += step
        if -step / at < 1e-10:
            break
    return at


def t_quantile(degrees: ArrayLike) -> Any:
    """Half width of a 95 % interval of Student's t, in standard errors."""
    return stdtrit(degrees, (1 + CONFIDENCE) / 2)


def _two_sided(statistic: Floats, degrees: ArrayLike) -> Floats:
    p_values: Floats = 2 * stdtr(degrees, -np.abs(statistic))
    return p_values


def discovery_corrected(p_values: Floats) -> Floats:
    """Correct p-values of multiple tests by the false discovery rate (Benjamini, Hochberg 1995)."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * count / np.arange(1, count + 1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return corrected
