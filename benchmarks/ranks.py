"""Measure how long the merge of many ranks takes, and how often stragglers are found.

    python -m benchmarks.ranks [--sizes 2,8,256] [--rows 250] [--iterations 30] [--trainings 40]

The recordings are simulated: ranks differ as processes do (``comparison_simulated.py``), iterations
vary by 5 %, and an all-reduce ends when the last rank has arrived. For each size a fresh process
reads a folder as ``profile.py report`` does, and prints its time and peak memory. Then the
stragglers found in trainings of 2, 4 and 8 ranks are counted, with and without planted ones.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparison_simulated import NORMALIZATION, OTHERS, SMALL, TRIAL, WITHIN
from chainer_profile.ranks.merging import Ranks, merge
from chainer_profile.record.recording import Layer, Rank, Recording, Settings

#: Functions of a block: name, time in ns, standard deviation between processes.
FUNCTIONS = (
    ("Convolution2DFunction", 2e6, OTHERS),
    ("BatchNormalization", 4e5, NORMALIZATION),
    ("ReLU", 1e5, SMALL),
)
#: Time in ns to move a gradient after all ranks have arrived, and between two rows.
MOVING, BETWEEN = 2e5, 5e3


def rows(count: int) -> tuple[Layer, ...]:
    """Make the rows of a training step. A fifth are collectives, another fifth are updates."""
    blocks = max(1, count // 11)
    specs: list[tuple[str, str, str, int | None]] = []
    for phase in ("forward", "backward"):
        order = range(blocks) if phase == "forward" else range(blocks)[::-1]
        specs += [(f"/res{i}", name, phase, None) for i in order for name, *_ in FUNCTIONS]
    specs += [
        (f"/res{i}/{name}", "Allreduce", "communication", 4 * 36_864)
        for i in range(blocks)
        for name in ("W", "gamma", "beta")
    ]
    specs += [(f"/res{i}", "MomentumSGD", "update", None) for i in range(2 * blocks)]
    return tuple(
        Layer(index, path, function, phase, input_nbytes=nbytes)
        for index, (path, function, phase, nbytes) in enumerate(specs)
    )


def training(
    size: int,
    n_rows: int = 60,
    iterations: int = 30,
    *,
    seed: int = 0,
    planted_ms: Mapping[tuple[int, int], float] | None = None,
    every: int = 1,
    slow: Mapping[int, float] | None = None,
    interrupted: Mapping[int, float] | None = None,
    paused: Mapping[int, float] | None = None,
) -> dict[str, Recording]:
    """Simulate a training; return the recordings of all ranks, by the names of their folders.

    Args:
        size: Number of ranks.
        n_rows: Approximate number of rows.
        iterations: Number of iterations.
        seed: Seed of the random numbers.
        planted_ms: Additional milliseconds of a layer on a rank, by rank and index of the layer.
        every: Period of the iterations with this additional time.
        slow: Factor on all times of a rank.
        interrupted: Mean number of interruptions of 4 ms per iteration of a rank.
        paused: Probability that a layer takes 15 ms longer in an iteration, on any rank.
    """
    rng = np.random.default_rng(seed)
    layers = rows(n_rows)
    times = {name: (ns, spread) for name, ns, spread in FUNCTIONS}
    typical, spreads = np.array([times.get(row.function, (5e4, OTHERS)) for row in layers]).T
    process = np.exp(rng.normal(0, TRIAL, (size, 1)) + rng.normal(0, spreads, (size, len(layers))))
    for rank, factor in (slow or {}).items():
        process[rank] *= factor
    scatter = rng.normal(0, WITHIN, (size, iterations, len(layers)))
    own = (typical * process)[:, None] * np.exp(scatter)
    for (rank, index), milliseconds in (planted_ms or {}).items():
        own[rank, every - 1 :: every, index] += milliseconds * 1e6
    for rank, often in (interrupted or {}).items():
        share = typical / typical.sum()
        own[rank] += 4e6 * rng.poisson(often * share, own[rank].shape)
    for index, likely in (paused or {}).items():
        own[:, :, index] += 15e6 * (rng.random(own.shape[:2]) < likely)
    self_ns = np.rint(own).astype(np.int64)
    moved = np.array([row.phase == "communication" for row in layers])
    before = np.arange(len(layers)) < moved.argmax()
    computed = self_ns[:, :, before].sum(axis=2) + int(BETWEEN) * int(before.sum())
    updated = self_ns[:, :, ~before & ~moved].sum(axis=2) + int(BETWEEN) * int(
        (~before & ~moved).sum()
    )
    arrived = np.zeros((size, iterations, int(moved.sum())), np.int64)
    left, starts, ends = np.zeros_like(arrived), np.zeros((size, iterations), np.int64), None
    now = np.full(size, 10**12, np.int64)
    for i in range(iterations):
        starts[:, i] = now
        now = now + computed[:, i]
        for place in range(arrived.shape[2]):
            arrived[:, i, place] = now
            takes = MOVING * np.exp(rng.normal(0, WITHIN, size))
            now = now.max() + np.rint(takes).astype(np.int64)
            left[:, i, place] = now
            now = now + int(BETWEEN)
        now = now + updated[:, i]
    ends = np.concatenate([starts[:, 1:], now[:, None]], axis=1)
    self_ns[:, :, moved] = left - arrived
    phases = tuple(dict.fromkeys(row.phase for row in layers))
    framework = [sum(row.phase == phase for row in layers) * int(BETWEEN) for phase in phases]
    settings = Settings(model="net", phase="train", optimizer="MomentumSGD", batchsize=32)
    return {
        f"rank-{rank}": Recording(
            layers,
            self_ns[rank],
            phases=phases,
            framework_ns=np.tile(np.array(framework, np.int64), (iterations, 1)),
            trial_ns=ends[rank] - starts[rank],
            start_ns=starts[rank],
            iteration=np.arange(1, iterations + 1) * 100,
            arrived_ns=arrived[rank],
            left_ns=left[rank],
            settings=replace(settings, trials=iterations),
            rank=Rank(rank, size, "here"),
        )
        for rank in range(size)
    }


def merge_folder(folder: Path) -> None:
    """Read and merge the ranks in a folder, and find stragglers; print seconds and MiB."""
    from chainer_profile.runs.folder import read_ranks

    began = time.perf_counter()
    recordings, problems, _ = read_ranks(folder)
    read = time.perf_counter()
    ranks = merge(recordings, problems=problems)
    stragglers = len(ranks.judged.stragglers)
    done = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(recordings):3d} ranks, {len(ranks.layers)} rows, {len(ranks.iterations)} iterations:"
        f" read {read - began:.2f} s, merged {done - read:.2f} s, {memory:,.0f} MiB, "
        f"{stragglers} stragglers"
    )


def found_in(ranks: Ranks) -> list[tuple[int, int, float]]:
    """Rank, index of the layer and milliseconds per iteration of all stragglers."""
    return [
        (ranks.ranks[each.rank].number, ranks.computing[each.layer], each.costs_s * 1e3)
        for each in ranks.judged.stragglers
    ]


def simulate(trainings: int) -> None:
    """Count the stragglers found with and without planted ones."""
    for size in (2, 4, 8):
        noises: dict[str, dict[str, Any]] = {
            "nothing planted": {},
            "all ranks interrupted 0.3 times an iteration": {
                "interrupted": dict.fromkeys(range(size), 0.3)
            },
            "one rank interrupted 3 times an iteration": {"interrupted": {0: 3.0}},
            "two layers of any rank pause in a fifth": {"paused": {0: 0.2, 7: 0.2}},
        }
        for description, noise in noises.items():
            trained = (training(size, seed=seed, **noise) for seed in range(trainings))
            false = sum(bool(found_in(merge(recordings))) for recordings in trained)
            print(f"{size} ranks, {description}: stragglers found in {false} of {trainings}")
        for milliseconds, every in ((10.0, 1), (30.0, 1), (100.0, 1), (15.0, 5)):
            right, errors = 0, []
            for seed in range(trainings):
                rng = np.random.default_rng(seed)
                where = int(rng.integers(size)), int(rng.integers(30))
                planted = {where: milliseconds}
                recordings = training(size, seed=1000 + seed, planted_ms=planted, every=every)
                costs_ms = {(rank, layer): ms for rank, layer, ms in found_in(merge(recordings))}
                right += costs_ms.keys() == {where}
                if where in costs_ms:
                    errors.append(abs(costs_ms[where] * every / milliseconds - 1))
            error = 100 * max(errors, default=np.nan)
            print(
                f"{size} ranks, {milliseconds:g} ms planted in one iteration of {every}: found at "
                f"its rank and layer in {len(errors)} of {trainings}, largest error {error:.1f} %; "
                f"no other straggler in {right}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="2,8,256")
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--trainings", type=int, default=40)
    parser.add_argument("--merge", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.merge:
        merge_folder(args.merge)
        return
    for size in map(int, args.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for name, recording in training(size, args.rows, args.iterations).items():
                (Path(folder) / name).mkdir()
                recording.save(Path(folder) / name / "recording.npz")
            command = [sys.executable, "-m", "benchmarks.ranks", "--merge", folder]
            subprocess.run(command, check=True)
    simulate(args.trainings)


if __name__ == "__main__":
    main()
