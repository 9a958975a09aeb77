"""Clocks of the host and of a device, and the time limit of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from chainer_profile.basics.checks import short_repr
from chainer_profile.basics.errors import UsageError

#: Reads a clock in integer nanoseconds.
NowNs = Callable[[], int]


class Event(Protocol):
    """A point in a device's queue; its time is known when the device has reached it."""

    def record(self) -> None:
        """Insert the event after all work launched so far; it may be recorded again later."""

    @property
    def done(self) -> bool:
        """Whether the device has reached the event."""


class DeviceQueue(Protocol):
    """A device's queue of launched work, such as CUDA's current stream."""

    def new_event(self) -> Event:
        """Make an event that is not recorded yet."""

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """Milliseconds between two events that the device has reached."""

    def synchronize(self) -> None:
        """Wait until the device has finished all of its work."""

    def hold(self, nanoseconds: int) -> None:
        """Delay all work that is launched from now on by at least this time."""

    def memory_nbytes(self) -> tuple[int, int]:
        """Free and total bytes of the device's memory."""


@dataclass(frozen=True)
class Clock:
    """A host clock, and the queue of the device if one does the work."""

    now_ns: NowNs  # monotonic, from an arbitrary start
    device: DeviceQueue | None = None
    cpu_ns: NowNs = time.process_time_ns  # CPU time of all threads of the process

    def resolution_ns(self, reads: int = 1000) -> int:
        """Smallest step between successive reads that differ; 0 if none differ."""
        stamps = [self.now_ns() for _ in range(reads)]
        steps = [b - a for a, b in pairwise(stamps) if b > a]
        return min(steps, default=0)

    def waiting(self) -> Clock:
        """Make a clock that waits for the device before each reading."""
        if self.device is None:
            return self
        synchronize, now_ns = self.device.synchronize, self.now_ns

        def read() -> int:
            synchronize()
            return now_ns()

        return Clock(read)


def check_clock(clock: Any) -> Any:
    """Return a clock, or None for the default one; raise a UsageError for other arguments."""
    if clock is not None and not callable(getattr(clock, "now_ns", None)):
        raise UsageError(
            f"clock is {short_repr(clock)}: give a chainer_profile.measure.clock.Clock"
        )
    return clock


HOST_CLOCK = Clock(time.perf_counter_ns)


#: Longest duration of the warm-up, in seconds and as a fraction of the run's time limit.
WARMUP_SECONDS = 10.0
WARMUP_PART = 0.1


class TimeLimit:
    """The time limit of a run that starts now; without ``seconds`` the time is unlimited."""

    def __init__(self, now_ns: NowNs, seconds: float | None = None) -> None:
        self._now_ns, self._seconds = now_ns, seconds
        self._begin_ns = now_ns()

    def left_s(self) -> float:
        """Seconds until the limit; infinite without a limit."""
        if self._seconds is None:
            return math.inf
        return self._seconds - (self._now_ns() - self._begin_ns) * 1e-9

    def at_most_s(self, seconds: float, fraction: float) -> float:
        """Reduce a duration to a fraction of the limit if it is longer."""
        return seconds if self._seconds is None else min(seconds, fraction * self._seconds)
