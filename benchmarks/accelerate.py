"""How much ``chainer_profile.accelerate()`` brings, by network, batch and phase, in one run.

    python -m benchmarks.accelerate [--kernels torch] [--seconds 10] [--cases resnet20:8:train]
    python -m benchmarks.accelerate --registry

Chainer as it is and Chainer accelerated take turns in blocks of a tenth of a second, in a process
each, as memory that one keeps would serve the other; with one thread. A ratio is the median of the
rounds' ratios of CPU time, with its 95 % interval. The target of a case stands behind it where it
has one. ``--registry`` has every network, forward and train.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import)

# isort: split
import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import median_interval
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.measure.steps import AnyStep, make_step
from models import REGISTRY

#: Least ratios, by kernels and case: network, batch, phase, and the image where it is another one.
TARGETS: dict[str, dict[str, float]] = {
    "numpy": {
        "resnet20:1:forward": 0.98,
        "resnet20:8:forward": 2.8,
        "resnet20:32:forward": 2.5,
        "resnet20:8:train": 2.2,
        "resnet20:16:train": 2.2,
        "resnet20:32:train": 2.2,
        "resnet18:4:train": 1.3,
        "resnet18:1:forward:1024x2048": 1.5,
    },
    "torch": {
        "resnet20:32:forward": 6.5,
        "resnet20:16:train": 4.5,
        "resnet18:4:train": 2.0,
    },
}
BLOCK_S = 0.1


def step_of(case: str) -> AnyStep:
    """What a trial of a case runs; training leaves a network what it is."""
    name, batch, phase, *size = case.split(":")
    entry = REGISTRY[name]
    channels, *sides = entry.input_shape
    if size:
        sides = [int(side) for side in size[0].split("x")]
    x = np.random.default_rng(0).random((int(batch), channels, *sides), np.float32)
    return make_step(phase, entry.build(), (x,))


def serve(pipe: Connection, case: str, kernels: str) -> None:
    """Run blocks of a case when asked to: CPU seconds of one of so many runs."""
    run = step_of(case)
    fast = accelerate(kernels, threads=1) if kernels else nullcontext()
    with threadpool_limits(1), fast, run.configured():
        run()
        while count := pipe.recv():
            begin = time.process_time()
            for _ in range(count):
                run()
            pipe.send((time.process_time() - begin) / count)


def ratio(case: str, kernels: str, seconds: float) -> tuple[Any, float, float]:
    """How many times as fast it is; and milliseconds of the two."""
    processes = get_context("spawn")
    pipes, workers = [], []
    for kind in ("", kernels):
        here, there = processes.Pipe()
        worker = processes.Process(target=serve, args=(there, case, kind), daemon=True)
        worker.start()
        pipes.append(here)
        workers.append(worker)

    def block(index: int, count: int) -> float:
        pipes[index].send(count)
        return float(pipes[index].recv())

    counts = [max(1, int(BLOCK_S / max(block(i, 1), block(i, 1), 1e-4))) for i in (0, 1)]
    times: tuple[list[float], list[float]] = ([], [])
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(times[0]) < 6:
        for index in (0, 1) if len(times[0]) % 2 else (1, 0):
            times[index].append(block(index, counts[index]))
    for pipe, worker in zip(pipes, workers, strict=True):
        pipe.send(0)
        worker.join()
    stock, fast = np.array(times)
    ratios = stock / fast
    interval = float(np.median(ratios)), *median_interval(ratios)
    return interval, float(np.median(stock)) * 1e3, float(np.median(fast)) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", choices=sorted(TARGETS), default="numpy")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    parser.add_argument("--cases", help="network:batch:phase[:HxW], by commas")
    parser.add_argument("--registry", action="store_true", help="every network; least ratio 0.98")
    args = parser.parse_args()
    targets = TARGETS[args.kernels]
    cases = args.cases.split(",") if args.cases else list(targets)
    if args.registry:
        cases = [
            f"{name}:{batch}:{phase}"
            for name in REGISTRY
            for batch, phase in ((1, "forward"), (2, "train"))
        ]
        targets = dict.fromkeys(cases, 0.98)
    missed = False
    print(f"{'case':34} {'Chainer':>10} {'faster':>10} {'ratio':>7}  95 %            target")
    for case in cases:
        (factor, low, high), stock, fast = ratio(case, args.kernels, args.seconds)
        target = targets.get(case)
        missed |= target is not None and factor < target
        wanted = "" if target is None else f"{target:g}{'' if factor >= target else ' missed'}"
        print(
            f"{case:34} {stock:7.2f} ms {fast:7.2f} ms {factor:6.2f}x  "
            f"{low:.2f} to {high:.2f}    {wanted}",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
