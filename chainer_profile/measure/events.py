"""Events in a device's queue, which time the layers on the device.

An event is recorded at the start and the end of every layer. The times are read after the trial,
when the device has finished. The host does not wait during the trial; Chainer's TimerHook waits
after every function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.clock import DeviceQueue, Event, NowNs

_NS_PER_MS = 1e6


class EventPool:
    """Device events that are made once and recorded again in every trial."""

    def __init__(self, queue: DeviceQueue, now_ns: NowNs) -> None:
        self.used = 0  # events recorded since the last clear
        self._queue, self._now_ns = queue, now_ns
        self._events: list[Event] = []

    def record(self) -> None:
        """Record the next event of the pool; make it if all are in use."""
        used = self.used
        if used == len(self._events):
            self._events.append(self._queue.new_event())
        self._events[used].record()
        self.used = used + 1

    @property
    def begun(self) -> bool:
        """Whether the device has reached the first event."""
        return self.used > 0 and self._events[0].done

    def wait(self) -> None:
        self._queue.synchronize()

    def times_ns(self) -> NDArray[np.int64]:
        """Times of the recorded events since the first one, (used,).

        The device must have reached all of them.
        """
        # Add up the differences between successive events. CUDA returns milliseconds in single
        # precision, so the difference to the first event would lose precision in a long trial.
        events, elapsed_ms = self._events, self._queue.elapsed_ms
        steps_ms = [elapsed_ms(events[i - 1], events[i]) for i in range(1, self.used)]
        times = np.zeros(self.used, np.int64)
        np.cumsum(np.rint(np.array(steps_ms) * _NS_PER_MS).astype(np.int64), out=times[1:])
        return times

    def clear(self) -> None:
        """Make all events free to be recorded again."""
        self.used = 0

    # Recording an event takes time on the host, so it is outside of the span on the host's clock.

    def begin(self) -> int:
        """Record an event at the begin of a span, then read the host's clock."""
        self.record()
        return self._now_ns()

    def end(self) -> int:
        """Read the host's clock at the end of a span, then record an event."""
        now_ns = self._now_ns()
        self.record()
        return now_ns
