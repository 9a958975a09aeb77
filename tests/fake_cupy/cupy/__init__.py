"""A stand-in for CuPy 14 that computes with NumPy: a test double, for machines without a GPU.

With this folder on the path, ``import cupy`` gives it, Chainer finds CUDA available, and the GPU
path of a program runs to its end: Chainer's cuda backend, devices, arrays on "the device", events,
the memory pool and its hooks, raw kernels, NVTX, what the device says of itself::

    PYTHONPATH=tests/fake_cupy python profile.py --gpu 0

What it tells: whether the program makes the right calls in the right order; that it never mixes
arrays of the host and the device; that results are those of NumPy; how times and bytes are added
up, as the device's time and memory are simulated by rules (:mod:`cupy.fake`,
:mod:`cupy.cuda.memory`). What it does not: how fast anything is, whether CUDA C compiles or is
right (no kernel's code is looked at; see the table in :mod:`cupy._kernels`, which knows what the
networks of this repository launch), how streams overlap, or anything of a real driver. Matrix
products of benchmarks are not computed at all; see :func:`matmul`.

Environment variables, read at the import:

- ``FAKE_CUPY_DEVICES``: number of devices (1). 0 raises cudaErrorNoDevice, -1
  cudaErrorInsufficientDriver.
- ``FAKE_CUPY_MEMORY``: bytes of each device's memory (16 GiB).
- ``FAKE_CUPY_KERNEL_NS``: nanoseconds that each launch takes on the device (10000).
- ``FAKE_CUPY_VERSION``: ``cupy.__version__`` (14.2.0).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

# In this order: each needs those before.
from cupy import fake  # isort: skip
from cupy import cuda  # isort: skip
from cupy import _array, lib, linalg, random
from cupy._array import array as array
from cupy._array import asarray as asarray
from cupy._array import ndarray as ndarray
from cupy._kernels import ElementwiseKernel as ElementwiseKernel
from cupy._kernels import RawKernel as RawKernel
from cupy._kernels import ReductionKernel as ReductionKernel

__version__ = fake.VERSION
__all__ = ["cuda", "fake", "lib", "linalg", "random"]

_memos: list[dict[Any, Any]] = []


def __getattr__(name: str) -> Any:
    """All else is NumPy's, its functions on arrays of the device."""
    if name.startswith("_") or isinstance(getattr(np, name, fake), ModuleType):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    value = getattr(np, name)
    if callable(value) and not isinstance(value, type):
        globals()[name] = functools.partial(_call, name, value)
    return globals().setdefault(name, value)


def _call(name: str, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return _array.compute(name, func, args, kwargs)


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    """New memory; nothing is launched."""
    return ndarray(shape, dtype, order=order)


def empty_like(a: ndarray, dtype: Any = None, order: Any = "K", subok: Any = None) -> ndarray:
    """New memory; nothing is launched."""
    return _array._box(np.empty_like(a._host, dtype, order))


def asnumpy(a: Any, stream: Any = None, order: Any = "C", out: Any = None) -> Any:
    """An array on the host."""
    return a.get(stream, order, out) if isinstance(a, ndarray) else np.asarray(a, order=order)


def copyto(dst: ndarray, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Copy between arrays of the device, or a scalar."""
    if isinstance(src, np.ndarray):
        if src.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
        src = src.item()
    _array.compute("copyto", np.copyto, (dst, src, casting), {"where": where})


def matmul(a: Any, b: Any, out: Any = None, **kwargs: Any) -> Any:
    """The product; a large one into ``out`` is launched and not computed: only benchmarks do so."""
    if isinstance(out, ndarray) and a.size * b.shape[-1] > fake.most_multiply_adds:
        fake.launch(cuda.get_device_id(), "matmul")
        return out
    return _array.compute("matmul", np.matmul, (a, b), kwargs | {"out": out})


def get_array_module(*args: Any) -> ModuleType:
    """This module if there is an array of it, or else NumPy."""
    import cupy

    return cupy if any(isinstance(arg, ndarray) for arg in args) else np


def get_default_memory_pool() -> cuda.MemoryPool:
    return cuda.memory.default_pool


def get_default_pinned_memory_pool() -> cuda.MemoryPool:
    return _pinned


_pinned = cuda.MemoryPool()


def memoize(for_each_device: bool = False) -> Callable[[Any], Any]:
    """Keep results by arguments, and by device if wanted."""

    def decorate(func: Any) -> Any:
        memo: dict[Any, Any] = {}
        _memos.append(memo)

        @functools.wraps(func)
        def known(*args: Any, **kwargs: Any) -> Any:
            device = cuda.get_device_id() if for_each_device else -1
            key = (device, args, frozenset(kwargs.items()))
            if key not in memo:
                memo[key] = func(*args, **kwargs)
            return memo[key]

        return known

    return decorate


def clear_memo() -> None:
    """Forget all that :func:`memoize` keeps."""
    for memo in _memos:
        memo.clear()


def fuse(*args: Any, **kwargs: Any) -> Any:
    """Fuses nothing."""
    return args[0] if args and callable(args[0]) else lambda func: func
