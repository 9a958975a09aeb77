"""Whether comparisons tell a change from noise, shown by real runs on this machine.

    python benchmarks/comparison.py [--runs 10] [--pairs 10] [--keep DIR]

Ten runs of the same code, each in a process of its own: how many layers does a comparison call
different that are not? Then a network with one layer that takes 5 % longer, because it waits for a
known time, and the same network without the waiting, in turn: is that layer found, and only that
one? Both are asked of single runs, and of several runs on each side.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from chainer_profile.comparison.compare import Side, compare  # noqa: E402
from chainer_profile.comparison.significance import SAME, SLOWER  # noqa: E402
from chainer_profile.record.recording import Recording  # noqa: E402
from chainer_profile.runs.folder import RECORDING, load_run  # noqa: E402

PATH = "/res3/1/conv2"
FRACTION = 0.05
OPTIONS = [
    *("--trials", "1000", "--warmups", "50", "--threads", "1"),
    *("--no-memory", "--no-machine", "--quiet"),
]
SIDES = (1, 2, 3, 5)
#: Of all ways to part the runs of the same code into two sides so many are compared.
MAX_COMPARISONS = 45

#: ResNet20 with one convolution that can wait; paths and functions are those of ResNet20.
NETWORK = """
from time import perf_counter_ns

import chainer.links as L
from chainer.functions.connection import convolution_2d
from models.resnet_cifar import ResNetCIFAR


class Convolution2DFunction(convolution_2d.Convolution2DFunction):
    delay_ns = 0

    def forward_cpu(self, inputs):
        outputs = super().forward_cpu(inputs)
        end = perf_counter_ns() + self.delay_ns
        while perf_counter_ns() < end:
            pass
        return outputs


class Waiting(L.Convolution2D):
    delay_ns = 0

    def forward(self, x):
        function = Convolution2DFunction(self.stride, self.pad)
        function.delay_ns = self.delay_ns
        return function.apply((x, self.W))[0]


def network(delay_ns):
    net = ResNetCIFAR()
    link = net.res3[1].conv2
    link.__class__ = Waiting
    link.delay_ns = delay_ns
    return net


def unchanged():
    return network(0)


def slower():
    return network(%d)
"""


def profile(folder: Path, *options: str) -> Recording:
    """A run in a process of its own; one that is kept from before is not made again."""
    if not (folder / RECORDING).exists():
        command = [sys.executable, str(ROOT / "profile.py"), *OPTIONS, *options]
        subprocess.run([*command, "--out", str(folder)], check=True, cwd=ROOT)
    return load_run(folder)


def median_ns(recording: Recording) -> float:
    index = next(layer.index for layer in recording.layers if layer.path == PATH)
    return float(np.median(recording.self_ns[:, index]))


def make_runs(
    folder: Path, runs: int, pairs: int
) -> tuple[list[Recording], list[Recording], list[Recording]]:
    """Runs of the same code, and of the unchanged and the slower network in turn."""
    same = [profile(folder / f"same-{i}") for i in range(runs)]
    file = folder / "network.py"
    if not file.exists():
        delay_ns = FRACTION * float(np.median([median_ns(run) for run in same]))
        file.write_text(NETWORK % delay_ns)
    unchanged: list[Recording] = []
    slower: list[Recording] = []
    for i in range(pairs):
        for name, kept in (("unchanged", unchanged), ("slower", slower)):
            options = ("--model", f"{file}:{name}", "--input-shape", "3x32x32")
            kept.append(profile(folder / f"{name}-{i}", *options))
    return same, unchanged, slower


def parted(runs: Sequence[Recording], size: int) -> Iterator[tuple[Side, Side]]:
    """Ways to take two sides of so many runs each, evenly out of all of them."""
    ways = [
        (first, second)
        for first in combinations(range(len(runs)), size)
        for second in combinations(sorted(set(range(len(runs))) - set(first)), size)
        if first < second
    ]
    for at in np.linspace(0, len(ways) - 1, min(len(ways), MAX_COMPARISONS)).round().astype(int):
        first, second = (tuple(runs[i] for i in side) for side in ways[at])
        yield Side("A", first), Side("B", second)


def show_same(runs: Sequence[Recording]) -> None:
    """How much is called different that is not."""
    print("same code: runs a side, comparisons, layers called different, most in one comparison,")
    print(
        "    comparisons of which more than 5 %, machine said to have moved, trial called different"
    )
    for size in SIDES:
        if 2 * size > len(runs):
            break
        found = [compare(*sides) for sides in parted(runs, size)]
        called = np.array([len(one.changed) / len(one.layers) for one in found])
        moved = np.array([one.moved for one in found])
        totals = sum(one.totals["verdict"].iloc[0] != SAME for one in found)
        print(
            f"    {size}  {len(found):3d}  {called.mean():6.2%}  {called.max():6.1%}  "
            f"{(called > 0.05).sum():3d} ({((called > 0.05) & ~moved).sum()} of them not moved)  "
            f"{moved.sum():3d}  {totals:3d}"
        )


def show_slower(unchanged: Sequence[Recording], slower: Sequence[Recording]) -> None:
    """Whether the slower layer is found, and what else is called different."""
    print(
        "one layer 5 % slower: runs a side, comparisons, found, other layers a comparison, ratios"
    )
    for size in SIDES:
        starts = range(0, len(slower) - size + 1, size)
        found, others, ratios = 0, 0, []
        for at in starts:
            fast, slow = (tuple(runs[at : at + size]) for runs in (unchanged, slower))
            comparison = compare(Side("A", fast), Side("B", slow))
            row = comparison.layers[comparison.layers["path"] == PATH].iloc[0]
            hit = row["verdict"] == SLOWER
            found += hit
            others += len(comparison.changed) - (row["verdict"] != SAME)
            ratios.append(row["ratio"])
        if ratios:
            print(
                f"    {size}  {len(ratios):3d}  {found:3d}  {others / len(ratios):5.2f}  "
                f"{min(ratios):.3f} to {max(ratios):.3f}"
            )


def show_load(name: str, runs: Sequence[Recording]) -> None:
    """What else the machine did, and how the clean trials came out."""
    busy = [run.conditions.other_cpu or 0.0 for run in runs]
    clean_ms = [float(np.median(run.clean_ns)) / 1e6 for run in runs]
    print(
        f"{name}: {len(runs)} runs, clean trials {min(clean_ms):.2f} to {max(clean_ms):.2f} ms, "
        f"other programs kept {min(busy):.2f} to {max(busy):.2f} cores busy"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="runs of the same code")
    parser.add_argument("--pairs", type=int, default=10, help="runs of either network")
    parser.add_argument(
        "--keep", type=Path, help="folder to keep the runs in, or to take them from"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same, unchanged, slower = make_runs(args.keep or Path(folder), args.runs, args.pairs)
    for name, runs in (("same", same), ("unchanged", unchanged), ("slower", slower)):
        show_load(name, runs)
    show_same(same)
    show_slower(unchanged, slower)


if __name__ == "__main__":
    main()
