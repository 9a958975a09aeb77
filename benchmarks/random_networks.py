"""Draws networks and compares what a runtime gives for their export with what Chainer gives.

    python benchmarks/random_networks.py --engine onnxruntime --networks 3000

Each is compared on two inputs; see tests/engines/random_networks.py. Exits with 1 if one is wrong.
OpenVINO is a few times: it computes double precision in float32, and gives some poolings a shape of
its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import chainer_profile  # noqa: E402, F401  (before Chainer)


def check(seed: int, engine: str) -> tuple[int, list[str], str]:
    """One network: its seed, what was wrong, and why it was refused."""
    from threadpoolctl import threadpool_limits

    from tests.engines.random_networks import check_exported

    with threadpool_limits(1):
        found = check_exported(seed, engine)
    return seed, found.wrong, found.refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "openvino"])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    begin, wrong, refused = time.perf_counter(), 0, Counter[str]()
    seeds = range(args.seed, args.seed + args.networks)
    with ProcessPoolExecutor(args.jobs) as pool:
        for seed, faults, reason in pool.map(
            partial(check, engine=args.engine), seeds, chunksize=20
        ):
            if reason:
                refused[reason] += 1
            if faults:
                wrong += 1
                print(f"seed {seed}: {'; '.join(faults)}", flush=True)
    for what, count in refused.most_common():
        print(f"{count} x {what}")
    print(
        f"{args.networks} networks from seed {args.seed}: {args.networks - refused.total()} ran, "
        f"{wrong} wrong; {time.perf_counter() - begin:.0f} s"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
