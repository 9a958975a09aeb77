"""Events in a device's queue: a pool of them, and what their times say about the layers.

A device works through its queue while the host launches more. An event is recorded in the queue on
entering and on leaving every layer; the times are read after the trial, when the device is done.
So nothing waits in between, as Chainer's TimerHook does after every function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from chainer_profile.measure.clock import DeviceQueue, Event, NowNs
    from chainer_profile.measure.structure import Structure

_NS_PER_MS = 1e6


class TimedTrial(NamedTuple):
    """A trial under a recorder.

    Attributes:
        start_ns: Its start on the host's clock.
        wall_ns: Its wall time, until the device is done.
        end: Length of the recorder's log at its end.
        launch_ns: Time until all of it was launched; 0 where the host does all the work.
        device: Times of the device's events; None where the host does all the work.
    """

    start_ns: int
    wall_ns: int
    end: int
    launch_ns: int
    device: NDArray[np.int64] | None


class EventPool:
    """Events that are made once and recorded in every trial.

    Attributes:
        used: Events recorded since the last :meth:`clear`.
    """

    def __init__(self, queue: DeviceQueue) -> None:
        self.used = 0
        self._queue = queue
        self._events: list[Event] = []

    def record(self) -> None:
        """Record the next event."""
        used = self.used
        if used == len(self._events):
            self._events.append(self._queue.new_event())
        self._events[used].record()
        self.used = used + 1

    @property
    def begun(self) -> bool:
        """Whether the device has passed the first event."""
        return self.used > 0 and self._events[0].done

    def wait(self) -> None:
        """Wait until the device has passed all of them."""
        self._queue.synchronize()

    def times_ns(self) -> NDArray[np.int64]:
        """Times of the recorded events after the first one, (used,), which the device must be past.

        Neighbours are compared, and their differences added up: CUDA gives milliseconds in single
        precision, so the difference to the first event would get coarser along a long trial.
        """
        events, elapsed_ms = self._events, self._queue.elapsed_ms
        spans = [elapsed_ms(events[i - 1], events[i]) for i in range(1, self.used)]
        times = np.zeros(self.used, np.int64)
        np.cumsum(np.rint(np.array(spans) * _NS_PER_MS).astype(np.int64), out=times[1:])
        return times

    def clear(self) -> None:
        """Forget what was recorded; the events are used again."""
        self.used = 0


class Stopwatch:
    """Times a trial by the host's clock, until the device is done."""

    def __init__(self, now_ns: NowNs, events: EventPool | None = None) -> None:
        self._now_ns, self._events = now_ns, events
        self._start_ns = 0

    def begin(self) -> None:
        """A trial begins."""
        self._start_ns = self._now_ns()
        if self._events is not None:
            self._events.record()

    def end(self, length: int) -> TimedTrial:
        """It has ended, with a log that is so long by now; says how long it took."""
        now_ns, events, start_ns = self._now_ns, self._events, self._start_ns
        if events is None:
            return TimedTrial(start_ns, now_ns() - start_ns, length, 0, None)
        events.record()
        launch_ns = now_ns() - start_ns
        events.wait()
        wall_ns = now_ns() - start_ns
        device = events.times_ns()
        events.clear()
        return TimedTrial(start_ns, wall_ns, length, launch_ns, device)


@dataclass(frozen=True)
class DeviceTimes:
    """One trial on the device's clock. ``span_ns = layers + gaps + what follows the last layer``.

    Attributes:
        times_ns: Of every layer, and of every phase's framework: what passed on the device between
            the events, whether it worked or waited for the host; (layers + phases,).
        gaps_ns: What passed between the layer before and this one, (layers,).
        span_ns: From the first event of the trial to the last.
    """

    times_ns: NDArray[np.int64]
    gaps_ns: NDArray[np.int64]
    span_ns: int


@dataclass(frozen=True)
class Timeline:
    """Whose the device's time between every two events of a trial is.

    Attributes:
        structure: The windows of a trial. There is an event at the begin of the trial, one for
            each of the structure's reads, and one at the end.
    """

    structure: Structure

    def divide(self, stamps: NDArray[np.int64]) -> DeviceTimes:
        """The times of one trial's events, (reads + 2,), divided among its layers."""
        n_layers = len(self.structure.layers)
        gaps = np.zeros(n_layers + 1, np.int64)
        spans = np.diff(stamps)
        np.add.at(gaps, self._next_row, spans[self._between])
        return DeviceTimes(
            times_ns=self.structure.times_ns(stamps[1:-1]),
            gaps_ns=gaps[:n_layers],
            span_ns=int(stamps[-1] - stamps[0]),
        )

    def times(self, stamps: Sequence[int], trial: TimedTrial) -> NDArray[np.int64]:
        """The times of a trial as the journal has them."""
        host_ns = self.structure.times_ns(stamps)
        arrived, left = self.structure.collectives
        last = [stamps[at] for at in (*arrived, *left)]
        if trial.device is None:
            return np.append(host_ns, last) if last else host_ns
        device = self.divide(trial.device)
        whole = np.array([trial.launch_ns, device.span_ns], np.int64)
        of_layers = host_ns[: len(self.structure.layers)]
        more = np.array(last, np.int64)
        return np.concatenate([device.times_ns, of_layers, device.gaps_ns, whole, more])

    @cached_property
    def _owners(self) -> NDArray[np.intp]:
        """Owner of the time after every event but the last."""
        return np.concatenate([[-1], self.structure.owners])

    @cached_property
    def _between(self) -> NDArray[np.bool_]:
        """Where the time is no layer's."""
        return (self._owners < 0) | (self._owners >= len(self.structure.layers))

    @cached_property
    def _next_row(self) -> NDArray[np.intp]:
        """Of the times that are no layer's, the layer that follows; behind the last, n_layers."""
        following = len(self.structure.layers)
        rows = np.empty(len(self._owners), np.intp)
        for at in range(len(rows) - 1, -1, -1):
            if not self._between[at]:
                following = self._owners[at]
            rows[at] = following
        return rows[self._between]
