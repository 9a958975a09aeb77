"""Are two runs' times different, or is it noise? Samples of two sides -> times, ratios, verdicts.

Samples, blocks and runs have a column a layer: (trials, columns), (blocks, columns) and (runs,
columns); what is not known of a column is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, polygamma, psi, stdtr, stdtrit

from chainer_profile.basics.describe import CONFIDENCE, NS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "not significant", "not known"
#: Something differs beyond noise, but the machine was as much slower or faster.
UNCLEAR = "machine or code"
VALUES = ("before_s", "after_s", "ratio", "low", "high", "p_value", "verdict")
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


# Within a run successive trials are not independent, so no test is made on single ones: a block of
# them is stood for by its median. From run to run a layer's time differs as well, for as long as
# the process lives: where its arrays lie in memory, what else the machine does. No number of trials
# averages that away. Its error is the variance of several runs of each, or, with one run of each,
# what runs usually differ by in common and how the layers scatter about that.


def n_blocks(count: int) -> int:
    """Blocks that so many trials are cut into: as many as trials up to 30, at most 50."""
    if count <= 30:
        return count
    return min(MAX_BLOCKS, max(30, count // 20))


def block_medians(samples_ns: Ints) -> Floats:
    """Medians of successive blocks of equal length; trials left over are those of the begin."""
    count, columns = samples_ns.shape
    blocks = n_blocks(count)
    if not blocks:
        return np.zeros((0, columns))
    length = count // blocks
    kept = samples_ns[count - blocks * length :]
    medians: Floats = np.median(kept.reshape(blocks, length, columns), axis=1)
    return medians


def log_intervals(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """95 % interval of the log ratio of the medians of two runs' blocks, after over before."""
    # The bootstrap's percentiles of 2,000 ratios of medians of blocks drawn with replacement (Efron
    # and Tibshirani, An Introduction to the Bootstrap, chapter 13). Each draw is used for either
    # run in turn, so that exchanging the runs turns the interval round exactly.
    if min(len(before), len(after)) < 2:
        nothing = np.full(before.shape[1], np.nan)
        return nothing, nothing
    first = [_resampled(blocks, _SEEDS[0]) for blocks in (before, after)]
    second = [_resampled(blocks, _SEEDS[1]) for blocks in (before, after)]
    drawn = np.concatenate(
        [log_ratio(first[0], second[1]), log_ratio(second[0], first[1])], dtype=np.float64
    )
    tail = (1 - CONFIDENCE) / 2 * 100
    unknown = np.isnan(drawn).any(axis=0)
    low, high = np.percentile(np.where(unknown, 0.0, drawn), [tail, 100 - tail], axis=0)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def _resampled(blocks: Floats, seed: int) -> Floats:
    """Medians of blocks that are drawn with replacement, (resamples, columns)."""
    # They follow from how often each value is drawn: the values are sorted once, and the median
    # stands where the running count passes the half.
    count = len(blocks)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_HALF_RESAMPLES)
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


def judge_runs(before_ns: Ints, after_ns: Ints, run_spread: Floats, shift: Floats) -> Judged:
    # Two tests must both find a difference, so the larger p-value counts: Mann and Whitney's on the
    # blocks, for noise within the runs, and Student's on the log ratio without the machine's part,
    # whose variance is that of the bootstrap and that from run to run together.
    blocks = block_medians(before_ns), block_medians(after_ns)
    ratios = log_ratio(np.median(before_ns, axis=0), np.median(after_ns, axis=0))
    low, high = log_intervals(*blocks)
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


@dataclass(frozen=True)
class Judge:
    min_effect: float  #: The least change that matters, as a fraction.
    ends: tuple[
        float, float
    ]  #: Between which ratios the machine itself may have changed the times.
    several: bool  #: Whether there are several runs of a side.
    window_s: float  #: What the clock can tell apart of a layer.

    def layers(
        self, before: Sequence[Ints], after: Sequence[Ints], groups: Groups
    ) -> tuple[pd.DataFrame, float]:
        """Times, ratios and verdicts of layers, and how ratios spread from run to run."""
        # What the machine accounts for is what layers of one function and shape have in common, as
        # far as its own work was as much slower or faster, and as far as runs differ by chance.
        times = medians_ns(before), medians_ns(after)
        ratios = log_ratio(*times)
        common, more = common_part(ratios, groups)
        low, high = np.log(self.ends)
        if self.several:
            logs = [_run_logs(runs) for runs in (before, after)]
            parts = [_run_parts(side, groups) for side in logs]
            # What the runs of a side differ by in common, the sides differ by as well.
            error = np.sqrt(repeated_variance(*parts) * sum(1 / len(part) for part in parts))
            usual = t_quantile(len(before) + len(after) - 2) * error
            shift = np.clip(common, np.minimum(low, -usual), np.maximum(high, usual))
            judged = judge_repeated(
                logs[0] - parts[0], logs[1] - parts[1], shift, groups.function, more
            )
            half = (judged.high - judged.low)[np.isfinite(ratios)] / 2
            typical = float(np.median(half)) if len(half) else 0.0
        else:
            run_spread = spread(ratios, groups, np.minimum(*times), max(high, -low))
            usual = t_quantile(DEGREES) * COMMON_SPREAD
            shift = np.clip(common, min(low, -usual), max(high, usual))
            judged = judge_runs(before[0], after[0], run_spread, shift)
            typical = float(np.median(run_spread))
        table = self._table(times, judged, discovery_corrected(judged.p_value), self.window_s)
        if self._too_few(before, after):
            table["verdict"] = UNKNOWN
        return table, typical

    def totals(self, before: Sequence[Ints], after: Sequence[Ints]) -> pd.DataFrame:
        """The same of one column, a total; the machine accounts for all that it can."""
        before, after = ([samples[:, None] for samples in side] for side in (before, after))
        times = medians_ns(before), medians_ns(after)
        shift = np.clip(log_ratio(*times), *np.log(self.ends))
        if self.several:
            judged = judge_repeated(_run_logs(before), _run_logs(after), shift)
        else:
            judged = judge_runs(before[0], after[0], np.full(1, COMMON_SPREAD), shift)
        table = self._table(times, judged, judged.p_value, 0.0)
        differs = self._matters(judged.log_ratio) & ((judged.low > 0) | (judged.high < 0))
        table.loc[differs & (table["verdict"] == SAME), "verdict"] = UNCLEAR
        if self._too_few(before, after):
            table["verdict"] = UNKNOWN
        return table

    def _too_few(self, before: Sequence[Ints], after: Sequence[Ints]) -> bool:
        return not self.several and min(len(before[0]), len(after[0])) < MIN_TRIALS

    def _matters(self, log_ratio: Floats) -> NDArray[np.bool_]:
        matters: NDArray[np.bool_] = np.abs(log_ratio) > np.log1p(self.min_effect)
        return matters

    def _table(
        self, times: tuple[Floats, Floats], judged: Judged, p_values: Floats, window_s: float
    ) -> pd.DataFrame:
        """Times, ratios and verdicts. The interval holds what the machine may account for."""
        low = judged.low - np.maximum(judged.shift, 0)
        high = judged.high - np.minimum(judged.shift, 0)
        significant = (
            (p_values < LEVEL)
            & self._matters(judged.log_ratio)
            & self._matters(judged.log_ratio - judged.shift)
            & ((low > 0) | (high < 0))
            & (np.abs(times[1] - times[0]) * NS > window_s)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = times[1] / times[0]
        changed = np.where(judged.log_ratio > 0, SLOWER, FASTER)
        return pd.DataFrame(
            {
                "before_s": times[0] * NS,
                "after_s": times[1] * NS,
                "ratio": ratio,
                "low": np.exp(low),
                "high": np.exp(high),
                "p_value": p_values,
                "verdict": np.where(significant, changed, SAME),
            }
        )


def medians_ns(runs: Sequence[Ints]) -> Floats:
    """Medians of the columns of samples, (columns,); of several runs their geometric mean."""
    medians = np.array([np.median(samples, axis=0) for samples in runs])
    if len(medians) == 1:
        single: Floats = medians[0]
        return single
    timed = (medians > 0).all(axis=0)
    logs = np.log(np.where(timed, medians, 1.0))
    means: Floats = np.where(timed, np.exp(logs.mean(axis=0)), medians.mean(axis=0))
    return means


def _run_logs(runs: Sequence[Ints]) -> Floats:
    """Logarithms of the medians of runs, (runs, columns); NaN of those that are not above 0."""
    medians = np.array([np.median(samples, axis=0) for samples in runs])
    return log_ratio(np.ones_like(medians), medians)


def _run_parts(logs: Floats, groups: Groups) -> Floats:
    """What each run's layers have in common beyond the average of the runs, (runs, columns)."""
    # Of few layers that would be what each of them is.
    if logs.shape[1] < MIN_COMMON:
        return np.zeros_like(logs)
    return np.array([common_part(row - logs.mean(axis=0), groups)[0] for row in logs])
