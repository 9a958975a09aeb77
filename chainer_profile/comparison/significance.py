"""Are two runs' times different, or is it noise? Samples of two sides -> ratios and p-values.

Samples, blocks and runs have a column a layer: (trials, columns), (blocks, columns) and (runs,
columns); what is not known of a column is NaN.
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
#: Something differs beyond noise, but the machine was as much slower or faster.
UNCLEAR = "machine or code"
#: One run of each program: how much of the difference is noise is not known.
ONCE = "one run each"
LEVEL = 0.05
#: Trials that one run of each must have for a verdict.
MIN_TRIALS = 4
MAX_BLOCKS = 50
_HALF_RESAMPLES = 1000
_SEEDS = (0, 1)
#: Standard deviation of the log ratio of single runs in what all their layers have in common.
COMMON_SPREAD = 0.03 * 2**0.5
#: That of a layer beyond that is taken to be between these; short calls may have more:
LEAST_SPREAD, MOST_SPREAD = 0.0075, 0.05 * 2**0.5
#: their times are off by about so much, in nanoseconds.
_SHORT_NS = 1000.0
#: From so many layers on, what a run's layers have in common is told from what each does by itself.
MIN_COMMON = 10
#: Layers of a group that tell it, and layers in all that have something in common.
MIN_GROUP, _FEW = 5, 3
#: Degrees of freedom of the scatter: its tails are heavier than the normal distribution's.
DEGREES = 10.0
#: The normal distribution's median absolute deviation is its standard deviation over this.
_MAD = 1.4826


# Within a run successive trials are not independent, so no test is made on single ones, but on the
# medians of blocks of them, or on their means where rows show means. From run to run a layer's time
# differs as well, for as long as the process lives: where its arrays lie in memory, what else the
# machine does. No number of trials averages that away. Its error is the variance of several runs of
# each, or, with one run of each, what runs usually differ by in common and how the layers scatter
# about that.


def n_blocks(count: int) -> int:
    """Blocks that so many trials are cut into: as many as trials up to 30, at most 50."""
    if count <= 30:
        return count
    return min(MAX_BLOCKS, max(30, count // 20))


def typical(samples: Any, by_means: bool, axis: int = 0) -> Floats:
    """The medians of samples along an axis, or their means."""
    values: Floats = np.mean(samples, axis) if by_means else np.median(samples, axis)
    return values


def block_times(samples_ns: Ints, by_means: bool = False) -> Floats:
    """Median, or mean, of successive blocks of equal length; the first trials may be left over."""
    count, columns = samples_ns.shape
    blocks = n_blocks(count)
    if not blocks:
        return np.zeros((0, columns))
    length = count // blocks
    kept = samples_ns[count - blocks * length :]
    return typical(kept.reshape(blocks, length, columns), by_means, axis=1)


def log_intervals(before: Floats, after: Floats, by_means: bool = False) -> tuple[Floats, Floats]:
    """95 % interval of the log ratio of two runs' medians, or means; both are given by blocks."""
    # The bootstrap's percentiles of 2,000 ratios of medians of blocks drawn with replacement (Efron
    # and Tibshirani, An Introduction to the Bootstrap, chapter 13). Each draw is used for either
    # run in turn, so that exchanging the runs turns the interval round exactly.
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
    # They follow from how often each value is drawn: the values are sorted once, and the median
    # stands where the running count passes the half.
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
    # By the normal distribution, with corrections for ties and for continuity (Conover, Practical
    # Nonparametric Statistics, section 5.1). Importing SciPy's function takes as long as a whole
    # comparison.
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
    """Layers that fare alike, as a number for each layer, (columns,) each."""

    shape: Ints  #: Of those with the same function, phase and shapes.
    function: Ints  #: Of those with the same function and phase.


def common_part(logs: Floats, groups: Groups) -> tuple[Floats, Floats]:
    """What columns have in common, by group, and how much more they vary than it seems from that.

    The median of the columns with the same shapes, of those with the same function where that are
    few, and of all where those are few as well; of few columns in all the column itself.
    """
    # The median leans to its own columns: the far ones of n vary by 2 / n more, by simulation.
    finite = np.isfinite(logs)
    if finite.sum() < _FEW:
        return np.where(finite, logs, 0.0), np.ones(len(logs))
    common = np.full(len(logs), np.median(logs[finite]))
    more = np.full(len(logs), 1 + 2 / finite.sum())
    for numbers in (groups.function, groups.shape):
        for inside in _large_groups(numbers, finite):
            common[inside] = np.median(logs[inside & finite])
            more[inside] = 1 + 2 / (inside & finite).sum()
    return common, more


def spread(log_ratios: Floats, groups: Groups, times_ns: Floats, moved: float = 0.0) -> Floats:
    """Standard deviation of a layer's log ratio from run to run, as the layers themselves tell."""
    # Most layers of two runs are not changed, and those with the same function and shapes fare
    # alike: how they scatter about what they have in common is what a layer differs by without a
    # cause of its own (an empirical null; Efron, Large-scale simultaneous hypothesis testing, JASA
    # 99, 2004); by the median absolute deviation, which a few changed layers do not move. It is
    # kept within what runs of the same code differ by: runs may be alike by chance, and layers that
    # are all changed must not hide that. Of functions with few layers it is the larger of these. A
    # machine that moves does not move all layers alike.
    most = np.sqrt(MOST_SPREAD**2 + (_SHORT_NS / np.maximum(times_ns, 1.0)) ** 2 + moved**2)
    deviations = most.copy()
    finite = np.isfinite(log_ratios)
    common, more = common_part(log_ratios, groups)
    distances = np.abs(log_ratios - common) * np.sqrt(more)
    for inside in _large_groups(groups.function, finite):
        deviations[inside] = _MAD * np.median(distances[inside & finite])
    kept: Floats = np.clip(deviations, LEAST_SPREAD, most)
    return kept


def _large_groups(numbers: Ints, finite: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Where each group is that has enough known columns to tell something."""
    for number in np.unique(numbers):
        inside = numbers == number
        if (inside & finite).sum() >= MIN_GROUP:
            yield inside


@dataclass(frozen=True)
class Judged:
    """What a test says, (columns,) each."""

    log_ratio: Floats  #: Logarithm of after over before.
    low: Floats  #: Lower end of its 95 % interval; NaN where it is not known.
    high: Floats
    p_value: Floats  #: Two-sided, not corrected; 1 where nothing is known.
    shift: Floats  #: What of the log ratio the machine accounts for.


def judge_runs(
    before_ns: Ints, after_ns: Ints, run_spread: Floats, shift: Floats, by_means: bool = False
) -> Judged:
    """Compare one run with another, by the medians or the means of their trials."""
    # Two tests must both find a difference, so the larger p-value counts: Mann and Whitney's on the
    # blocks, for noise within the runs, and Student's on the log ratio without the machine's part,
    # whose variance is that of the bootstrap and that from run to run together.
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
    more: Floats | float = 1.0,
) -> Judged:
    """Compare several runs with several: the variance from run to run is measured.

    A test of Student's on the logarithms of the runs' medians. Of few runs a layer's variance is
    poorly known, so it is moderated by that of all layers of its kind; where these are few, of all.
    """
    degrees = len(before) + len(after) - 2
    variance = repeated_variance(before, after) * more
    finite = np.isfinite(variance)
    moderated, total = np.empty((2, len(variance)))
    everywhere = np.ones(len(variance), bool)
    for inside in (everywhere, *(() if kinds is None else _large_groups(kinds, finite))):
        variance_0, degrees_0 = variance_prior(variance[inside], degrees)
        weight = degrees_0 / (degrees_0 + degrees) if np.isfinite(degrees_0) else 1.0
        moderated[inside] = weight * variance_0 + (1 - weight) * variance[inside]
        # No more than all of them together tell.
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
    """The variance that columns have in common, and how many degrees of freedom it is worth."""
    # By the moments of the logarithms of the columns' variances (Smyth, Linear models and empirical
    # Bayes methods for assessing differential expression in microarray experiments, Statistical
    # Applications in Genetics and Molecular Biology 3, 2004, section 6.2).
    logs = np.log(variance[np.isfinite(variance) & (variance > 0)])
    if len(logs) < 3:  # too few to tell
        return 0.0, 0.0
    half = degrees / 2
    centred = logs - psi(half) + np.log(half)
    excess = float(centred.var(ddof=1)) - float(polygamma(1, half))
    if excess <= 0:  # the columns differ no more than by chance
        return float(np.exp(centred.mean())), float("inf")
    half_0 = _trigamma_inverse(excess)
    return float(np.exp(centred.mean() + psi(half_0) - np.log(half_0))), 2 * half_0


def _trigamma_inverse(value: float) -> float:
    """Where the trigamma function has a value above 0, by Newton's method (Smyth, appendix)."""
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
    """p-values corrected for testing many: Benjamini and Hochberg's false discovery rate (1995)."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * count / np.arange(1, count + 1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return corrected
