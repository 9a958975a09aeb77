"""What a sweep costs beyond its cases, and what a second worker brings.

    python benchmarks/sweep.py [--cases 8] [--trials 300] [--parts overhead,dask]

Overhead: a sweep of equal cases one after another; its wall time less that of the cases' own
processes, which the sweep notes, by the number of cases. Two workers: the same sweep over Dask with
one worker on the first core, with one on the second core, and with two, each pinned to a core; what
two take is compared with the faster one. That needs dask.distributed and two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sweep(folder: Path, args: argparse.Namespace, *more: str) -> tuple[float, list[float]]:
    """Wall time of a sweep of equal cases, and those of the cases' processes."""
    file = folder / "sweep.toml"
    common = f'[common]\nmodel = "resnet20"\ntrials = {args.trials}\nwarmups = 10\nthreads = 1\n'
    # Cases that differ in their seeds only are equally much work.
    groups = (f"[[cases]]\nseed = {seed}\n" for seed in range(args.cases))
    file.write_text(common + "".join(groups))
    out = folder / "out"
    command = [sys.executable, str(ROOT / "profile.py"), "sweep", str(file), "--out", str(out)]
    begin = time.monotonic()
    subprocess.run([*command, "--force", "--no-machine", "-q", *more], check=True, cwd=ROOT)
    seconds = time.monotonic() - begin
    plan = json.loads((out / "sweep.json").read_text())
    about = [json.loads((out / case["name"] / "case.json").read_text()) for case in plan["cases"]]
    assert len(about) == args.cases
    return seconds, [case["seconds"] for case in about]


@contextmanager
def cluster(cores: tuple[int, ...]) -> Iterator[str]:
    """A scheduler of Dask with a worker on each of these cores, when all are there."""
    from distributed import Client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    module = [sys.executable, "-m"]
    port = ["--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    commands = [[*module, "distributed.cli.dask_scheduler", *port]]
    for core in cores:
        worker = [*module, "distributed.cli.dask_worker", f"tcp://{address}", "--nthreads", "1"]
        commands.append(["taskset", "-c", str(core), *worker])
    started = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    [*command, "--no-dashboard"],
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        with Client(f"tcp://{address}", timeout=30) as client:
            client.wait_for_workers(len(cores), timeout=60)
        yield f"dask://{address}"
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def row(name: str, value: str, target: str = "") -> None:
    print(f"| {name:46} | {value:12} | {target:10} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--parts", default="overhead,dask")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    row("figure", "measured", "target")
    row("-" * 46, "-" * 12, "-" * 10)
    row("load of the machine before", f"{load:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        if "overhead" in args.parts:
            seconds, cases = sweep(Path(folder), args)
            row("case, its own process", f"{sum(cases) / len(cases):.2f} s")
            over = (seconds - sum(cases)) / len(cases)
            row("sweep, beyond its cases, per case", f"{over:.2f} s", "<= 1.5 s")
        if "dask" in args.parts:
            times = {}
            for cores in ((0,), (0, 1), (1,)):
                with cluster(cores) as address:
                    seconds, _ = sweep(Path(folder), args, "--executor", address)
                times[cores] = seconds
                on = " and ".join(map(str, cores))
                row(f"sweep of {args.cases} cases, Dask workers on core {on}", f"{seconds:.1f} s")
            ratio = times[0, 1] / min(times[0,], times[1,])
            row("two workers' time over the faster one's", f"{ratio:.2f}", "<= 0.65")


if __name__ == "__main__":
    main()
