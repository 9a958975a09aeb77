"""Whether the verdicts are right: four functions whose bound is known, on this machine.

    python benchmarks/verdicts.py

A matrix product of 3072 x 3072 must come out compute bound near the machine's limit, a function
that touches 500 new pages limited by page faults, one that computes for about as long by nothing
known (it has no formula), and a ReLU of one element by what a call costs.
"""

from __future__ import annotations

import mmap
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

from chainer_profile.analyse.inside import CALLS
from chainer_profile.analyse.roofline import COMPUTE
from chainer_profile.analyse.verdicts import FAULTS
from chainer_profile.measure.machine import find_device, measure_limits


class Faulting(chainer.FunctionNode):
    """Touches 500 new small pages."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages = mmap.mmap(-1, 500 * mmap.PAGESIZE, flags=private)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE] = 1
        return (inputs[0].copy(),)


class Busy(chainer.FunctionNode):
    """Computes in memory that it has."""

    values = np.ones(1 << 14, np.float32)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        for _ in range(40):
            np.sin(self.values, out=self.values)
        return (inputs[0].copy(),)


class Four(chainer.Chain):
    """The four functions, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.a = np.random.default_rng(0).random((3072, 3072), dtype=np.float32)

    def forward(self, x: Any) -> Any:
        F.matmul(self.a, self.a)
        Faulting().apply((x,))
        Busy().apply((x,))
        return F.relu(x)


def main() -> None:
    recording = chainer_profile.profile(
        Four(), np.ones(1, np.float32), trials=30, warmups=3, memory=False
    )
    recording = replace(recording, limits=measure_limits(recording.environment, find_device("cpu")))
    limits, counters = recording.limits, recording.counters
    assert limits is not None
    assert counters is not None
    copy, fresh = (
        f"{rate / 1e9:.1f} GB/s" for rate in (limits.copy_nbytes_per_s, limits.fresh_nbytes_per_s)
    )
    print(
        f"limits: {limits.flops_per_s / 1e9:.1f} GFLOP/s, copy {copy}, into new memory {fresh}, "
        f"{limits.threads} BLAS threads; a page fault at least {counters.fault_ns} ns"
    )
    layers = chainer_profile.summarise(recording).layers
    for row, verdict in zip(layers.itertuples(), (COMPUTE, FAULTS, "", CALLS), strict=True):
        right = "right" if row.verdict == verdict else f"WRONG, expected {verdict or 'none'}"
        print(
            f"{row.function:8} {row.median_s * 1e3:9.4f} ms, {row.page_faults:6.1f} faults, "
            f"{row.reached:7.2%} of the limit: {row.verdict or 'none'}, {right}"
        )


if __name__ == "__main__":
    main()
