"""How much faster than Chainer itself the engines run the same network, in one run.

    python benchmarks/engines.py [--seconds 20] [--cases resnet20:1,resnet20:32]

Engines take turns in short blocks, with one thread each; a ratio is the median of the rounds'
ratios, with its 95 % interval. Parameters are drawn where they are all the same. Outputs are
compared on two inputs.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import chainer_profile  # noqa: F401  (lets Chainer import)

# isort: split
import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.engines.equality import with_other_parameters
from chainer_profile.engines.protocol import Network
from chainer_profile.engines.race import Race, choose
from chainer_profile.engines.results import Speedup, speedup
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import make_step
from models import REGISTRY

CASES = ("resnet20:1", "resnet20:32", "resnet18:1", "resnet34-relu-bn:2", "se-resnet9-fixup:8")
#: Least speed-ups.
TARGETS = {
    ("resnet20:1", "onnxruntime"): 9.0,
    ("resnet20:1", "openvino"): 9.0,
    ("resnet20:32", "onnxruntime"): 8.0,
}
#: Largest difference of outputs at fp32, as a part of the largest output.
DIFFERENCE = 1e-4
ENGINES = ("onnxruntime", "openvino")


def network(case: str) -> Network:
    """The network and batch of a case, as ``resnet20:32``."""
    name, _, batch = case.partition(":")
    entry = REGISTRY[name]
    model = entry.build()
    model = with_other_parameters(model) or model
    x = np.random.default_rng(0).random((int(batch), *entry.input_shape), np.float32)
    step = make_step("forward", model, (x,))
    with step.configured():
        layers = learn_structure(step).layers
    return Network(name, model, (x,), layers, threads=1)


def factor_text(found: Speedup) -> str:
    """A factor with its interval, where there were rounds enough for one."""
    interval = "too few rounds" if math.isnan(found.low) else f"{found.low:.2f} to {found.high:.2f}"
    return f"{found.factor:.2f} ({interval})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case")
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    print(
        "| case               | engine      | median     | times as fast (95 % interval) | target "
        "| difference |\n"
        "| ------------------ | ----------- | ---------- | ----------------------------- | ------ "
        "| ---------- |"
    )
    missed = 0
    for case in args.cases.split(","):
        with threadpool_limits(1):
            race = Race(
                choose(ENGINES),
                network(case),
                trials=100_000,
                max_seconds=args.seconds,
            )
            race.run()
        results = [one.result for one in race.contestants]
        for result in results:
            if result.error:
                print(f"{case} {result.name}: {result.error}")
                missed += 1
                continue
            if result.statistics is None:
                raise SystemExit(f"{case}: {result.error or 'no time for a trial: more --seconds'}")
            median = f"{result.statistics.median_s * 1e3:.3f} ms"
            ratio = speedup(result, results[0])
            found = result.difference
            target = TARGETS.get((case, result.name))
            said = "" if ratio is None else factor_text(ratio)
            aim = "" if target is None else f">= {target}"
            far = "" if found is None else f"{found.relative:.1e}"
            print(
                f"| {case:18} | {result.name:11} | {median:10} | {said:29} | {aim:6} | {far:10} |",
                flush=True,
            )
            missed += target is not None and (ratio is None or ratio.factor < target)
            missed += found is not None and not found.relative < DIFFERENCE
    print(f"targets missed: {missed}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
