"""What running a program under the profiler costs, and whether its budget adds up.

    python benchmarks/script.py [NAME ...] [--pairs 7] [--quick]

Programs are those of tests/programs, 10 to 15 s of CPU time each, or with ``--quick`` a part of a
second. Each runs as it is, under ``run --compat-only`` and under ``run --no-layers``, in processes
that take turns in a random order: the median of the paired ratios to the program as it is, with its
95 % interval, by wall time and by CPU time. Then it runs under ``run`` with layers: what its budget
adds up to, against the wall time that its process took as seen from outside, less the part that the
profiler says is its own.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from chainer_profile.basics.describe import median_interval  # noqa: E402
from tests.programs import FOLDER, PROGRAMS, Program  # noqa: E402

#: The program as it is, but for Chainer being mended.
STOCK = """
import chainer_profile, runpy, sys
del sys.argv[0]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
RUN = ("-m", "chainer_profile", "run")
WAYS = {
    "stock": ("-c", STOCK),
    "compat only": (*RUN, "--compat-only"),
    "no layers": (*RUN, "--no-layers"),
    "layers": RUN,
}
COMPARED = ("compat only", "no layers")


@dataclass(frozen=True)
class Seconds:
    """What a process took; ``budget`` is its budget.json, empty where it wrote none."""

    wall: float
    cpu: float
    budget: dict[str, Any]


def timed(program: Program, way: str, quick: bool) -> Seconds:
    """Run a program in a way, in a folder of its own."""
    arguments = program.quick if quick else program.longer
    paths = [str(ROOT), str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *WAYS[way], *program.command, *arguments, "--out", "result"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        wall_s = time.perf_counter() - begin
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        if done.returncode != program.exit_code:
            raise SystemExit(f"{program.name}, {way}: exit code {done.returncode}\n{done.stderr}")
        budgets = list(Path(folder).rglob("budget.json"))
        budget = json.loads(budgets[0].read_text()) if budgets else {}
        return Seconds(wall_s, cpu_s, budget)


def added(program: Program, pairs: int, quick: bool) -> dict[str, np.ndarray]:
    """What each way takes longer than the program as it is: (pairs, wall and CPU), as fractions."""
    rng = np.random.default_rng(0)
    ratios: dict[str, list[tuple[float, float]]] = {way: [] for way in COMPARED}
    for _ in range(pairs):
        order = list(rng.permutation(["stock", *COMPARED]))
        took = {way: timed(program, way, quick) for way in order}
        stock = took["stock"]
        for way in COMPARED:
            ratios[way].append((took[way].wall / stock.wall - 1, took[way].cpu / stock.cpu - 1))
    return {way: np.array(values) for way, values in ratios.items()}


def show_added(name: str, values: np.ndarray) -> None:
    texts = []
    for kind, column in zip(("wall", "CPU"), values.T, strict=True):
        low, high = median_interval(column)
        texts.append(f"{kind} {np.median(column):+.2%} ({low:+.2%} to {high:+.2%})")
    print(f"    {name:12s} {', '.join(texts)}")


def show_budget(seconds: Seconds) -> None:
    """The budget's parts, largest first, and how far their sum is from the time outside."""
    if not seconds.budget:
        print("    no budget")
        return
    rows, own_s = seconds.budget["rows"], seconds.budget["profiler_s"]
    total_s = sum(row["seconds"] for row in rows)
    outside_s = seconds.wall - own_s
    print(
        f"    budget       {total_s:.3f} s of {outside_s:.3f} s ({total_s / outside_s - 1:+.2%}),"
        f" the profiler's own {own_s:.3f} s"
    )
    for row in sorted(rows, key=lambda row: -row["seconds"])[:6]:
        print(f"        {row['seconds']:8.3f} s  {row['part']} {row['name']} x {row['count']}")


def main() -> None:
    named = {program.name: program for program in PROGRAMS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(named))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few iterations")
    args = parser.parse_args()
    if unknown := set(args.names) - set(named):
        parser.error(f"no program {', '.join(sorted(unknown))}; known are {', '.join(named)}")
    everything = []
    for name in args.names or named:
        stock = timed(named[name], "stock", args.quick)
        print(f"{name}: {stock.wall:.2f} s, CPU {stock.cpu:.2f} s", flush=True)
        ways = added(named[name], args.pairs, args.quick)
        for way, values in ways.items():
            show_added(way, values)
        everything.append(ways)
        show_budget(timed(named[name], "layers", args.quick))
    if len(everything) > 1:
        print("all programs:")
        for way in COMPARED:
            show_added(way, np.concatenate([ways[way] for ways in everything]))


if __name__ == "__main__":
    main()
