"""Measure how often comparisons are wrong, with simulated runs.

    python -m benchmarks.comparison_simulated [--comparisons 400]

The runs simulate a ResNet20 with equal code, or with one layer or all layers slower by 5 %. The
differences between processes are those in ``docs/compare.md``: 3 % for all layers together, and in
addition 1 % per layer, 5 % for batch normalization and 10 % for functions of a few microseconds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache

import numpy as np

from chainer_profile.comparison.compare import Comparison, compare
from chainer_profile.comparison.sides import Side
from chainer_profile.comparison.significance import SAME, SLOWER
from chainer_profile.record.recording import (
    Calibration,
    Conditions,
    Environment,
    Layer,
    Recording,
)

#: Standard deviations between runs of the logarithm of time: common to a trial, and for layers in
#: addition.
TRIAL, OTHERS, NORMALIZATION, SMALL = 0.03, 0.01, 0.05, 0.10
#: Functions of a ResNet20: name, number of layers, time in ns, standard deviation between runs.
FUNCTIONS = (
    ("Convolution2DFunction", 21, 116e3, OTHERS),
    ("FixedBatchNormalization", 21, 22e3, NORMALIZATION),
    ("ReLU", 19, 9.3e3, SMALL),
    ("Add", 2, 6.7e3, SMALL),
    ("AveragePooling2D", 1, 95e3, OTHERS),
    ("Reshape", 1, 4e3, SMALL),
    ("LinearFunction", 1, 15.7e3, OTHERS),
)
#: Standard deviation between the trials of a run.
WITHIN = 0.05
TRIALS, CLEAN_TRIALS = 200, 40
SIDES = (1, 2, 3, 5)
EFFECT, GATE = 0.05, 0.05
CALM = Conditions(
    window_ns=100.0, other_cpu=0.0, calibrations=(Calibration(1e-3, 7e-4), Calibration(1e-3, 7e-4))
)


@cache
def network() -> tuple[tuple[Layer, ...], np.ndarray, np.ndarray]:
    """Layers, their times in ns, and their standard deviations. Every seventh has another shape."""
    rows = [
        (Layer(0, f"/{function}/{i}", function, input_shapes=((1, 16 << i // 7, 8, 8),)), time, own)
        for function, count, time, own in FUNCTIONS
        for i in range(count)
    ]
    layers = tuple(
        Layer(index, x.path, x.function, input_shapes=x.input_shapes)
        for index, (x, _, _) in enumerate(rows)
    )
    return layers, np.array([time for _, time, _ in rows]), np.array([own for *_, own in rows])


def run(rng: np.random.Generator, slower: dict[int, float] | float = 1.0) -> Recording:
    """Simulate a run of the network. ``slower`` has a factor for some layers, or for all."""
    layers, times, spreads = network()
    factors = np.full(len(layers), 1.0 if isinstance(slower, dict) else slower)
    if isinstance(slower, dict):
        factors[list(slower)] = list(slower.values())
    level = np.exp(rng.normal(0, TRIAL))
    own = times * factors * level * np.exp(rng.normal(0, spreads))
    self_ns = np.rint(own * np.exp(rng.normal(0, WITHIN, (TRIALS, len(layers))))).astype(np.int64)
    whole = 1.2 * float(times @ factors) * level
    clean_ns = np.rint(whole * np.exp(rng.normal(0, WITHIN, CLEAN_TRIALS))).astype(np.int64)
    return Recording(
        layers=layers,
        self_ns=self_ns,
        trial_ns=self_ns.sum(axis=1) + 50_000,
        start_ns=np.arange(TRIALS),
        clean_ns=clean_ns,
        clean_start_ns=np.arange(CLEAN_TRIALS),
        environment=Environment(usable_cores=2),
        conditions=CALM,
    )


def compared(
    rng: np.random.Generator, size: int, slower: dict[int, float] | float = 1.0
) -> Comparison:
    """Compare ``size`` simulated runs with as many runs of slower code."""
    return compare(
        Side("A", tuple(run(rng) for _ in range(size))),
        Side("B", tuple(run(rng, slower) for _ in range(size))),
    )


@dataclass(frozen=True)
class Called:
    """Fractions of false verdicts in comparisons of equal code."""

    layers: float  #: Layers that are called different.
    any_layer: float  #: Comparisons that call some layer different.
    trial: float  #: Comparisons that call the trial different.
    gate: float  #: Comparisons that fail a gate of 5 %.


def same_code(size: int, comparisons: int) -> Called:
    """Compare equal code, with ``size`` runs on each side."""
    rng = np.random.default_rng([0, size])
    simulated = [compared(rng, size) for _ in range(comparisons)]
    called = np.array([len(comparison.changed) for comparison in simulated])
    return Called(
        layers=float(called.mean()) / len(network()[0]),
        any_layer=float((called > 0).mean()),
        trial=sum(each.totals["verdict"].iloc[0] != SAME for each in simulated) / comparisons,
        gate=sum(bool(each.slower_than(GATE)) for each in simulated) / comparisons,
    )


def slower_code(function: str, size: int, comparisons: int, effect: float = EFFECT) -> float:
    """Fraction of comparisons that find a slower layer of a function, or else a slower trial."""
    rng = np.random.default_rng([1, size])
    index = next((layer.index for layer in network()[0] if layer.function == function), None)
    hits = 0
    for _ in range(comparisons):
        if index is None:
            hits += compared(rng, size, 1 + effect).totals["verdict"].iloc[0] == SLOWER
        else:
            comparison = compared(rng, size, {index: 1 + effect})
            hits += comparison.layers["verdict"].iloc[index] == SLOWER
    return hits / comparisons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=400, help="of each kind")
    count = parser.parse_args().comparisons
    print(f"same code, {count} comparisons: layers called different, comparisons that call any,")
    print(f"    comparisons that call the trial different, a gate of {GATE:.0%} that fails")
    for size in SIDES:
        called = same_code(size, count)
        of_comparisons = (called.any_layer, called.trial, called.gate)
        print(
            f"    {size}", f"{called.layers:6.2%}", *map("{:6.1%}".format, of_comparisons), sep="  "
        )
    kinds = [("trial", TRIAL), *((name, own) for name, _, _, own in FUNCTIONS[:3])]
    for effect in (EFFECT, 2 * EFFECT, 4 * EFFECT):
        print(f"slower by {effect:.0%}, found: " + ", ".join(f"{n} ({s:.0%})" for n, s in kinds))
        for size in SIDES:
            parts = [slower_code(name, size, max(count // 4, 1), effect) for name, _ in kinds]
            print(f"    {size}  " + "  ".join(f"{part:6.1%}" for part in parts))


if __name__ == "__main__":
    main()
