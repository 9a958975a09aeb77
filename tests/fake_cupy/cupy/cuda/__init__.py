"""Devices, streams and events. All streams of a device are one queue; see :mod:`cupy.fake`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from cupy import fake
from cupy.cuda import cublas as cublas
from cupy.cuda import memory as memory
from cupy.cuda import nvtx as nvtx
from cupy.cuda import runtime as runtime
from cupy.cuda.memory import MemoryHook as MemoryHook
from cupy.cuda.memory import MemoryPointer as MemoryPointer
from cupy.cuda.memory import MemoryPool as MemoryPool
from cupy.cuda.memory import alloc as alloc
from cupy.cuda.memory import using_allocator as using_allocator

nvtx_enabled = True


class Device:
    """A device by its number; the current one without."""

    def __init__(self, device: int | Device | None = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        self._before.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        runtime.setDevice(self._before.pop())

    def use(self) -> None:
        runtime.setDevice(self.id)

    def synchronize(self) -> None:
        with self:
            runtime.deviceSynchronize()

    @property
    def mem_info(self) -> tuple[int, int]:
        with self:
            return runtime.memGetInfo()

    @property
    def compute_capability(self) -> str:
        return "90"

    @property
    def pci_bus_id(self) -> str:
        return runtime.deviceGetPCIBusId(self.id)

    @property
    def attributes(self) -> dict[str, int]:
        properties = runtime.getDeviceProperties(self.id)
        return {
            "MultiProcessorCount": properties["multiProcessorCount"],
            "ClockRate": properties["clockRate"],
            "MemoryClockRate": properties["memoryClockRate"],
            "GlobalMemoryBusWidth": properties["memoryBusWidth"],
            "L2CacheSize": properties["l2CacheSize"],
        }


class Event:
    """A place in the queue of the device that is current when it is recorded."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        runtime.getDeviceCount()
        self.time_ns: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.time_ns = fake.reached_ns(runtime.getDevice())

    @property
    def done(self) -> bool:
        return self.time_ns is None or fake.clock.now_ns() >= self.time_ns

    def synchronize(self) -> None:
        if self.time_ns is not None:
            fake.clock.wait_until_ns(self.time_ns)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events, in single precision."""
    start_ns, end_ns = start_event.time_ns, end_event.time_ns
    if start_ns is None or end_ns is None:
        raise runtime.CUDARuntimeError(400)
    if not (start_event.done and end_event.done):
        raise runtime.CUDARuntimeError(600)
    return float(np.float32((end_ns - start_ns) / 1e6))


class Graph:
    """Work that a stream captured."""

    def __init__(self, capture: fake.Capture) -> None:
        self._steps = capture.steps

    def launch(self, stream: Stream | None = None) -> None:
        """Do it all, in a stream or the current one."""
        if fake.captures:
            raise NotImplementedError("the CuPy stand-in launches no graph while a stream captures")
        for step in self._steps:
            step.again()
        with stream or get_current_stream():
            fake.launch(runtime.getDevice(), "graph", sum(step.duration_ns for step in self._steps))


class Stream:
    """A stream; its work is in the device's one queue, or in a graph while it captures."""

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False, **_: Any) -> None:
        self._before: list[Stream] = []
        self.capture: fake.Capture | None = None
        self.ptr = 0 if null else id(self)
        self.is_non_blocking = non_blocking

    def __enter__(self) -> Stream:
        self._before.append(_thread.stream)
        return self.use()

    def __exit__(self, *_: object) -> None:
        _thread.stream = self._before.pop()

    def use(self) -> Stream:
        _thread.stream = self
        return self

    @property
    def done(self) -> bool:
        return fake.is_idle(runtime.getDevice())

    def synchronize(self) -> None:
        runtime.deviceSynchronize()

    def begin_capture(self, mode: int | None = None) -> None:
        if not self.ptr:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.capture = fake.Capture(mode in (None, runtime.streamCaptureModeRelaxed))
        fake.captures.append(self.capture)

    def end_capture(self) -> Graph:
        capture, self.capture = self.capture, None
        if capture is None:
            raise runtime.CUDARuntimeError(400)
        fake.captures.remove(capture)
        if not capture.valid:
            raise runtime.CUDARuntimeError(901)
        capture.spoil()
        return Graph(capture)

    def is_capturing(self) -> bool:
        return self.capture is not None

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        pass


class _Thread(threading.local):
    """What CUDA keeps for each thread."""

    def __init__(self) -> None:
        self.stream = Stream.null


Stream.null = Stream(null=True)
_thread = _Thread()


def get_current_stream(device_id: int = -1) -> Stream:
    return _thread.stream


def get_device_id() -> int:
    return runtime.getDevice()


def is_available() -> bool:
    return fake.n_devices > 0
