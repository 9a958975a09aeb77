"""A device's queue on a fake clock: mostly the moments when a GPU gets to its places."""

from dataclasses import dataclass

import numpy as np


class CUDARuntimeError(RuntimeError):
    """Named and worded as CuPy's own."""


class OutOfMemoryError(MemoryError):
    """Named as CuPy's own."""


@dataclass
class FakeEvent:
    """A place in a FakeQueue; ``time_ns`` is when the device gets there."""

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
    """A device that works through its kernels one after the other, beside the host."""

    def __init__(self, clock):
        self.clock = clock
        self.end_ns = clock.time_ns  # when the device is done with all that was launched
        self.record_ns = 0  # time that the host needs to record an event
        self.events, self.holds = [], []
        self.log = []  # events that were recorded, and waiting for the device

    @property
    def reached_ns(self):
        """When the device gets to a kernel that is launched now."""
        return max(self.clock.time_ns, self.end_ns)

    def launch(self, duration_ns):
        """Put a kernel of that length behind all others."""
        self.end_ns = self.reached_ns + duration_ns

    def new_event(self):
        self.events.append(FakeEvent(self))
        return self.events[-1]

    def elapsed_ms(self, start, end):
        # CUDA refuses events that the device has not passed, and counts in single precision.
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
