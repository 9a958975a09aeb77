"""Measure the gain of ``chainer_profile.accelerate()`` by network, batch and phase.

    python -m benchmarks.accelerate [--kernels torch] [--seconds 10] [--cases resnet20:8:train]
    python -m benchmarks.accelerate --registry
    python -m benchmarks.accelerate --pytorch
    python -m benchmarks.accelerate --grid [300] [--kernels torch]

Blocks of a tenth of a second with Chainer's own code and with the kernels alternate, with one
thread. Each variant has its own process, because memory that one keeps would serve the other. A
ratio is the median of the rounds' ratios of CPU time, with its 95 % interval. The last column has
the target of a case. ``--registry`` measures every network, forward and train. ``--pytorch``
compares Chainer with both kernels and eager PyTorch. ``--grid`` compares functions on random
shapes; none may be slower than Chainer (``accelerate_grid.py``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import)

# isort: split
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import accelerate_grid
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
        "resnet50:4:forward": 1.3,
        "resnet50:4:train": 1.3,
        "se-resnet9-fixup:8:forward": 1.5,
        "se-resnet9-fixup:32:forward": 1.5,
    },
    "torch": {
        "resnet20:32:forward": 6.5,
        "resnet20:16:train": 4.5,
        "resnet18:4:train": 2.0,
    },
}
#: Cases that are compared with PyTorch.
_BESIDE_PYTORCH = (
    "resnet20:1:forward",
    "resnet20:32:forward",
    "resnet20:16:train",
    "resnet50:4:forward",
    "resnet50:4:train",
    "se-resnet9-fixup:8:forward",
    "se-resnet9-fixup:32:forward",
)
CHAINER, PYTORCH = "Chainer", "PyTorch"
BLOCK_S = 0.1
#: Rounds of blocks, and warm-ups of a process, at least.
_ROUNDS, _WARM_UPS = 6, 3


def _parts(case: str) -> tuple[str, str, Any]:
    """The network's name, the phase, and a batch of images."""
    name, batch, phase, *size = case.split(":")
    channels, *sides = REGISTRY[name].input_shape
    if size:
        sides = [int(side) for side in size[0].split("x")]
    x = np.random.default_rng(0).random((int(batch), channels, *sides), np.float32)
    return name, phase, x


def step_of(case: str) -> AnyStep:
    """Make the step that a trial of a case runs; training leaves a network what it is."""
    name, phase, x = _parts(case)
    return make_step(phase, REGISTRY[name].build(), (x,))


def serve(pipe: Connection, case: str, kind: str) -> None:
    """Run blocks of a case on request: receive a number of runs, send the CPU seconds of one."""
    with threadpool_limits(1), ExitStack() as stack:
        run: Callable[[], Any]
        if kind == PYTORCH:
            import torch

            from benchmarks.torch_networks import step

            torch.set_num_threads(1)
            run = step(*_parts(case))
        else:
            run = of_chainer = step_of(case)
            stack.enter_context(of_chainer.configured())
            if kind != CHAINER:
                stack.enter_context(accelerate(kind, threads=1))
        for _ in range(_WARM_UPS):
            run()
        while count := pipe.recv():
            begin = time.process_time()
            for _ in range(count):
                run()
            pipe.send((time.process_time() - begin) / count)


def measure(case: str, kinds: list[str], seconds: float) -> Any:
    """CPU seconds of a run, by round and kind."""
    processes = get_context("spawn")
    pipes, workers = [], []
    for kind in kinds:
        here, there = processes.Pipe()
        worker = processes.Process(target=serve, args=(there, case, kind), daemon=True)
        worker.start()
        pipes.append(here)
        workers.append(worker)

    def block(index: int, count: int) -> float:
        pipes[index].send(count)
        return float(pipes[index].recv())

    order = list(range(len(kinds)))
    counts = [max(1, int(BLOCK_S / max(block(i, 1), block(i, 1), 1e-4))) for i in order]
    rounds: list[list[float]] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(rounds) < _ROUNDS:
        times = [0.0] * len(kinds)
        for index in order:
            times[index] = block(index, counts[index])
        rounds.append(times)
        order.reverse()
    for pipe, worker in zip(pipes, workers, strict=True):
        pipe.send(0)
        worker.join()
    return np.array(rounds)


def ratio(times: Any, over: Any) -> tuple[float, float, float]:
    """The median of paired ratios, with its 95 % interval."""
    ratios = times / over
    return float(np.median(ratios)), *median_interval(ratios)


def compare_with_chainer(kernels: str, cases: list[str], targets: Any, seconds: float) -> bool:
    """Print the ratios of cases; whether all targets are reached."""
    reached = True
    print(f"{'case':34} {'Chainer':>10} {'faster':>10} {'ratio':>7}  95 %            target")
    for case in cases:
        times = measure(case, [CHAINER, kernels], seconds)
        stock, fast = np.median(times, axis=0) * 1e3
        factor, low, high = ratio(*times.T)
        target = targets.get(case)
        reached &= target is None or factor >= target
        wanted = "" if target is None else f"{target:g}{'' if factor >= target else ' missed'}"
        print(
            f"{case:34} {stock:7.2f} ms {fast:7.2f} ms {factor:6.2f}x  "
            f"{low:.2f} to {high:.2f}    {wanted}",
            flush=True,
        )
    return reached


def compare_with_pytorch(cases: list[str], seconds: float) -> None:
    """Print times with both kernels and in eager PyTorch, and their ratios to Chainer's."""
    kinds = [CHAINER, "numpy", "torch", PYTORCH]
    print(f"{'case':28} {CHAINER:>11}" + "".join(f"{kind:>33}" for kind in kinds[1:]))
    for case in cases:
        times = measure(case, kinds, seconds)
        stock, *others = times.T
        line = f"{case:28} {np.median(stock) * 1e3:8.2f} ms"
        for other in others:
            factor, low, high = ratio(stock, other)
            shown = f"{factor:.2f}x ({low:.2f} to {high:.2f})"
            line += f"{np.median(other) * 1e3:8.2f} ms {shown:>21}"
        print(line, flush=True)


def compare_on_grid(kernels: str, count: int, seed: int) -> bool:
    """Print the ratios of functions on random shapes; return whether all reach the target."""
    ratios = []
    for measured in accelerate_grid.measure(kernels, count, seed):
        ratios.append(measured)
        if measured.factor < accelerate_grid.MIN_FACTOR:
            print(accelerate_grid.line(measured), flush=True)
    print(accelerate_grid.table(ratios))
    return all(measured.factor >= accelerate_grid.MIN_FACTOR for measured in ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", choices=sorted(TARGETS), default="numpy")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    parser.add_argument("--cases", help="network:batch:phase[:HxW], by commas")
    parser.add_argument("--registry", action="store_true", help="every network; least ratio 0.98")
    parser.add_argument("--pytorch", action="store_true", help="compare with eager PyTorch")
    parser.add_argument(
        "--grid", type=int, nargs="?", const=300, metavar="COUNT", help="random convolutions"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random shapes")
    args = parser.parse_args()
    if args.grid:
        return int(not compare_on_grid(args.kernels, args.grid, args.seed))
    cases = args.cases.split(",") if args.cases else []
    if args.pytorch:
        compare_with_pytorch(cases or list(_BESIDE_PYTORCH), args.seconds)
        return 0
    targets = TARGETS[args.kernels]
    if args.registry:
        cases = [
            f"{name}:{batch}:{phase}"
            for name in REGISTRY
            for batch, phase in ((1, "forward"), (2, "train"))
        ]
        targets = dict.fromkeys(cases, 0.98)
    return int(
        not compare_with_chainer(args.kernels, cases or list(targets), targets, args.seconds)
    )


if __name__ == "__main__":
    sys.exit(main())
