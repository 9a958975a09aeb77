"""Whether the system's time, by the counters pass, is what keeping memory saves.

    python benchmarks/counters.py [--seconds 20] [--cases resnet20:8:forward]

A process counts what the system does for a trial; then it and another one that keeps memory take
turns in blocks of a tenth of a second, with one thread. Told is the system's time, saved the median
of the rounds' differences of CPU time, with its 95 % interval. The target: within 15 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import chainer_profile  # noqa: F401  (lets Chainer import)

# isort: split
import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.analyse.counted import of_trial
from chainer_profile.basics.describe import median_interval
from chainer_profile.kernels.memory import keeping_memory
from chainer_profile.measure.counters import measure_counters
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import make_step
from models import REGISTRY

CASES = "resnet20:8:forward,resnet20:32:forward,resnet20:128:forward,resnet20:32:train"
BLOCK_S = 0.1
TARGET = 0.15


def serve(pipe: Connection, case: str, kept: bool, seconds: float) -> None:
    """Count; then run blocks when asked to: CPU seconds of one of so many trials."""
    name, batch, phase = case.split(":")
    entry = REGISTRY[name]
    x = np.random.default_rng(0).random((int(batch), *entry.input_shape), np.float32)
    step = make_step(phase, entry.build(), (x,))
    with threadpool_limits(1), keeping_memory() if kept else nullcontext(), step.configured():
        for _ in range(3):
            step()
        structure = learn_structure(step)
        counters = measure_counters(step, structure, now_ns=time.perf_counter_ns, seconds=seconds)
        assert counters is not None
        pipe.send(of_trial(counters))
        while count := pipe.recv():
            begin = time.process_time()
            for _ in range(count):
                step()
            pipe.send((time.process_time() - begin) / count)


def compare(case: str, seconds: float) -> tuple[Any, ...]:
    """System's time told, and CPU time saved with its interval, both in seconds; of CPU time."""
    processes = get_context("spawn")
    pipes, told = [], []
    for kept in (False, True):
        here, there = processes.Pipe()
        args = there, case, kept, seconds
        processes.Process(target=serve, args=args, daemon=True).start()
        told.append(here.recv())
        pipes.append(here)

    def block(index: int, count: int) -> float:
        pipes[index].send(count)
        return float(pipes[index].recv())

    count = max(1, int(BLOCK_S / max(block(0, 1), 1e-4)))
    times: tuple[list[float], list[float]] = ([], [])
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(times[0]) < 6:
        for index in (0, 1) if len(times[0]) % 2 else (1, 0):
            times[index].append(block(index, count))
    for pipe in pipes:
        pipe.send(0)
    stock, kept_s = np.array(times)
    saved = stock - kept_s
    return (
        told[0],
        told[0].system_s,
        float(np.median(saved)),
        *median_interval(saved),
        np.median(stock),
    )


def main() -> int:
    """Print the table; 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each pass of a case")
    parser.add_argument("--cases", default=CASES, help="network:batch:phase, by commas")
    args = parser.parse_args()
    missed = False
    print(f"{'case':26} {'CPU ms':>9} {'faults':>8} {'told ms':>8} {'saved ms':>9}  95 %   off")
    for case in args.cases.split(","):
        trial, told, saved, low, high, cpu = compare(case, args.seconds)
        off = told / saved - 1 if saved else float("nan")
        missed |= not abs(off) <= TARGET
        print(
            f"{case:26} {cpu * 1e3:9.2f} {trial.page_faults:8.0f} {told * 1e3:8.2f} "
            f"{saved * 1e3:9.2f}  {low * 1e3:.2f} to {high * 1e3:.2f}  {off:+.1%}",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
