"""Sees that trials take many times the fastest, and says so while the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.describe import NS
from chainer_profile.measure.environment import CpuWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Trials are slow that take so many times the fastest, for so long, and at least so many of them.
_TIMES = 5.0
_SECONDS = 2.0
_TRIALS = 5
#: Others keep at least so many cores busy where they are to blame.
_BUSY_CORES = 0.25


class SlowTrials:
    """Takes the times of trials as they are made."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say: Callable[[str], None] | None = say
        self._fastest_ns = 0
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()

    def add(self, walls_ns: Iterable[int]) -> None:
        """Wall times of the next trials, in nanoseconds."""
        if self._say is None:
            return
        for wall_ns in walls_ns:
            self._fastest_ns = min(self._fastest_ns or wall_ns, wall_ns)
            self._count += 1
            self._sum_ns += wall_ns
            self._slowest_ns = max(self._slowest_ns, wall_ns)
        if self._count < _TRIALS or self._sum_ns * NS < _SECONDS:
            return
        # One slow trial is chance: the mean is that of the others.
        mean_ns = (self._sum_ns - self._slowest_ns) / (self._count - 1)
        if self._fastest_ns and mean_ns >= _TIMES * self._fastest_ns:
            other = self._watch.other_cpu()
            why = (
                "another program keeps the cores busy"
                if other is not None and other >= _BUSY_CORES
                else "something else slows this machine"
            )
            self._say(f"trials take {mean_ns / self._fastest_ns:.0f} times the fastest: {why}")
            self._say = None
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()
