"""Measure the overhead of profiling, and compare its times with Chainer's TimerHook.

    python -m benchmarks.overhead [--rounds 100] [--cpu] [--gpu 0]

Blocks of trials with and without profiling alternate in one process, with one BLAS thread. The
table shows the median of the paired ratios with its 95 % interval. They include aggregation and the
journal. ``--cpu`` compares CPU time instead of wall time. ``--gpu`` measures on a GPU: ResNet20 at
batch 1 and 128, and ResNet50 at batch 32.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import chainer_profile  # (before Chainer)

# ruff: isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.function_hooks import TimerHook
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import median_interval
from chainer_profile.measure import environment
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.step_session import StepSession
from chainer_profile.measure.steps import AnyStep, make_step
from chainer_profile.measure.trials import Trials
from chainer_profile.networks.inputs import make_input
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording, Settings
from models import REGISTRY

TIMER_HOOK = "TimerHook"
_WARM_UPS = 3
#: Approximate length of a block of trials in seconds.
_BLOCK_S = 0.3

#: Runs a number of trials, profiled in one way.
Way = Callable[[int], object]


# -- cases


@dataclass(frozen=True)
class Case:
    """A step that the trials run, and the clock that measures it."""

    name: str
    step: AnyStep
    clock: Clock = HOST_CLOCK

    def plain(self, count: int) -> None:
        """Run trials without profiling."""
        for _ in range(count):
            self.trial()

    def trial(self) -> None:
        self.step()
        if self.clock.device is not None:
            self.clock.device.synchronize()


def network(name: str, batchsize: int = 1, phase: str = "forward", gpu: int | None = None) -> Case:
    """Make a case of a network of the registry with random images."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    entry = REGISTRY[name]
    shape = entry.input_shape
    array = make_input("random", shape, batchsize, seed=0, mean=entry.mean, std=entry.std).array
    model, clock = entry.build(), HOST_CLOCK
    if gpu is not None:
        array, clock = move_to_gpu(model, array, gpu)
    step = make_step(phase, model, (array,))
    return Case(f"{name}, batch {batchsize}, {phase}", step, clock)


class Empty(chainer.Chain):
    """Calls a function that does nothing, as often as ResNet20 calls functions."""

    def forward(self, x: Any) -> Any:
        for _ in range(66):
            x = F.identity(x)
        return x


def empty_functions() -> Case:
    step = make_step("forward", Empty(), (np.zeros(1, np.float32),))
    return Case("66 empty functions", step)


class LanguageModel(chainer.Chain):
    """The loss of two LSTMs over a sequence of words."""

    def __init__(self, words: int = 1000, units: int = 100) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(words, units)
            self.l1, self.l2 = L.LSTM(units, units), L.LSTM(units, units)
            self.l3 = L.Linear(units, words)

    def forward(self, words: Any) -> Any:
        self.l1.reset_state()
        self.l2.reset_state()
        return sum(F.softmax_cross_entropy(self.next(x), t) for x, t in pairwise(words))

    def next(self, x: Any) -> Any:
        h = self.l1(F.dropout(self.embed(x)))
        return self.l3(F.dropout(self.l2(F.dropout(h))))


def language_model() -> Case:
    """Make a case of a training step of two LSTMs over 35 steps."""
    model = LanguageModel()
    optimizer = chainer.optimizers.SGD(0.1).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5.0))
    words = np.random.default_rng(0).integers(0, 1000, (36, 20), np.int32)
    step = make_step("train", model, (words,), loss="output", optimizer=optimizer)
    return Case("LSTM, 35 steps, train", step)


# -- ways of profiling


@contextmanager
def trials_of(case: Case, count: int) -> Iterator[Trials]:
    """Open the trials of ``profile()``, with their journal in a file."""
    session = StepSession(case.step, case.clock)
    session.learn()
    settings = Settings(trials=count)
    with tempfile.TemporaryFile() as file:
        where, journal = environment.collect(), Journal(file)
        trials = Trials(case.step, session, settings, where, journal, case.clock)
        trials.begin()
        yield trials


def timer_hook(case: Case) -> Way:
    def way(count: int) -> None:
        with TimerHook():
            case.plain(count)

    return way


def layer_timer_hook(case: Case) -> Way:
    hook = chainer_profile.LayerTimerHook()

    def way(count: int) -> None:
        with hook:
            case.plain(count)
        hook.total_time()  # aggregates the log

    return way


def profiling(case: Case) -> Way:
    model, block = case.step.model, chainer_profile.profiling(clock=case.clock)

    def way(count: int) -> Any:
        for _ in range(count):
            with block:
                case.trial()
        assert block._iterations is not None
        block._iterations.times()  # aggregates the log and writes the journal
        return model  # keeps the network alive

    return way


@contextmanager
def ways_of(case: Case) -> Iterator[dict[str, Way]]:
    """Open all ways of profiling a case."""
    with trials_of(case, 1) as trials:
        yield {
            TIMER_HOOK: timer_hook(case),
            "LayerTimerHook": layer_timer_hook(case),
            "profile()": trials.profiled,
            "profiling()": profiling(case),
        }


# -- overhead


def added(
    case: Case, rounds: int, now: Callable[[], float]
) -> tuple[float, dict[str, NDArray[np.float64]]]:
    """Measure the overhead of each way.

    Returns the median seconds of an unprofiled trial, and by way the overhead in each round, as a
    fraction of an unprofiled trial.
    """
    with ways_of(case) as ways:
        case.plain(_WARM_UPS)
        count = max(1, round(_BLOCK_S / timed(case.plain, 1, time.perf_counter)))
        for way in ways.values():
            way(_WARM_UPS)
        parts: dict[str, list[float]] = {name: [] for name in ways}
        plain_s: list[float] = []
        order, rng = list(ways), np.random.default_rng(0)
        for number in range(rounds):
            rng.shuffle(order)
            for name in order:
                before = timed(case.plain, count, now)
                during = timed(ways[name], count, now)
                around = (before + timed(case.plain, count, now)) / 2
                parts[name].append(during / around - 1)
                plain_s.append(before / count)
            progress(case.name, number + 1, rounds)
    return float(np.median(plain_s)), {name: np.array(each) for name, each in parts.items()}


def timed(way: Way, count: int, now: Callable[[], float]) -> float:
    """Run a block of trials; return its seconds."""
    begin = now()
    way(count)
    return now() - begin


# -- means of layers


def agreement(case: Case, rounds: int, count: int = 10) -> tuple[Recording, NDArray[np.float64]]:
    """Run alternating blocks of trials under ``profile()`` and TimerHook.

    Returns the recording, and TimerHook's mean seconds of each layer.
    """
    timer = TimerHook()
    with trials_of(case, rounds * count) as trials:
        for number in range(rounds):
            trials.profiled(count)
            with timer:
                case.plain(count)
            progress("agreement", number + 1, rounds)
        recording = trials.recording()
    folded = chainer_profile.fold_call_history(timer.call_history, len(recording.layers))
    return recording, folded.self_ns.mean(axis=0) * 1e-9


def print_agreement(case: Case, rounds: int, min_us: int) -> None:
    """Print the largest difference of a layer's mean time from TimerHook's."""
    recording, theirs = agreement(case, rounds)
    large = theirs > min_us * 1e-6
    differences = np.abs(recording.self_ns.mean(axis=0)[large] * 1e-9 / theirs[large] - 1)
    print(
        f"{case.name}: means differ from TimerHook's by at most {differences.max(initial=0):.2%} "
        f"({large.sum()} layers above {min_us} us)"
    )
    if recording.gap_ns is not None and recording.span_ns is not None:
        inside = recording.self_ns.sum(axis=1) + recording.gap_ns.sum(axis=1)
        rest = (1 - inside / recording.span_ns).max()
        print(f"{case.name}: layers and gaps are at least {1 - rest:.3%} of a trial")


# -- the table


def progress(name: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name} {done}/{total} ", end="" if done < total else "\n", file=sys.stderr)


def row(*cells: str) -> None:
    widths = (26, 14, 30, 11)
    text = " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    print(f"| {text} |", flush=True)


def print_rows(case: Case, rounds: int, now: Callable[[], float]) -> None:
    """Print the overhead of each way for a case."""
    plain_s, parts = added(case, rounds, now)
    row(case.name, "none", f"{plain_s * 1e3:.3f} ms", "")
    timer_overhead = float(np.median(parts[TIMER_HOOK]))
    for name, values in parts.items():
        low, high = median_interval(values)
        middle = float(np.median(values))
        row(
            "", name, f"{middle:+.2%} ({low:+.2%} to {high:+.2%})", f"{middle / timer_overhead:.2f}"
        )


def cases(gpu: int | None) -> Iterator[Case]:
    if gpu is not None:
        yield network("resnet20", 1, gpu=gpu)
        yield network("resnet20", 128, gpu=gpu)
        return
    yield network("resnet20")
    yield network("resnet20", phase="train")
    yield empty_functions()
    yield language_model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cpu", action="store_true", help="compare CPU time")
    parser.add_argument("--gpu", type=int, help="measure on this GPU")
    args = parser.parse_args()
    now = time.process_time if args.cpu else time.perf_counter
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1, "blas"))
        row("trial", "profiled by", "adds", "/ TimerHook")
        row("-" * 26, "-" * 14, "-" * 30, "-" * 11)
        for case in cases(args.gpu):
            with case.step.configured():
                print_rows(case, args.rounds, now)
        name, batchsize, min_us = ("resnet20", 1, 50) if args.gpu is None else ("resnet50", 32, 100)
        case = network(name, batchsize, gpu=args.gpu)
        with case.step.configured():
            case.plain(_WARM_UPS)
            print_agreement(case, max(1, args.rounds // 10), min_us)


if __name__ == "__main__":
    main()
