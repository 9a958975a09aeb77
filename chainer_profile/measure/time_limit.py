"""How long a run and its warm-up may take."""

from __future__ import annotations

import math

from chainer_profile.basics.describe import NS
from chainer_profile.measure.clock import NowNs

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
        return self._seconds - (self._now_ns() - self._begin_ns) * NS

    def at_most_s(self, seconds: float, part: float) -> float:
        """So many seconds, but no more than this part of the whole time."""
        return seconds if self._seconds is None else min(seconds, part * self._seconds)
