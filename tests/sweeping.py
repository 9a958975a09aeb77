"""Cases and results of sweeps, and a fake profile.py.

The fake program, ``python tests/sweeping.py --model NAME ...``, writes a small recording of the
case without a run. It appends the name of its network to ``ran.log`` in the current folder. The
variable ``SWEEP`` may set another behaviour by network, as JSON: ``fail`` (with a message), ``die``
(always), ``die once``, ``gate`` (open the pipe ``gate`` and wait forever).
"""

import argparse
import json
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from chainer_profile.record.recording import (
    Environment,
    Layer,
    LinkCalls,
    MemoryUse,
    Recording,
    Settings,
)

if __name__ != "__main__":  # the fake program starts faster without these imports
    from chainer_profile.analyse.case_result import CaseResult, result_of
    from chainer_profile.runs.sweep import Case

PROGRAM = Path(__file__).resolve()
#: Code that makes a process run cases with the fake program.
STAND_IN = f"""
from pathlib import Path
from chainer_profile.runs import executors
executors.PROGRAM = Path({str(PROGRAM)!r})
"""
LINKS = (
    LinkCalls("/", "Net", 1, 0),
    LinkCalls("/conv", "Convolution2D", 1, 100),
    LinkCalls("/res", "Stage", 1, 0),
    LinkCalls("/res/0", "BasicBlock", 1, 0),
    LinkCalls("/res/0/conv", "Convolution2D", 1, 200),
)


def recording_of(settings, **changes):
    """A recording with three unprofiled trials of 1, 2 and 3 ms times the batch."""
    trials = np.full((settings.trials, 1), 1_000_000, np.int64)
    values: dict[str, Any] = {
        "layers": (Layer(0, "/conv", "Convolution2DFunction"),),
        "self_ns": trials,
        "trial_ns": trials[:, 0] + 1000,
        "start_ns": np.arange(settings.trials, dtype=np.int64),
        "clean_ns": np.array([1, 2, 3], np.int64) * 1_000_000 * settings.batchsize,
        "clean_start_ns": np.arange(3, dtype=np.int64),
        "links": LINKS,
        "settings": settings,
        "environment": Environment(started="2026-01-02T03:04:05Z", processor="A processor"),
        "memory": MemoryUse((1024,), (0,), 1200, 768, 2048, 0),
    }
    return Recording(**(values | changes))


def make_case(model="resnet18", **changes):
    """Make a case, by default with images of 8 x 8 and 4 trials."""
    shape = changes.pop("input_shape", (3, 8, 8))
    usual = {"batchsize": 1, "device": "cpu", "phase": "forward", "trials": 4, "warmups": 1}
    asked: dict[str, Any] = {**usual, "seed": 0, "dtype": "float32", **changes}
    settings = Settings(model=model, input_shape=(asked["batchsize"], *shape), **asked)
    words = ["--model", model, "--input-shape", "x".join(map(str, shape))]
    for name, value in asked.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return Case(model, settings, tuple(words))


def make_run(model="resnet18", mean_ms=2.0, **changes):
    """Make the result of a case with this mean time."""
    result_fields = {item.name for item in fields(CaseResult)} - {"threads"}
    case = make_case(model, **{k: v for k, v in changes.items() if k not in result_fields})
    result = result_of(f"{model}-b{case.settings.batchsize}", recording_of(case.settings), "here")
    mean_s = mean_ms / 1e3
    times = {"mean_s": mean_s, "std_s": mean_s / 10, "median_s": mean_s}
    times["fps"] = case.settings.batchsize / mean_s
    return replace(result, **times | {k: v for k, v in changes.items() if k in result_fields})


#: Options of the fake program that become settings.
OPTIONS = dict.fromkeys(("model", "device", "phase", "dtype"), str)
OPTIONS |= dict.fromkeys(("batchsize", "trials", "warmups", "seed", "threads"), int)


def main():
    parser = argparse.ArgumentParser()
    for name, kind in {"input-shape": str, "out": str, **OPTIONS}.items():
        parser.add_argument(f"--{name}", type=kind)
    args, _ = parser.parse_known_args()
    with open("ran.log", "a") as log:
        log.write(f"{args.model}\n")
    behaviour = json.loads(os.environ.get("SWEEP", "{}")).get(args.model, "")
    if behaviour == "fail":
        print("a warning\nprofile.py: error: there is no luck", file=sys.stderr)
        return 1
    if behaviour == "die" or (behaviour == "die once" and not os.path.exists("died")):
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "gate":
        with open("gate", "w"):
            signal.pause()
    shape = tuple(map(int, args.input_shape.split("x")))
    settings = Settings(
        input_shape=(args.batchsize, *shape), **{name: vars(args)[name] for name in OPTIONS}
    )
    out = Path(args.out)
    out.mkdir(parents=True)
    recording_of(settings).save(out / "recording.npz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
