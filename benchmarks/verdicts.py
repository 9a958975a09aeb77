"""Whether the verdicts are right: three functions whose bound is known, on this machine.

    python benchmarks/verdicts.py

A matrix product of 3072 x 3072 must come out compute bound near the machine's limit, an addition of
two arrays of 256 MiB bound by page faults, and a ReLU of one element below both limits. Chainer
allocates an addition's output anew for every call, and the system hands it out page by page; the
copy into new memory shows that ceiling.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import chainer_profile

# ruff: isort: split
import chainer
import chainer.functions as F
import numpy as np

from chainer_profile.analyse.roofline import COMPUTE
from chainer_profile.analyse.verdicts import BELOW, FAULTS
from chainer_profile.measure.machine import find_device, measure_limits


class Three(chainer.Chain):
    """The three functions, one after another."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.a = rng.random((3072, 3072), dtype=np.float32)
        self.b = np.ones(1 << 26, np.float32)

    def forward(self, x: Any) -> Any:
        F.matmul(self.a, self.a)
        F.add(self.b, self.b)
        return F.relu(x)


def main() -> None:
    recording = chainer_profile.profile(
        Three(), np.ones(1, np.float32), trials=30, warmups=3, memory=False
    )
    recording = replace(recording, limits=measure_limits(recording.environment, find_device("cpu")))
    limits = recording.limits
    assert limits is not None
    copy, fresh = (
        f"{rate / 1e9:.1f} GB/s" for rate in (limits.copy_nbytes_per_s, limits.fresh_nbytes_per_s)
    )
    print(
        f"limits: {limits.flops_per_s / 1e9:.1f} GFLOP/s, copy {copy}, into new memory {fresh}, "
        f"{limits.threads} BLAS threads"
    )
    layers = chainer_profile.summarise(recording).layers
    ceiling = limits.fresh_nbytes_per_s / limits.copy_nbytes_per_s
    expected = ((COMPUTE, ">= 70 %"), (FAULTS, f"ceiling {ceiling:.0%}"), (BELOW, "< 33 %"))
    for row, (verdict, target) in zip(layers.itertuples(), expected, strict=True):
        right = "right" if row.verdict == verdict else f"WRONG, expected {verdict}"
        print(
            f"{row.function:8} {row.flops_per_s / 1e9:9.4f} GFLOP/s {row.nbytes_per_s / 1e9:8.4f} "
            f"GB/s {row.reached:7.2%} of the limit ({target}): {row.verdict}, {right}"
        )


if __name__ == "__main__":
    main()
