"""The memory pool and its hooks. Blocks are only counted: NumPy has the memory."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cupy import fake
from cupy.cuda import runtime

_UNIT = 512


class OutOfMemoryError(MemoryError):
    """The device's memory, or the pool's limit, is exceeded."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited})."
        )


class _Thread(threading.local):
    """Hooks that are on, and the allocator in use if any; each thread has its own."""

    def __init__(self) -> None:
        self.hooks: dict[str, MemoryHook] = {}
        self.allocator: Callable[[int], MemoryPointer] | None = None


_thread = _Thread()


class MemoryHook:
    """Is called before and after a block is had and given back; nothing by default."""

    name = "MemoryHook"

    def __enter__(self) -> MemoryHook:
        if self.name in _thread.hooks:
            raise KeyError(f"memory hook {self.name} already exists")
        _thread.hooks[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _thread.hooks[self.name]

    def alloc_preprocess(self, **kwargs: Any) -> None:
        pass

    def alloc_postprocess(self, **kwargs: Any) -> None:
        pass

    def malloc_preprocess(self, **kwargs: Any) -> None:
        pass

    def malloc_postprocess(self, **kwargs: Any) -> None:
        pass

    def free_preprocess(self, **kwargs: Any) -> None:
        pass

    def free_postprocess(self, **kwargs: Any) -> None:
        pass


def _tell(moment: str, **kwargs: int) -> None:
    for hook in list(_thread.hooks.values()):
        getattr(hook, moment)(**kwargs)


#: All of them.
pools: weakref.WeakSet[MemoryPool] = weakref.WeakSet()


class MemoryPool:
    """Blocks of each device. One is used again only for the same rounded size, never split."""

    def __init__(self) -> None:
        self._used: defaultdict[int, int] = defaultdict(int)
        # Addresses of free blocks, by device and size.
        self._free: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        self._limit: defaultdict[int, int] = defaultdict(int)
        pools.add(self)
        self._addresses = itertools.count(0x7F00_0000_0000, 1 << 32)

    def malloc(self, size: int) -> MemoryPointer:
        """A block of the current device, as the base of a pointer; zero bytes are a block too."""
        device = runtime.getDevice()
        asked = {"device_id": device, "mem_size": -(-size // _UNIT) * _UNIT}
        _tell("malloc_preprocess", size=size, **asked)
        given = {"mem_ptr": 0, "pmem_id": 0}
        try:
            pointer = MemoryPointer(self, ptr=self._take(**asked), **asked)
            given = {"mem_ptr": pointer.ptr, "pmem_id": id(pointer)}
        finally:
            _tell("malloc_postprocess", size=size, **asked, **given)
        return pointer

    def _take(self, device_id: int, mem_size: int) -> int:
        known = self._free[device_id].get(mem_size)
        pointer = known.pop() if known else self._alloc(device_id, mem_size)
        self._used[device_id] += mem_size
        return pointer

    def _alloc(self, device_id: int, mem_size: int) -> int:
        limit = self._limit[device_id]
        if limit and self.total_bytes() + mem_size > limit:
            raise OutOfMemoryError(mem_size, self.total_bytes(), limit)
        fake.refuse_while_capturing(strictly=True)
        _tell("alloc_preprocess", device_id=device_id, mem_size=mem_size)
        pointer, total = 0, self.total_bytes()
        try:
            if total + mem_size > fake.memory_nbytes:
                gc.collect()
                self.free_all_blocks()
                if self.total_bytes() + mem_size > fake.memory_nbytes:
                    raise OutOfMemoryError(mem_size, total, limit)
            pointer = next(self._addresses)
        finally:
            _tell("alloc_postprocess", device_id=device_id, mem_size=mem_size, mem_ptr=pointer)
        return pointer

    def free(self, pointer: MemoryPointer) -> None:
        """Take a block back."""
        block = {"device_id": pointer.device_id, "mem_size": pointer.mem_size}
        block |= {"mem_ptr": pointer.ptr, "pmem_id": id(pointer)}
        _tell("free_preprocess", **block)
        self._used[pointer.device_id] -= pointer.mem_size
        self._free[pointer.device_id].setdefault(pointer.mem_size, []).append(pointer.ptr)
        _tell("free_postprocess", **block)

    def used_bytes(self) -> int:
        return self._used[runtime.getDevice()]

    def free_bytes(self) -> int:
        free = self._free[runtime.getDevice()]
        return sum(size * len(pointers) for size, pointers in free.items())

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def n_free_blocks(self) -> int:
        return sum(map(len, self._free[runtime.getDevice()].values()))

    def free_all_blocks(self, stream: object = None) -> None:
        self._free[runtime.getDevice()].clear()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        limit = int(fake.memory_nbytes * fraction) if fraction is not None else size or 0
        self._limit[runtime.getDevice()] = limit

    def get_limit(self) -> int:
        return self._limit[runtime.getDevice()]


class MemoryPointer:
    """A block of a pool, and the NumPy array that stands for it; given back with the last view.

    Attributes:
        ptr: An address that no other block has.
        host: The array.
    """

    host: np.ndarray[Any, Any]

    def __init__(self, pool: MemoryPool, device_id: int, mem_size: int, ptr: int) -> None:
        self.device_id = device_id
        self.mem_size = mem_size
        self.ptr = ptr
        self._pool = pool

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # then this module's own names are gone
            self._pool.free(self)


default_pool = MemoryPool()


def alloc(size: int) -> MemoryPointer:
    """A block of the pool that this thread uses."""
    return (_thread.allocator or default_pool.malloc)(size)


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    """Within this, the thread's arrays are allocated with it."""
    before = _thread.allocator
    _thread.allocator = allocator
    try:
        yield
    finally:
        _thread.allocator = before
