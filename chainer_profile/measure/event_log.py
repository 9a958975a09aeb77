"""The log of a recorder. Trials are cut out of it after they have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.aggregate import LoggedTrial
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.links import Links
from chainer_profile.measure.recorder import Reader, Recorder
from chainer_profile.measure.spans import TRIAL

Ints = NDArray[np.int64]
#: Rows of arrays of events: event ids, the host's clock, and the device's if there is one.
_IDS, _HOST, _DEVICE = 0, 1, 2


class Position(NamedTuple):
    """A position in the log: the numbers of events, backwards and calls of links before it."""

    events: int
    backwards: int
    calls: int


class EventLog:
    """Records a thread between :meth:`start` and :meth:`stop`, and keeps the events.

    :meth:`take` moves events into arrays, and :meth:`forget` removes them. Without a device, an
    event takes 16 bytes.

    Args:
        clock: The clock to read; see :meth:`use_device` for its device.
        warn: Called with a problem that the user should know.
        links: The links that are recorded; networks may be added later.
    """

    def __init__(
        self, clock: Clock, warn: Callable[[str], None], links: Links | None = None
    ) -> None:
        self.links = Links([]) if links is None else links
        self.now_ns = clock.now_ns
        self._pool: EventPool | None = None
        self.recorder = Recorder(self.links, Reader(clock.now_ns, clock.now_ns), warn)
        self.recorder.on_long_log = self.take
        self.start, self.stop = self.recorder.start, self.recorder.stop
        self._first = Position(0, 0, 0)  # the begin of the stored events
        self._events: Ints = np.empty((2, 0), np.int64)
        self._forwards: Ints = np.empty(0, np.int64)
        self._paths: list[str] = []

    def use_device(self, clock: Clock) -> None:
        """Read the device's time as well from now on, and forget all earlier events.

        Without a device, this does nothing.
        """
        if clock.device is None:
            return
        self.take()
        self.forget(self.position())
        self._pool = EventPool(clock.device, clock.now_ns)
        self.recorder.read_by(Reader(self._pool.begin, self._pool.end))
        self._events = np.empty((3, 0), np.int64)

    @property
    def on_device(self) -> bool:
        return self._pool is not None

    def wait(self) -> None:
        """Wait for the device, if there is one."""
        if self._pool is not None:
            self._pool.wait()

    def position(self) -> Position:
        """The end of the log."""
        recorder, first = self.recorder, self._first
        return Position(
            recorder.n_cleared + len(recorder.events) // 2,
            first.backwards + len(self._forwards) + len(recorder.forward_events),
            first.calls + len(self._paths) + len(recorder.tracker.log),
        )

    def __len__(self) -> int:
        """The number of events that were not forgotten."""
        return self.position().events - self._first.events

    @property
    def n_stored(self) -> int:
        """The number of events that are stored in arrays."""
        return int(self._events.shape[1])

    def take(self) -> None:
        """Move the recorder's events, backwards and calls into arrays; waits for the device."""
        recorder = self.recorder
        if not recorder.events and not recorder.tracker.log:
            return
        events = np.array(recorder.events, np.int64).reshape(-1, 2).T
        if self._pool is not None:
            self._pool.wait()
            events = np.vstack([events, self._device_ns(events[_HOST], self._pool)])
            self._pool.clear()
        self._events = np.hstack([self._events, events])
        forwards = np.array(recorder.forward_events, np.int64)
        self._forwards = np.concatenate([self._forwards, forwards])
        self._paths += [caller.path for caller in recorder.tracker.log]
        recorder.clear()

    def _device_ns(self, host_ns: Ints, pool: EventPool) -> Ints:
        """Continue the device's clock from the last stored event to the pool's events.

        The host's clock gives the time between the last stored event and the pool's first one.
        """
        times = pool.times_ns()
        if not self.n_stored:
            return times
        last = self._events[:, -1]
        offset_ns = int(last[_DEVICE]) + int(host_ns[0] - last[_HOST])
        return times + offset_ns

    def forget(self, end: Position) -> None:
        """Forget the stored events before a position."""
        first = self._first
        self._events = self._events[:, end.events - first.events :].copy()
        self._forwards = self._forwards[end.backwards - first.backwards :].copy()
        del self._paths[: end.calls - first.calls]
        self._first = end

    def events(self) -> Ints:
        """All stored events: ids, the host's clock, and the device's if any, (2 or 3, events)."""
        return self._events

    def calls_functions(self, begin: Position, end: Position) -> bool:
        """Whether any function is called between two stored positions."""
        first, sites = self._first.events, self.recorder.sites
        event_ids = self._events[_IDS, begin.events - first : end.events - first]
        begun = event_ids[event_ids >= 0].tolist()
        return any(sites[event_id].is_function_or_backward for event_id in begun)

    def has_backward(self, begin: Position, end: Position) -> bool:
        """Whether a function that was called between two positions has a stored backward."""
        forwards = self._forwards
        return bool(np.any((begin.events <= forwards) & (forwards < end.events)))

    def stored(self, begin: Position, end: Position) -> tuple[Ints, Ints, Counter[str]]:
        """Return what is stored between two positions.

        Returns:
            The events, as :meth:`events` returns them; for each backward, the index of its forward
            call's begin event among these; and the number of calls of each link, by path.
        """
        first = self._first
        events = self._events[:, begin.events - first.events : end.events - first.events]
        forwards = self._forwards[
            begin.backwards - first.backwards : end.backwards - first.backwards
        ]
        paths = self._paths[begin.calls - first.calls : end.calls - first.calls]
        return events, forwards - begin.events, Counter(paths)

    def cut(
        self, begin: Position, end: Position, begin_ns: int, end_ns: int, number: int
    ) -> tuple[LoggedTrial, Counter[str]]:
        """Return the trial between two stored positions, and its number of calls of each link.

        Args:
            begin: The position of its begin.
            end: The position of its end.
            begin_ns: The host's clock at its begin.
            end_ns: The host's clock after its end, when the device has finished as well.
            number: The trial's number.
        """
        events, forwards, calls = self.stored(begin, end)
        launch_ns, edges = 0, np.array([[TRIAL, ~TRIAL], [begin_ns, end_ns]])
        if self._pool is not None:
            if events.shape[1]:
                launch_ns = int(events[_HOST, -1]) - begin_ns
                begin_device = events[_DEVICE, 0] - (events[_HOST, 0] - begin_ns)
                edges = np.vstack([edges, [begin_device, events[_DEVICE, -1]]])
            else:
                edges = np.vstack([edges, edges[_HOST]])
        whole = np.ascontiguousarray(np.hstack([edges[:, :1], events, edges[:, 1:]]))
        trial = LoggedTrial(
            whole[_IDS],
            whole[_HOST:],
            forwards + 1,
            number,
            end_ns - begin_ns,
            launch_ns,
        )
        return trial, calls
