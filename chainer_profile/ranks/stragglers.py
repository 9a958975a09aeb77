"""Find stragglers, which are layers that take longer on one rank than on the others; slow ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from chainer_profile.basics.describe import CONFIDENCE, NS, median_interval
from chainer_profile.comparison.compare import MIN_EFFECT, layer_groups
from chainer_profile.comparison.significance import (
    COMMON_SPREAD,
    DEGREES,
    LEVEL,
    MIN_COMMON,
    MIN_GROUP,
    MIN_TRIALS,
    Floats,
    Groups,
    Ints,
    block_times,
    common_part,
    discovery_corrected,
    log_ratio,
    n_blocks,
    spread,
    t_quantile,
)
from chainer_profile.record.recording import Layer

# In each iteration, a layer's time on a rank is compared with the median of the other ranks. So
# data that slow all ranks at once do not count.
#
# A process differs from others during its whole life (comparison/significance.py). So a layer is a
# straggler only if its log ratio, minus the common part of the rank's layers, exceeds the scatter.
# The scatter is estimated from the rank's layers of the same function and from the layer on all
# ranks; each value adds half a degree of freedom. p-values are corrected for all layers and ranks.

#: A straggler must take longer by this fraction of an iteration.
MIN_SHARE = 0.002
#: Degrees of freedom per value of a robust estimate of a spread.
WORTH = 0.5
#: Layers of a rank share a factor if half of their log ratios are within this of the median.
_MAX_SPREAD_ALIKE = 0.1
#: Scores of differences are logarithmic above this fraction of an iteration.
_LINEAR_SHARE = 0.01
#: Fewest random permutations of the ranks, and number of resamples of a mean.
_EXCHANGES = 4000
#: Upper limit of the log factor by which all layers of two processes usually differ.
_USUAL = float(t_quantile(DEGREES)) * COMMON_SPREAD


@dataclass(frozen=True)
class Straggler:
    """A layer that takes longer on one rank than on the others. Times are medians in seconds."""

    rank: int  #: Index of the rank among the recorded ones.
    layer: int  #: Index of the layer.
    here_s: float
    elsewhere_s: float  #: Time on the other ranks, multiplied by the factor of a slow rank.
    excess_s: float  #: Median difference in an iteration.
    low_s: float  #: Lower end of its 95 % interval; NaN for fewer than 6 iterations.
    high_s: float
    p_value: float  #: One-sided, corrected for all layers of all ranks.
    mean_s: float  #: Mean difference.
    late_s: float  #: Difference of the 95th percentiles.
    at_times: bool = (
        False  #: Whether it is slow in some iterations only; the interval is the mean's.
    )

    @property
    def costs_s(self) -> float:
        """Additional time per iteration."""
        return self.mean_s if self.at_times else self.excess_s


@dataclass(frozen=True)
class SlowRank:
    """A rank on which most layers take longer by about the same factor, as on a slow machine."""

    rank: int  #: Index of the rank among the recorded ones.
    factor: float  #: Median ratio of its layers' times to the other ranks' times.
    excess_s: float  #: Additional time of its layers per iteration.


@dataclass(frozen=True, eq=False)
class Judged:
    """Stragglers and slow ranks, with the times of all layers on all ranks, (ranks, layers).

    The times are NaN if there is one rank.
    """

    elsewhere_s: Floats  #: Median times on the other ranks.
    excess_s: Floats  #: Median differences.
    mean_s: Floats  #: Mean differences.
    late_s: Floats  #: Differences of the 95th percentiles.
    stragglers: tuple[Straggler, ...] = ()  #: The longest excess first.
    slow: tuple[SlowRank, ...] = ()  #: The slowest first.
    judged: bool = False  #: Whether there are enough iterations for verdicts.


def judge(self_ns: Ints, layers: Sequence[Layer], iteration_s: float, window_s: float) -> Judged:
    """Find stragglers and slow ranks.

    Args:
        self_ns: Self times, (ranks, iterations, layers).
        layers: The layers, which are the same on all ranks.
        iteration_s: Time of an iteration.
        window_s: Time that an empty layer shows; smaller differences are ignored.
    """
    n_ranks, count, width = self_ns.shape
    here_s = np.median(self_ns, axis=1) * NS
    if n_ranks < 2:
        unknown = np.full_like(here_s, np.nan)
        return Judged(unknown, unknown, unknown, unknown)
    others_ns = twice_median_elsewhere(self_ns)
    times = _compared_with_others(self_ns, others_ns)
    if count < MIN_TRIALS or not width:
        return times
    logs, errors = _ratios(self_ns, others_ns)
    common, is_slow = _common_to_layers(logs)
    factors = np.where(is_slow, np.exp(common), 1.0)

    def stragglers_at(
        found: NDArray[np.bool_], p_values: Floats, at_times: bool
    ) -> Iterator[Straggler]:
        for rank, layer in np.argwhere(found).tolist():
            twice_expected_ns = others_ns[rank, :, layer] * factors[rank]
            differences_s = (self_ns[rank, :, layer] - twice_expected_ns / 2) * NS
            yield Straggler(
                rank,
                layer,
                float(here_s[rank, layer]),
                float(times.elsewhere_s[rank, layer] * factors[rank]),
                float(np.median(differences_s)),
                *(_mean_interval(differences_s) if at_times else median_interval(differences_s)),
                float(p_values[rank, layer]),
                float(differences_s.mean()),
                float(times.late_s[rank, layer]),
                at_times,
            )

    min_s = max(MIN_SHARE * iteration_s, window_s)
    shortest_ns = np.minimum(here_s, times.elsewhere_s) / NS
    effects, p_values = _always(logs - common[:, None], errors, shortest_ns, layer_groups(layers))
    always = (p_values < LEVEL) & (effects > np.log1p(MIN_EFFECT))
    candidates = stragglers_at(always, p_values, at_times=False)
    stragglers = [straggler for straggler in candidates if straggler.excess_s > min_s]
    costs_s, p_values = _at_times(self_ns, iteration_s)
    at_times = (p_values < LEVEL) & (costs_s > np.maximum(min_s, MIN_EFFECT * here_s))
    for straggler in stragglers:
        at_times[straggler.rank, straggler.layer] = False
    stragglers += stragglers_at(at_times, p_values, at_times=True)
    slow = _slow_ranks(is_slow, factors, here_s)
    return replace(
        times,
        stragglers=tuple(sorted(stragglers, key=lambda item: -item.costs_s)),
        slow=tuple(sorted(slow, key=lambda item: -item.factor)),
        judged=True,
    )


def _compared_with_others(self_ns: Ints, others_ns: Ints) -> Judged:
    """Compare times with twice the times on the other ranks, (ranks, iterations, layers) both."""
    differences_ns = 2 * self_ns - others_ns
    late_ns = np.rint(np.percentile(self_ns, 95, axis=1)).astype(np.int64)
    return Judged(
        elsewhere_s=np.median(others_ns, axis=1) * NS / 2,
        excess_s=np.median(differences_ns, axis=1) * NS / 2,
        mean_s=differences_ns.mean(axis=1) * NS / 2,
        late_s=(late_ns - twice_median_elsewhere(late_ns) / 2) * NS,
    )


def _slow_ranks(is_slow: NDArray[np.bool_], factors: Floats, here_s: Floats) -> list[SlowRank]:
    """The slow ranks with their factors, (ranks,), and additional times."""
    return [
        SlowRank(rank, float(factors[rank]), float(here_s[rank].sum() * (1 - 1 / factors[rank])))
        for rank in np.flatnonzero(is_slow).tolist()
    ]


def _common_to_layers(logs: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The median log ratio of each rank's layers, and whether the rank is slow, (ranks,) each.

    The median is 0 if the rank's layers do not have similar ratios. ``logs`` are the layers' log
    ratios, (ranks, layers).
    """
    common = np.zeros(len(logs))
    if logs.shape[1] >= MIN_COMMON:
        common = np.nan_to_num(np.nanmedian(logs, axis=1))
    distances = np.abs(logs - common[:, None])
    similar = np.nan_to_num(np.nanmedian(distances, axis=1)) < _MAX_SPREAD_ALIKE
    quarter = np.percentile(np.nan_to_num(logs), 25, axis=1)
    return np.where(similar, common, 0.0), similar & (common > _USUAL) & (quarter > common / 2)


def _always(
    logs: Floats, errors: Floats, shortest_ns: Floats, groups: Groups
) -> tuple[Floats, Floats]:
    """Log factors by which layers take longer in all iterations, and corrected p-values.

    The results, and the first three arguments, have the shape (ranks, layers). ``logs`` are log
    ratios without the factor of a slow rank, ``errors`` their standard errors.
    """
    shift = np.clip([common_part(row, groups)[0] for row in logs], -_USUAL, _USUAL)
    scatter = np.median(
        [spread(row, groups, times) for row, times in zip(logs, shortest_ns, strict=True)], axis=0
    )
    layer_counts = np.bincount(groups.function)[groups.function]
    function_degrees = np.where(
        layer_counts < MIN_GROUP, DEGREES, np.minimum(WORTH * layer_counts, DEGREES)
    )
    rank_degrees = WORTH * (len(logs) - 2)
    degrees = function_degrees + rank_degrees
    variance = (function_degrees * scatter**2 + rank_degrees * _half_spread(logs) ** 2) / degrees
    effects = logs - shift
    p_values = stdtr(degrees, -effects / np.hypot(errors, np.sqrt(variance)))
    corrected = discovery_corrected(np.where(np.isnan(p_values), 1.0, p_values).ravel())
    return effects, corrected.reshape(logs.shape)


def _at_times(self_ns: Ints, iteration_s: float) -> tuple[Floats, Floats]:
    """Mean delays per iteration in seconds of layers that are slow at times, and p-values.

    A delay that the rank's other layers have as well is subtracted. The p-values are corrected for
    all layers of all ranks. Both results have the shape (ranks, layers).
    """
    # A layer that is slow in some iterations has the usual median, but large differences above it.
    # If all ranks were equal, each time of an iteration would be equally likely on each rank. So a
    # rank is drawn at random for each block of iterations, and a layer is slow at times if hardly
    # any draw gives any layer as large a mean. Comparing with the largest mean of all layers
    # corrects for their number (Westfall and Young, Resampling-Based Multiple Testing, 1993).
    n_ranks = len(self_ns)
    medians = np.median(self_ns, axis=1, keepdims=True)
    above = np.rint(self_ns - medians).astype(np.int64)
    differences = (above - twice_median_elsewhere(above) / 2) * NS
    medians_s = medians[:, 0] * NS
    delays = np.maximum(differences.mean(axis=1), 0)
    others_s = medians_s.sum(axis=1, keepdims=True) - medians_s
    other_delays = delays.sum(axis=1, keepdims=True) - delays
    share = np.divide(other_delays, others_s, out=np.zeros_like(others_s), where=others_s > 0)
    expected = medians_s * share
    scores = _blocks(_score(differences - expected[:, None], iteration_s)).mean(axis=1)
    rank_blocks = _blocks(_score(differences, iteration_s))
    blocks = np.ascontiguousarray(rank_blocks.swapaxes(0, 1))
    rng, block_indices = np.random.default_rng(0), np.arange(len(blocks))
    draws = rng.integers(n_ranks, size=(max(_EXCHANGES, 40 * n_ranks), len(blocks)))
    # The largest mean of any layer, for each draw.
    largest = np.array([blocks[block_indices, ranks].mean(axis=0).max() for ranks in draws])
    # The tolerance ignores rounding errors of sums in another order.
    as_large = len(largest) - np.searchsorted(np.sort(largest), scores - 1e-9)
    p_values = np.minimum(n_ranks * (1 + as_large) / (1 + len(largest)), 1.0)
    return differences.mean(axis=1) - expected, p_values


def _mean_interval(values: Floats) -> tuple[float, float]:
    """95 % bootstrap interval of a mean; NaN for fewer than 6 values, as for a median."""
    if len(values) < 6:
        return float("nan"), float("nan")
    means = np.random.default_rng(0).choice(values, (_EXCHANGES, len(values))).mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _score(differences_s: Floats, iteration_s: float) -> Floats:
    """Scale differences logarithmically, so that one long pause does not dominate their mean."""
    scale_s = max(_LINEAR_SHARE * iteration_s, NS)
    score: Floats = np.sign(differences_s) * np.log1p(np.abs(differences_s) / scale_s)
    return score


def _blocks(scores: Floats) -> Floats:
    """Average blocks of successive iterations, because these are not independent.

    (ranks, iterations, layers) becomes (ranks, blocks, layers).
    """
    ranks, count, layers = scores.shape
    blocks = n_blocks(count)
    length = count // blocks
    last = scores[:, count - blocks * length :]
    means: Floats = last.reshape(ranks, blocks, length, layers).mean(axis=2)
    return means


def twice_median_elsewhere(values: Ints) -> Ints:
    """Twice the median of the other ranks' values, for each rank; both shapes are (ranks, ...).

    Twice the median is a whole number, also for an even number of other ranks.
    """
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    position = np.argsort(order, axis=0)
    # Without the rank's value, all larger values move up by one position.
    lower, upper = (count - 2) // 2, (count - 1) // 2
    twice: Ints = sum(
        np.where(at < position, ordered[at], ordered[at + 1]) for at in (lower, upper)
    )
    return twice


def _ratios(here_ns: Ints, twice_others_ns: Ints) -> tuple[Floats, Floats]:
    """Median log ratios of the layers and their standard errors, (ranks, layers) each."""
    ranks, count, layers = here_ns.shape
    sides = [
        block_times(np.moveaxis(times, 1, 0).reshape(count, -1))
        for times in (twice_others_ns, 2 * here_ns)
    ]
    logs = log_ratio(*sides)
    medians = np.median(logs, axis=0)
    # The standard error of a median, estimated from the median absolute deviation.
    error = 1.2533 * 1.4826 * np.median(np.abs(logs - medians), axis=0) / np.sqrt(len(logs))
    return medians.reshape(ranks, layers), error.reshape(ranks, layers)


def _half_spread(logs: Floats) -> Floats:
    """Standard deviation over the ranks, (layers,), estimated so that stragglers do not affect it.

    The estimate is proportional to the length of the shortest interval with half of the ranks.
    """
    count = len(logs)
    if count < 3:
        return np.zeros(logs.shape[1])
    half = (count + 1) // 2
    ordered = np.sort(logs, axis=0)
    length = (ordered[half - 1 :] - ordered[: count - half + 1]).min(axis=0)
    # 1.349 standard deviations contain half of a normal distribution. The shortest of few intervals
    # is too short by chance, which count / (count - 2) corrects.
    deviation: Floats = np.nan_to_num(length / 1.349 * count / (count - 2))
    return deviation
