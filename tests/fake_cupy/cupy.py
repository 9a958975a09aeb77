"""A fake CuPy 14: wrapped NumPy arrays, and the queue of a device on a fake clock.

With this folder on the path, ``import cupy`` imports this module, Chainer finds CUDA available, and
``--gpu 0`` works. Tests can check that the program makes the right calls in the right order, never
mixes arrays of host and device, and adds up times and bytes correctly. Kernels in CUDA C compute
nothing, unless tests/gpu/kernels.py builds them: their outputs are zero. All streams share one
queue. Every launch takes 10 us on the device and 2 us on the host; the host's clock is also in this
module.

Environment variables: ``FAKE_CUPY_DEVICES`` is the number of devices (1 by default; -1: no driver).
``FAKE_CUPY_MEMORY`` is their memory in bytes. The default of 40 MB is too small for the arrays of
benchmarks, which would take long with this clock.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import scipy.special
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.fake_queue import CUDARuntimeError, FakeQueue, OutOfMemoryError

__version__ = "14.2.0"
KERNEL_NS, LAUNCH_NS, READ_NS = 10_000, 2_000, 1_000
n_devices = int(os.environ.get("FAKE_CUPY_DEVICES", "1"))
memory_nbytes = int(os.environ.get("FAKE_CUPY_MEMORY", "40_000_000"))


class Host:
    """The host's clock, which advances at readings, launches and waits."""

    time_ns = 1_000_000

    def now_ns(self):
        self.advance(READ_NS)
        return self.time_ns

    def advance(self, duration_ns):
        self.time_ns += duration_ns


queue = FakeQueue(Host())


def _launch():
    """Put work into the queue."""
    queue.clock.advance(LAUNCH_NS)
    queue.launch(KERNEL_NS)


def _synchronize(*_):
    queue.synchronize()


class _Current:
    """A class with a current instance, which a with-statement changes."""

    current: ClassVar[Any] = None

    def __init__(self):
        self._before: list[Any] = []

    def __enter__(self):
        self._before.append(self.current)
        self.use()

    def __exit__(self, *_):
        type(self).current = self._before.pop()

    def use(self):
        type(self).current = self


class Stream(_Current):
    """A stream; all streams share the queue."""

    def __init__(self, non_blocking=False):
        super().__init__()
        self.ptr = id(self)

    def wait_event(self, event):
        pass

    synchronize = _synchronize


Stream.current = Stream()


def _count():
    if n_devices < 1:
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    return n_devices


class Device(_Current):
    """The device with this number, or the current device."""

    def __init__(self, device=None):
        super().__init__()
        self.id = self.current.id if device is None else device

    def __eq__(self, other):
        return isinstance(other, Device) and other.id == self.id


Device.current = Device(0)


class MemoryHook:
    """A hook that is called when a block is allocated and freed."""

    running: ClassVar[list[Any]] = []

    def __enter__(self):
        self.running.append(self)

    def __exit__(self, *_):
        self.running.remove(self)


class Pool:
    """Blocks are multiples of 512 bytes; freed memory can be reused for any block."""

    def __init__(self):
        self.used = self.total = 0

    def malloc(self, size):
        size = -(-size // 512) * 512
        more = max(0, self.used + size - self.total)
        if self.total + more > memory_nbytes:
            self._tell("malloc", size, 0)
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
        self.used += size
        self.total += more
        block = Block()
        weakref.finalize(block, self._free, size, id(block)).atexit = False
        self._tell("malloc", size, id(block))
        return block

    def _free(self, size, pointer):
        self.used -= size
        self._tell("free", size, pointer)

    def _tell(self, moment, size, pointer):
        for hook in MemoryHook.running:
            getattr(hook, f"{moment}_postprocess")(mem_size=size, mem_ptr=pointer)

    def used_bytes(self):
        return self.used

    def free_bytes(self):
        return self.total - self.used

    def total_bytes(self):
        return self.total


class Block:
    """NumPy memory that counts as device memory until the last array that uses it is deleted."""

    made = 0
    by_owner: ClassVar[weakref.WeakValueDictionary[int, Block]] = weakref.WeakValueDictionary()
    owner: Any

    def __init__(self):
        self.device = Device()
        Block.made += 1


class Pointer:
    """The address of an array's memory."""

    def __init__(self, ptr):
        self.ptr = ptr

    def __int__(self):
        return self.ptr


_pool = Pool()


class ndarray(NDArrayOperatorsMixin):  # noqa: N801
    """An array on the device. A view shares its block; other arrays have their own block."""

    def __new__(cls, shape, dtype=float):
        return _box(np.zeros(shape, dtype))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self.host, name)
        if callable(value):
            return functools.partial(_call, name, getattr(np.ndarray, name), self)
        return _box(value) if isinstance(value, np.ndarray) else value

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return _call(ufunc.__name__, getattr(ufunc, method), *args, **kwargs)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getitem__(self, index):
        return _call("getitem", _view, self, index)

    def __setitem__(self, index, value):
        _call("setitem", np.ndarray.__setitem__, self, index, value)

    def __len__(self):
        return len(self.host)

    def __bool__(self):
        return bool(self.get())

    def __float__(self):
        return float(self.get())

    def scatter_add(self, slices, value):
        _call("scatter_add", np.add.at, self, slices, value)

    def get(self, *_, **__):
        """Return a copy on the host, after waiting for the device."""
        _launch()
        _synchronize()
        return self.host.copy()

    def dot(self, b, out=None):
        return _call("dot", np.dot, self, b, out=out)

    def reduced_view(self):
        return self

    @property
    def device(self):
        return self.block.device

    @property
    def data(self):
        return Pointer(self.host.ctypes.data)

    @property
    def _c_contiguous(self):
        return self.host.flags.c_contiguous


def _box(host):
    """Make an array on the device."""
    box = object.__new__(ndarray)
    owner = host
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    block = Block.by_owner.get(id(owner))
    if block is None:
        block = Block.by_owner[id(owner)] = _pool.malloc(owner.nbytes)
        block.owner = owner
    box.host, box.block = host, block
    return box


def _unboxed(value, boxes):
    """Convert arguments for NumPy, and add their device arrays to ``boxes``."""
    if isinstance(value, ndarray):
        boxes.append(value)
        return value.host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if type(value) in (list, tuple):
        return type(value)(_unboxed(part, boxes) for part in value)
    return value


def _boxed(raw):
    """Convert NumPy's results to arrays on the device."""
    if isinstance(raw, (np.ndarray, np.generic)):
        return _box(np.asarray(raw))
    return type(raw)(map(_boxed, raw)) if type(raw) in (list, tuple) else raw


def _call(name, func, /, *args, **kwargs):
    """Call NumPy; launch work unless the result has only views or empty arrays."""
    boxes: list[ndarray] = []
    hosts, named = _unboxed(args, boxes), {k: _unboxed(v, boxes) for k, v in kwargs.items()}

    n_blocks = Block.made
    with np.errstate(all="ignore"):
        raw = func(*hosts, **named)
    same = [box for box in boxes if box.host is raw]
    result = same[0] if same else _boxed(raw)
    written = Block.made > n_blocks or raw is None or kwargs.get("out") is not None
    if written and not name.startswith("empty"):
        _launch()
    return result


def split(ary, indices_or_sections, axis=0):
    """Split an array into views; the indices may be on the host."""
    if isinstance(indices_or_sections, np.ndarray):
        indices_or_sections = indices_or_sections.tolist()
    return _call("split", np.split, ary, indices_or_sections, axis)


def _view(host, index):
    """Index an array; a single element is an array, too."""
    value = host[index]
    if isinstance(value, np.generic):
        value = host[(*index, ...) if isinstance(index, tuple) else (index, ...)]
    return value


def array(obj, dtype=None, copy=True, **_):
    """Make a new array on the current device from an array, a list or a number."""
    host = obj if isinstance(obj, np.ndarray) else _unboxed(obj, [])
    made = np.array(host, dtype)
    _launch()
    return _box(made)


def __getattr__(name):
    """Return other attributes of NumPy; functions work on arrays of the device."""
    value = None if name.startswith("_") else getattr(np, name, None)
    if value is None or isinstance(value, ModuleType):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    if isinstance(value, type) or not callable(value):
        return value
    return functools.partial(_call, name, value)


class ElementwiseKernel:
    """A kernel in CUDA C, which returns outputs of the right shapes and types."""

    def __init__(self, in_params, out_params, *code, **_):
        find = re.compile(r"(raw\s+)?(\w+)\s+\w+\s*(?:,|$)").findall
        self._ins, self._outs = find(in_params.strip()), find(out_params.strip())
        self._reduces = len(code) > 2  # a ReductionKernel reduces over all axes

    def __call__(self, *args, size=None, **_):
        _launch()
        outs = args[len(self._ins) :]
        if not outs:
            given = zip(self._ins, args, strict=True)
            arrays = [(*param, arg) for param, arg in given if isinstance(arg, ndarray)]
            types = {kind: arg.dtype for _, kind, arg in arrays}
            shape: Any = () if self._reduces else (size,)
            if size is None and not self._reduces:
                shape = np.broadcast_shapes(*(arg.shape for raw, _, arg in arrays if not raw))
            outs = tuple(ndarray(shape, types.get(kind, kind)) for _, kind in self._outs)
        return outs[0] if len(outs) == 1 else outs


class _Functions:
    """Functions of a module of NumPy or SciPy, for arrays of the device."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        func = getattr(self._module, name)

        def call(*args, dtype=None, **kwargs):
            result = _call(name, func, *args, **kwargs)
            return result if dtype is None else result.astype(dtype)

        return call


def _module(name, **names):
    module = ModuleType(name)
    vars(module).update(names)
    if __name__ == "cupy":
        sys.modules[name] = module
    return module


ReductionKernel = ElementwiseKernel
globals().update(
    # The only raw kernel is the kernel that holds the device.
    RawKernel=lambda code, name: lambda grid, block, args: queue.hold(int(args[0])),
    memoize=lambda for_each_device=False: functools.cache,
    fuse=lambda *args, **_: args[0] if args else lambda func: func,
    asarray=lambda a, dtype=None, **_: (
        a if isinstance(a, ndarray) and dtype in (None, a.dtype) else array(a, dtype)
    ),
    get_array_module=lambda *args: (
        sys.modules[__name__] if any(isinstance(arg, ndarray) for arg in args) else np
    ),
    fft=_Functions(np.fft),
    lib=SimpleNamespace(stride_tricks=_Functions(np.lib.stride_tricks)),
    linalg=_Functions(np.linalg),
    random=_Functions(np.random),
    get_default_memory_pool=lambda: _pool,
    get_default_pinned_memory_pool=lambda: _pool,
)
cuda = _module(
    "cupy.cuda",
    runtime=SimpleNamespace(
        getDeviceCount=_count,
        deviceSynchronize=_synchronize,
        memGetInfo=lambda: (memory_nbytes - _pool.total, memory_nbytes),
        getDeviceProperties=lambda number: {"name": f"Fake GPU {number}".encode()},
        runtimeGetVersion=lambda: 12090,
        driverGetVersion=lambda: 0 if n_devices < 1 else 13000,
    ),
    cublas=None,
    Device=Device,
    Event=lambda **_: queue.new_event(),
    MemoryHook=MemoryHook,
    Stream=Stream,
    get_current_stream=lambda: Stream.current,
    get_elapsed_time=queue.elapsed_ms,
)
# Modules that Chainer imports.
_module("cupy._util", PerformanceWarning=RuntimeWarning)
_special = _Functions(scipy.special)
_module(
    "cupyx",
    rsqrt=lambda x, **_: 1 / np.sqrt(x),
    scatter_add=lambda a, slices, value: a.scatter_add(slices, value),
    scipy=_module("cupyx.scipy", special=_special),
)
for _name in ("cupyx.scipy.special", "cupyx.scipy.linalg"):
    _module(_name)
if __name__ == "cupy":
    time.perf_counter_ns = queue.clock.now_ns
