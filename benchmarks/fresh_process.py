"""Compare the latency that profile.py reports with a plain loop in a fresh process.

    python -m benchmarks.fresh_process [--rounds 7] [--networks Relus ...]

Each round starts new processes in turn: a loop that only imports Chainer and calls the network, and
``profile.py``, both also with freed memory kept (``--keep-memory``). All use one BLAS thread. The
table shows medians over the rounds of the median CPU time of a trial, and page faults of a trial.
The ratio is the median of the rounds' ratios, with its 95 % interval.

glibc decides by what a process has freed whether it keeps memory: after large blocks it keeps more.
A network that allocates new arrays then has fewer page faults. So profile.py must free no larger
blocks before its trials than such a loop does, for example by importing pandas.
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
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import chainer_profile  # noqa: F401  (before Chainer)

# ruff: isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.basics.describe import median_interval

ROOT = Path(__file__).resolve().parent.parent
_WARM_UPS, _TRIALS = 50, 200
LOOP, PROFILE = "loop", "profile.py"


class Relus(chainer.Chain):
    """Eight calls of a function that only moves data."""

    def forward(self, x: Any) -> Any:
        for _ in range(8):
            x = F.relu(x)
        return x


class Skips(chainer.Chain):
    """Four additions of a ReLU to its own input."""

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = F.relu(x) + x
        return x


class Convolutions(chainer.Chain):
    """Four convolutions of three channels, each with a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Convolution2D(3, 3, 3, pad=1) for _ in range(4)))

    def forward(self, x: Any) -> Any:
        for convolution in self.layers:
            x = F.relu(convolution(x))
        return x


class Poolings(chainer.Chain):
    """Four times tanh and a pooling."""

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = F.max_pooling_2d(F.tanh(x), 3, 1, 1)
        return x


class Normalizations(chainer.Chain):
    """Three batch normalizations of 16 channels, each with a leaky ReLU."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Convolution2D(3, 16, 1)
            self.norms = chainer.ChainList(*(L.BatchNormalization(16) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for norm in self.norms:
            x = F.leaky_relu(norm(x))
        return x


#: Networks, and images of 3x64x64 in a batch.
BATCHES = {Relus: 8, Skips: 8, Convolutions: 2, Poolings: 1, Normalizations: 1}
NETWORKS = {network.__name__: network for network in BATCHES}


class Measured(NamedTuple):
    """Measurements of a trial in one process."""

    cpu_ms: float
    page_faults: float


def loop(network: type[chainer.Chain], keep_memory: bool) -> Measured:
    """Measure a network by a plain loop in this process, and return the medians of its trials."""
    if keep_memory:
        from chainer_profile.kernels.memory import keep

        keep(object())
    # The weights of profile.py: the cost of leaky ReLU depends on the signs of its inputs.
    np.random.seed(0)  # noqa: NPY002
    model = network()
    # One temporary array of float64 would already make glibc keep more memory.
    x = np.random.default_rng(0).random((BATCHES[network], 3, 64, 64), dtype=np.float32)
    cpu_ns, faults = [], []
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        for _ in range(_WARM_UPS + _TRIALS):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            begin_ns = time.process_time_ns()
            model(x)
            cpu_ns.append(time.process_time_ns() - begin_ns)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return Measured(float(np.median(cpu_ns[_WARM_UPS:])) / 1e6, float(np.median(faults)))


def _loop_in_process(name: str, keep_memory: bool) -> Measured:
    words = ["-m", "benchmarks.fresh_process", "--loop", name, *["--keep-memory"] * keep_memory]
    return Measured(*json.loads(_python(*words)))


def _profile_in_process(name: str, keep_memory: bool) -> Measured:
    from chainer_profile.analyse.counted import trial_counters
    from chainer_profile.runs.folder import load_run

    batch = BATCHES[NETWORKS[name]]
    with tempfile.TemporaryDirectory() as folder:
        words = [str(ROOT / "profile.py"), "--model", f"{__file__}:{name}", "-b", str(batch)]
        words += ["--input-shape", "3x64x64", "--threads", "1", "--out", f"{folder}/run", "-q"]
        words += ["--trials", str(_TRIALS), "--clean-trials", str(_TRIALS), "--format", "none"]
        _python(*words, *["--keep-memory"] * keep_memory)
        recording = load_run(Path(folder, "run"))
    assert recording.clean_cpu_ns is not None
    counted = trial_counters(recording)
    faults = float("nan") if counted is None else counted.page_faults
    return Measured(float(np.median(recording.clean_cpu_ns)) / 1e6, faults)


def _python(*words: str) -> str:
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def compare(names: list[str], rounds: int) -> None:
    """Measure networks in new processes in turn, and print the table."""
    measured: defaultdict[tuple[str, bool, str], list[Measured]] = defaultdict(list)
    for _ in range(rounds):
        for name in names:
            for keep_memory in (False, True):
                of_loop, of_profile = (measured[name, keep_memory, how] for how in (LOOP, PROFILE))
                of_loop.append(_loop_in_process(name, keep_memory))
                of_profile.append(_profile_in_process(name, keep_memory))
    print("| network | batch | memory | loop | profile.py | ratio | 95 % | page faults of both |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        for keep_memory in (False, True):
            sides = [np.array(measured[name, keep_memory, how]) for how in (LOOP, PROFILE)]
            (loop_ms, loop_faults), (profile_ms, faults) = (
                np.median(side, axis=0) for side in sides
            )
            ratios = sides[1][:, 0] / sides[0][:, 0]
            low, high = median_interval(ratios)
            print(
                f"| {name} | {BATCHES[NETWORKS[name]]} | {'kept' if keep_memory else ''} | "
                f"{loop_ms:.3f} ms | {profile_ms:.3f} ms | {np.median(ratios):.3f} | "
                f"{low:.3f} to {high:.3f} | {loop_faults:,.0f}, {faults:,.0f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--loop", choices=NETWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--keep-memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        print(json.dumps(loop(NETWORKS[args.loop], args.keep_memory)))
    else:
        compare(args.networks, args.rounds)


if __name__ == "__main__":
    main()
