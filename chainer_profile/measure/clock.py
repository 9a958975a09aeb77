"""The clocks that measure: the host's, and a device's queue; and how long a run may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from chainer_profile.basics.checks import shown
from chainer_profile.basics.errors import UsageError

#: Reads a clock in integer nanoseconds.
NowNs = Callable[[], int]


class Event(Protocol):
    """A place in a device's queue, whose time is known once the device has passed it."""

    def record(self) -> None:
        """Put it behind all work that was launched so far; may be done again and again."""

    @property
    def done(self) -> bool:
        """Whether the device has passed it."""


class DeviceQueue(Protocol):
    """The work that a device has still to do, in order: CUDA's current stream."""

    def new_event(self) -> Event:
        """An event that can be recorded."""

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """Milliseconds between two events that the device has passed."""

    def synchronize(self) -> None:
        """Wait until the device has done all of its work."""

    def hold(self, nanoseconds: int) -> None:
        """Keep the device from what is launched from now on, for so long at least."""

    def memory_nbytes(self) -> tuple[int, int]:
        """Free and total bytes of the device's memory."""


@dataclass(frozen=True)
class Clock:
    """A host clock, and the queue of the device that works for the host, if any."""

    now_ns: NowNs  # from an arbitrary start, never backwards
    device: DeviceQueue | None = None
    cpu_ns: NowNs = time.process_time_ns  # used by the process in all its threads

    def resolution_ns(self, reads: int = 1000) -> int:
        """The smallest step that was seen between successive, differing reads (0: none seen)."""
        stamps = [self.now_ns() for _ in range(reads)]
        steps = [b - a for a, b in pairwise(stamps) if b > a]
        return min(steps, default=0)

    def waiting(self) -> Clock:
        """A clock that waits for the device before each reading."""
        if self.device is None:
            return self
        synchronize, now_ns = self.device.synchronize, self.now_ns

        def read() -> int:
            synchronize()
            return now_ns()

        return Clock(read)


def check_clock(clock: Any) -> Any:
    """Refuse an argument that is no clock; None is the one that fits the device."""
    if clock is not None and not callable(getattr(clock, "now_ns", None)):
        raise UsageError(f"clock is {shown(clock)}: give a chainer_profile.measure.clock.Clock")
    return clock


HOST_CLOCK = Clock(time.perf_counter_ns)


#: A warm-up ends after so many seconds, or after this part of the time.
WARMUP_SECONDS = 10.0
WARMUP_PART = 0.1


class TimeLimit:
    """The time of a run, from now on."""

    def __init__(self, now_ns: NowNs, seconds: float | None = None) -> None:
        self._now_ns, self._seconds = now_ns, seconds
        self._begin_ns = now_ns()

    def left_s(self) -> float:
        """Seconds that are left; infinite without a limit."""
        if self._seconds is None:
            return math.inf
        return self._seconds - (self._now_ns() - self._begin_ns) * 1e-9

    def at_most_s(self, seconds: float, part: float) -> float:
        """So many seconds, but no more than this part of the whole time."""
        return seconds if self._seconds is None else min(seconds, part * self._seconds)
