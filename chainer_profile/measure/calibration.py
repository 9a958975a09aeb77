"""How fast the machine itself is at one moment: fixed work, timed before a run and after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.kernels.memory import array_outside_heap
from chainer_profile.measure.clock import Clock, NowNs
from chainer_profile.record.recording import Calibration

#: Sides of the float32 matrices, and bytes of the array that is copied: on a CPU, and on a GPU,
#: where launching would hide smaller work.
SIDE, GPU_SIDE = 384, 4096
COPY_NBYTES, GPU_COPY_NBYTES = 1 << 24, 1 << 28
_ROUNDS = 15


def calibrate(now_ns: NowNs = time.perf_counter_ns, xp: Any = np) -> Calibration:
    """Time the fixed work, which takes some 50 ms on a CPU."""
    side, nbytes = (SIDE, COPY_NBYTES) if xp is np else (GPU_SIDE, GPU_COPY_NBYTES)
    a, b, product = (array_outside_heap(xp, (side, side), 1 / side) for _ in range(3))
    source, target = (array_outside_heap(xp, (nbytes // 4,), 1.0) for _ in range(2))

    def multiply() -> None:
        xp.matmul(a, b, out=product)

    def copy() -> None:
        xp.copyto(target, source)

    return Calibration(_median_s(multiply, now_ns), _median_s(copy, now_ns))


def calibrated(clock: Clock, xp: Any) -> Calibration | None:
    """The same of a clock's device; None where that cannot be, such as on a full GPU."""
    try:
        return calibrate(clock.waiting().now_ns, xp)
    except Exception:  # nothing of the program depends on it
        return None


def _median_s(work: Callable[[], None], now_ns: NowNs) -> float:
    """Median time of repeated work, in seconds; the first run warms up and does not count."""
    work()
    times = []
    for _ in range(_ROUNDS):
        start_ns = now_ns()
        work()
        times.append(now_ns() - start_ns)
    return float(np.median(times)) * NS
