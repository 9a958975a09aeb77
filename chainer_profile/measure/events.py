"""Events in a device's queue: a pool of them, and what their times say about the layers.

One is recorded on entering and on leaving every layer; the times are read after the trial, when the
device is done. So nothing waits in between, as Chainer's TimerHook does after every function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.clock import DeviceQueue, Event, NowNs
from chainer_profile.measure.structure import Structure

_NS_PER_MS = 1e6


class TimedTrial(NamedTuple):
    """A trial under a recorder."""

    start_ns: int  # on the host's clock
    wall_ns: int  # until the device is done
    end: int  # length of the recorder's log at its end
    launch_ns: int  # until all of it was launched; 0 where the host does all the work
    device: NDArray[np.int64] | None  # times of the device's events


class EventPool:
    """Events that are made once and recorded in every trial."""

    def __init__(self, queue: DeviceQueue) -> None:
        self.used = 0  # events recorded since the last clear
        self._queue = queue
        self._events: list[Event] = []

    def record(self) -> None:
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
        self._queue.synchronize()

    def times_ns(self) -> NDArray[np.int64]:
        """Times of the recorded events after the first one, (used,); the device is past them."""
        # Neighbours are compared, and their differences added up: CUDA gives milliseconds in single
        # precision, so the difference to the first event would get coarser along a long trial.
        events, elapsed_ms = self._events, self._queue.elapsed_ms
        spans = [elapsed_ms(events[i - 1], events[i]) for i in range(1, self.used)]
        times = np.zeros(self.used, np.int64)
        np.cumsum(np.rint(np.array(spans) * _NS_PER_MS).astype(np.int64), out=times[1:])
        return times

    def clear(self) -> None:
        self.used = 0


class Stopwatch:
    """Times a trial by the host's clock, until the device is done."""

    def __init__(self, now_ns: NowNs, events: EventPool | None = None) -> None:
        self._now_ns, self._events = now_ns, events
        self._start_ns = 0

    def begin(self) -> None:
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


class Timeline:
    """Whose the device's time between every two events of a trial is.

    There is an event at the begin of the trial, one for each of the structure's reads, and one at
    the end. On the device ``span_ns = layers + gaps + what follows the last layer``.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        n_layers = len(structure.layers)
        owners = np.concatenate([[-1], structure.owners])
        # Where the time is no layer's, and the layer that follows; behind the last, n_layers.
        self._between = (owners < 0) | (owners >= n_layers)
        places = np.where(self._between, len(owners), np.arange(len(owners)))
        following = np.minimum.accumulate(places[::-1])[::-1]
        self._next_row = np.append(owners, n_layers)[following][self._between]

    def divide(self, stamps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """The times of one trial's events, (reads + 2,), divided among its layers.

        Times of layers and of phases' framework, (layers + phases,); the gaps before layers,
        (layers,); and the time from the first event to the last.
        """
        n_layers = len(self.structure.layers)
        gaps = np.zeros(n_layers + 1, np.int64)
        np.add.at(gaps, self._next_row, np.diff(stamps)[self._between])
        times_ns = self.structure.times_ns(stamps[1:-1])
        return times_ns, gaps[:n_layers], int(stamps[-1] - stamps[0])

    def times(self, stamps: Sequence[int], trial: TimedTrial) -> NDArray[np.int64]:
        """The times of a trial as the journal has them."""
        host_ns = self.structure.times_ns(stamps)
        arrived, left = self.structure.collectives
        last = [stamps[at] for at in (*arrived, *left)]
        if trial.device is None:
            return np.append(host_ns, last) if last else host_ns
        times_ns, gaps_ns, span_ns = self.divide(trial.device)
        of_layers = host_ns[: len(self.structure.layers)]
        whole = np.array([trial.launch_ns, span_ns, *last], np.int64)
        return np.concatenate([times_ns, of_layers, gaps_ns, whole])
