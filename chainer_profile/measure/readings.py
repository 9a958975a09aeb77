"""Trials in which other figures than the time are read wherever a window begins or ends."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.owned import Owned
from chainer_profile.measure.rows import DIFFERENT_CALLS
from chainer_profile.measure.stretch import OUTSIDE
from chainer_profile.measure.tape import Tape

#: Reads that are kept beyond twice those of the iteration before.
_MORE_READS = 20_000


class Readings:
    """A tape's clock and its log."""

    def __init__(self, read: Callable[[], Sequence[int]], width: int, most: int) -> None:
        # All is made and written before: a log that grows, or a page that is touched for the first
        # time, would count for a row.
        row = Struct(f"{width}q")
        self._buffer = bytearray(b"\1" * row.size * most)
        self._read, self._pack, self._nbytes = read, row.pack_into, row.size
        self.values = np.frombuffer(self._buffer, np.int64).reshape(most, width)
        self._codes = array("q", bytes(8 * most))
        self._most, self._n_codes, self.count = most, 0, 0
        self.failure = ""  # of what is read, which is not read again

    def now_ns(self) -> int:
        """Read; gives 0, for a log of times. Raises nothing into the program."""
        if not self.failure and self.count < self._most:
            try:
                self._pack(self._buffer, self.count * self._nbytes, *self._read())
            except Exception as error:
                is_said = isinstance(error, ProfileError)
                self.failure = str(error) if is_said else one_line(error)
        self.count += 1
        return 0

    def note(self, pair: tuple[int, int]) -> None:
        """Note what is entered or left: beside a time, which is 0."""
        if self._n_codes < self._most:
            self._codes[self._n_codes] = min(pair) or max(pair)
        self._n_codes += 1

    @property
    def codes(self) -> NDArray[np.int64]:
        """What was entered and left, by the tape's codes, with the reads in :attr:`values`."""
        return np.frombuffer(self._codes, np.int64)[: self.count]

    @property
    def is_full(self) -> bool:
        return self.count > self._most

    def clear(self) -> None:
        self._n_codes = self.count = 0


class ReadTrials:
    """Trials on a tape in which something else is read, within :attr:`entries`."""

    def __init__(self, tape: Tape, entries: Any = None) -> None:
        self.entries: AbstractContextManager[Any] = entries or nullcontext()
        order = tape.rows.order
        by_link = 2 * tape.most_events + _MORE_READS
        self.most_reads = by_link if order is None else len(order.codes)
        self._tape = tape

    @contextmanager
    def recording(self, log: Readings) -> Iterator[None]:
        """Within this a trial runs, whose windows the log notes."""
        with self._tape.recording(log):
            log.note((OUTSIDE, log.now_ns()))
            yield
            log.note((log.now_ns(), ~OUTSIDE))

    def owned(self, log: Readings) -> Owned:
        """Whose what was read is."""
        if log.is_full:
            raise ProfileError(
                "its trial made many more calls than the earlier ones"
                if self._tape.rows.order is None
                else DIFFERENT_CALLS
            )
        return self._tape.rows.owned(log.codes)
