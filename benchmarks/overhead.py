"""What profiling costs: the figures of docs/overhead.md, as ratios within one run.

    python -m benchmarks.overhead [--rounds 300] [--gpu 0] [--programs]

ResNet20, inference and training, with one BLAS thread. Times are compared in short blocks that take
turns in one process, and the median of the paired ratios is shown with its 95 % interval.
``--programs`` shows, in CPU time, what the tape adds to iterations of programs: of 66 links whose
functions do nothing, of ResNet20, and of a language model of two LSTMs over 35 steps. On a GPU:
ResNet20 at batch 1 and 128; ResNet50 at batch 32, what the layers and the gaps between them leave
of the trial's time on the GPU, and the layers' times against TimerHook's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import chainer_profile  # (before Chainer)

# ruff: isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import FunctionHook
from chainer.function_hooks import TimerHook
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.taped_step import TapedStep
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import median_interval
from chainer_profile.measure import environment
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.steps import AnyStep, make_step
from chainer_profile.measure.trials import Trials
from chainer_profile.networks.inputs import make_input
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording, Settings
from models import REGISTRY

BLOCK = 10
LAYER_TIMER = "LayerTimerHook, with folding"
#: A way of running a block: the seconds of its trials.
Way = Callable[[], list[float]]


def two_clock_reads() -> tuple[FunctionHook, list[int]]:
    """The least that a hook can do, a clock read on entering and on leaving; and its reads."""
    stamps: list[int] = []
    stamp, now_ns = stamps.append, time.perf_counter_ns

    class TwoClockReads(FunctionHook):
        name = "TwoClockReads"

        def forward_preprocess(self, function: object, in_data: object) -> None:
            stamp(now_ns())

        def forward_postprocess(self, function: object, in_data: object) -> None:
            stamp(now_ns())

    return TwoClockReads(), stamps


def network(
    name: str, batchsize: int = 1, phase: str = "forward", gpu: int | None = None
) -> tuple[AnyStep, Clock]:
    """A network of the registry with random images, ready to run."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    entry = REGISTRY[name]
    shape = entry.input_shape
    array = make_input("random", shape, batchsize, seed=0, mean=entry.mean, std=entry.std).array
    model, clock = entry.build(), HOST_CLOCK
    if gpu is not None:
        array, clock = move_to_gpu(model, array, gpu)
    return make_step(phase, model, (array,)), clock


class Empty(chainer.Chain):
    """As many function calls as ResNet20 makes, of a function that does nothing."""

    def forward(self, x: Any) -> Any:
        for _ in range(66):
            x = F.identity(x)
        return x


@contextmanager
def trials_of(step: AnyStep, taped: TapedStep, clock: Clock, n_trials: int) -> Iterator[Trials]:
    """The profiler's own trials, with their journal in a file."""
    with tempfile.TemporaryFile() as file:
        trials = Trials(
            step,
            taped,
            Settings(trials=n_trials),
            environment.collect(),
            Journal(file),
            clock,
        )
        trials.begin()
        yield trials


def added_time(
    step: AnyStep, taped: TapedStep, clock: Clock, rounds: int, block: int = BLOCK
) -> tuple[float, dict[str, Any]]:
    """Median clean trial in seconds, and what each way of timing adds to it in each round.

    That is the added time of the trials themselves, which is what the layers' times suffer; of the
    recorder also that of whole blocks, with all it does between trials (folding, writing).
    """
    timer, layer_timer = TimerHook(), chainer_profile.LayerTimerHook()
    bare, stamps = two_clock_reads()
    with layer_timer:  # which looks up calls in the first trial
        for _ in range(2 * block):
            step()

    def trial() -> None:
        step()
        if clock.device is not None:
            clock.device.synchronize()

    def clean() -> list[float]:
        return [timed(trial) for _ in range(block)]

    def timer_hook() -> list[float]:
        timer.call_history.clear()
        with timer:
            return clean()

    def layer_timer_hook() -> list[float]:
        with layer_timer:
            seconds = clean()
            # What it does now and then, and at the end, for the trials of a block.
            folding_s = timed(layer_timer.total_time) / block
            return [trial_s + folding_s for trial_s in seconds]

    def clock_reads() -> list[float]:
        stamps.clear()
        with bare:
            return clean()

    with trials_of(step, taped, clock, 2 * rounds * block) as trials:

        def recorder() -> list[float]:
            trials.profiled(block)
            return [wall_ns * 1e-9 for wall_ns in trials._walls[-block:]]

        def recorder_and_writing() -> list[float]:
            begin = time.perf_counter()
            seconds = recorder()
            between_s = (time.perf_counter() - begin - sum(seconds)) / block
            return [trial_s + between_s for trial_s in seconds]

        ways: dict[str, Way] = {
            "recorder": recorder,
            "TimerHook": timer_hook,
            LAYER_TIMER: layer_timer_hook,
            "two clock reads": clock_reads,
            "nothing": clean,
            "recorder, with folding and writing": recorder_and_writing,
        }
        return by_turns(clean, ways, rounds)


def by_turns(clean: Way, ways: dict[str, Way], rounds: int) -> tuple[float, dict[str, Any]]:
    """Median clean trial in seconds, and the part of it that each way adds in each round."""
    added: dict[str, list[float]] = {name: [] for name in ways}
    clean_s: list[float] = []
    order = list(ways)
    rng = np.random.default_rng(0)
    for turn in range(rounds):
        rng.shuffle(order)
        for name in order:
            before = clean()
            during = ways[name]()
            added[name].append(float(np.median(during) / np.median(before + clean())) - 1)
            clean_s += before
        progress("added time", turn + 1, rounds)
    return float(np.median(clean_s)), {name: np.array(values) for name, values in added.items()}


def timed(block: Callable[[], object]) -> float:
    begin = time.perf_counter()
    block()
    return time.perf_counter() - begin


# -- the iterations of a program


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


def training_of_words() -> tuple[Callable[[], None], LoopTrial]:
    """An iteration of a language model, and what the tape is to know of it."""
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

    return step, LoopTrial([("", model)], [("", optimizer)])


def added_to_program(
    step: Callable[[], object], trial: LoopTrial, rounds: int, block: int
) -> tuple[float, dict[str, Any]]:
    """The same of CPU time, and of a program's iterations on the tape."""
    entries, timer = Entries(trial.around), TimerHook()
    tape = Tape(time.perf_counter_ns, trial, entries)

    def run(once: Callable[[], object], end: Callable[[], object] = lambda: None) -> list[float]:
        for _ in range(1 + block // 2):  # What was replaced has to be fast again.
            once()
        end()
        begin = time.process_time()
        for _ in range(block):
            once()
        within_s = time.process_time() - begin
        end()
        return [within_s / block, (time.process_time() - begin) / block]

    def taped() -> list[float]:
        def once() -> None:
            tape.start()
            step()
            tape.stop()

        with entries, tape.recording():
            return run(once, tape.fold)

    def timer_hook() -> list[float]:
        timer.call_history.clear()
        with timer:
            return run(step)[:1]

    taped()
    ways: dict[str, Way] = {
        "TimerHook": timer_hook,
        "tape": lambda: taped()[:1],
        "tape, folded": lambda: taped()[1:],
    }
    return by_turns(lambda: run(step)[:1], ways, rounds)


def on_programs(rounds: int) -> None:
    links = chainer.Sequential(*(Identity() for _ in range(66)))
    x = np.ones((1, 1), np.float32)
    resnet, _ = network("resnet20")
    words, loop = training_of_words()
    with threadpool_limits(1, "blas"):
        times = added_to_program(lambda: links(x), LoopTrial([("", links)]), rounds, 40)
        for name, values in times[1].items():
            row(f"{name}, to each of 66 links", f"{np.median(values) * times[0] / 66e-6:.2f} us")
        with resnet.configured():
            times = added_to_program(resnet, LoopTrial(resnet.roots), rounds, 5)
        added_rows("iterations of resnet20", times)
        added_rows("two LSTMs over 35 steps", added_to_program(words, loop, rounds, 1))


# -- the means of layers


def agreement(step: AnyStep, taped: TapedStep, clock: Clock, rounds: int) -> tuple[Recording, Any]:
    """Trials under the recorder, and TimerHook's mean time of every layer, in turns."""
    timer = TimerHook()
    with trials_of(step, taped, clock, rounds * BLOCK) as trials:
        for turn in range(rounds):
            trials.profiled(BLOCK)
            with timer:
                for _ in range(BLOCK):
                    step()
            progress("agreement", turn + 1, rounds)
        recording = trials.recording()
    folded = chainer_profile.fold_call_history(timer.call_history, len(taped.layers))
    return recording, folded.self_ns.mean(axis=0) * 1e-9


# -- the table


def progress(name: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name} {done}/{total} ", end="" if done < total else "\n", file=sys.stderr)


def row(name: str, value: str, target: str = "") -> None:
    print(f"| {name:58} | {value:32} | {target:18} |", flush=True)


def added_rows(
    case: str, times: tuple[float, dict[str, Any]], of_trial: str = "", of_timer: str = ""
) -> None:
    """What the ways add to a trial; the targets are the recorder's."""
    clean_s, added = times
    row(f"{case}: clean trial, median", f"{clean_s * 1e3:.2f} ms")
    for name, values in added.items():
        low, high = median_interval(values)
        text = f"{np.median(values) * 100:+.2f} % ({low * 100:+.2f} to {high * 100:+.2f})"
        row(f"    added by {name}", text, of_trial if name == "recorder" else "")
    if "recorder" in added:
        part = np.median(added["recorder"]) / np.median(added["TimerHook"])
        row("    recorder / TimerHook", f"{part:.2f}", of_timer)


def agreement_row(recording: Recording, theirs: Any, least_us: int) -> None:
    """How far the means of layers are from TimerHook's."""
    large = theirs > least_us * 1e-6
    off = np.abs(recording.self_ns.mean(axis=0)[large] * 1e-9 / theirs[large] - 1)
    row(
        f"means against TimerHook's, {large.sum()} layers above {least_us} us: largest difference",
        f"{off.max(initial=0) * 100:.2f} %",
        "<= 5 %",
    )


def on_gpu(gpu: int, rounds: int) -> None:
    for batchsize, target, ratio in ((1, "<= 12 %", "<= 0.33"), (128, "<= 1 %", "")):
        step, clock = network("resnet20", batchsize, gpu=gpu)
        with step.configured():
            times = added_time(step, warmed(step, clock), clock, rounds)
        added_rows(f"resnet20 batch {batchsize}", times, target, ratio)
    step, clock = network("resnet50", 32, gpu=gpu)
    with step.configured():
        recording, theirs = agreement(step, warmed(step, clock), clock, max(1, rounds // 10))
    assert recording.gap_ns is not None
    assert recording.span_ns is not None
    inside = recording.self_ns.sum(axis=1) + recording.gap_ns.sum(axis=1)
    off = 1 - inside / recording.span_ns
    row("resnet50 batch 32: trial less layers and gaps", f"{off.max() * 100:.3f} %", "<= 1 %")
    agreement_row(recording, theirs, 100)


def learned(step: AnyStep, clock: Clock) -> TapedStep:
    """A step on the tape, whose calls two trials have told."""
    events = None if clock.device is None else EventPool(clock.device)
    taped = TapedStep(step, clock.now_ns, events)
    taped.learn()
    taped.learn()
    return taped


def warmed(step: AnyStep, clock: Clock, warmups: int = 30) -> TapedStep:
    for _ in range(warmups):
        step()
    return learned(step, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--gpu", type=int, help="measure on this GPU alone")
    parser.add_argument(
        "--programs", action="store_true", help="measure iterations of programs alone"
    )
    args = parser.parse_args()
    row("figure", "measured", "target")
    row("-" * 58, "-" * 32, "-" * 18)
    if args.gpu is not None:
        on_gpu(args.gpu, args.rounds)
        return
    if args.programs:
        on_programs(args.rounds)
        return
    step, clock = network("resnet20")
    with threadpool_limits(1, "blas"), step.configured():
        taped = warmed(step, clock, 100)
        clean_s, added = added_time(step, taped, clock, args.rounds)
        added_rows("resnet20", (clean_s, added), "<= 1.0 %", "")
        # What is added is small against the changes of a trial, but not against those of this one.
        empty = make_step("forward", Empty(), (np.zeros(1, np.float32),))
        empty_s, added = added_time(empty, learned(empty, clock), clock, args.rounds)
        row("66 functions that do nothing, median", f"{empty_s * 1e3:.3f} ms")
        for name, values in added.items():
            low, high = (end * empty_s * 1e6 for end in median_interval(values))
            us = np.median(values) * empty_s * 1e6
            share = us * 1e-6 / clean_s * 100
            row(f"{name}, to these", f"{us:+.1f} us ({low:+.1f} to {high:+.1f}) = {share:.2f} %")
        timer = np.median(added["TimerHook"])
        for name, target in (("recorder", "<= 0.4"), (LAYER_TIMER, "<= 0.6")):
            row(f"{name} / TimerHook", f"{np.median(added[name]) / timer:.2f}", target)
        agreement_row(*agreement(step, taped, clock, args.rounds), 50)
    for batchsize, block, target in ((32, 1, "<= 1.5 %"), (1, BLOCK, "")):
        step, clock = network("resnet20", batchsize, "train")
        with threadpool_limits(1, "blas"), step.configured():
            times = added_time(step, warmed(step, clock, 3), clock, max(1, args.rounds // 5), block)
        added_rows(f"resnet20, training, batch {batchsize}", times, target, "<= 0.5")


if __name__ == "__main__":
    main()
