"""All calls of functions with their times, in the order in which they ended."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.call_sites import CallSite
from chainer_profile.measure.spans import match_spans, without_pauses

Ints = NDArray[np.int64]


class History:
    """Calls of functions, including backwards, inside and outside the iterations."""

    def __init__(self) -> None:
        #: Time inside functions in nanoseconds; nested calls count once.
        self.total_ns = 0
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # Events of calls that have not ended, and the pauses so far, which count for no call.
        self._event_ids, self._clock_ns = (np.zeros(0, np.int64) for _ in range(2))
        self._paused_ns = 0

    def pairs(self, own: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; ``own`` times exclude nested calls."""
        times = self._self_ns if own else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(self, event_ids: Ints, clock_ns: Ints, sites: Sequence[CallSite]) -> None:
        """Add events; calls may still be running after the last one.

        An event id of 0 or more begins a call at that site, and its complement ends the call.
        Both arrays are (events,).
        """
        if not len(event_ids):
            return
        event_ids, values, paused = without_pauses(event_ids, clock_ns[None])
        clock_ns = values[0] - self._paused_ns
        self._paused_ns += int(paused[0])
        is_function = np.array([site.is_function for site in sites])
        kept = is_function[np.where(event_ids >= 0, event_ids, ~event_ids)]
        self._event_ids = np.concatenate([self._event_ids, event_ids[kept]])
        self._clock_ns = np.concatenate([self._clock_ns, clock_ns[kept]])
        # Events after which no call is running.
        idle = np.flatnonzero(np.cumsum(np.where(self._event_ids >= 0, 1, -1)) == 0)
        if len(idle):
            end = int(idle[-1]) + 1
            self._add_ended(self._event_ids[:end], self._clock_ns[:end], sites)
            self._event_ids, self._clock_ns = self._event_ids[end:], self._clock_ns[end:]

    def clear_running(self) -> None:
        """Drop calls that have not ended."""
        self._event_ids, self._clock_ns = self._event_ids[:0], self._clock_ns[:0]

    def _add_ended(self, event_ids: Ints, clock_ns: Ints, sites: Sequence[CallSite]) -> None:
        """Add the times of calls that have all ended."""
        spans = match_spans(event_ids.tolist())
        begins, ends = np.array(spans.begins), np.array(spans.ends)
        innermost = np.array(spans.innermost)[:-1]
        intervals_ns, inside = np.diff(clock_ns), innermost >= 0
        self_ns = np.zeros(len(begins), np.int64)
        np.add.at(self_ns, innermost[inside], intervals_ns[inside])
        order = np.argsort(ends, kind="stable")
        self._names += [sites[spans.event_ids[span]].function for span in order.tolist()]
        self._elapsed_ns.frombytes((clock_ns[ends] - clock_ns[begins])[order].tobytes())
        self._self_ns.frombytes(self_ns[order].tobytes())
        self.total_ns += int(self_ns.sum())
