"""Memory that is freed stays with the process, so that nobody has to fetch it again."""

from __future__ import annotations

import ctypes
import sys

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
    done = all(libc.mallopt(name, value) for name, value in (_KEPT if keep else _BY_ITSELF))
    if not keep:
        libc.malloc_trim(0)
    return done


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
