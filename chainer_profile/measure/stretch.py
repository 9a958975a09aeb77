"""Stretches of a tape: events of whole iterations, and whose the time behind each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers of entries that are no row's: an iteration, and what the profiler takes.
OUTSIDE, PAUSED = 0, 1


@dataclass(frozen=True, eq=False)
class Stretch:
    """Events of iterations, one behind the other.

    A code is the number of the entry that begins, or the complement of the one that ends.
    """

    codes: NDArray[np.int64]
    stamps: NDArray[np.int64]
    ends: NDArray[np.int64]  # of iterations, behind their last event
    device: NDArray[np.int64] | None = None  # when a device was at these events, by iteration
    #: What pauses took before each event, where the stamps are without it.
    paused_ns: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        codes: NDArray[np.int64],
        stamps: NDArray[np.int64],
        bounds: Sequence[tuple[int, int]],
        device: NDArray[np.int64] | None,
    ) -> Stretch:
        """The events of iterations on a tape, by their bounds, without what is between them."""
        lengths = [end - begin for begin, end in bounds]
        length = sum(lengths)
        if length != bounds[-1][1]:
            picked = np.concatenate([np.arange(*bound) for bound in bounds])
            codes, stamps = codes[picked], stamps[picked]
        return cls(codes[:length], stamps[:length], np.cumsum(lengths), device)

    @property
    def moments(self) -> NDArray[np.int64]:
        """When the events were, by the clock itself."""
        return self.stamps if self.paused_ns is None else self.stamps + self.paused_ns

    @property
    def begins(self) -> NDArray[np.int64]:
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])

    def some(self, places: Sequence[int]) -> Stretch:
        """The same of some of the iterations."""
        if len(places) == len(self.ends):
            return self
        begins = self.begins
        lengths = self.ends[places] - begins[places]
        picked = np.concatenate([np.arange(begins[at], self.ends[at]) for at in places])
        return self._picked(picked, np.cumsum(lengths))

    def _picked(self, picked: NDArray[Any], ends: NDArray[Any]) -> Stretch:
        return self._with(self.codes[picked], picked, ends)

    def _with(self, codes: NDArray[Any], source: NDArray[Any], ends: NDArray[Any]) -> Stretch:
        """These codes, with the times of events of this stretch."""
        device, paused_ns = (
            None if times is None else times[source] for times in (self.device, self.paused_ns)
        )
        return Stretch(codes, self.stamps[source], ends, device, paused_ns)

    def without(self, left_out: NDArray[np.bool_]) -> Stretch:
        """The same without some of the events: their time belongs to what is around them."""
        kept = ~left_out
        return self._picked(np.flatnonzero(kept), np.cumsum(kept)[self.ends - 1])

    def without_pauses(self) -> tuple[Stretch, NDArray[np.int64]]:
        """The same by clocks that stand still in pauses; and what these take by iteration."""
        left = self.codes == ~PAUSED
        if not left.any():
            return self, np.zeros(len(self.ends), np.int64)
        # Nothing is entered in a pause.
        took = np.where(left, np.diff(self.stamps, prepend=self.stamps[:1]), 0)
        device = self.device
        if device is not None:
            on_device = np.where(left, np.diff(device, prepend=device[:1]), 0)
            device = device - np.cumsum(on_device)
        by_iteration = np.add.reduceat(took, self.begins)
        paused_ns = np.cumsum(took)
        moved = Stretch(self.codes, self.stamps - paused_ns, self.ends, device, paused_ns)
        return moved.without(left | (self.codes == PAUSED)), by_iteration

    def mended(self) -> Stretch:
        """The same where each window that is entered is left: at the latest with the one around."""
        codes, source, _ = mended(self.codes)
        ends = np.flatnonzero(codes == ~OUTSIDE) + 1
        return self._with(codes, source, ends)


def mended(
    codes: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Codes where each window is left with the one around it, which event each of them is, and
    the windows that are open at last. One that is left but was not entered is none.
    """
    opened: list[int] = []
    events: list[tuple[int, int]] = []
    for at, code in enumerate(codes.tolist()):
        if code >= 0:
            opened.append(code)
        elif ~code not in opened:
            continue
        else:
            while opened[-1] != ~code:
                events.append((~opened.pop(), at))
            opened.pop()
        events.append((code, at))
    both = np.array(events, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1], opened


def owners_of(codes: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The entry that is innermost behind each event; None where windows do not match."""
    top = innermost(codes)
    if top is None:
        return None
    owners = codes[top]
    owners[ends - 1] = OUTSIDE
    return owners


def innermost(codes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The event that entered the innermost window behind each event, where one is open.

    None where windows do not match.
    """
    left = np.flatnonzero(codes < 0)
    if 2 * len(left) != len(codes):
        return None
    # Of the events that lead to one depth, in order, each has on top what was entered there last.
    depth = np.cumsum(np.where(codes >= 0, np.int16(1), np.int16(-1)), dtype=np.int16)
    order = np.argsort(depth, kind="stable")  # a radix sort
    places = np.where(codes[order] >= 0, np.arange(len(order)), 0)
    top = np.empty_like(order)
    top[order] = order[np.maximum.accumulate(places)]
    return top if (codes[top[left - 1]] == ~codes[left]).all() else None


def summed(values: NDArray[Any], places: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Values added up by their places."""
    # As floats they are exact below 2**53 ns, which are 104 days.
    return np.bincount(places, values, count).astype(np.int64)
