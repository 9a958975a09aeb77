"""All calls of functions with their times, in the order in which they ended."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.row import Entry
from chainer_profile.measure.stretch import Stretch, innermost, mended, summed


class History:
    """Calls of functions, including backwards, inside and outside the iterations."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # Events of calls that have not ended, and the pauses so far, which count for no call.
        self._codes, self._stamps = (np.zeros(0, np.int64) for _ in range(2))
        self._paused_ns = 0

    def pairs(self, own: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; ``own`` times exclude nested calls."""
        times = self._self_ns if own else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], entries: Sequence[Entry]
    ) -> None:
        """Add events; calls may still be running at their end.

        A code of 0 or more begins a call of that entry, and its complement ends the call. The
        stamps are in nanoseconds. Both are (events,).
        """
        if not len(codes):
            return
        events = Stretch(codes, stamps - self._paused_ns, np.array([len(codes)]))
        events, paused_ns = events.without_pauses()
        self._paused_ns += int(paused_ns.sum())
        names = np.array([entry.name for entry in entries], object)
        numbers = np.where(events.codes >= 0, events.codes, ~events.codes)
        is_function = names[numbers] != ""
        self._codes = np.concatenate([self._codes, events.codes[is_function]])
        self._stamps = np.concatenate([self._stamps, events.stamps[is_function]])
        # Events after which no call is running.
        idle = np.flatnonzero(np.cumsum(np.where(self._codes >= 0, 1, -1)) == 0)
        if len(idle):
            end = int(idle[-1]) + 1
            self._add_ended(self._codes[:end], self._stamps[:end], names)
            self._codes, self._stamps = self._codes[end:], self._stamps[end:]

    def clear_running(self) -> None:
        """Drop calls that have not ended."""
        self._codes, self._stamps = self._codes[:0], self._stamps[:0]

    def _add_ended(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], names: NDArray[np.object_]
    ) -> None:
        """Add the times of calls that have all ended."""
        # The begin event of the innermost call that runs after each event, if they nest.
        running = innermost(codes)
        if running is None:
            codes, source, _ = mended(codes)
            stamps, running = stamps[source], innermost(codes)
            if running is None or not len(codes):
                return
        ends = np.flatnonzero(codes < 0)
        begins = running[ends - 1]
        intervals_ns = np.diff(stamps, append=stamps[-1:])
        self_ns = summed(intervals_ns, running, len(codes))[begins]
        self._names += names[~codes[ends]].tolist()
        self._elapsed_ns.frombytes((stamps[ends] - stamps[begins]).tobytes())
        self._self_ns.frombytes(self_ns.tobytes())
        self.total_ns += int(self_ns.sum())
