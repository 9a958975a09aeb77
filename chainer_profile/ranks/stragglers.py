"""Which layers take longer on one rank than on the others, and which ranks are slow everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
    Ints,
    block_medians,
    common_part,
    discovery_corrected,
    log_ratio,
    n_blocks,
    spread,
    t_quantile,
)
from chainer_profile.record.recording import Layer

# In every iteration a layer's time on a rank is set against the median of the other ranks' times,
# so what the data make slow on all of them at once counts for nobody. Processes differ for as long
# as they live (comparison/significance.py), so a layer straggles only where the logarithm of its
# ratio, without what the rank's layers have in common, is beyond what layers scatter by. That
# scatter is the one of a rank's layers of the same function together with that of the layer over
# the ranks, each worth half a degree of freedom a value; p-values are corrected for all layers of
# all ranks.

#: What is less than this part of an iteration is not worth a finding.
LEAST_SHARE = 0.002
#: Degrees of freedom that a value is worth in a spread that outliers do not move.
WORTH = 0.5
#: Layers of a rank are slow alike where half of them are not further from what they have in common.
_ALIKE = 0.1
#: Differences below this part of an iteration are about as good as none.
_SMALL = 0.01
#: Times that ranks are exchanged; more for more than 100 ranks.
_EXCHANGES = 4000
#: What processes usually differ by in all their layers, as a logarithm.
_USUAL = float(t_quantile(DEGREES)) * COMMON_SPREAD


@dataclass(frozen=True)
class Straggler:
    """A layer that takes longer on one rank than on the others. Times are medians in seconds."""

    rank: int  #: Place of the rank among those that are there.
    layer: int
    here_s: float
    elsewhere_s: float  #: On the others; of a slow rank multiplied by that rank's factor.
    excess_s: float  #: The median of the difference in every iteration.
    low_s: float  #: Lower end of its 95 % interval; NaN for fewer than 6 iterations.
    high_s: float
    p_value: float  #: One-sided, corrected for all layers of all ranks.
    mean_s: float  #: The mean of the difference.
    late_s: float  #: The difference of the 95th percentiles.
    at_times: bool = False  #: Slow in some iterations only: the interval is that of the mean.

    @property
    def costs_s(self) -> float:
        """What it takes longer in an iteration."""
        return self.mean_s if self.at_times else self.excess_s


@dataclass(frozen=True)
class SlowRank:
    """A rank on which most layers take longer, by about the same factor: a slow machine."""

    rank: int  #: Place of the rank among those that are there.
    factor: float  #: What its median layer takes, over the others' time.
    excess_s: float  #: What its layers take in an iteration beyond the others' speed.


@dataclass(frozen=True, eq=False)
class Judged:
    """What was found, with the times of every layer on every rank, (ranks, layers) each."""

    elsewhere_s: Floats  #: Median times on the other ranks.
    excess_s: Floats  #: Median differences.
    mean_s: Floats  #: Mean differences.
    late_s: Floats  #: Differences of the 95th percentiles.
    stragglers: tuple[Straggler, ...]  #: The longest excess first.
    slow: tuple[SlowRank, ...]  #: The slowest first.
    judged: bool  #: Whether the iterations are enough for verdicts.


def judge(self_ns: Ints, layers: Sequence[Layer], iteration_s: float, window_s: float) -> Judged:
    """Find stragglers and slow ranks by the layers' self times, (ranks, iterations, layers)."""
    n_ranks, count, width = self_ns.shape
    here = np.median(self_ns, axis=1) * NS
    if n_ranks < 2:
        unknown = np.full_like(here, np.nan)
        return Judged(unknown, unknown, unknown, unknown, (), (), False)
    others_ns = elsewhere(self_ns)
    others = np.median(others_ns, axis=1) * NS / 2
    apart_ns = 2 * self_ns - others_ns
    excess, mean = (of(apart_ns, axis=1) * NS / 2 for of in (np.median, np.mean))
    late_ns = np.rint(np.percentile(self_ns, 95, axis=1)).astype(np.int64)
    late = (late_ns - elsewhere(late_ns) / 2) * NS
    times = others, excess, mean, late
    if count < MIN_TRIALS or not width:
        return Judged(*times, (), (), False)
    logs, errors = _ratios(self_ns, others_ns)
    groups = layer_groups(layers)
    common = np.zeros(n_ranks)
    if width >= MIN_COMMON:
        common = np.nan_to_num(np.nanmedian(logs, axis=1))
    quarter = np.nan_to_num(np.nanpercentile(np.where(np.isnan(logs), 0.0, logs), 25, axis=1))
    distances = np.abs(logs - common[:, None])
    alike = np.nan_to_num(np.nanmedian(distances, axis=1)) < _ALIKE
    is_slow = alike & (common > _USUAL) & (quarter > common / 2)
    beyond = logs - np.where(alike, common, 0.0)[:, None]
    shift = np.clip([common_part(row, groups)[0] for row in beyond], -_USUAL, _USUAL)
    shortest = np.minimum(here, others) / NS
    scatter = np.array([spread(row, groups, t) for row, t in zip(beyond, shortest, strict=True)])
    scatter = np.median(scatter, axis=0)
    alike = np.bincount(groups.function)[groups.function]
    known = np.where(alike < MIN_GROUP, DEGREES, np.minimum(WORTH * alike, DEGREES))
    more = WORTH * (n_ranks - 2)
    degrees = known + more
    measured = _half_spread(beyond)
    variance = (known * scatter**2 + more * measured**2) / degrees
    effect = beyond - shift
    p_values = stdtr(degrees, -effect / np.hypot(errors, np.sqrt(variance)))
    p_values = discovery_corrected(np.where(np.isnan(p_values), 1.0, p_values).ravel())
    p_values = p_values.reshape(effect.shape)
    factor = np.where(is_slow, np.exp(common), 1.0)
    least = max(LEAST_SHARE * iteration_s, window_s)
    found = {}

    def straggler(rank: int, layer: int, p_value: float, at_times: bool) -> Straggler:
        apart = (self_ns[rank, :, layer] - others_ns[rank, :, layer] / 2 * factor[rank]) * NS
        return Straggler(
            rank,
            layer,
            float(here[rank, layer]),
            float(others[rank, layer] * factor[rank]),
            float(np.median(apart)),
            *(_mean_interval(apart) if at_times else median_interval(apart)),
            p_value,
            float(apart.mean()),
            float(late[rank, layer]),
            at_times,
        )

    for rank, layer in np.argwhere((p_values < LEVEL) & (effect > np.log1p(MIN_EFFECT))).tolist():
        one = straggler(rank, layer, float(p_values[rank, layer]), at_times=False)
        if one.excess_s > least:
            found[rank, layer] = one
    costs, p_values = _at_times(self_ns, iteration_s)
    large = costs > np.maximum(least, MIN_EFFECT * here)
    for rank, layer in np.argwhere((p_values < LEVEL) & large).tolist():
        if (rank, layer) not in found:
            one = straggler(rank, layer, float(p_values[rank, layer]), at_times=True)
            found[rank, layer] = one
    slow = [
        SlowRank(int(rank), float(factor[rank]), float(here[rank].sum() * (1 - 1 / factor[rank])))
        for rank in np.flatnonzero(is_slow)
    ]
    return Judged(
        *times,
        tuple(sorted(found.values(), key=lambda one: -one.costs_s)),
        tuple(sorted(slow, key=lambda one: -one.factor)),
        True,
    )


def _at_times(self_ns: Ints, iteration_s: float) -> tuple[Floats, Floats]:
    """What layers take longer on a rank than usually there, in seconds an iteration, and p-values.

    Beyond what holds up the rank's other layers as well; corrected for all layers of all ranks.
    """
    # Medians do not show a layer that is slow in some iterations only: what its times are above
    # their median does. Were they the same on all ranks, each rank would have any of the times of
    # an iteration equally often. So ranks are exchanged at random in every iteration, and a layer
    # is slow at times where hardly any exchange gives any layer as much (Westfall and Young,
    # Resampling-Based Multiple Testing, 1993: the largest of all layers corrects for their number).
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
    """Differences that count less the larger they are, so that one pause does not hide the rest."""
    scale_s = max(_SMALL * iteration_s, NS)
    found: Floats = np.sign(apart_s) * np.log1p(np.abs(apart_s) / scale_s)
    return found


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
    place = np.empty_like(order)
    np.put_along_axis(
        place, order, np.arange(count).reshape((-1, *[1] * (values.ndim - 1))), axis=0
    )
    # Without the rank's own value those behind it move up by one.
    lower, upper = (count - 2) // 2, (count - 1) // 2
    found: Ints = sum(np.where(at < place, ordered[at], ordered[at + 1]) for at in (lower, upper))
    return found


def _ratios(here_ns: Ints, twice_others_ns: Ints) -> tuple[Floats, Floats]:
    """Logarithms of the layers' ratios, and their standard errors by the iterations."""
    ranks, count, layers = here_ns.shape
    sides = [
        block_medians(np.moveaxis(times, 1, 0).reshape(count, -1))
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
    found: Floats = np.nan_to_num(length / 1.349 * count / (count - 2))
    return found
