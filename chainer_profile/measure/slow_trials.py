"""Warns of trials that become much slower during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chainer_profile.basics.describe import NS
from chainer_profile.measure.environment import CpuWatch

#: From this multiple of the fastest trial on, trials are slow. Groups of at least this time and
#: number are judged.
_SLOW_FACTOR = 5.0
_MIN_SLOW_S = 2.0
_MIN_SLOW_TRIALS = 5


class SlowTrials:
    """Warns once when the trials of a run become much slower than the fastest trial."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say: Callable[[str], None] | None = say
        self._fastest_ns = 0
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()

    def add(self, walls_ns: Iterable[int]) -> None:
        """Add the wall times of trials, and warn if the last ones were slow."""
        if self._say is None:
            return
        for wall_ns in walls_ns:
            self._fastest_ns = min(self._fastest_ns or wall_ns, wall_ns)
            self._count += 1
            self._sum_ns += wall_ns
            self._slowest_ns = max(self._slowest_ns, wall_ns)
        if self._count < _MIN_SLOW_TRIALS or self._sum_ns * NS < _MIN_SLOW_S:
            return
        # Leave out the slowest trial: a single slow one is chance.
        mean_ns = (self._sum_ns - self._slowest_ns) / (self._count - 1)
        if self._fastest_ns and mean_ns >= _SLOW_FACTOR * self._fastest_ns:
            why = (
                "another program keeps the cores busy"
                if self._watch.is_busy()
                else "something else slows this machine"
            )
            self._say(
                f"trials take {mean_ns / self._fastest_ns:.0f} times as long as the fastest: {why}"
            )
            self._say = None
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()
