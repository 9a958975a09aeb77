"""Memory that this process can still get: from the system, its control groups and its limits."""

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

#: :func:`limit_to_free_memory` leaves one part in this number of the free memory unused.
_RESERVE_DIVISOR = 10
_PROCESS, _GROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")
#: Files of a control group (version 2 and version 1) with its limit and its use, and the prefix of
#: the lines in ``memory.stat`` that count cached pages of files.
_V2 = "memory.max", "memory.current", ""
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"


def free_nbytes(process: Path = _PROCESS, groups: Path = _GROUPS) -> int | None:
    """Bytes that this process can still allocate; None if the system does not report them."""
    import psutil

    limits = [*_left_in_groups(process, groups), *_left_by_limits(process)]
    with suppress(psutil.Error, OSError):
        limits.append(psutil.virtual_memory().available)
    return max(0, min(limits)) if limits else None


@contextmanager
def limit_to_free_memory() -> Iterator[int | None]:
    """Make allocations beyond the free memory raise MemoryError within the context.

    Yields the bytes that can be allocated; None if the system does not report them.
    """
    # The kernel would grant more memory than there is, and kill a process that uses it. A tenth is
    # reserved for later.
    free, used = free_nbytes(), status_nbytes("VmData")
    if free is None or used is None or sys.platform != "linux":
        yield free
        return
    free -= free // _RESERVE_DIVISOR
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    # This never raises the limit, because free_nbytes() takes the old one into account.
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, before[1]))
    try:
        yield free
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def describe_memory_error(error: MemoryError, free: int | None) -> str:
    """Describe a MemoryError by the bytes needed and the bytes that were ``free`` at the start."""
    # NumPy's MemoryError has the shape and data type of the array.
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    free_now = free_nbytes()
    if shape is None or dtype is None or free is None or free_now is None:
        return f"does not fit into memory ({one_line(error)})"
    needed = math.prod(shape) * dtype.itemsize + max(0, free - free_now)
    if needed <= free:  # the rest is allocated, but has not been used yet
        return f"needs more than the {format_nbytes(free)} of free memory"
    return f"needs at least {format_nbytes(needed)} of memory, but {format_nbytes(free)} are free"


def _left_in_groups(process: Path, groups: Path) -> Iterator[int]:
    """Bytes left in each memory control group of the process, and in the groups above them."""
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


def _left_in(group: Path, limit_file: str, usage_file: str, prefix: str) -> int:
    """Bytes left in a control group; see :data:`_V2` for the names of its files."""
    limit = int((group / limit_file).read_text())
    usage = int((group / usage_file).read_text())
    numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    # The kernel frees cached pages of files when memory is short.
    cached = (f"{prefix}inactive_file", f"{prefix}active_file")
    return limit - usage + sum(int(numbers.get(name, 0)) for name in cached)


def _left_by_limits(process: Path) -> Iterator[int]:
    """Bytes left of each resource limit of the process: ``ulimit -v`` and ``ulimit -d``."""
    if sys.platform != "linux":
        return
    import resource

    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, used = resource.getrlimit(kind)[0], status_nbytes(name, process)
        if limit != resource.RLIM_INFINITY and used is not None:
            yield limit - used


def status_nbytes(name: str, process: Path = _PROCESS) -> int | None:
    """Bytes of a field of the process's ``status`` file, such as ``VmRSS``; None if missing."""
    with suppress(OSError, ValueError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


_CLEAR_REFS = Path("/proc/self/clear_refs")


class MemoryGrowth:
    """Growth of the process's resident memory since this object was made."""

    def __init__(self) -> None:
        _release_unused()
        self._before = status_nbytes("VmRSS")

    def settle(self) -> None:
        """Restart the peak at the current size: memory that was needed before no longer counts."""
        _release_unused()
        try:
            _CLEAR_REFS.write_text("5")  # sets VmHWM to VmRSS
        except OSError:
            self._before = None  # VmHWM would include earlier work

    def nbytes(self) -> int | None:
        """Growth at the peak in bytes; None if the system does not report it."""
        peak = status_nbytes("VmHWM")
        return None if self._before is None or peak is None else max(0, peak - self._before)


def _release_unused() -> None:
    """Return unused memory to the system, if the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
