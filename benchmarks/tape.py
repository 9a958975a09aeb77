"""What the tape adds to programs: CPU time of one process, in blocks that take turns.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 \
        python -m benchmarks.tape [--rounds 40] [empty resnet20 lstm]

Medians of paired differences, with their quartiles: of 66 links whose functions do nothing, of
ResNet20 at batch 1, and of a language model of two LSTMs over 35 steps with backward and update.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import chainer_profile  # noqa: F401  (before Chainer)

# ruff: isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.function_hooks import TimerHook

from chainer_profile.measure.entries import Entries
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.tape import Tape
from models import REGISTRY

#: A program's iteration, the iterations of a block, and what the tape is to know of it.
Program = tuple[Callable[[], object], int, LoopTrial]


class Identity(chainer.Link):
    def forward(self, x: Any) -> Any:
        return F.identity(x)


class LanguageModel(chainer.Chain):
    def __init__(self, words: int = 1000, units: int = 100) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(words, units)
            self.l1, self.l2 = L.LSTM(units, units), L.LSTM(units, units)
            self.l3 = L.Linear(units, words)

    def forward(self, x: Any) -> Any:
        h = self.l1(F.dropout(self.embed(x)))
        return self.l3(F.dropout(self.l2(F.dropout(h))))


def empty() -> Program:
    model, x = chainer.Sequential(*(Identity() for _ in range(66))), np.ones((1, 1), np.float32)
    return lambda: model(x), 40, LoopTrial([("", model)])


def resnet20() -> Program:
    model = REGISTRY["resnet20"].build()
    x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)

    def step() -> None:
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            model(x)

    return step, 5, LoopTrial([("", model)])


def lstm() -> Program:
    model = LanguageModel()
    optimizer = chainer.optimizers.SGD(0.1).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5.0))
    words = np.random.default_rng(0).integers(0, 1000, (36, 20), np.int32)

    def step() -> None:
        model.l1.reset_state()
        model.l2.reset_state()
        loss = sum(F.softmax_cross_entropy(model(x), t) for x, t in pairwise(words))
        model.cleargrads()
        loss.backward()
        optimizer.update()

    return step, 1, LoopTrial([("", model)], [("", optimizer)])


def added(program: Program, rounds: int) -> None:
    step, block, trial = program
    entries, timer = Entries(trial.around), TimerHook()
    tape = Tape(time.perf_counter_ns, trial, entries)

    def plain() -> int:
        for _ in range(1 + block // 2):  # what was replaced has to be fast again
            step()
        begin = time.process_time_ns()
        for _ in range(block):
            step()
        return time.process_time_ns() - begin

    def timed() -> int:
        timer.call_history.clear()
        with timer:
            return plain()

    def taped() -> tuple[int, int, int]:
        windows = 0
        with entries, tape.recording():
            for _ in range(1 + block // 2):
                tape.start()
                step()
                tape.stop()
            tape.fold()
            begin = time.process_time_ns()
            for _ in range(block):
                tape.start()
                step()
                windows += tape.stop()
            within = time.process_time_ns() - begin
        tape.fold()
        return within, time.process_time_ns() - begin, windows

    for _ in range(3):
        taped()
    rounds_ns = []
    for _ in range(rounds):
        before, by_timer, (within, whole, windows) = plain(), timed(), taped()
        base = (before + plain()) / 2
        rounds_ns.append([(by_timer - base), (within - base), (whole - base), base, windows])
    values = np.array(rounds_ns)
    for name, ns in zip(("TimerHook", "tape", "tape, folded"), values.T[:3], strict=True):
        low, median, high = np.percentile(ns / values[:, 4], [25, 50, 75]) / 1e3
        share = float(np.median(ns / values[:, 3]))
        print(f"  {name:14} {share:+7.2%}  {median:6.2f} us a window ({low:.2f} to {high:.2f})")


def main() -> None:
    programs = {"empty": empty, "resnet20": resnet20, "lstm": lstm}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", choices=[*programs, []], default=[])
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    for name in args.programs or programs:
        print(name, flush=True)
        added(programs[name](), args.rounds)


if __name__ == "__main__":
    main()
