"""Fixed work that is timed before and after a run, to measure the machine's current speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import chainer
import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.kernels.memory import array_outside_heap
from chainer_profile.measure.clock import Clock, NowNs
from chainer_profile.measure.step import Step
from chainer_profile.record.recording import Calibration

#: Side of the float32 matrices to multiply, and bytes of the array to copy. A GPU needs more work,
#: because the launch of a kernel must not dominate.
SIDE, GPU_SIDE = 384, 4096
COPY_NBYTES, GPU_COPY_NBYTES = 1 << 24, 1 << 28
_ROUNDS = 15


def calibrate(now_ns: NowNs = time.perf_counter_ns, xp: Any = np) -> Calibration:
    """Time a matrix product and a copy on the device of ``xp``; this takes 50 ms on a CPU."""
    side, nbytes = (SIDE, COPY_NBYTES) if xp is np else (GPU_SIDE, GPU_COPY_NBYTES)
    a, b, product = (array_outside_heap(xp, (side, side), 1 / side) for _ in range(3))
    source, target = (array_outside_heap(xp, (nbytes // 4,), 1.0) for _ in range(2))

    def multiply() -> None:
        xp.matmul(a, b, out=product)

    def copy() -> None:
        xp.copyto(target, source)

    return Calibration(_median_s(multiply, now_ns), _median_s(copy, now_ns))


def calibrated(clock: Clock, xp: Any) -> Calibration | None:
    """Calibrate a clock's device; None if that fails, for example because a GPU's memory is full.

    A failure must not end the run.
    """
    try:
        return calibrate(clock.waiting().now_ns, xp)
    except Exception:
        return None


def calibration_of(step: Step, clock: Clock) -> Callable[[], Calibration | None]:
    """Return a function that calibrates the device of a step's inputs."""
    return partial(calibrated, clock, chainer.backend.get_array_module(*step.inputs))


def _median_s(work: Callable[[], None], now_ns: NowNs) -> float:
    """Median time of repeated work in seconds, after one warm-up."""
    work()
    times = []
    for _ in range(_ROUNDS):
        start_ns = now_ns()
        work()
        times.append(now_ns() - start_ns)
    return float(np.median(times)) * NS
