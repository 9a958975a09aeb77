"""Make glibc keep freed memory, and allocate arrays without affecting glibc's decisions."""

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

# Parameters of mallopt(), from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_KEEPING = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 64 << 20))
# The thresholds that glibc itself reaches after large arrays have been freed. Its rule that adapts
# them is off after mallopt(), and cannot be switched on again.
_DEFAULTS = (
    (_M_MMAP_MAX, 65536),
    (_M_MMAP_THRESHOLD, 32 << 20),
    (_M_TRIM_THRESHOLD, 64 << 20),
    (_M_TOP_PAD, 128 << 10),
)

#: Callers of :func:`keep`, and whether glibc's thresholds have been changed for them.
_KEEPERS: set[object] = set()
_is_set = False
_LOCK = threading.RLock()


def array_outside_heap(
    xp: Any, shape: tuple[int, ...], value: float, dtype: Any = np.float32
) -> Any:
    """Make an array filled with ``value`` outside glibc's heap."""
    if xp is not np:
        return xp.full(shape, value, dtype)
    # When a large array of the heap is freed, glibc keeps memory of that size from then on: all
    # later measurements would be faster.
    pages = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize)
    array = np.frombuffer(pages, dtype).reshape(shape)
    array[...] = value
    return array


def array_in_new_pages(xp: Any, count: int) -> Any:
    """Make an uninitialised float32 array of new pages, even if glibc has kept freed memory."""
    if xp is not np or not hasattr(mmap, "MAP_ANONYMOUS"):
        return xp.empty(count, np.float32)
    pages = mmap.mmap(-1, 4 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy does for large arrays
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.float32)


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Make glibc keep freed memory within the context."""
    keeper = object()
    try:
        try:
            if not keep(keeper):
                raise UsageError("only glibc can keep memory: leave out --keep-memory")
            yield
        finally:
            give_back(keeper)
    finally:  # repeated, because an interrupt may have cut the first call short
        give_back(keeper)


def keep(keeper: object) -> bool:
    """Make glibc keep freed memory until the last keeper calls :func:`give_back`.

    Returns False if this C library cannot.
    """
    # glibc returns the memory of large arrays to the kernel by default. Every later array then
    # causes page faults, and Chainer makes an array for every function. The peak stays the same.
    libc = _glibc()
    if libc is None:
        return False
    global _is_set
    with _LOCK:
        _KEEPERS.add(keeper)
        _is_set = True
        if all(libc.mallopt(name, value) for name, value in _KEEPING):
            return True
        give_back(keeper)
        return False


def give_back(keeper: object) -> None:
    """Remove a keeper; after the last one, make glibc return freed memory to the kernel again.

    A second call for the same keeper does nothing.
    """
    global _is_set
    with _LOCK:
        _KEEPERS.discard(keeper)
        libc = _glibc()
        if _KEEPERS or not _is_set or libc is None:
            return
        for name, value in _DEFAULTS:
            libc.mallopt(name, value)
        libc.malloc_trim(0)
        _is_set = False


def is_kept() -> bool:
    """Whether glibc keeps freed memory at present."""
    return bool(_KEEPERS)


def _glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
