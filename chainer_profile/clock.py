"""The clock that measures. It is injected everywhere, so that tests can use one of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

#: Reads a clock in integer nanoseconds.
NowNs = Callable[[], int]


@dataclass(frozen=True)
class Clock:
    """A host clock.

    Attributes:
        now_ns: Reads the clock: integer nanoseconds from an arbitrary start, never backwards.
    """

    now_ns: NowNs

    def resolution_ns(self, reads: int = 1000) -> int:
        """The smallest step that was seen between successive, differing reads (0: none seen)."""
        stamps = [self.now_ns() for _ in range(reads)]
        steps = [b - a for a, b in pairwise(stamps) if b > a]
        return min(steps, default=0)


HOST_CLOCK = Clock(time.perf_counter_ns)
