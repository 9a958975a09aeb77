"""Stragglers, which are layers that take longer on a rank than elsewhere; and slow ranks."""

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

# In every iteration a layer's time on a rank is compared with the median of the other ranks' times,
# so that data which slow all ranks at once do not count. Processes differ for as long as they live
# (comparison/significance.py). So a layer straggles only if the logarithm of its ratio, without the
# part that the rank's layers have in common, exceeds the scatter of layers. That scatter is of the
# rank's layers of the same function and of the layer over the ranks, each value worth half a degree
# of freedom; p-values are corrected for all layers of all ranks.

#: Part of an iteration that a finding must exceed.
LEAST_SHARE = 0.002
#: Degrees of freedom of a value in a spread that outliers do not move.
WORTH = 0.5
#: A rank's layers are slow alike if half of them are within this of their common part, a logarithm.
_MAX_SPREAD_ALIKE = 0.1
#: Part of an iteration beyond which differences count by their logarithm.
_LINEAR_SHARE = 0.01
#: Random exchanges of ranks; more for more than 100 ranks.
_EXCHANGES = 4000
#: Logarithm of the factor by which processes usually differ in all their layers.
_USUAL = float(t_quantile(DEGREES)) * COMMON_SPREAD


@dataclass(frozen=True)
class Straggler:
    """A layer that takes longer on one rank than on the others. Times are medians in seconds."""

    rank: int  #: Place of the rank among the recorded ones.
    layer: int
    here_s: float
    elsewhere_s: float  #: On the others, multiplied by the rank's factor if it is slow.
    excess_s: float  #: Median difference in an iteration.
    low_s: float  #: Lower end of its 95 % interval; NaN for fewer than 6 iterations.
    high_s: float
    p_value: float  #: One-sided, corrected for all layers of all ranks.
    mean_s: float  #: Mean difference.
    late_s: float  #: Difference of the 95th percentiles.
    at_times: bool = False  #: Slow in some iterations only: the interval is that of the mean.

    @property
    def costs_s(self) -> float:
        """Additional time in an iteration."""
        return self.mean_s if self.at_times else self.excess_s


@dataclass(frozen=True)
class SlowRank:
    """A rank on which most layers take longer, by about the same factor: a slow machine."""

    rank: int  #: Place of the rank among the recorded ones.
    factor: float  #: Time of its median layer over the others' time.
    excess_s: float  #: Additional time of its layers in an iteration.


@dataclass(frozen=True, eq=False)
class Judged:
    """Stragglers and slow ranks, with the times of every layer on every rank, (ranks, layers)."""

    elsewhere_s: Floats  #: Median times on the other ranks.
    excess_s: Floats  #: Median differences.
    mean_s: Floats  #: Mean differences.
    late_s: Floats  #: Differences of the 95th percentiles.
    stragglers: tuple[Straggler, ...] = ()  #: The longest excess first.
    slow: tuple[SlowRank, ...] = ()  #: The slowest first.
    judged: bool = False  #: Whether the iterations are enough for verdicts.


def judge(self_ns: Ints, layers: Sequence[Layer], iteration_s: float, window_s: float) -> Judged:
    """Find stragglers and slow ranks by the layers' self times, (ranks, iterations, layers)."""
    n_ranks, count, width = self_ns.shape
    here_s = np.median(self_ns, axis=1) * NS
    if n_ranks < 2:
        unknown = np.full_like(here_s, np.nan)
        return Judged(unknown, unknown, unknown, unknown)
    others_ns = elsewhere(self_ns)
    apart_ns = 2 * self_ns - others_ns
    late_ns = np.rint(np.percentile(self_ns, 95, axis=1)).astype(np.int64)
    times = Judged(
        elsewhere_s=np.median(others_ns, axis=1) * NS / 2,
        excess_s=np.median(apart_ns, axis=1) * NS / 2,
        mean_s=apart_ns.mean(axis=1) * NS / 2,
        late_s=(late_ns - elsewhere(late_ns) / 2) * NS,
    )
    if count < MIN_TRIALS or not width:
        return times
    logs, errors = _ratios(self_ns, others_ns)
    common, is_slow = _common_to_layers(logs)
    factors = np.where(is_slow, np.exp(common), 1.0)

    def stragglers_at(
        places: NDArray[np.bool_], p_values: Floats, at_times: bool
    ) -> Iterator[Straggler]:
        for rank, layer in np.argwhere(places).tolist():
            apart_s = (self_ns[rank, :, layer] - others_ns[rank, :, layer] / 2 * factors[rank]) * NS
            yield Straggler(
                rank,
                layer,
                float(here_s[rank, layer]),
                float(times.elsewhere_s[rank, layer] * factors[rank]),
                float(np.median(apart_s)),
                *(_mean_interval(apart_s) if at_times else median_interval(apart_s)),
                float(p_values[rank, layer]),
                float(apart_s.mean()),
                float(times.late_s[rank, layer]),
                at_times,
            )

    least_s = max(LEAST_SHARE * iteration_s, window_s)
    shortest_ns = np.minimum(here_s, times.elsewhere_s) / NS
    effects, p_values = _always(logs - common[:, None], errors, shortest_ns, layer_groups(layers))
    always = (p_values < LEVEL) & (effects > np.log1p(MIN_EFFECT))
    every = stragglers_at(always, p_values, at_times=False)
    stragglers = [straggler for straggler in every if straggler.excess_s > least_s]
    costs_s, p_values = _at_times(self_ns, iteration_s)
    at_times = (p_values < LEVEL) & (costs_s > np.maximum(least_s, MIN_EFFECT * here_s))
    for straggler in stragglers:
        at_times[straggler.rank, straggler.layer] = False
    stragglers += stragglers_at(at_times, p_values, at_times=True)
    slow = [
        SlowRank(rank, float(factors[rank]), float(here_s[rank].sum() * (1 - 1 / factors[rank])))
        for rank in np.flatnonzero(is_slow).tolist()
    ]
    return replace(
        times,
        stragglers=tuple(sorted(stragglers, key=lambda item: -item.costs_s)),
        slow=tuple(sorted(slow, key=lambda item: -item.factor)),
        judged=True,
    )


def _common_to_layers(logs: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """What a rank's layers have in common, if they are slow alike, and whether the rank is slow.

    Logarithms of factors, (ranks,), of those of the layers' ratios, (ranks, layers).
    """
    common = np.zeros(len(logs))
    if logs.shape[1] >= MIN_COMMON:
        common = np.nan_to_num(np.nanmedian(logs, axis=1))
    distances = np.abs(logs - common[:, None])
    alike = np.nan_to_num(np.nanmedian(distances, axis=1)) < _MAX_SPREAD_ALIKE
    quarter = np.percentile(np.nan_to_num(logs), 25, axis=1)
    return np.where(alike, common, 0.0), alike & (common > _USUAL) & (quarter > common / 2)


def _always(
    logs: Floats, errors: Floats, shortest_ns: Floats, groups: Groups
) -> tuple[Floats, Floats]:
    """By how much, as a logarithm, layers take longer in all iterations, and p-values.

    Corrected for all layers of all ranks; (ranks, layers) each, like the arguments.
    """
    shift = np.clip([common_part(row, groups)[0] for row in logs], -_USUAL, _USUAL)
    scatter = np.median(
        [spread(row, groups, times) for row, times in zip(logs, shortest_ns, strict=True)], axis=0
    )
    of_function = np.bincount(groups.function)[groups.function]
    of_functions = np.where(
        of_function < MIN_GROUP, DEGREES, np.minimum(WORTH * of_function, DEGREES)
    )
    of_ranks = WORTH * (len(logs) - 2)
    degrees = of_functions + of_ranks
    variance = (of_functions * scatter**2 + of_ranks * _half_spread(logs) ** 2) / degrees
    effects = logs - shift
    p_values = stdtr(degrees, -effects / np.hypot(errors, np.sqrt(variance)))
    corrected = discovery_corrected(np.where(np.isnan(p_values), 1.0, p_values).ravel())
    return effects, corrected.reshape(logs.shape)


def _at_times(self_ns: Ints, iteration_s: float) -> tuple[Floats, Floats]:
    """Seconds an iteration by which layers exceed their median on a rank, and p-values.

    Without delays of the rank's other layers as well; corrected for all layers of all ranks.
    """
    # A layer that is slow in some iterations only has the same median, but larger differences above
    # it. If ranks were alike, each would have any of the times of an iteration equally often. So
    # ranks are exchanged at random in every iteration, and a layer is slow at times if hardly any
    # exchange gives any layer as much (Westfall and Young, Resampling-Based Multiple Testing, 1993:
    # the largest of all layers corrects for their number).
    n_ranks = len(self_ns)
    usual = np.median(self_ns, axis=1, keepdims=True)
    above = np.rint(self_ns - usual).astype(np.int64)
    apart = (above - elsewhere(above) / 2) * NS
    usual_s = usual[:, 0] * NS
    held_up = np.maximum(apart.mean(axis=1), 0)
    others_s = usual_s.sum(axis=1, keepdims=True) - usual_s
    of_others = held_up.sum(axis=1, keepdims=True) - held_up
    share = np.divide(of_others, others_s, out=np.zeros_like(others_s), where=others_s > 0)
    expected = usual_s * share
    scores = _blocks(_score(apart - expected[:, None], iteration_s)).mean(axis=1)
    exchanged = _blocks(_score(apart, iteration_s))
    blocks = np.ascontiguousarray(exchanged.swapaxes(0, 1))
    rng, every = np.random.default_rng(0), np.arange(len(blocks))
    exchanges = rng.integers(n_ranks, size=(max(_EXCHANGES, 40 * n_ranks), len(blocks)))
    # The largest mean of any layer on one rank, for each exchange.
    largest = np.array([blocks[every, chosen].mean(axis=0).max() for chosen in exchanges])
    # Sums of the same numbers in another order are as large.
    as_large = len(largest) - np.searchsorted(np.sort(largest), scores - 1e-9)
    p_values = np.minimum(n_ranks * (1 + as_large) / (1 + len(largest)), 1.0)
    return apart.mean(axis=1) - expected, p_values


def _mean_interval(values: Floats) -> tuple[float, float]:
    """95 % interval of a mean by the bootstrap; NaN for fewer than 6 values, as of a median."""
    if len(values) < 6:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).choice(values, (_EXCHANGES, len(values))).mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def _score(apart_s: Floats, iteration_s: float) -> Floats:
    """Differences that weigh less the larger they are, so that a pause does not hide the rest."""
    scale_s = max(_LINEAR_SHARE * iteration_s, NS)
    score: Floats = np.sign(apart_s) * np.log1p(np.abs(apart_s) / scale_s)
    return score


def _blocks(scores: Floats) -> Floats:
    """Means of blocks of successive iterations, which are not independent, (ranks, blocks, ...)."""
    ranks, count, layers = scores.shape
    blocks = n_blocks(count)
    length = count // blocks
    kept = scores[:, count - blocks * length :]
    means: Floats = kept.reshape(ranks, blocks, length, layers).mean(axis=2)
    return means


def elsewhere(values: Ints) -> Ints:
    """Twice the median of all other ranks' values, (ranks, ...), for values of that shape."""
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    place = np.argsort(order, axis=0)
    # Without the rank's own value, those after it move up by one.
    lower, upper = (count - 2) // 2, (count - 1) // 2
    twice: Ints = sum(np.where(at < place, ordered[at], ordered[at + 1]) for at in (lower, upper))
    return twice


def _ratios(here_ns: Ints, twice_others_ns: Ints) -> tuple[Floats, Floats]:
    """Logarithms of the layers' ratios, and their standard errors by the iterations."""
    ranks, count, layers = here_ns.shape
    sides = [
        block_times(np.moveaxis(times, 1, 0).reshape(count, -1))
        for times in (twice_others_ns, 2 * here_ns)
    ]
    logs = log_ratio(*sides)
    middle = np.median(logs, axis=0)
    # Of a median, by the median absolute deviation.
    error = 1.2533 * 1.4826 * np.median(np.abs(logs - middle), axis=0) / np.sqrt(len(logs))
    return middle.reshape(ranks, layers), error.reshape(ranks, layers)


def _half_spread(logs: Floats) -> Floats:
    """Standard deviation over the ranks by their shortest half, which stragglers do not move."""
    count = len(logs)
    if count < 3:
        return np.zeros(logs.shape[1])
    half = (count + 1) // 2
    ordered = np.sort(logs, axis=0)
    length = (ordered[half - 1 :] - ordered[: count - half + 1]).min(axis=0)
    # That of the normal distribution's half; of few ranks the shortest is shorter by chance.
    deviation: Floats = np.nan_to_num(length / 1.349 * count / (count - 2))
    return deviation
