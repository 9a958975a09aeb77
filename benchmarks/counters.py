"""Whether the system's time, by the counters pass, is what keeping memory saves.

    python benchmarks/counters.py [--seconds 20] [--cases resnet20:8:forward]

A process and another one that keeps memory take turns in blocks of a tenth of a second, with one
thread; so does the counters pass in the first of them, as the system's time changes with what else
runs. Told is its median, saved the median of the rounds' differences of CPU time, with its 95 %
interval. The target: within 15 %.
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


def serve(pipe: Connection, case: str, kept: bool) -> None:
    """Run blocks when asked to: CPU seconds of one of so many trials; or, of none, count."""
    name, batch, phase = case.split(":")
    entry = REGISTRY[name]
    x = np.random.default_rng(0).random((int(batch), *entry.input_shape), np.float32)
    step = make_step(phase, entry.build(), (x,))
    with threadpool_limits(1), keeping_memory() if kept else nullcontext(), step.configured():
        for _ in range(3):
            step()
        structure, now_ns = learn_structure(step), time.perf_counter_ns
        while (count := pipe.recv()) is not None:
            if not count:
                counters = measure_counters(step, structure, now_ns=now_ns, seconds=BLOCK_S)
                assert counters is not None
                pipe.send(of_trial(counters))
                continue
            begin = time.process_time()
            for _ in range(count):
                step()
            pipe.send((time.process_time() - begin) / count)


def compare(case: str, seconds: float) -> tuple[float, ...]:
    """Page faults, system's time told, and CPU time saved with its interval; of CPU time."""
    processes = get_context("spawn")
    pipes = []
    for kept in (False, True):
        here, there = processes.Pipe()
        processes.Process(target=serve, args=(there, case, kept), daemon=True).start()
        pipes.append(here)

    def block(index: int, count: int) -> Any:
        pipes[index].send(count)
        return pipes[index].recv()

    count = max(1, int(BLOCK_S / max(block(0, 1), 1e-4)))
    rounds: list[tuple[float, ...]] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(rounds) < 6:
        order = (0, 1) if len(rounds) % 2 else (1, 0)
        cpu = {index: block(index, count) for index in order}
        trial = block(0, 0)
        rounds.append((cpu[0], cpu[1], trial.system_s, trial.page_faults))
    for pipe in pipes:
        pipe.send(None)
    stock, kept_s, told, faults = np.array(rounds).T
    interval = float(np.median(stock - kept_s)), *median_interval(stock - kept_s)
    return float(np.median(faults)), float(np.median(told)), *interval, float(np.median(stock))


def main() -> int:
    """Print the table; 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case")
    parser.add_argument("--cases", default=CASES, help="network:batch:phase, by commas")
    args = parser.parse_args()
    missed = False
    print(f"{'case':26} {'CPU ms':>9} {'faults':>8} {'told ms':>8} {'saved ms':>9}  95 %   off")
    for case in args.cases.split(","):
        faults, told, saved, low, high, cpu = compare(case, args.seconds)
        off = told / saved - 1 if saved else float("nan")
        missed |= not abs(off) <= TARGET
        print(
            f"{case:26} {cpu * 1e3:9.2f} {faults:8.0f} {told * 1e3:8.2f} "
            f"{saved * 1e3:9.2f}  {low * 1e3:.2f} to {high * 1e3:.2f}  {off:+.1%}",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
