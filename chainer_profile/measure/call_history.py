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
        """Add events, whose last calls may not have ended."""
        if not len(codes):
            return
        whole = Stretch(codes, stamps - self._paused_ns, np.array([len(codes)]))
        whole, paused_ns = whole.without_pauses()
        self._paused_ns += int(paused_ns.sum())
        names = np.array([entry.name for entry in entries], object)
        numbers = np.where(whole.codes >= 0, whole.codes, ~whole.codes)
        of_functions = names[numbers] != ""
        self._codes = np.concatenate([self._codes, whole.codes[of_functions]])
        self._stamps = np.concatenate([self._stamps, whole.stamps[of_functions]])
        ended = np.flatnonzero(np.cumsum(np.where(self._codes >= 0, 1, -1)) == 0)
        if len(ended):
            end = int(ended[-1]) + 1
            self._add(self._codes[:end], self._stamps[:end], names)
            self._codes, self._stamps = self._codes[end:], self._stamps[end:]

    def clear_running(self) -> None:
        """Drop calls that have not ended."""
        self._codes, self._stamps = self._codes[:0], self._stamps[:0]

    def _add(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], names: NDArray[np.object_]
    ) -> None:
        """Add events whose calls have all ended."""
        top = innermost(codes)
        if top is None:
            codes, source, _ = mended(codes)
            stamps, top = stamps[source], innermost(codes)
            if top is None or not len(codes):
                return
        left = np.flatnonzero(codes < 0)
        begun = top[left - 1]
        spans = np.diff(stamps, append=stamps[-1:])
        own = summed(spans, top, len(codes))[begun]
        self._names += names[~codes[left]].tolist()
        self._elapsed_ns.frombytes((stamps[left] - stamps[begun]).tobytes())
        self._self_ns.frombytes(own.tobytes())
        self.total_ns += int(own.sum())
