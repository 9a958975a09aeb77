"""Memory that is free to this process: by the system, its control groups and its own limits."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.units import format_nbytes

_LEFT_PART = 10
_PROCESS, _GROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")
#: Files of a control group, of version 2 and 1: its limit, its use, and what begins the lines of
#: the files' pages in its ``memory.stat``, which the kernel takes back when memory is short.
_V2 = "memory.max", "memory.current", ""
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"


def free_nbytes(process: Path = _PROCESS, groups: Path = _GROUPS) -> int | None:
    """Bytes that this process can still take; None where the system does not tell."""
    import psutil

    limits = [*_left_in_groups(process, groups), *_left_by_limits(process)]
    with suppress(psutil.Error, OSError):
        limits.append(psutil.virtual_memory().available)
    return max(0, min(limits)) if limits else None


@contextmanager
def limit_to_free_memory() -> Iterator[int | None]:
    """Let memory that is not free raise MemoryError for a while. Yields the bytes that are free."""
    # The kernel hands out more memory than there is, and ends a process that uses it. A tenth stays
    # free for later.
    free, used = free_nbytes(), status_nbytes("VmData")
    if free is None or used is None or sys.platform != "linux":
        yield free
        return
    free -= free // _LEFT_PART
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    # Never above what was set: that is counted in what is free.
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, before[1]))
    try:
        yield free
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def describe_memory_error(error: MemoryError, free: int | None) -> str:
    """A message for memory that was refused: the bytes needed, and the bytes free."""
    shape, dtype, now = getattr(error, "shape", None), getattr(error, "dtype", None), free_nbytes()
    if shape is None or dtype is None or free is None or now is None:
        return f"does not fit into memory ({one_line(error)})"
    needed = math.prod(shape) * dtype.itemsize + max(0, free - now)
    if needed <= free:  # the rest was taken without being used yet
        return f"needs more than the {format_nbytes(free)} of free memory"
    return f"needs at least {format_nbytes(needed)} of memory, but {format_nbytes(free)} are free"


def _left_in_groups(process: Path, groups: Path) -> Iterator[int]:
    """Bytes left of the limits of the process's control groups and of the groups around them."""
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            names = _V1 if controllers else _V2
            for mount in (groups / "memory",) if controllers else (groups, groups / "unified"):
                folder = mount / path.lstrip("/")
                for group in (folder, *folder.parents):
                    with suppress(OSError, ValueError):
                        yield _left_in(group, *names)
                    if group == mount:
                        break


def _left_in(group: Path, limit: str, usage: str, prefix: str) -> int:
    """Bytes left of a control group's limit."""
    most, used = int((group / limit).read_text()), int((group / usage).read_text())
    numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    return most - used + sum(int(numbers.get(name, 0)) for name in names)


def _left_by_limits(process: Path) -> Iterator[int]:
    """Bytes left of the process's own limits: ``ulimit -v`` and ``ulimit -d``."""
    if sys.platform != "linux":
        return
    import resource

    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, used = resource.getrlimit(kind)[0], status_nbytes(name, process)
        if limit != resource.RLIM_INFINITY and used is not None:
            yield limit - used


def status_nbytes(name: str, process: Path = _PROCESS) -> int | None:
    """A number of the process's ``status``, such as ``VmRSS``; None where there is none."""
    with suppress(OSError, ValueError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


_REFERENCES = Path("/proc/self/clear_refs")


class MemoryGrowth:
    """The growth of the process from here on, at its largest after :meth:`settle`."""

    def __init__(self) -> None:
        _give_back()
        self._before = status_nbytes("VmRSS")

    def settle(self) -> None:
        """Forget memory that was only needed for a while."""
        _give_back()
        try:
            _REFERENCES.write_text("5")  # sets the largest size to the current size
        except OSError:
            self._before = None  # the largest size would be that of earlier work

    def nbytes(self) -> int | None:
        """Bytes; None where the system does not tell."""
        most = status_nbytes("VmHWM")
        return None if self._before is None or most is None else max(0, most - self._before)


def _give_back() -> None:
    """Give unused memory back to the system, if the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
