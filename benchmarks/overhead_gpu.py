"""What profiling costs on a GPU, and whether its times are true: ``overhead.py --gpu 0``.

ResNet20 at batch 1 and 128: blocks of clean trials, of trials under the recorder and of trials
under Chainer's TimerHook take turns in one process; shown is the median of the paired ratios with
its 95 % interval. ResNet50 at batch 32: what the layers and the gaps between them leave of the
trial's time on the GPU, and the layers' times against TimerHook's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import chainer_profile

# ruff: isort: split
import numpy as np
from chainer.function_hooks import TimerHook

from chainer_profile.basics.describe import median_interval
from chainer_profile.measure import environment
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.trials import Trials
from chainer_profile.networks.inputs import make_input
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording, Settings
from models import REGISTRY

BLOCK = 10
WARMUPS = 30
#: Layers above this are compared with TimerHook's.
LARGE_S = 100e-6

Row = Callable[[str, str, str], None]


def network(name: str, batchsize: int, gpu: int) -> tuple[ForwardStep, Clock]:
    """A network of the registry with random images on a GPU, ready to run."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    entry = REGISTRY[name]
    shape = entry.input_shape
    batch = make_input("random", shape, batchsize, seed=0, mean=entry.mean, std=entry.std)
    model = entry.build()
    array, clock = move_to_gpu(model, batch.array, gpu)
    return ForwardStep(model, (array,)), clock


def trials_of(step: ForwardStep, structure: Structure, clock: Clock, count: int) -> Trials:
    """The profiler's own trials, with their journal in memory."""
    trials = Trials(
        step,
        structure,
        Settings(trials=count),
        environment.collect(),
        Journal(),
        clock,
        lambda done, total, mean_s: None,
        lambda: "",
    )
    trials.begin()
    return trials


def added_time(
    step: ForwardStep, structure: Structure, clock: Clock, rounds: int
) -> tuple[float, dict[str, np.ndarray]]:
    """Median clean trial in seconds, and what each way of timing adds to it in each round."""
    assert clock.device is not None
    wait, timer = clock.device.synchronize, TimerHook()

    def clean() -> list[float]:
        times = []
        for _ in range(BLOCK):
            begin = time.perf_counter()
            step()
            wait()
            times.append(time.perf_counter() - begin)
        return times

    def timer_hook() -> list[float]:
        with timer:
            return clean()

    trials = trials_of(step, structure, clock, rounds * BLOCK)

    def recorder() -> list[float]:
        trials.profiled(BLOCK)
        return [wall_ns * 1e-9 for wall_ns in trials._walls[-BLOCK:]]

    ways = {"recorder": recorder, "TimerHook": timer_hook, "nothing": clean}
    added: dict[str, list[float]] = {name: [] for name in ways}
    clean_s: list[float] = []
    order = list(ways)
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            before = clean()
            during = ways[name]()
            added[name].append(float(np.median(during) / np.median(before + clean())) - 1)
            clean_s += before
    return float(np.median(clean_s)), {name: np.array(values) for name, values in added.items()}


def agreement(
    step: ForwardStep, structure: Structure, clock: Clock, rounds: int
) -> tuple[Recording, np.ndarray]:
    """Trials under the recorder, and TimerHook's mean time of every layer, in turns."""
    timer = TimerHook()
    trials = trials_of(step, structure, clock, rounds * BLOCK)
    for _ in range(rounds):
        trials.profiled(BLOCK)
        with timer:
            for _ in range(BLOCK):
                step()
    folded = chainer_profile.fold_call_history(timer.call_history, len(structure.layers))
    return trials.recording(), folded.self_ns.mean(axis=0) * 1e-9


def run(gpu: int, rounds: int, row: Row) -> None:
    """Measure everything, and show it.

    Args:
        gpu: Number of the GPU.
        rounds: Blocks of ten trials of each kind.
        row: Shows a figure, what was measured, and the target.
    """
    for batchsize, target, ratio in ((1, "<= 12 %", "<= 0.33"), (128, "<= 1 %", "")):
        step, clock = network("resnet20", batchsize, gpu)
        with step.configured():
            for _ in range(WARMUPS):
                step()
            structure = learn_structure(step)
            clean_s, added = added_time(step, structure, clock, rounds)
        row(f"resnet20 batch {batchsize}: clean trial, median", f"{clean_s * 1e3:.3f} ms", "")
        for name, values in added.items():
            low, high = median_interval(values)
            text = f"{np.median(values) * 100:+.2f} % ({low * 100:+.2f} to {high * 100:+.2f})"
            row(f"    added by {name}", text, target if name == "recorder" else "")
        part = np.median(added["recorder"]) / np.median(added["TimerHook"])
        row("    recorder / TimerHook", f"{part:.2f}", ratio)
    step, clock = network("resnet50", 32, gpu)
    with step.configured():
        for _ in range(WARMUPS):
            step()
        structure = learn_structure(step)
        recording, theirs = agreement(step, structure, clock, max(1, rounds // 10))
    assert recording.gap_ns is not None
    assert recording.span_ns is not None
    inside = recording.self_ns.sum(axis=1) + recording.gap_ns.sum(axis=1)
    off = 1 - inside / recording.span_ns
    row("resnet50 batch 32: trial less layers and gaps", f"{off.max() * 100:.3f} %", "<= 1 %")
    mine = recording.self_ns.mean(axis=0) * 1e-9
    large = theirs > LARGE_S
    if large.any():
        most = np.abs(mine[large] / theirs[large] - 1).max()
        row(
            f"    {large.sum()} layers above 100 us against TimerHook: largest difference",
            f"{most * 100:.2f} %",
            "<= 5 %",
        )
