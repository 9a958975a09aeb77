"""Measure how often a report's interval of the median contains the true median, and its width.

    python -m benchmarks.coverage

For every kind of trials it simulates 10,000 runs of 100 and of 1,000 trials, 1,000 runs of 10,000
trials, and 600 runs that ``--until-ci`` ends. An interval should contain the median in 95 % of the
runs. A row fails outside 93 to 98 %, or below 90 % for runs that ``--until-ci`` ends; two standard
errors are allowed for the number of runs. Slow drifts are tested only at 10,000 trials, because
fewer trials do not show the range of a drift. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import ndtr, ndtri

from chainer_profile.basics.describe import (
    FIRST_LOOK,
    GROWTH,
    NS,
    PreciseEnough,
    describe_columns,
    trials_interval,
)

TYPICAL_NS = 1e6
#: Limits of the fraction of intervals that contain the median; the last for ``--until-ci``.
MIN_CORRECT, MAX_CORRECT, MIN_CORRECT_ENDED = 0.93, 0.98, 0.90
#: Number of runs, by the number of trials of a run.
RUNS = {100: 10_000, 1_000: 10_000, 10_000: 1_000}
RUNS_ENDED = 600
WANTED = (0.05, 0.02, 0.01)
MAX_TRIALS = 400_000
#: Number of runs that are simulated together, which bounds the memory.
AT_ONCE = 200
WIDTH, CELL = 30, 7

#: Converts standard normal and uniform random numbers, each (..., trials), to relative times.
Kind = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def correlated(rho: float) -> Kind:
    """Make times that vary by 5 %, with a correlation of successive times."""

    def times(normal: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 + 0.05 * _autoregressive(normal, rho)

    return times


def drifting(level: float, rho: float, noise: float) -> Kind:
    """Make times that vary by ``noise``, around a median that drifts by ``level``.

    Both are standard deviations. ``rho`` is the correlation of the drift from trial to trial.
    """

    def times(normal: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 + level * _autoregressive(ndtri(chance), rho) + noise * normal

    return times


def _autoregressive(normal: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    steps = normal * np.sqrt(1 - rho * rho)
    steps[..., 0] = normal[..., 0]
    values: NDArray[np.float64] = lfilter([1.0], [1.0, -rho], steps)
    return values


def disturbed(part: float, times_slower: float, length: float) -> tuple[Kind, float]:
    """Make times that vary by 2 %, some of them slower; return their median, too.

    ``part`` is the fraction of slow trials, ``length`` the mean number of successive slow trials.
    Disturbances begin and end at random.
    """
    ends = 1 / length
    begins = ends * part / (1 - part)

    def times(normal: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
        changes = (chance < begins) | (chance >= 1 - ends)
        changes[..., 0] = True
        trial = np.arange(chance.shape[-1])
        since = np.maximum.accumulate(np.where(changes, trial, 0), axis=-1)
        first = chance < begins
        first[..., 0] = ndtr(normal[..., 0]) < part
        slow = np.take_along_axis(first, since, axis=-1)
        return (1 + 0.02 * normal) * np.where(slow, times_slower, 1)

    def above_half(level: float) -> float:
        quick, slow = (ndtr((level / mode - 1) / 0.02) for mode in (1, times_slower))
        return float((1 - part) * quick + part * slow - 0.5)

    return times, float(brentq(above_half, 0.9, times_slower))


SLOW, TIMES_SLOWER = 0.01, 20
#: Kinds of trials by name, with their true median.
KINDS: dict[str, tuple[Kind, float]] = {
    "independent, normal (5 %)": (lambda normal, _: 1 + 0.05 * normal, 1.0),
    "independent, lognormal (50 %)": (lambda normal, _: np.exp(0.5 * normal), 1.0),
    "autoregressive, r = 0.5": (correlated(0.5), 1.0),
    "autoregressive, r = 0.9": (correlated(0.9), 1.0),
    "1 % of trials 20 times slower": (
        lambda normal, chance: (1 + 0.01 * normal) * np.where(chance < SLOW, TIMES_SLOWER, 1),
        float(1 + 0.01 * ndtri(0.5 / (1 - SLOW))),
    ),
    "drift 5 %, r = 0.95": (drifting(0.05, 0.95, 0.02), 1.0),
    "bursts: 20 % twice as slow": disturbed(0.2, 2.0, 5),
    "two modes: 40 % 1.3 times": disturbed(0.4, 1.3, 5),
}

#: Drifts that only many trials show, by name, with their true median.
SLOW_DRIFTS: dict[str, tuple[Kind, float]] = {
    "drift 5 %, r = 0.99": (drifting(0.05, 0.99, 0.05), 1.0),
    "drift 5 %, r = 0.998": (drifting(0.05, 0.998, 0.05), 1.0),
    "drift 3 %, r = 0.998": (drifting(0.03, 0.998, 0.02), 1.0),
}


def trials(kind: Kind, rng: np.random.Generator, shape: int | tuple[int, int]) -> NDArray[np.int64]:
    """Draw trials in nanoseconds, (trials,) or (runs, trials)."""
    return (TYPICAL_NS * kind(rng.standard_normal(shape), rng.random(shape))).astype(np.int64)


def simulate_length(name: str, count: int, runs: int) -> tuple[float, float]:
    """Simulate runs of ``count`` trials.

    Returns the median half width of their intervals, as a fraction of the true median, and the
    fraction of the intervals that contain the true median.
    """
    kind, typical = (KINDS | SLOW_DRIFTS)[name]
    rng = np.random.default_rng(count)
    lows, highs = [], []
    for start in range(0, runs, AT_ONCE):
        samples = trials(kind, rng, (min(AT_ONCE, runs - start), count))
        described = describe_columns(samples.T)
        lows.append(described["ci_low_s"])
        highs.append(described["ci_high_s"])
    low, high = (np.concatenate(ends) / NS / TYPICAL_NS / typical for ends in (lows, highs))
    return float(np.median(high - low) / 2), float(((low <= 1) & (high >= 1)).mean())


def stopped(kind: Kind, wanted: float, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Simulate a run with ``--until-ci``; None if it reaches the largest number of trials."""
    rule = PreciseEnough(wanted)
    run, count = trials(kind, rng, 2 * FIRST_LOOK), FIRST_LOOK
    seed = int(rng.integers(2**32))
    while count <= MAX_TRIALS:
        if count > len(run):
            # A new, longer series, because a concatenation would break the correlation.
            run = trials(kind, np.random.default_rng(seed), 4 * count)
        if rule.reached(run[:count]):
            return run[:count]
        count = ceil(GROWTH * count)
    return None


def simulate_until_ci(name: str, wanted: float, runs: int) -> tuple[float, float]:
    """Simulate runs with ``--until-ci``.

    Returns the median number of trials, and the fraction of intervals with the true median.
    """
    kind, typical = KINDS[name]
    rng = np.random.default_rng(0)
    simulated = [run for _ in range(runs) if (run := stopped(kind, wanted, rng)) is not None]
    true_ns = TYPICAL_NS * typical
    correct = [low <= true_ns <= high for low, high in map(trials_interval, simulated)]
    return float(np.median([len(run) for run in simulated])), float(np.mean(correct))


def within(correct: float, runs: int, lower: float, upper: float = 1.0) -> bool:
    """Whether a fraction of ``runs`` is within the limits, plus two standard errors."""
    error = 2 * float(np.sqrt(correct * (1 - correct) / runs))
    return lower - error <= correct <= upper + error


def rows(part: float) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the table; ``part`` is the fraction of the runs to simulate."""
    for name in KINDS | SLOW_DRIFTS:
        slow, cells, good = name in SLOW_DRIFTS, [name], True
        for count, runs in RUNS.items():
            runs = ceil(part * runs)
            width, correct = simulate_length(name, count, runs)
            good &= within(correct, runs, MIN_CORRECT, MAX_CORRECT) or (slow and count < max(RUNS))
            cells += [f"{width:.2%}", f"{correct:.1%}"]
        for wanted in () if slow else WANTED:
            runs = ceil(part * RUNS_ENDED)
            length, correct = simulate_until_ci(name, wanted, runs)
            good &= within(correct, runs, MIN_CORRECT_ENDED)
            cells += [f"{length:.0f}", f"{correct:.1%}"]
        yield (*cells, "" if good else "fails")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", type=float, default=1.0, help="fraction of the runs to simulate")
    part = parser.parse_args().part
    head = ["kind of trials", *(f"{count:,} trials" for count in RUNS)]
    head += [f"until {wanted:.0%}" for wanted in WANTED]
    print(head[0].ljust(WIDTH), *(cell.rjust(2 * CELL + 1) for cell in head[1:]))
    below = ["+/-", "right"] * len(RUNS) + ["trials", "right"] * len(WANTED)
    print(" " * WIDTH, *(cell.rjust(CELL) for cell in below))
    failed = False
    for name, *cells, verdict in rows(part):
        print(name.ljust(WIDTH), *(cell.rjust(CELL) for cell in cells), verdict, flush=True)
        failed |= bool(verdict)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
