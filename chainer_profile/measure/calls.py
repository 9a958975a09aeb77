"""The log of a recorder: which windows were entered and left, and when.

It is one flat list. Entering a window adds four items: what was entered (a function's class, or a
:class:`~.windows.Mark`), the bytes of its first input (:data:`BACKWARD` for the window of a
backward, 0 for a mark), the identity of its last input, which may be a parameter, and the time.
Leaving one adds the time alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.windows import Mark

#: What a trial may enter: a function's class, or another window.
Entry = type | Mark
Log = list[Any]

#: In place of the bytes of an input, for the window of a backward.
BACKWARD = "backward"
#: Phase of the mark of a link's call.
LINK = "link"


@dataclass(frozen=True)
class Calls:
    """The windows of a stretch of a log."""

    # Where in the log each window is entered, and where the clock was read, in order.
    enters: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    # Of every window that was left: its number, and those of the stamps of its begin and its end.
    ended: list[tuple[int, int, int]] = field(default_factory=list)
    # Numbers of the windows that were not left, outermost first.
    running: list[int] = field(default_factory=list)


def read(log: Log, begin: int = 0) -> Calls:
    """The windows of a log, from somewhere on. A time without a window to leave is none's."""
    calls = Calls()
    at, began = begin, []
    while at < len(log):
        leaves = type(log[at]) is int
        if not leaves:
            calls.running.append(len(calls.enters))
            began.append(len(calls.stamps))
            calls.enters.append(at)
            at += 3
        elif calls.running:
            calls.ended.append((calls.running.pop(), began.pop(), len(calls.stamps)))
        calls.stamps.append(at)
        at += 1
    return calls


def take_out(pauses: NDArray[np.int64], log: Log) -> None:
    """Let the clock of a log stand still in pauses: their begins and ends, (pauses, 2)."""
    begins, ends = pauses.T
    spent = np.concatenate([[0], np.cumsum(ends - begins)])
    for at in read(log).stamps:
        log[at] -= int(spent[np.searchsorted(ends, log[at], side="right")])
