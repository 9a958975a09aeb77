"""A fake device queue on a fake clock."""

from dataclasses import dataclass

import numpy as np


class CUDARuntimeError(RuntimeError):
    """A fake of CuPy's error with the same name."""


class OutOfMemoryError(MemoryError):
    """A fake of CuPy's error with the same name."""


@dataclass
class FakeEvent:
    """An event in a FakeQueue. ``time_ns`` is when the device reaches it."""

    queue: object
    time_ns: int | None = None

    def record(self, stream=None):
        self.queue.log.append("record")
        self.time_ns = self.queue.reached_ns
        self.queue.clock.advance(self.queue.record_ns)

    @property
    def done(self):
        return self.time_ns is None or self.time_ns <= self.queue.clock.time_ns

    def synchronize(self):
        assert self.time_ns is not None
        self.queue.clock.time_ns = max(self.queue.clock.time_ns, self.time_ns)


class FakeQueue:
    """A device that runs kernels one after another, in parallel with the host."""

    def __init__(self, clock):
        self.clock = clock
        self.end_ns = clock.time_ns  # when all launched kernels have ended
        self.record_ns = 0  # time in which the host records an event
        self.events, self.holds = [], []
        self.log = []  # records of events, and waits for the device

    @property
    def reached_ns(self):
        """When the device would start a kernel that is launched now."""
        return max(self.clock.time_ns, self.end_ns)

    def launch(self, duration_ns):
        """Append a kernel to the queue."""
        self.end_ns = self.reached_ns + duration_ns

    def new_event(self):
        self.events.append(FakeEvent(self))
        return self.events[-1]

    def elapsed_ms(self, start, end):
        # CUDA refuses events that the device has not reached, and uses single precision.
        if start.time_ns is None or end.time_ns is None:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        if not (start.done and end.done):
            raise CUDARuntimeError("cudaErrorNotReady: device not ready")
        return float(np.float32((end.time_ns - start.time_ns) / 1e6))

    def synchronize(self):
        self.log.append("synchronize")
        self.clock.time_ns = self.reached_ns

    def hold(self, nanoseconds):
        self.holds.append(nanoseconds)
        self.launch(nanoseconds)

    def memory_nbytes(self):
        return 3 << 30, 8 << 30
