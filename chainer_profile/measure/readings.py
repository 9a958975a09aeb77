"""Trials that read counters other than the clock at the begin and end of every span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.aggregate import LoggedTrial
from chainer_profile.measure.layout import Layout
from chainer_profile.measure.recorder import Reader
from chainer_profile.measure.session import Session
from chainer_profile.measure.spans import TRIAL
from chainer_profile.record.recording import Layer

#: Size of the buffer: twice the readings of the longest trial so far, and this many more.
_MORE_READINGS = 20_000


class Readings:
    """A buffer of readings, each of several counters.

    Args:
        read: Returns the values of the counters.
        width: The number of counters.
        size: The number of readings that fit.
    """

    def __init__(self, read: Callable[[], Sequence[int]], width: int, size: int) -> None:
        # Write all memory now: if the buffer grew, or a page was touched for the first time, during
        # a trial, that would count for a row.
        row = Struct(f"{width}q")
        self._buffer = bytearray(b"\1" * row.size * size)
        self._read, self._pack, self._nbytes = read, row.pack_into, row.size
        #: The readings, (readings, counters).
        self.values = np.frombuffer(self._buffer, np.int64).reshape(size, width)
        self._size, self.count = size, 0
        #: Why reading failed; empty if it has not. After a failure nothing more is read.
        self.failure = ""

    def read(self) -> int:
        """Read the counters, if the buffer has space; return the index. Raises nothing."""
        index = self.count
        if not self.failure and index < self._size:
            try:
                self._pack(self._buffer, index * self._nbytes, *self._read())
            except Exception as error:
                is_ours = isinstance(error, ProfileError)
                self.failure = str(error) if is_ours else one_line(error)
        self.count += 1
        return index

    @property
    def is_full(self) -> bool:
        """Whether there were more readings than fit."""
        return self.count > self._size

    def clear(self) -> None:
        self.count = 0


@dataclass(frozen=True, eq=False)
class ReadTrial:
    """The readings of one trial.

    Attributes:
        layout: Its spans and their owners.
        layers: The rows.
        phases: The phases.
        owners: For each event the owner of the interval after it: the index of a row,
            ``len(layers) + n`` for phase n, or -1 for neither.
        values: The readings at each event, (events, counters).
    """

    layout: Layout
    layers: tuple[Layer, ...]
    phases: tuple[str, ...]
    owners: NDArray[np.int64]
    values: NDArray[np.int64]

    def column(self, owner: int) -> int:
        """Return a span's owner as an index of the rows and then the phases; -1 for neither."""
        return owner if owner >= -1 else len(self.layers) - 2 - owner

    def sums(self, counter: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the growth of a counter in each row and then each phase, without nested rows.

        ``counter`` has its value at each event, (events,).
        """
        growth, owners = np.diff(counter), self.owners[:-1]
        sums = np.zeros(len(self.layers) + len(self.phases), np.int64)
        np.add.at(sums, owners[owners >= 0], growth[owners >= 0])
        return sums


class ReadingSession:
    """Makes trials with readings. Uses the recorder of a session that knows their rows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        layout = session.target.aggregator.call_layout
        by_link = 2 * session.max_events + _MORE_READINGS
        #: Maximum number of readings of a trial.
        self.max_readings = by_link if layout is None else len(layout.owners)
        self._log: LoggedTrial | None = None

    @contextmanager
    def trial(self, readings: Readings) -> Iterator[None]:
        """Read at the spans of the trial that runs within the context."""
        session = self._session
        recorder = session.recorder
        recorder.read_by(Reader(readings.read, readings.read))
        try:
            with session.recording():
                begin = session.position()
                recorder.begin(TRIAL)
                yield
                recorder.end(TRIAL)
            self._log = session.logged_since(begin)
        finally:
            recorder.read_by(session.reader)

    def result(self, readings: Readings) -> ReadTrial:
        """Return the readings of the last trial by row.

        Raises:
            ProfileError: It made other calls than the trials before, or too many.
        """
        if readings.is_full or self._log is None:
            raise ProfileError("its trial made many more calls than the earlier ones")
        aggregator = self._session.target.aggregator
        layout, indices = aggregator.known_layout(self._log)
        layers, phases = aggregator.layers(), tuple(aggregator.phases)
        owners = np.where(layout.owners < -1, len(layers) - 2 - layout.owners, layout.owners)
        return ReadTrial(layout, layers, phases, owners, readings.values[indices])
