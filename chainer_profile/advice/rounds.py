"""Computes the speed-up and the loss of a change from interleaved blocks of iterations.

A round has one block of each variant. The time per unit of work of a variant is its total time
divided by its total work. This is a mean, because only means add up to the time of the program, so
single slow iterations count. The error of a ratio comes from differences within rounds, because
both variants of a round met the same state of the machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from chainer_profile.advice.changes import Candidate
from chainer_profile.advice.results import ChangeResult, LossChange
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import NS, student_quantile
from chainer_profile.engines.results import Speedup

#: Smallest number of rounds for an interval.
_MIN_ROUNDS = 3
#: All iterations have equal work if its relative standard deviation between blocks is at most this.
_EQUAL_WORK_DEVIATION = 0.01
#: Blocks that a fit needs for each measure of work.
_BLOCKS_PER_MEASURE = 4

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Block:
    """Successive counted iterations with the same change."""

    round: int
    stage: int
    change: Change
    count: int = 0
    ns: int = 0
    work: Floats = field(default_factory=lambda: np.zeros(0))  #: Sum of each measure of work.
    loss: float = 0.0  #: Sum of the losses.
    losses: int = 0  #: Number of iterations with a loss.
    #: Work in units of a mean iteration; :func:`set_weights` sets it.
    weight: float = 0.0


def compare_in_rounds(
    blocks: Sequence[Block], candidate: Candidate, after_stage: int = 0
) -> ChangeResult | None:
    """Compare a change with ``candidate.against`` in the rounds after a stage.

    Returns None if no round has both. Needs the weights of the blocks (:func:`set_weights`).
    """
    before, after = (
        {b.round: b for b in blocks if b.change == change and b.ns and b.stage > after_stage}
        for change in (candidate.against, candidate.change)
    )
    rounds = sorted(before.keys() & after.keys())
    if not rounds:
        return None
    sides = [[side[number] for number in rounds] for side in (before, after)]
    rates, deviations = [], []
    for side in sides:
        times = np.array([block.ns for block in side], float)
        weights = np.array([block.weight for block in side])
        rates.append(float(times.sum() / weights.sum()))
        deviations.append((times - rates[-1] * weights) / times.sum())
    factor, half = rates[0] / rates[1], _half_width(deviations[0] - deviations[1])
    return ChangeResult(
        candidate,
        wall=Speedup(factor, factor * math.exp(-half), factor * math.exp(half)),
        pairs=len(rounds),
        confirmed=True,
        before_s=rates[0] * NS,
        after_s=rates[1] * NS,
        loss=_loss_change(*sides),
    )


def _half_width(deviations: Floats) -> float:
    """Half width of the 95 % interval of the sum of deviations; NaN for too few rounds."""
    rounds = len(deviations)
    if rounds < _MIN_ROUNDS:
        return math.nan
    error = math.sqrt(rounds / (rounds - 1) * float((deviations**2).sum()))
    return error * student_quantile(rounds - 1)


def _loss_change(before: Sequence[Block], after: Sequence[Block]) -> LossChange | None:
    means, deviations = [], []
    for side in (before, after):
        sums = np.array([block.loss for block in side])
        counts = np.array([block.losses for block in side], float)
        if not counts.all():
            return None
        means.append(float(sums.sum() / counts.sum()))
        deviations.append((sums - means[-1] * counts) / counts.sum())
    if not np.isfinite(means).all():
        return LossChange(math.nan, 0.0, 0.0)
    if not (scale := abs(means[0])):
        return LossChange(0.0, 0.0, 0.0)
    part = (means[1] - means[0]) / scale
    half = _half_width(deviations[1] - deviations[0]) / scale
    return LossChange(part, part - half, part + half)


def set_weights(blocks: Sequence[Block]) -> None:
    """Set the weight of each block from its measures of work.

    The weight is the number of iterations if all iterations have equal work.
    """
    blocks = [block for block in blocks if block.ns]
    for block, weight in zip(blocks, _weights(blocks), strict=True):
        block.weight = float(weight)


def _weights(blocks: Sequence[Block]) -> Floats:
    """Weights of blocks, from a fit of their times by measures of work and by iterations.

    One fit serves all variants, because chance decides which variant does how much work.
    """
    counts = np.array([block.count for block in blocks], float)
    lengths = {len(block.work) for block in blocks}
    if len(lengths) != 1 or 0 in lengths:
        return counts
    measures = np.array([block.work for block in blocks])
    each = measures / counts[:, None]
    means = each.mean(axis=0)
    differ = each.std(axis=0) > _EQUAL_WORK_DEVIATION * np.abs(means)
    if not differ.any():
        return counts
    columns = np.column_stack([counts, measures[:, differ] / means[differ]])
    fit = _fit(columns, _times_in_iterations(blocks, counts))
    return counts if fit is None else fit * (counts.sum() / fit.sum())


def _times_in_iterations(blocks: Sequence[Block], counts: Floats) -> Floats:
    """Times of blocks, in units of a mean iteration of their variant."""
    times = np.array([block.ns for block in blocks], float)
    for change in {block.change for block in blocks}:
        selected = np.array([block.change == change for block in blocks])
        times[selected] *= counts[selected].sum() / times[selected].sum()
    return times


def _fit(columns: Floats, times: Floats) -> Floats | None:
    """Fit times by columns with non-negative coefficients, by least squares of relative errors."""
    max_columns = len(times) // _BLOCKS_PER_MEASURE
    best, smallest = None, math.inf
    numbers = range(columns.shape[1])
    for size in range(1, min(max_columns, columns.shape[1]) + 1):
        for chosen in map(list, itertools.combinations(numbers, size)):
            relative = columns[:, chosen] / times[:, None]
            coefficients = np.linalg.lstsq(relative, np.ones(len(times)), rcond=None)[0]
            squares = float(((relative @ coefficients - 1) ** 2).sum())
            if (coefficients >= 0).all() and squares < smallest * (1 - 1e-9):
                best, smallest = columns[:, chosen] @ coefficients, squares
    return best
