"""Memory that is freed stays with the process, so that nobody has to fetch it again."""

from __future__ import annotations

import ctypes
import sys

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_KEPT = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 64 << 20))
_AS_BEFORE = (
    (_M_MMAP_MAX, 65536),
    (_M_TRIM_THRESHOLD, 128 << 10),
    (_M_TOP_PAD, 0),
    (_M_MMAP_THRESHOLD, 128 << 10),
)


def keep_memory(keep: bool = True) -> bool:
    """Have glibc keep freed memory in the process, or give it back as it does by itself.

    By itself it gives every large array's memory back at once, and the kernel hands it out again
    page by page: in Chainer's forward pass, which makes an array for every function, that takes a
    sixth to a third of the time. The peak stays the same.

    Returns:
        bool: Whether it does; it is glibc's alone.
    """
    libc = _glibc()
    if libc is None:
        return False
    done = all(libc.mallopt(name, value) for name, value in (_KEPT if keep else _AS_BEFORE))
    if not keep:
        libc.malloc_trim(0)
    return done


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
