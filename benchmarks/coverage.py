"""How often the interval of the median that a report gives is right, on trials whose true median
is known.

    python -m benchmarks.coverage

Of every kind of trials it makes a thousand runs: of 100 and of 1,000 trials, and runs that
``--until-ci`` ends. An interval is asked to be right in 95 % of the runs; where it is in fewer than
90 %, the row says so. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

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
LEAST = 0.90
COUNTS = (100, 1_000)
WANTED = (0.05, 0.02, 0.01)
MOST_TRIALS = 400_000
WIDTH, CELL = 30, 7

#: So many standard normal numbers, one a trial, and uniform ones -> times as multiples.
Kind = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def correlated(rho: float) -> Kind:
    """Times that vary by 5 %, each one correlated with the one before."""

    def times(normal: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        steps = normal * np.sqrt(1 - rho * rho)
        steps[0] = normal[0]
        varied: NDArray[np.float64] = lfilter([1.0], [1.0, -rho], steps)
        return 1 + 0.05 * varied

    return times


def drifting(normal: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times that vary by 2 %, around a level that drifts by 5 % in some 20 trials."""
    drift: NDArray[np.float64] = correlated(0.95)(ndtri(chance), chance)
    return drift + 0.02 * normal


def disturbed(part: float, times_slower: float, length: float) -> tuple[Kind, float]:
    """Times that vary by 2 %; a part of them is slower, so many in a row on average. Their median.

    A trial is the first of a disturbance, or the first behind it, by a chance of its own; all
    others are as the one before.
    """
    ends = 1 / length
    begins = ends * part / (1 - part)

    def times(normal: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
        changes = (chance < begins) | (chance >= 1 - ends)
        changes[0] = True
        since = np.maximum.accumulate(np.where(changes, np.arange(len(chance)), 0))
        first = chance < begins
        first[0] = ndtr(normal[0]) < part
        varied: NDArray[np.float64] = (1 + 0.02 * normal) * np.where(first[since], times_slower, 1)
        return varied

    def above_half(level: float) -> float:
        quick, slow = (ndtr((level / mode - 1) / 0.02) for mode in (1, times_slower))
        return float((1 - part) * quick + part * slow - 0.5)

    return times, float(brentq(above_half, 0.9, times_slower))


SLOW, TIMES_SLOWER = 0.01, 20
#: Trials by name, and their true median.
KINDS: dict[str, tuple[Kind, float]] = {
    "independent, normal (5 %)": (lambda normal, _: 1 + 0.05 * normal, 1.0),
    "independent, lognormal (50 %)": (lambda normal, _: np.exp(0.5 * normal), 1.0),
    "autoregressive, r = 0.5": (correlated(0.5), 1.0),
    "autoregressive, r = 0.9": (correlated(0.9), 1.0),
    "1 % of trials 20 times slower": (
        lambda normal, chance: (1 + 0.01 * normal) * np.where(chance < SLOW, TIMES_SLOWER, 1),
        float(1 + 0.01 * ndtri(0.5 / (1 - SLOW))),
    ),
    "drifting": (drifting, 1.0),
    "bursts: 20 % twice as slow": disturbed(0.2, 2.0, 5),
    "two modes: 40 % 1.3 times": disturbed(0.4, 1.3, 5),
}


def trials(kind: Kind, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """So many trials in whole nanoseconds."""
    return (TYPICAL_NS * kind(rng.standard_normal(count), rng.random(count))).astype(np.int64)


def stopped(kind: Kind, wanted: float, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """The trials of a run that ends when they are enough; None if they never are."""
    rule = PreciseEnough(wanted)
    run, count = trials(kind, rng, 2 * FIRST_LOOK), FIRST_LOOK
    seed = int(rng.integers(2**32))
    while count <= MOST_TRIALS:
        if count > len(run):
            # The same numbers again and more of them, so that the correlation does not break.
            run = trials(kind, np.random.default_rng(seed), 4 * count)
        if rule.reached(run[:count]):
            return run[:count]
        count = int(np.ceil(GROWTH * count))
    return None


def rows(runs: int) -> Iterator[tuple[str, ...]]:
    """Cells of the table: the kind, then for each count and each wanted width what was found."""
    for name, (kind, typical) in KINDS.items():
        true_ns = TYPICAL_NS * typical
        cells, least = [name], 1.0
        rng = np.random.default_rng(0)
        for count in COUNTS:
            samples = np.column_stack([trials(kind, rng, count) for _ in range(runs)])
            described = describe_columns(samples)
            low, high = described["ci_low_s"] / NS, described["ci_high_s"] / NS
            right = ((low <= true_ns) & (true_ns <= high)).mean()
            width = np.median((high - low) / 2) / true_ns
            least = min(least, right)
            cells += [f"{width:.2%}", f"{right:.1%}"]
        for wanted in WANTED:
            ended = [run for _ in range(runs) if (run := stopped(kind, wanted, rng)) is not None]
            ends = [trials_interval(run) for run in ended]
            right = float(np.mean([low <= true_ns <= high for low, high in ends]))
            least = min(least, right)
            cells += [f"{np.median([len(run) for run in ended]):.0f}", f"{right:.1%}"]
        yield (*cells, "" if least >= LEAST else f"below {LEAST:.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    runs = parser.parse_args().runs
    head = ["kind of trials", *(f"{count:,} trials" for count in COUNTS)]
    head += [f"until {wanted:.0%}" for wanted in WANTED]
    print(head[0].ljust(WIDTH), *(cell.rjust(2 * CELL + 1) for cell in head[1:]))
    below = ["+/-", "right"] * len(COUNTS) + ["trials", "right"] * len(WANTED)
    print(" " * WIDTH, *(cell.rjust(CELL) for cell in below))
    failed = False
    for name, *cells, verdict in rows(runs):
        print(name.ljust(WIDTH), *(cell.rjust(CELL) for cell in cells), verdict, flush=True)
        failed |= bool(verdict)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
