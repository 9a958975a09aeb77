"""What running a program under the profiler costs, and whether its budget adds up.

    python benchmarks/script.py [NAME ...] [--pairs 7] [--quick]

Programs are those of tests/programs, 10 to 15 s of CPU time each, or with ``--quick`` a part of a
second. Each runs as it is (but for Chainer being mended) and under ``run --no-layers``, in
processes that take turns; each notes its clocks at the script's end, before any report. Medians
over the pairs, with 95 % intervals, by wall and by CPU time, without what importing the profiler
takes, which is shown in ms:

- own: the script's own time in the budget, against that of the script as it is;
- added: all that was used until the script's end, against that of the script as it is;
- least: the same of the shortest runs of each way, which tells more on a busy machine;
- parts: the sum of the budget's parts against what passed outside of it, between the process's
  start and the script's end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from chainer_profile.basics.describe import median_interval  # noqa: E402
from chainer_profile.integrations.script_run import BEGIN  # noqa: E402
from chainer_profile.record.budget import PROFILER, REPORTS, Budget, read_budget  # noqa: E402
from tests.programs import FOLDER, PROGRAMS, Program  # noqa: E402

#: Notes the clocks at the script's end; what importing the profiler took is the first line.
_NOTED = """
import os, time
began, begun = time.perf_counter_ns(), time.process_time_ns()
import chainer_profile.{module} as module
took = [time.perf_counter_ns() - began, time.process_time_ns() - begun]
process = os.getpid()
def note():
    if os.getpid() == process:
        with open("noted", "w") as file:
            print(time.perf_counter_ns(), time.process_time_ns(), *took, file=file)
"""
STOCK = (
    _NOTED.format(module="compat")
    + """
import runpy, sys
del sys.argv[0]
try:
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    note()
"""
)
NO_LAYERS = (
    _NOTED.format(module="cli.run")
    + """
import sys
from chainer_profile.integrations.script_run import ScriptRun
finish = ScriptRun.finish
def noted_finish(*given):
    note()
    finish(*given)
ScriptRun.finish = noted_finish
from chainer_profile.__main__ import main
sys.exit(main(["run", "--no-layers", "-o", "run", *sys.argv[1:]]))
"""
)


@dataclass(frozen=True)
class Took:
    """What a process used until the script's end, in seconds: wall and CPU time."""

    #: Without importing the profiler, and that.
    used: np.ndarray
    imports: np.ndarray
    #: None for the script as it is.
    budget: Budget | None


def took(program: Program, code: str, quick: bool) -> Took:
    paths = [str(ROOT), str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    arguments = program.quick if quick else program.longer
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, *program.command, *arguments, "--out", "result"]
        begin_ns = time.perf_counter_ns()  # one clock for all processes
        done = subprocess.run(
            command, cwd=folder, env=os.environ | more, capture_output=True, text=True, check=False
        )
        if done.returncode != program.exit_code:
            raise SystemExit(f"{program.name}: exit code {done.returncode}\n{done.stderr}")
        end_ns, cpu_ns, *import_ns = map(int, Path(folder, "noted").read_text().split())
        budget = read_budget(Path(folder, "run"))
    imports = np.array(import_ns) / 1e9
    return Took(np.array([end_ns - begin_ns, cpu_ns]) / 1e9 - imports, imports, budget)


def compared(program: Program, pairs: int, quick: bool) -> dict[str, np.ndarray]:
    """What each pair gives, by name; fractions, and seconds of the fixed cost."""
    found: dict[str, list[float]] = {}
    for number in range(pairs):
        codes = [STOCK, NO_LAYERS][:: 1 if number % 2 else -1]
        runs = {code: took(program, code, quick) for code in codes}
        stock, ours = runs[STOCK], runs[NO_LAYERS]
        assert ours.budget is not None
        profiler = {one.name: one.ns / 1e9 for one in ours.budget.part(PROFILER)}
        wall_s = ours.budget.wall_ns / 1e9 - profiler.pop(REPORTS)
        own_s = wall_s - sum(profiler.values())
        # What importing took is in the budget, to the profiler's last import.
        outside_s = (ours.used + ours.imports)[0]
        fixed_s = profiler.pop(BEGIN)
        values = {
            "own": own_s / stock.used[0] - 1,
            "added, wall": (outside_s - fixed_s) / stock.used[0] - 1,
            "added, CPU": (ours.used + ours.imports - fixed_s)[1] / stock.used[1] - 1,
            "parts": wall_s / outside_s - 1,
            "fixed": fixed_s,
            "seconds": stock.used[0],
            "stock CPU": stock.used[1],
            "our CPU": (ours.used + ours.imports - fixed_s)[1],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in found.items()}


def show(found: dict[str, np.ndarray]) -> None:
    for name, values in found.items():
        if name == "fixed":
            break
        low, high = median_interval(values)
        print(f"    {name:12s} {np.median(values):+.2%} ({low:+.2%} to {high:+.2%})")
    # Other programs make some runs longer, and none shorter.
    least = found["our CPU"].min() / found["stock CPU"].min() - 1
    print(f"    least CPU    {least:+.2%}")
    print(f"    fixed        {np.median(found['fixed']) * 1e3:.0f} ms", flush=True)


def main() -> None:
    named = {program.name: program for program in PROGRAMS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(named))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few iterations")
    args = parser.parse_args()
    if unknown := set(args.names) - set(named):
        parser.error(f"no program {', '.join(sorted(unknown))}; known are {', '.join(named)}")
    for name in args.names or named:
        found = compared(named[name], args.pairs, args.quick)
        print(f"{name}: {np.median(found['seconds']):.2f} s")
        show(found)


if __name__ == "__main__":
    main()
