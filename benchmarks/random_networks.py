"""Draws networks and compares what engines give for them with what Chainer gives.

    python benchmarks/random_networks.py --networks 20000         # optimize()
    python benchmarks/random_networks.py --networks 3000 --engine onnxruntime

Each is compared in several calls, on other inputs, batch sizes and parameters; see
tests/engines/random_networks.py. Exits with 1 if one is wrong.
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


def check(engine: str, seed: int) -> tuple[int, list[str], list[str], bool]:
    """One network: its seed, what was wrong, what was said, and whether the engine ran it."""
    from threadpoolctl import threadpool_limits

    from tests.engines import checking

    with threadpool_limits(1):
        ways = {"optimize": checking.check_optimized, "onnxruntime": checking.check_exported}
        found = ways[engine](seed)
    return seed, found.wrong, found.said, found.planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--engine", choices=["optimize", "onnxruntime"], default="optimize")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    begin, wrong, planned, said = time.perf_counter(), 0, 0, Counter[str]()
    seeds = range(args.seed, args.seed + args.networks)
    with ProcessPoolExecutor(args.jobs) as pool:
        for seed, faults, words, ran in pool.map(partial(check, args.engine), seeds, chunksize=20):
            planned += ran
            # What the proof has caught is worth a look; the rest only its number.
            caught = [one for one in words if "is another one" in one]
            for one in caught:
                print(f"seed {seed}: {one}", flush=True)
            said.update(set(words) - set(caught))
            if faults:
                wrong += 1
                print(f"seed {seed}: {'; '.join(faults)}", flush=True)
    for what, count in said.most_common():
        print(f"{count} x {what}")
    print(
        f"{args.networks} networks from seed {args.seed}: {planned} ran under {args.engine}, "
        f"{wrong} wrong; {time.perf_counter() - begin:.0f} s"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
