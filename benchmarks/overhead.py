"""What profiling costs: the figures of docs/overhead.md, as ratios within one run.

    python benchmarks/overhead.py [--rounds 300] [--trials 10000] [--gpu 0]

ResNet20 at batch 1 with one BLAS thread. Times are compared in short blocks that take turns in one
process, and the median of the paired ratios is shown with its 95 % interval. Memory is measured in
a fresh process for each hook.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import chainer_profile  # noqa: E402  (before Chainer)

# ruff: isort: split
import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import numpy as np  # noqa: E402
from chainer import FunctionHook  # noqa: E402
from chainer.function_hooks import TimerHook  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from chainer_profile.basics.describe import median_interval  # noqa: E402
from chainer_profile.measure import environment  # noqa: E402
from chainer_profile.measure.clock import HOST_CLOCK  # noqa: E402
from chainer_profile.measure.learner import learn_structure  # noqa: E402
from chainer_profile.measure.steps import ForwardStep  # noqa: E402
from chainer_profile.measure.structure import Structure  # noqa: E402
from chainer_profile.measure.trials import Trials  # noqa: E402
from chainer_profile.networks.inputs import make_input  # noqa: E402
from chainer_profile.record.journal import Journal, Kind  # noqa: E402
from chainer_profile.record.recording import Settings  # noqa: E402
from chainer_profile.runs.folder import save_recording  # noqa: E402
from chainer_profile.runs.write import write_reports  # noqa: E402
from models import REGISTRY  # noqa: E402

BLOCK = 10
WITH_WRITING = "recorder, with folding and writing"
NEIGHBOURS_LAYER_S = 50e-6


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


def resnet20() -> ForwardStep:
    """ResNet20 with one input, ready to run."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    entry = REGISTRY["resnet20"]
    batch = make_input("random", entry.input_shape, 1, seed=0, mean=entry.mean, std=entry.std)
    return ForwardStep(entry.build(), (batch.array,))


class Empty(chainer.Chain):
    """As many function calls as ResNet20 makes, of a function that does nothing."""

    def forward(self, x: Any) -> Any:
        for _ in range(66):
            x = F.identity(x)
        return x


@contextmanager
def trials_of(step: ForwardStep, structure: Structure, n_trials: int) -> Iterator[Trials]:
    """The profiler's own trials, with their journal in a file."""
    with tempfile.TemporaryFile() as file:
        trials = Trials(
            step,
            structure,
            Settings(trials=n_trials),
            environment.collect(),
            Journal(file),
            HOST_CLOCK,
            lambda done, total, mean_s: None,
            lambda: "",
        )
        trials.begin()
        yield trials


def added_time(
    step: ForwardStep, structure: Structure, rounds: int
) -> tuple[float, dict[str, Any]]:
    """Median clean trial in seconds, and for each way of timing its added time in each round.

    The added time is that of the trials themselves, which is what the layers' times suffer; for
    the recorder also that of whole blocks, with all it does between trials (folding, writing).
    """
    timer, layer_timer = TimerHook(), chainer_profile.LayerTimerHook()
    bare, stamps = two_clock_reads()
    with layer_timer:  # which learns in the first trial
        for _ in range(2 * BLOCK):
            step()

    def clean() -> list[float]:
        return [timed(step) for _ in range(BLOCK)]

    def timer_hook() -> list[float]:
        with timer:
            return clean()

    def layer_timer_hook() -> list[float]:
        with layer_timer:
            seconds = clean()
            # What it does now and then, and at the end, for the trials of a block.
            folding_s = timed(layer_timer.total_time) / BLOCK
            return [trial_s + folding_s for trial_s in seconds]

    def clock_reads() -> list[float]:
        stamps.clear()
        with bare:
            return clean()

    with trials_of(step, structure, rounds * BLOCK) as trials:

        def recorder() -> list[float]:
            trials.profiled(BLOCK)
            return [wall_ns * 1e-9 for wall_ns in trials._walls[-BLOCK:]]

        ways = {
            "recorder": recorder,
            "TimerHook": timer_hook,
            "LayerTimerHook, with folding": layer_timer_hook,
            "two clock reads": clock_reads,
            "nothing": clean,
        }
        added: dict[str, list[float]] = {name: [] for name in [*ways, WITH_WRITING]}
        clean_s = []
        order = list(ways)
        rng = np.random.default_rng(0)
        for turn in range(rounds):
            rng.shuffle(order)
            for name in order:
                before = clean()
                begin = time.perf_counter()
                during = ways[name]()
                block_s = time.perf_counter() - begin
                near = before + clean()
                added[name].append(float(np.median(during) / np.median(near)) - 1)
                if name == "recorder":
                    between_s = (block_s - sum(during)) / BLOCK
                    added[WITH_WRITING].append(added[name][-1] + between_s / float(np.median(near)))
                clean_s += before
            progress("added time", turn + 1, rounds)
    return float(np.median(clean_s)), {name: np.array(values) for name, values in added.items()}


def learning(step: ForwardStep, rounds: int = 30) -> float:
    """Median time of a LayerTimerHook's first trial, in those of a plain one next to it."""
    ratios = []
    for _ in range(rounds):
        plain_s = float(np.median([timed(step) for _ in range(3)]))
        with chainer_profile.LayerTimerHook():
            ratios.append(timed(step) / plain_s)
    return float(np.median(ratios))


def timed(block: Callable[[], object]) -> float:
    begin = time.perf_counter()
    block()
    return time.perf_counter() - begin


def agreement(
    step: ForwardStep, structure: Structure, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean time of every layer by the recorder and by TimerHook, in alternating blocks."""
    timer = TimerHook()
    with trials_of(step, structure, rounds * BLOCK) as trials:
        for turn in range(rounds):
            trials.profiled(BLOCK)
            with timer:
                for _ in range(BLOCK):
                    step()
            progress("agreement", turn + 1, rounds)
        mine = trials.recording().self_ns.mean(axis=0) * 1e-9
    recording = chainer_profile.fold_call_history(timer.call_history, len(structure.layers))
    return mine, recording.self_ns.mean(axis=0) * 1e-9


def memory(kind: str, n_trials: int) -> dict[str, float]:
    """Growth of the peak memory in MB over n_trials; runs in a process of its own."""
    import chainer_profile.analyse.summaries

    step = resnet20()
    with threadpool_limits(1, "blas"), step.configured():
        structure = learn_structure(step)
        timer = TimerHook()
        with trials_of(step, structure, 500) as trials:  # warm everything up
            trials.profiled(500)
            chainer_profile.summarise(trials.recording())
        with trials_of(step, structure, n_trials) as trials:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if kind == "recorder":
                trials.profiled(n_trials)
                recording = trials.recording()
            elif kind == "TimerHook":
                with timer:
                    for _ in range(n_trials):
                        step()
            else:
                trials.plain(Kind.CLEAN, n_trials)
            after_trials = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if kind == "recorder":
                chainer_profile.summarise(recording)
            after_all = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"trials": (after_trials - before) / 1024, "all": (after_all - before) / 1024}


def folding(n_trials: int) -> tuple[float, float]:
    """Seconds for folding and statistics of n_trials x 66 samples, and for writing all files."""
    from tests.conftest import make_recording

    recording = make_recording(66, n_trials, n_trials // 10)
    chainer_profile.summarise(make_recording(66, 50))
    with tempfile.TemporaryDirectory() as folder:
        fold_s = min(timed(lambda: chainer_profile.summarise(recording)) for _ in range(5))
        begin = time.perf_counter()
        save_recording(Path(folder), recording)
        write_reports(Path(folder), chainer_profile.summarise(recording))
        return fold_s, time.perf_counter() - begin


def help_time() -> tuple[float, float]:
    """Median seconds of ``profile.py --help`` and of ``python -c pass``."""
    commands = ([str(ROOT / "profile.py"), "--help"], ["-c", "pass"])
    times: list[list[float]] = [[], []]
    for _ in range(9):
        for command, seconds in zip(commands, times, strict=True):
            run = partial(subprocess.run, [sys.executable, *command], stdout=subprocess.DEVNULL)
            seconds.append(timed(run))
    return float(np.median(times[0])), float(np.median(times[1]))


def progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{what} {done}/{total} ", end="" if done < total else "\n", file=sys.stderr)


def row(name: str, value: str, target: str = "") -> None:
    print(f"| {name:58} | {value:32} | {target:18} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--gpu", type=int, help="measure on this GPU, see overhead_gpu.py")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        print(json.dumps(memory(args.memory, args.trials)))
        return

    row("figure", "measured", "target")
    row("-" * 58, "-" * 32, "-" * 18)
    if args.gpu is not None:
        from benchmarks import overhead_gpu

        overhead_gpu.run(args.gpu, args.rounds, row)
        return
    step = resnet20()
    with threadpool_limits(1, "blas"), step.configured():
        for _ in range(100):
            step()
        structure = learn_structure(step)
        clean_s, added = added_time(step, structure, args.rounds)
        row("clean trial, median", f"{clean_s * 1e3:.2f} ms")
        targets = {"recorder": "<= 1.0 %"}
        for name, values in added.items():
            low, high = median_interval(values)
            text = f"{np.median(values) * 100:+.2f} % ({low * 100:+.2f} to {high * 100:+.2f})"
            row(f"added by {name}", text, targets.get(name, ""))
        # What is added is small against the changes of a trial, but not against those of this one.
        empty = ForwardStep(Empty(), (np.zeros(1, np.float32),))
        empty_s, added = added_time(empty, learn_structure(empty), args.rounds)
        row("66 functions that do nothing, median", f"{empty_s * 1e3:.3f} ms")
        for name, values in added.items():
            low, high = (end * empty_s * 1e6 for end in median_interval(values))
            us = np.median(values) * empty_s * 1e6
            share = us * 1e-6 / clean_s * 100
            row(f"{name}, to these", f"{us:+.1f} us ({low:+.1f} to {high:+.1f}) = {share:.2f} %")
        theirs = np.median(added["TimerHook"])
        for name, target in (("recorder", "<= 0.4"), ("LayerTimerHook, with folding", "<= 0.6")):
            row(f"{name} / TimerHook", f"{np.median(added[name]) / theirs:.2f}", target)
        row("a trial that teaches LayerTimerHook / a plain one", f"{learning(step):.2f}", "<= 3")
        mine, theirs = agreement(step, structure, args.rounds)
        large = theirs > NEIGHBOURS_LAYER_S
        off = np.abs(mine[large] / theirs[large] - 1)
        row(
            f"means against TimerHook's, {large.sum()} layers above 50 us: largest difference",
            f"{off.max() * 100:.2f} %",
            "<= 5 %",
        )
    for kind, target in (("recorder", "<= 8 MB"), ("TimerHook", ""), ("nothing", "")):
        command = [sys.executable, __file__, "--memory", kind, "--trials", str(args.trials)]
        environ = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
        grown = json.loads(result.stdout)
        row(f"memory of {args.trials} trials, {kind}", f"{grown['all']:.1f} MB", target)
    fold_s, write_s = folding(args.trials)
    row(f"folding and statistics of {args.trials} x 66 samples", f"{fold_s:.3f} s", "<= 0.1 s")
    row("all files written", f"{write_s:.2f} s", "<= 3 s")
    help_s, pass_s = help_time()
    row("profile.py --help (python -c pass)", f"{help_s:.3f} s ({pass_s:.3f} s)", "<= 0.35 s")


if __name__ == "__main__":
    main()
