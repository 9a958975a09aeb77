"""Whether glibc keeps freed memory, and arrays for measuring that do not change this."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainer_profile.basics.errors import UsageError

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_KEPT = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 64 << 20))
# The thresholds of glibc's own rule once large arrays have been freed. The rule itself, which moves
# them, cannot be restored.
_BY_ITSELF = (
    (_M_MMAP_MAX, 65536),
    (_M_MMAP_THRESHOLD, 32 << 20),
    (_M_TRIM_THRESHOLD, 64 << 20),
    (_M_TOP_PAD, 128 << 10),
)

#: Callers of :func:`keep`, and whether glibc's thresholds are set for them.
_KEEPERS: set[object] = set()
_is_set = False
_LOCK = threading.RLock()


def array_outside_heap(
    xp: Any, shape: tuple[int, ...], value: float, dtype: Any = np.float32
) -> Any:
    """An array full of a value, which does not change how glibc keeps memory."""
    if xp is not np:
        return xp.full(shape, value, dtype)
    # When a large array is freed, glibc keeps arrays of that size from then on, so that later
    # measurements would have faster memory.
    pages = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize)
    array = np.frombuffer(pages, dtype).reshape(shape)
    array[...] = value
    return array


def array_in_new_pages(xp: Any, count: int) -> Any:
    """An uninitialised float32 array in new memory of the system, whatever glibc keeps."""
    if xp is not np or not hasattr(mmap, "MAP_ANONYMOUS"):
        return xp.empty(count, np.float32)
    pages = mmap.mmap(-1, 4 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy asks for its own large arrays
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.float32)


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Has glibc keep freed memory within its block."""
    keeper = object()
    try:
        try:
            if not keep(keeper):
                raise UsageError("only glibc can keep memory: leave out --keep-memory")
            yield
        finally:
            give_back(keeper)
    finally:  # an interrupt may have cut the first short
        give_back(keeper)


def keep(keeper: object) -> bool:
    """Have glibc keep freed memory until the last keeper calls :func:`give_back`."""
    # By itself glibc returns the memory of large arrays to the kernel, which hands it out again
    # page by page. Chainer makes an array for every function. The peak stays the same.
    libc = _glibc()
    if libc is None:
        return False
    global _is_set
    with _LOCK:
        _KEEPERS.add(keeper)
        _is_set = True
        if all(libc.mallopt(name, value) for name, value in _KEPT):
            return True
        give_back(keeper)
        return False


def give_back(keeper: object) -> None:
    """Let glibc return freed memory by its own rule again; another call does nothing."""
    global _is_set
    with _LOCK:
        _KEEPERS.discard(keeper)
        libc = _glibc()
        if _KEEPERS or not _is_set or libc is None:
            return
        for name, value in _BY_ITSELF:
            libc.mallopt(name, value)
        libc.malloc_trim(0)
        _is_set = False


def is_kept() -> bool:
    """Whether glibc keeps freed memory now."""
    return bool(_KEEPERS)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
