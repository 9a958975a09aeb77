"""Blocks of iterations that took turns -> how many times as fast a change is, and its loss.

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

from chainer_profile.advice.changes import Candidate
from chainer_profile.advice.results import LossChange, Tried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import NS, student_quantile
from chainer_profile.engines.results import Speedup

#: Fewer rounds have no interval.
_FEWEST_ROUNDS = 3
#: Iterations have the same work if blocks differ by less (relative standard deviation).
_ALIKE_PART = 0.01
#: A fit needs so many blocks for each measure of work.
_BLOCKS_A_MEASURE = 4

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Block:
    """Successive iterations with the same change, without those that do not count."""

    round: int
    stage: int
    change: Change
    count: int = 0
    ns: int = 0
    work: Floats = field(default_factory=lambda: np.zeros(0))  #: Sums of measures of its work.
    loss: float = 0.0
    losses: int = 0  #: Iterations that had a loss.
    weight: float = 0.0  #: Its work, in iterations of mean work; by :func:`weigh`.


def compared(blocks: Sequence[Block], candidate: Candidate, after_stage: int = 0) -> Tried | None:
    """A change against its rival, in rounds behind a stage that have both; None if none has.

    The blocks have their weights.
    """
    before, after = (
        {b.round: b for b in blocks if b.change == change and b.ns and b.stage > after_stage}
        for change in (candidate.against, candidate.change)
    )
    rounds = sorted(before.keys() & after.keys())
    if not rounds:
        return None
    sides = [[side[number] for number in rounds] for side in (before, after)]
    rates, off = [], []
    for side in sides:
        times = np.array([block.ns for block in side], float)
        weights = np.array([block.weight for block in side])
        rates.append(float(times.sum() / weights.sum()))
        off.append((times - rates[-1] * weights) / times.sum())
    factor, half = rates[0] / rates[1], _half_width(off[0] - off[1])
    return Tried(
        candidate,
        wall=Speedup(factor, factor * math.exp(-half), factor * math.exp(half)),
        pairs=len(rounds),
        confirmed=True,
        before_s=rates[0] * NS,
        after_s=rates[1] * NS,
        loss=_loss_change(*sides),
    )


def _half_width(off: Floats) -> float:
    """Half of the 95 % interval of the sum of the rounds' deviations; NaN for too few rounds."""
    if len(off) < _FEWEST_ROUNDS:
        return math.nan
    error = math.sqrt(len(off) / (len(off) - 1) * float((off**2).sum()))
    return error * student_quantile(len(off) - 1)


def _loss_change(before: Sequence[Block], after: Sequence[Block]) -> LossChange | None:
    means, off = [], []
    for side in (before, after):
        sums = np.array([block.loss for block in side])
        counts = np.array([block.losses for block in side], float)
        if not counts.all():
            return None
        means.append(float(sums.sum() / counts.sum()))
        off.append((sums - means[-1] * counts) / counts.sum())
    if not np.isfinite(means).all():
        return LossChange(math.nan, 0.0, 0.0)
    if not (scale := abs(means[0])):
        return LossChange(0.0, 0.0, 0.0)
    part, half = (means[1] - means[0]) / scale, _half_width(off[1] - off[0]) / scale
    return LossChange(part, part - half, part + half)


def weigh(blocks: Sequence[Block]) -> None:
    """Set the weights of blocks, by measures of their work if these differ."""
    blocks = [block for block in blocks if block.ns]
    for block, weight in zip(blocks, _weights(blocks), strict=True):
        block.weight = float(weight)


def _weights(blocks: Sequence[Block]) -> Floats:
    """The sum of measures, and of a constant for each iteration, that fits the blocks' times best.

    All variants have the same one: which of them does how much of the work is drawn.
    """
    counts = np.array([block.count for block in blocks], float)
    lengths = {len(block.work) for block in blocks}
    if len(lengths) != 1 or 0 in lengths:
        return counts
    measures = np.array([block.work for block in blocks])
    each = measures / counts[:, None]
    means = each.mean(axis=0)
    differ = each.std(axis=0) > _ALIKE_PART * np.abs(means)
    if not differ.any():
        return counts
    columns = np.column_stack([counts, measures[:, differ] / means[differ]])
    fit = _fit(columns, _in_iterations(blocks, counts))
    return counts if fit is None else fit * (counts.sum() / fit.sum())


def _in_iterations(blocks: Sequence[Block], counts: Floats) -> Floats:
    """Times of blocks, in mean iterations of their variant."""
    times = np.array([block.ns for block in blocks], float)
    for change in {block.change for block in blocks}:
        own = np.array([block.change == change for block in blocks])
        times[own] *= counts[own].sum() / times[own].sum()
    return times


def _fit(columns: Floats, times: Floats) -> Floats | None:
    """Fit times by a sum of columns without negative parts, by least relative squares."""
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
