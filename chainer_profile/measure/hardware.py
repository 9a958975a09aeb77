"""Counters of the processor, where the kernel hands them out: ``perf_event_open`` of Linux."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from struct import Struct

#: Number of the system call, by architecture.
_CALLS = {"x86_64": 298, "aarch64": 241}
# Of linux/perf_event.h.
_ATTRIBUTE_SIZE = 64
_GROUP = 1 << 3
_EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 1 << 3


@dataclass(frozen=True)
class Event:
    """A counter of ``perf_event_open``: its name here, and its type and number there."""

    name: str
    kind: int
    config: int


HARDWARE = (
    Event("cycles", 0, 0),
    Event("instructions", 0, 1),
    Event("cache_misses", 0, 3),
)
#: One that kernels count without a processor's help.
SOFTWARE_FAULTS = Event("software_page_faults", 1, 2)


@contextmanager
def hardware_counters(
    events: Sequence[Event] = HARDWARE,
) -> Iterator[list[tuple[tuple[str, ...], Callable[[], Sequence[int]]]]]:
    """Within this, the counters of the calling thread; none where there are none for us.

    They are one group, so that all of them count over the same time. Where the kernel hands out
    those of the program alone, what it does itself is not in them.
    """
    files: list[int] = []
    try:
        for excluded in (0, _EXCLUDE_KERNEL | _EXCLUDE_HV):
            with suppress(OSError):
                for event in events:
                    files.append(_open(event, files[0] if files else -1, excluded))
                break
            while files:
                os.close(files.pop())
        if not files:
            yield []
            return
        group, leader = Struct(f"{len(files) + 1}Q"), files[0]

        def read() -> Sequence[int]:
            return group.unpack(os.read(leader, group.size))[1:]

        yield [(tuple(event.name for event in events), read)]
    finally:
        for file in reversed(files):
            os.close(file)


def _open(event: Event, group: int, flags: int) -> int:
    number = _CALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        raise OSError("no such system call")
    attribute = Struct("=IIQQQQQIIQ").pack(
        event.kind, _ATTRIBUTE_SIZE, event.config, 0, 0, _GROUP, flags, 0, 0, 0
    )
    buffer = ctypes.create_string_buffer(attribute.ljust(_ATTRIBUTE_SIZE, b"\0"))
    libc = ctypes.CDLL(None, use_errno=True)
    # Of this thread, on any processor.
    file = int(libc.syscall(number, buffer, 0, -1, group, ctypes.c_ulong(_CLOSE_ON_EXEC)))
    if file < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return file
