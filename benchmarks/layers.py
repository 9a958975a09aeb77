"""Measure how the time of ``profile()`` grows with the number of layers.

    python -m benchmarks.layers [--layers 300,1000,3000] [--lazy]

Each network is a chain of small linear layers. The table shows the CPU time of ``profile()``, and
of as many trials without it, for each phase. The growth is the ratio to the time of the first
network, divided by the ratio of the layers: 1 if the time grows linearly. With ``--lazy``, the
first call makes the parameters.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import chainer_profile  # (before Chainer)

# ruff: isort: split
import chainer
import chainer.links as L
import numpy as np

from chainer_profile.basics.words import PHASES
from chainer_profile.measure.steps import make_step

_WIDTH = 4
_TRIALS, _WARMUPS = 5, 1


def network(n_layers: int, lazy: bool) -> chainer.Link:
    """A chain of linear layers."""
    n_inputs = None if lazy else _WIDTH
    return chainer.Sequential(*(L.Linear(n_inputs, _WIDTH) for _ in range(n_layers)))


def seconds(work: Callable[[], object]) -> float:
    """CPU time of some work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def measured(n_layers: int, phase: str, lazy: bool) -> tuple[float, float]:
    """CPU time of ``profile()``, and of as many trials without it, in seconds."""
    model, x = network(n_layers, lazy), np.ones((1, _WIDTH), np.float32)
    profiled_s = seconds(
        lambda: chainer_profile.profile(
            model, x, phase=phase, trials=_TRIALS, warmups=_WARMUPS, threads=1
        )
    )
    step = make_step(phase, model, (x,))
    with step.configured():
        step()
        plain_s = seconds(lambda: [step() for _ in range(_TRIALS)])
    return profiled_s, plain_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", default="300,1000,3000", help="numbers of layers")
    parser.add_argument("--lazy", action="store_true", help="the first call makes the parameters")
    args = parser.parse_args()
    sizes = [int(text) for text in args.layers.split(",")]
    measured(10, "train", args.lazy)  # imports
    print(f"{'phase':<16} {'layers':>6} {'profile()':>10} {'growth':>6} {'plain':>8} {'growth':>6}")
    for phase in PHASES:
        first: tuple[float, float] | None = None
        for size in sizes:
            times = measured(size, phase, args.lazy)
            first = first or times
            growths = [t / f * sizes[0] / size for t, f in zip(times, first, strict=True)]
            print(
                f"{phase:<16} {size:>6,} {times[0]:>8.2f} s {growths[0]:>6.2f} "
                f"{times[1]:>6.2f} s {growths[1]:>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
