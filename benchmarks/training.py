"""What profiling a training step costs: figures of docs/overhead.md, as ratios in one run.

    python benchmarks/training.py [--rounds 60] [--memory-trials 100]

ResNet20, forward, loss, backward and update with momentum SGD and weight decay, one BLAS thread.
Blocks of steps take turns in one process; the median of the paired ratios is shown with its 95 %
interval. At batch 32 the hooks' cost is far below the noise of a step, so two finer figures stand
beside it: the same at batch 1, and the time that the hooks' callbacks take alone, for just the
calls that a step makes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import chainer_profile  # noqa: E402, F401  (before Chainer)

# ruff: isort: split
import numpy as np  # noqa: E402
from chainer import FunctionHook  # noqa: E402
from chainer.function_hooks import TimerHook  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from chainer_profile.basics.describe import median_interval  # noqa: E402
from chainer_profile.measure.clock import HOST_CLOCK  # noqa: E402
from chainer_profile.measure.learner import learn_structure  # noqa: E402
from chainer_profile.measure.recorder import Recorder  # noqa: E402
from chainer_profile.measure.runner import profile  # noqa: E402
from chainer_profile.measure.steps import AnyStep, BackwardStep, make_step  # noqa: E402
from chainer_profile.measure.windows import Mark  # noqa: E402
from chainer_profile.networks.inputs import make_input  # noqa: E402
from models import REGISTRY  # noqa: E402


def training_step(name: str, batchsize: int) -> AnyStep:
    """A training step of a network of the registry, warmed up."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    entry = REGISTRY[name]
    batch = make_input(
        "random", entry.input_shape, batchsize, seed=0, mean=entry.mean, std=entry.std
    )
    step = make_step("train", entry.build(), (batch.array,))
    with step.configured():
        for _ in range(3):
            step()
    return step


def timed(block: Callable[[], object]) -> float:
    begin = time.perf_counter()
    block()
    return time.perf_counter() - begin


def added_time(step: AnyStep, rounds: int, block: int) -> tuple[float, dict[str, Any]]:
    """Median clean step in seconds, and each way's added time in every round, as fractions."""
    recorder, timer = Recorder(HOST_CLOCK.now_ns, step), TimerHook()

    @contextmanager
    def recording() -> Iterator[None]:
        recorder.clear()
        with recorder:
            yield

    ways: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "recorder": recording,
        "TimerHook": lambda: timer,
        "nothing": nullcontext,
    }
    added: dict[str, list[float]] = {name: [] for name in ways}
    clean_s: list[float] = []
    rng = np.random.default_rng(0)

    def steps() -> list[float]:
        return [timed(step) for _ in range(block)]

    with step.configured():
        before = steps()
        for turn in range(rounds):
            for name in rng.permutation(list(ways)):
                with ways[name]():
                    during = steps()
                behind = steps()
                added[name].append(float(np.median(during) / np.median(before + behind)) - 1)
                before = behind
                clean_s += behind
                timer.call_history.clear()
            if sys.stderr.isatty():
                print(f"\rround {turn + 1}/{rounds} ", end="", file=sys.stderr)
    return float(np.median(clean_s)), {name: np.array(values) for name, values in added.items()}


def callbacks_alone(step: AnyStep, rounds: int = 200) -> dict[str, float]:
    """Median seconds that each hook's callbacks take for the function calls of one step."""
    calls: list[tuple[str, Any]] = []

    class Calls(FunctionHook):
        name = "Calls"

        def forward_preprocess(self, function: Any, in_data: Any) -> None:
            calls.append(("forward_preprocess", function))

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            calls.append(("forward_postprocess", function))

        def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            calls.append(("backward_preprocess", function))

        def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            calls.append(("backward_postprocess", function))

    with step.configured(), Calls():
        step()
    recorder, timer = Recorder(HOST_CLOCK.now_ns, step), TimerHook()
    arrays = (np.zeros(1, np.float32),)
    hooks = {"recorder": recorder.hook, "TimerHook": timer}
    bound = {
        name: [
            (getattr(hook, method), (function, arrays, arrays)[: 2 + method.startswith("back")])
            for method, function in calls
        ]
        for name, hook in hooks.items()
    }
    # The recorder times more than functions: phases, hooks, cleargrads, each parameter's update.
    with step.configured():
        windows = learn_structure(step).windows
    for mark in [what for what, _ in windows if isinstance(what, Mark)]:
        bound["recorder"] += [(recorder.enter, (mark,)), (recorder.leave, ())]
    bound["nothing"] = [(lambda *_: None, arguments) for _, arguments in bound["TimerHook"]]
    seconds: dict[str, list[float]] = {name: [] for name in bound}
    for _ in range(rounds):
        for name, listed in bound.items():
            begin = time.perf_counter()
            for callback, arguments in listed:
                callback(*arguments)
            seconds[name].append(time.perf_counter() - begin)
        recorder.clear()
        timer.call_history.clear()
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    nothing = medians.pop("nothing")
    return {name: value - nothing for name, value in medians.items()}


def memory(n_trials: int) -> None:
    """Prints what the recording of resnet152's training takes, in MB; in a process of its own."""
    step = training_step("resnet152", 1)
    with step.configured():
        n_stamps = len(learn_structure(step).owners)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert isinstance(step, BackwardStep)
    recording = profile(
        step.model,
        step.inputs,
        trials=n_trials,
        clean_trials=1,
        warmups=0,
        phase="train",
    )
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    arrays = [recording.self_ns, recording.framework_ns, recording.trial_ns, recording.start_ns]
    kept = sum(array.nbytes for array in arrays if array is not None)
    # A trial's clock reads: 8 bytes in the list and 32 for the number; entries as much at most.
    kept += n_stamps * (40 + 8)
    print(f"{len(recording.layers)} {kept / 1e6:.1f} {grown:.0f}")


def row(name: str, value: str, target: str = "") -> None:
    print(f"| {name:58} | {value:32} | {target:18} |", flush=True)


def interval(values: Any) -> str:
    low, high = median_interval(values)
    return f"{np.median(values) * 100:+.2f} % ({low * 100:+.2f} to {high * 100:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--memory-trials", type=int, default=100)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        memory(args.memory_trials)
        return

    row("figure", "measured", "target")
    row("-" * 58, "-" * 32, "-" * 18)
    with threadpool_limits(1, "blas"):
        for batchsize, block, target in ((32, 1, "<= 1.5 %"), (1, 10, "")):
            step = training_step("resnet20", batchsize)
            clean_s, added = added_time(step, args.rounds, block)
            row(f"clean step, batch {batchsize}, median", f"{clean_s * 1e3:.1f} ms")
            for name, values in added.items():
                row(
                    f"added by {name}, batch {batchsize}",
                    interval(values),
                    target if name == "recorder" else "",
                )
            alone = callbacks_alone(step)
            for name, seconds in alone.items():
                share = seconds / clean_s
                row(
                    f"callbacks of {name} alone, batch {batchsize}",
                    f"{seconds * 1e6:.0f} us = {share * 100:.3f} %",
                )
            ratio = np.median(added["recorder"]) / np.median(added["TimerHook"])
            seen = median_interval(added["TimerHook"])[0] > 0
            row(
                f"recorder / TimerHook, added time, batch {batchsize}",
                f"{ratio:.2f}" if seen else "both are within the noise",
                "<= 0.5",
            )
            ratio = alone["recorder"] / alone["TimerHook"]
            row(f"recorder / TimerHook, callbacks, batch {batchsize}", f"{ratio:.2f}", "<= 0.5")
    for name in ("resnet20", "resnet152"):
        build_s = min(timed(REGISTRY[name].build) for _ in range(3))
        row(f"building {name}", f"{build_s:.2f} s", "<= 3 s")
    if args.memory_trials:
        command = [sys.executable, __file__, "--memory", "--memory-trials"]
        result = subprocess.run(
            [*command, str(args.memory_trials)], check=True, capture_output=True, text=True
        )
        layers, kept, grown = result.stdout.split()
        row(
            f"resnet152 train, {args.memory_trials} trials x {layers} rows, recording",
            f"{kept} MB (peak memory {grown} MB more)",
            "<= 20 MB",
        )


if __name__ == "__main__":
    main()
