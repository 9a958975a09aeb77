"""A history of calls in the order in which they ended, as TimerHook keeps it, from a log."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from chainer_profile.measure.calls import Log
    from chainer_profile.measure.structure import Structure


class CallHistory:
    """All calls of functions in the order in which they ended, with their times.

    Attributes:
        total_ns: Time within functions, that of a nested one once.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # What runs: its name, its begin, and the time of the calls in it that have ended.
        self._running: list[tuple[str, int, int]] = []

    def pairs(self, own: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; on request without the time of nested calls."""
        times = self._self_ns if own else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(self, log: Log) -> None:
        """Add a stretch of a log, which may end within windows."""
        at = 0
        while at < len(log):
            if type(log[at]) is not int:
                self._running.append((getattr(log[at], "__name__", ""), log[at + 3], 0))
                at += 4
                continue
            if self._running:
                name, begin_ns, nested_ns = self._running.pop()
                self._end(name, log[at] - begin_ns, nested_ns)
            at += 1

    def add_whole(self, log: Log) -> None:
        """Add a stretch whose windows have ended: an exception left those that run at its end."""
        depth = len(self._running)
        self.add(log)
        del self._running[depth:]

    def add_trials(self, structure: Structure, stamps: NDArray[np.int64]) -> None:
        """Add trials that make the same calls: their clock reads, (trials, reads)."""
        names, begins, ends, within = structure.history
        elapsed = stamps[:, ends] - stamps[:, begins]
        own = elapsed.copy()
        for inner, outer in within:
            own[:, outer] -= elapsed[:, inner]
        self._names += names * len(stamps)
        self._elapsed_ns.frombytes(elapsed.tobytes())
        self._self_ns.frombytes(own.tobytes())
        self._add_time(int(own.sum()), int(own.sum()))

    def clear(self) -> None:
        """Forget what runs."""
        self._running.clear()

    def _end(self, name: str, elapsed_ns: int, nested_ns: int) -> None:
        if not name:  # of a link
            return
        self._names.append(name)
        self._elapsed_ns.append(elapsed_ns)
        self._self_ns.append(elapsed_ns - nested_ns)
        self._add_time(elapsed_ns, elapsed_ns - nested_ns)

    def _add_time(self, elapsed_ns: int, own_ns: int) -> None:
        self.total_ns += own_ns
        if self._running:
            name, begin_ns, nested_ns = self._running[-1]
            self._running[-1] = name, begin_ns, nested_ns + elapsed_ns
