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
    """The calls of functions and their backwards, in trials and between them.

    Events are stored unmatched; reading the history matches them.
    """

    def __init__(self, sites: Sequence[CallSite]) -> None:
        self._sites = sites
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # Events that are not matched: event ids, and clocks that stop during pauses.
        self._events: list[tuple[Ints, Ints]] = []
        self._paused_ns = 0

    @property
    def total_ns(self) -> int:
        """Time inside functions in nanoseconds; nested calls count once."""
        self._match()
        return sum(self._self_ns)

    def pairs(self, self_times: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; ``self_times`` leaves out the time of nested calls."""
        self._match()
        times = self._self_ns if self_times else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(self, event_ids: Ints, clock_ns: Ints) -> None:
        """Add the next events of the log; a call may end in a later part of it."""
        if not len(event_ids):
            return
        event_ids, values, paused = without_pauses(event_ids, clock_ns[None])
        clock_ns = values[0] - self._paused_ns
        self._paused_ns += int(paused[0])
        is_function = np.array([site.is_function_or_backward for site in self._sites])
        is_of_function = is_function[np.where(event_ids >= 0, event_ids, ~event_ids)]
        self._events.append((event_ids[is_of_function], clock_ns[is_of_function]))

    def clear_running(self) -> None:
        """Forget the calls that have not ended, as their end is not recorded."""
        self._match()
        self._events.clear()

    def _match(self) -> None:
        """Match the stored events, and add the calls that have ended to the history."""
        if not self._events:
            return
        event_ids, clock_ns = (np.concatenate(parts) for parts in zip(*self._events, strict=True))
        ended = np.flatnonzero(np.cumsum(np.where(event_ids >= 0, 1, -1)) == 0)
        end = int(ended[-1]) + 1 if len(ended) else 0
        self._events = [(event_ids[end:], clock_ns[end:])]
        if end:
            self._add(event_ids[:end], clock_ns[:end])

    def _add(self, event_ids: Ints, clock_ns: Ints) -> None:
        """Add the calls of these events, in which every call has ended."""
        spans = match_spans(event_ids.tolist())
        begins, ends = np.array(spans.begins), np.array(spans.ends)
        innermost = np.array(spans.innermost)[:-1]
        passed_ns, inside = np.diff(clock_ns), innermost >= 0
        self_ns = np.zeros(len(begins), np.int64)
        np.add.at(self_ns, innermost[inside], passed_ns[inside])
        order = np.argsort(ends, kind="stable")
        self._names += [self._sites[spans.event_ids[span]].function for span in order.tolist()]
        self._elapsed_ns.frombytes((clock_ns[ends] - clock_ns[begins])[order].tobytes())
        self._self_ns.frombytes(self_ns[order].tobytes())
