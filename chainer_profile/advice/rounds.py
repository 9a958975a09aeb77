"""Blocks of iterations that took turns -> how many times as fast a change is, and its losses.

A round has a block of each variant. The rate of a variant is its time over its work, each added up
over the rounds: a mean, as only means add up to the program, and single slow iterations count.
The error of a ratio of two rates comes from the rounds, in which both met the same machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import NS, student_quantile
from chainer_profile.engines.results import Speedup

#: Rounds from which on there is an interval.
LEAST_ROUNDS = 3
#: Iterations whose work differs by less (standard deviation of blocks) have all the same.
_ALIKE = 0.01
#: Blocks that are fitted to measures of work, at least for each measure.
_BLOCKS_A_MEASURE = 4

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Block:
    """Iterations that ran one after the other with the same changes, without those left out."""

    round: int
    stage: int
    change: Change
    count: int = 0
    ns: int = 0
    work: Floats = field(default_factory=lambda: np.zeros(0))  #: Sums of any measures of it.
    loss: float = 0.0
    losses: int = 0  #: Iterations that had one.


@dataclass(frozen=True)
class LossChange:
    """By which part of the mean loss iterations with a change differ, and the 95 % interval."""

    part: float  #: NaN where a loss is no number.
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return math.isnan(self.part) or not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Compared:
    """A change held against another one, in the rounds that have both."""

    rounds: int
    speedup: Speedup
    before_s: float  #: Of an iteration of mean work.
    after_s: float
    loss: LossChange | None


def compared(
    blocks: Sequence[Block], change: Change, against: Change, after_stage: int = 0
) -> Compared | None:
    """A change against another one in stages behind one, or None where no round has both."""
    known = [one for one in blocks if one.count and one.ns]
    work = dict(zip(map(id, known), works(known), strict=True))
    sides: tuple[dict[int, Block], ...] = ({}, {})
    for one in known:
        for side, wanted in zip(sides, (against, change), strict=True):
            if one.change == wanted and one.stage > after_stage:
                side[one.round] = one
    rounds = sorted(sides[0].keys() & sides[1].keys())
    if not rounds:
        return None
    before, after = ([side[one] for one in rounds] for side in sides)
    times = [np.array([one.ns for one in side], float) for side in (before, after)]
    works_ = [np.array([work[id(one)] for one in side]) for side in (before, after)]
    rates = [float(t.sum() / w.sum()) for t, w in zip(times, works_, strict=True)]
    off = [(t - rate * w) / t.sum() for t, w, rate in zip(times, works_, rates, strict=True)]
    factor, half = rates[0] / rates[1], _half_width(off[0] - off[1])
    speedup = Speedup(factor, factor * math.exp(-half), factor * math.exp(half))
    return Compared(len(rounds), speedup, rates[0] * NS, rates[1] * NS, _losses(before, after))


def _half_width(off: Floats) -> float:
    """Half of the 95 % interval of the sum of what rounds are off by; NaN for too few."""
    if len(off) < LEAST_ROUNDS:
        return math.nan
    error = math.sqrt(len(off) / (len(off) - 1) * float((off**2).sum()))
    return error * student_quantile(len(off) - 1)


def _losses(before: Sequence[Block], after: Sequence[Block]) -> LossChange | None:
    sums = [np.array([one.loss for one in side]) for side in (before, after)]
    counts = [np.array([one.losses for one in side], float) for side in (before, after)]
    if not all(count.all() for count in counts):
        return None
    means = [s.sum() / n.sum() for s, n in zip(sums, counts, strict=True)]
    off = [(s - m * n) / n.sum() for s, n, m in zip(sums, counts, means, strict=True)]
    scale = abs(means[0])
    if not np.isfinite(means).all() or not scale:
        return LossChange(math.nan if not np.isfinite(means).all() else 0.0, 0.0, 0.0)
    part, half = (means[1] - means[0]) / scale, _half_width(off[1] - off[0]) / scale
    return LossChange(float(part), float(part - half), float(part + half))


def works(blocks: Sequence[Block]) -> Floats:
    """The work of blocks, in iterations of mean work: by their measures, where these differ.

    A sum of the measures, and of a constant an iteration, that fits the blocks' times best. All
    variants have the same one: which of them does how much of the work is drawn.
    """
    counts = np.array([one.count for one in blocks], float)
    lengths = {len(one.work) for one in blocks}
    if len(lengths) != 1 or not lengths.copy().pop():
        return counts
    measures = np.array([one.work for one in blocks])
    each = measures / counts[:, None]
    means = each.mean(axis=0)
    differ = each.std(axis=0) > _ALIKE * np.abs(means)
    if not differ.any():
        return counts
    columns = np.column_stack([counts, measures[:, differ] / means[differ]])
    fit = _fit(columns, _in_iterations(blocks, counts))
    return counts if fit is None else fit * (counts.sum() / fit.sum())


def _in_iterations(blocks: Sequence[Block], counts: Floats) -> Floats:
    """Times of blocks in mean iterations of their variant."""
    times = np.array([one.ns for one in blocks], float)
    for change in {one.change for one in blocks}:
        own = np.array([one.change == change for one in blocks])
        times[own] *= counts[own].sum() / times[own].sum()
    return times


def _fit(columns: Floats, times: Floats) -> Floats | None:
    """Times by a sum of columns with no negative part, least squares of relative differences."""
    most = len(times) // _BLOCKS_A_MEASURE
    best, least = None, math.inf
    numbers = range(columns.shape[1])
    for size in range(1, min(most, columns.shape[1]) + 1):
        for chosen in map(list, itertools.combinations(numbers, size)):
            relative = columns[:, chosen] / times[:, None]
            parts = np.linalg.lstsq(relative, np.ones(len(times)), rcond=None)[0]
            off = float(((relative @ parts - 1) ** 2).sum())
            if (parts >= 0).all() and off < least * (1 - 1e-9):
                best, least = columns[:, chosen] @ parts, off
    return best
