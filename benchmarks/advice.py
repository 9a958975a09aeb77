"""Measure how often ``profile.py advise`` is right about a change, with simulated times.

    python -m benchmarks.advice --simulate 300

Each case simulates three minutes of measurements. Three changes make the network 1.05, 1.1 and 1.3
times as fast, and three changes have no effect. Targets: every real gain is found, at most 5 % of
the useless changes are called helpful, and gains of successive cases agree to 5 %. The exit code
shows whether the first two are met; the column ``off 5 %`` is for the third.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from typing import Any

import numpy as np

from chainer_profile.advice.changes import Candidate
from chainer_profile.advice.results import ChangeResult
from chainer_profile.advice.trying import Experiment
from chainer_profile.advice.worker import BLOCK, LAYERS
from chainer_profile.analyse.findings import Change

#: The true speed-up of each change; 1 for a useless change.
SPEEDUPS = {"5 %": 1.05, "10 %": 1.10, "30 %": 1.30, "none 1": 1.0, "none 2": 1.0, "none 3": 1.0}
CANDIDATES = [Candidate(name, "planted", "", Change(engine=name), alone=False) for name in SPEEDUPS]


class Machine:
    """Simulates the time of processes on a shared machine.

    Other programs slow all processes down for some tenths of a second. In addition, a tenth of the
    blocks is slowed down alone, and the speed drifts over minutes. The parameters fit the machine
    on which the project was developed.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.now_s = 0.0
        #: Slowdown by other programs, and the time when it changes.
        self._slowdown, self._changes_s = 1.0, 0.0

    def run_block(self, seconds: float) -> float:
        """Run a block that takes ``seconds`` on an idle machine; return the time that it takes."""
        if self.now_s >= self._changes_s:
            self._changes_s = self.now_s + self.rng.exponential(0.4)
            self._slowdown = 1.0 + 0.4 * (self.rng.random() < 0.5) + 0.1 * self.rng.random()
        disturbance = abs(self.rng.normal(0, 0.35)) if self.rng.random() < 0.1 else 0.0
        drift = 0.1 * math.sin(self.now_s / 60)
        took_s = seconds * self._slowdown * math.exp(self.rng.normal(0, 0.06) + disturbance + drift)
        self.now_s += took_s
        return took_s


class SimulatedWorker:
    """A simulated :class:`.worker.Worker`.

    Each process has its own speed, because memory addresses differ.
    """

    def __init__(self, machine: Machine, change: Change) -> None:
        self._machine = machine
        gain = SPEEDUPS.get(change.engine, 1.0)
        self._block_s = 0.013 * math.exp(machine.rng.normal(0, 0.01)) / gain
        machine.now_s += 1.2

    def ask(self, request: str, timeout_s: float) -> Any:
        if request != BLOCK:
            return [] if request == LAYERS else ""
        self._machine.run_block(self._block_s)
        took_s = self._machine.run_block(self._block_s)
        return {"cpu_s": took_s, "wall_s": took_s}

    def close(self) -> None:
        pass


def simulate_case(seed: int, seconds: float) -> list[ChangeResult]:
    """Simulate the measurements of one case, and return the results of the changes."""
    machine = Machine(seed)
    experiment = Experiment(
        CANDIDATES, partial(SimulatedWorker, machine), seconds=seconds, now=lambda: machine.now_s
    )
    return [result for result in experiment.run()[0] if result.candidate.name in SPEEDUPS]


def show(cases: list[list[ChangeResult]]) -> bool:
    """Print a row for each change; return whether all targets are met."""
    all_met = True
    print(f"{'change':8} {'true':>6} {'called':>12} {'mean':>7} {'sd':>7} {'off 5 %':>8}")
    for name, true in SPEEDUPS.items():
        results = (each for case in cases for each in case if each.candidate.name == name)
        called = [result for result in results if result.helps]
        gains = np.array([result.gain.factor for result in called if result.gain])
        pairs = np.abs(gains[1:] / gains[:-1] - 1)
        differ = float((pairs > 0.05).mean()) if len(pairs) else math.nan
        rate = len(called) / max(1, len(cases))
        all_met &= rate >= 1 if true > 1 else rate <= 0.05
        mean, spread = (gains.mean(), gains.std()) if len(gains) else (math.nan, math.nan)
        print(
            f"{name:8} {true:6.3f} {len(called):5} of {len(cases):4} {mean:7.3f} "
            f"{spread:7.3f} {differ:8.1%}"
        )
    useless = [each for case in cases for each in case if SPEEDUPS[each.candidate.name] == 1]
    print(f"useless changes called: {sum(each.helps for each in useless)} of {len(useless)}")
    return all_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulate", metavar="N", type=int, default=300, help="number of cases")
    parser.add_argument("--seconds", type=float, default=165.0, help="length of each case")
    args = parser.parse_args()
    return int(not show([simulate_case(seed, args.seconds) for seed in range(args.simulate)]))


if __name__ == "__main__":
    sys.exit(main())
