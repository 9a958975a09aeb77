"""Which layers take longer on one rank than on the others, and which ranks are slow everywhere.

In every iteration a layer's time on a rank is set against the median of the other ranks' times, so
what the data make slow on all of them at once counts for nobody. Processes differ for as long as
they live (see :mod:`chainer_profile.comparison.significance`), so a layer straggles only where the
logarithm of its ratio, without what the rank's layers have in common, is beyond what layers scatter
by. That scatter is the one of a rank's layers of the same function together with that of
the layer over the ranks, each worth half a degree of freedom a value; p-values are corrected for
all layers of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr

from chainer_profile.basics.describe import NS, median_interval
from chainer_profile.comparison.compare import MIN_EFFECT, MIN_TRIALS, layer_groups
from chainer_profile.comparison.significance import (
    COMMON_SPREAD,
    DEGREES,
    LEVEL,
    MIN_COMMON,
    MIN_GROUP,
    block_medians,
    common_part,
    discovery_corrected,
    log_ratio,
    spread,
    t_quantile,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from chainer_profile.record.recording import Layer

#: What is less than this part of an iteration is not worth a finding.
LEAST_SHARE = 0.002
#: Degrees of freedom that a value is worth in a spread that outliers do not move.
WORTH = 0.5
#: What processes usually differ by in all their layers, as a logarithm.
_USUAL = float(t_quantile(DEGREES)) * COMMON_SPREAD


@dataclass(frozen=True)
class Straggler:
    """A layer that takes longer on one rank than on the others. Times are medians in seconds.

    Attributes:
        rank: Place of the rank among those that are there.
        layer: Index of the layer.
        here_s: Its time on that rank.
        elsewhere_s: Its time on the others; of a slow rank multiplied by that rank's factor.
        excess_s: The median of the difference in every iteration.
        low_s: Lower end of its 95 % interval; NaN for fewer than 6 iterations.
        high_s: Upper end.
        p_value: One-sided, corrected for all layers of all ranks.
    """

    rank: int
    layer: int
    here_s: float
    elsewhere_s: float
    excess_s: float
    low_s: float
    high_s: float
    p_value: float


@dataclass(frozen=True)
class SlowRank:
    """A rank on which most layers take longer, by about the same factor: a slow machine.

    Attributes:
        rank: Place of the rank among those that are there.
        factor: What its median layer takes, over the others' time.
        excess_s: What its layers take in an iteration beyond the others' speed, in seconds.
    """

    rank: int
    factor: float
    excess_s: float


@dataclass(frozen=True, eq=False)
class Judged:
    """What was found, with the times of every layer on every rank.

    Attributes:
        here_s: Median times, (ranks, layers).
        elsewhere_s: Median times on the other ranks, (ranks, layers).
        excess_s: Median differences, (ranks, layers).
        stragglers: The layers that straggle, the longest excess first.
        slow: The ranks that are slow everywhere, the slowest first.
        judged: Whether the iterations are enough for verdicts.
    """

    here_s: NDArray[np.float64]
    elsewhere_s: NDArray[np.float64]
    excess_s: NDArray[np.float64]
    stragglers: tuple[Straggler, ...]
    slow: tuple[SlowRank, ...]
    judged: bool


def judge(
    self_ns: NDArray[np.int64],
    layers: Sequence[Layer],
    iteration_s: float,
    window_s: float,
) -> Judged:
    """Find stragglers and slow ranks.

    Args:
        self_ns: Self times, (ranks, iterations, layers).
        layers: The layers.
        iteration_s: Time of an iteration.
        window_s: What the clock can tell apart.
    """
    n_ranks, count, width = self_ns.shape
    here = np.median(self_ns, axis=1) * NS
    if n_ranks < 2:
        unknown = np.full_like(here, np.nan)
        return Judged(here, unknown, unknown, (), (), False)
    others_ns = elsewhere(self_ns)
    others = np.median(others_ns, axis=1) * NS / 2
    excess = np.median(2 * self_ns - others_ns, axis=1) * NS / 2
    if count < MIN_TRIALS or not width:
        return Judged(here, others, excess, (), (), False)
    logs, errors = _ratios(self_ns, others_ns)
    groups = layer_groups(layers)
    common = np.zeros(n_ranks)
    if width >= MIN_COMMON:
        common = np.nan_to_num(np.nanmedian(logs, axis=1))
    quarter = np.nan_to_num(np.nanpercentile(np.where(np.isnan(logs), 0.0, logs), 25, axis=1))
    is_slow = (common > _USUAL) & (quarter > common / 2)
    beyond = logs - common[:, None]
    shift = np.clip([common_part(row, groups) for row in beyond], -_USUAL, _USUAL)
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
    found = []
    for rank, layer in np.argwhere((p_values < LEVEL) & (effect > np.log1p(MIN_EFFECT))):
        apart = (self_ns[rank, :, layer] - others_ns[rank, :, layer] / 2 * factor[rank]) * NS
        if np.median(apart) > least:
            found.append(
                Straggler(
                    int(rank),
                    int(layer),
                    float(here[rank, layer]),
                    float(others[rank, layer] * factor[rank]),
                    float(np.median(apart)),
                    *median_interval(apart),
                    float(p_values[rank, layer]),
                )
            )
    slow = [
        SlowRank(int(rank), float(factor[rank]), float(here[rank].sum() * (1 - 1 / factor[rank])))
        for rank in np.flatnonzero(is_slow)
    ]
    return Judged(
        here,
        others,
        excess,
        tuple(sorted(found, key=lambda one: -one.excess_s)),
        tuple(sorted(slow, key=lambda one: -one.factor)),
        True,
    )


def elsewhere(values: NDArray[np.int64]) -> NDArray[np.int64]:
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
    found: NDArray[np.int64] = sum(
        np.where(at < place, ordered[at], ordered[at + 1]) for at in (lower, upper)
    )
    return found


def _ratios(
    here_ns: NDArray[np.int64], twice_others_ns: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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


def _half_spread(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation over the ranks by their shortest half, which stragglers do not move."""
    count = len(logs)
    if count < 3:
        return np.zeros(logs.shape[1])
    half = (count + 1) // 2
    ordered = np.sort(logs, axis=0)
    length = (ordered[half - 1 :] - ordered[: count - half + 1]).min(axis=0)
    # That of the normal distribution's half; of few ranks the shortest is shorter by chance.
    found: NDArray[np.float64] = np.nan_to_num(length / 1.349 * count / (count - 2))
    return found
