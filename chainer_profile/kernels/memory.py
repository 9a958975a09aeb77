"""What glibc does with freed memory: keeping it, and measuring beside it without changing that."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainer_profile.basics.errors import UsageError

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_KEPT = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 64 << 20))
# What its own rule comes to once large arrays have been freed; the rule itself, which moves the
# threshold, cannot be brought back.
_BY_ITSELF = (
    (_M_MMAP_MAX, 65536),
    (_M_MMAP_THRESHOLD, 32 << 20),
    (_M_TRIM_THRESHOLD, 64 << 20),
    (_M_TOP_PAD, 128 << 10),
)

_is_kept = False


def apart(xp: Any, shape: tuple[int, ...], value: float, dtype: Any = np.float32) -> Any:
    """An array full of a value that leaves glibc as it is.

    Once a large array of its own is freed, glibc keeps others of that size from then on: what is
    measured behind that would have faster memory than it has by itself.

    Args:
        xp: NumPy, or another module with arrays, which are then its own.
        shape: Its shape.
        value: What it holds.
        dtype: Its data type.
    """
    if xp is not np:
        return xp.full(shape, value, dtype)
    pages = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize)
    array = np.frombuffer(pages, dtype).reshape(shape)
    array[...] = value
    return array


def afresh(xp: Any, count: int) -> Any:
    """A float32 array of the system's new memory, whatever glibc keeps; nothing is in it yet."""
    if xp is not np or not hasattr(mmap, "MAP_ANONYMOUS"):
        return xp.empty(count, np.float32)
    pages = mmap.mmap(-1, 4 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy asks for its own large arrays
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.float32)


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Within this freed memory stays.

    Raises:
        UsageError: There is no glibc.
    """
    if not keep_memory():
        raise UsageError("only glibc can be told to keep memory: leave out --keep-memory")
    try:
        yield
    finally:
        keep_memory(False)


def keep_memory(keep: bool = True) -> bool:
    """Have glibc keep freed memory in the process, or give it back as it does by itself.

    By itself it gives the memory of large arrays back, and the kernel hands it out again page by
    page. Chainer's passes make an array for every function. The peak stays the same.

    Returns:
        bool: Whether it does; it is glibc's alone.
    """
    libc = _glibc()
    if libc is None:
        return False
    global _is_kept
    done = all(libc.mallopt(name, value) for name, value in (_KEPT if keep else _BY_ITSELF))
    if not keep:
        libc.malloc_trim(0)
    _is_kept = keep and done
    return done


def is_kept() -> bool:
    """Whether :func:`keep_memory` has it kept."""
    return _is_kept


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
