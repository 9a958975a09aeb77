"""What is simulated: the devices, their time, and what tests set and read. CuPy has no such module.

A device has one queue, which all of its streams share. A launch takes :data:`kernel_ns` of the
device's time, behind what is in the queue and not before the host's now. NumPy computes the result
at once, in the host's time, so the device mostly waits for the host, as it does for a small
network.

While a stream captures, launches into it become steps of its graph. NumPy computes them then as
well, but what they gave is spoilt at the end of the capture: only launching the graph, which does
them again, makes it right.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

VERSION = os.environ.get("FAKE_CUPY_VERSION", "14.2.0")
#: Number of devices; 0: a driver without devices, -1: no driver.
n_devices = int(os.environ.get("FAKE_CUPY_DEVICES", "1"))
#: Memory of each device.
memory_nbytes = int(os.environ.get("FAKE_CUPY_MEMORY", str(16 << 30)))
#: Duration of every launch, copies between host and device included.
kernel_ns = int(os.environ.get("FAKE_CUPY_KERNEL_NS", "10000"))
#: Larger matrix products are not computed if they are given an array to write into.
most_multiply_adds = 1 << 27

#: How often each kernel, function or copy was launched.
launches: Counter[str] = Counter()
#: Calls that leave no trace on the device: NVTX ranges and the profiler's begin and end.
log: list[str] = []

_end_ns: defaultdict[int, int] = defaultdict(int)


@dataclass
class Step:
    """A launch that was captured: what it was, how to do it again, and its new arrays."""

    name: str
    duration_ns: int
    again: Callable[[], object]
    new: list[np.ndarray[Any, Any]]


@dataclass
class Capture:
    """What a stream captures."""

    relaxed: bool
    steps: list[Step] = field(default_factory=list)
    valid: bool = True

    def spoil(self) -> None:
        """Nothing has been computed yet."""
        for step in self.steps:
            for array in step.new:
                if array.dtype.kind in "fiu":
                    array[...] = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max


#: The captures that go on, of whichever stream.
captures: list[Capture] = []


def current_capture() -> Capture | None:
    """That of the current stream, if it captures."""
    if not captures:
        return None
    from cupy import cuda

    return cuda.get_current_stream().capture


def refuse_while_capturing(strictly: bool = False) -> None:
    """What CUDA does about a wait, or (strictly) an allocation, while a stream captures."""
    from cupy.cuda import runtime

    for capture in captures:
        if not (strictly and capture.relaxed):
            capture.valid = False
            raise runtime.CUDARuntimeError(900)


class HostClock(Protocol):
    """The host's time, which the device's time goes by."""

    def now_ns(self) -> int:
        """The time, in nanoseconds."""

    def wait_until_ns(self, time_ns: int) -> None:
        """Return when it is that late."""


class RealClock:
    """The host's own clock."""

    def now_ns(self) -> int:
        """The time, in nanoseconds."""
        return time.perf_counter_ns()

    def wait_until_ns(self, time_ns: int) -> None:
        """Sleep, and look at the clock all the time when little is left."""
        while (left_ns := time_ns - time.perf_counter_ns()) > 0:
            if left_ns > 1_000_000:
                time.sleep((left_ns - 500_000) * 1e-9)


class StandingClock:
    """Stands still but for ``advance`` and for waits, which take no time."""

    def __init__(self, time_ns: int = 0) -> None:
        self.time_ns = time_ns

    def now_ns(self) -> int:
        """The time, in nanoseconds."""
        return self.time_ns

    def advance(self, duration_ns: int) -> None:
        """Let time pass."""
        self.time_ns += duration_ns

    def wait_until_ns(self, time_ns: int) -> None:
        """Make it that late."""
        self.time_ns = max(self.time_ns, time_ns)


#: Replace it in tests that are not to depend on the real time.
clock: HostClock = RealClock()


def launch(
    device: int,
    name: str,
    duration_ns: int | None = None,
    again: Callable[[], object] = lambda: None,
    new: list[np.ndarray[Any, Any]] | None = None,
) -> None:
    """Put work in a device's queue, or in the graph that the current stream captures.

    Args:
        device: The device's number.
        name: What it is.
        duration_ns: How long it takes; None for a kernel's usual duration.
        again: Does it again.
        new: Arrays that had nothing in them before.
    """
    duration_ns = kernel_ns if duration_ns is None else duration_ns
    capture = current_capture()
    if capture is not None:
        capture.steps.append(Step(name, duration_ns, again, new or []))
        return
    launches[name] += 1
    _end_ns[device] = reached_ns(device) + duration_ns


def reached_ns(device: int) -> int:
    """When a device will reach what is put in its queue now."""
    return max(clock.now_ns(), _end_ns[device])


def is_idle(device: int) -> bool:
    """Whether a device's queue is empty."""
    return clock.now_ns() >= _end_ns[device]


def synchronize(device: int) -> None:
    """Wait until a device's queue is empty; not while a stream captures."""
    refuse_while_capturing()
    clock.wait_until_ns(_end_ns[device])
