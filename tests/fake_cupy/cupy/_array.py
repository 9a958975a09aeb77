"""Arrays on the device: NumPy arrays in a box that NumPy cannot look into by itself.

A result of NumPy that lies in the memory of an array on the device is a view, and shares its block
of the pool. All other results get a block of their own, and took a launch.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cupy import cuda, fake
from cupy.cuda import runtime
from cupy.cuda.memory import MemoryPointer, alloc

#: Blocks by the id of the NumPy array that owns the memory, which they keep alive.
_blocks: weakref.WeakValueDictionary[int, MemoryPointer] = weakref.WeakValueDictionary()


class ndarray(NDArrayOperatorsMixin):  # noqa: N801
    """An array on the device."""

    __slots__ = ("__weakref__", "_block", "_host")
    __array_priority__ = 100
    _host: np.ndarray[Any, Any]
    _block: MemoryPointer
    # These and more are set at the end of the module.
    dtype: Any
    shape: Any
    copy: Any
    view: Any

    def __init__(self, shape: Any, dtype: Any = float, *, order: Any = "C") -> None:
        self._hold(np.empty(shape, dtype, order))

    def _hold(self, host: np.ndarray[Any, Any]) -> bool:
        """Be an array; whether it has new memory."""
        owner: Any = host
        while getattr(owner, "base", None) is not None:
            owner = owner.base
        block = _blocks.get(id(owner))
        known = block is not None
        if block is None:
            # A strange owner, such as a buffer, lives at least as long as the array on it.
            owner = owner if isinstance(owner, np.ndarray) else host
            block = alloc(owner.nbytes)
            block.host = owner
            _blocks[id(owner)] = block
        self._host, self._block = host, block
        return not known

    # -- NumPy's functions and operators

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        call = ufunc if method == "__call__" else getattr(ufunc, method)
        return compute(ufunc.__name__, call, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return compute(func.__name__, func, args, kwargs)

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    # -- between host and device

    def get(
        self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        """A copy on the host, when the device is done."""
        fake.launch(self._block.device_id, "memcpy DtoH")
        fake.synchronize(self._block.device_id)
        if out is None:
            return np.array(self._host, order=order)
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy an array of the same shape and type from the host."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        self._host[...] = arr
        staged = arr.copy() if fake.captures else arr
        again = functools.partial(np.copyto, self._host, staged)
        fake.launch(self._block.device_id, "memcpy HtoD", again=again)

    def __reduce__(self) -> Any:
        return array, (self.get(),)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    # -- what Python asks

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return self.get().__index__()

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if form else str(self)

    # -- items

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        if not any(item is ... or isinstance(item, (np.ndarray, ndarray, list)) for item in items):
            # NumPy would give a scalar for a single element, CuPy gives a view.
            index = (*items, ...)
        return compute("getitem", lambda host, at: host[at], (self, _index(index)), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if value.size != 1:
                raise ValueError("Non-scalar numpy.ndarray cannot be used for fill")
            value = value.item()
        compute("setitem", np.ndarray.__setitem__, (self, _index(index), value), {})

    def scatter_add(self, slices: Any, value: Any) -> None:
        """Add to items, of which some may come several times."""
        compute("scatter_add", np.add.at, (self, _index(slices), value), {})

    # -- attributes

    @property
    def device(self) -> cuda.Device:
        return cuda.Device(self._block.device_id)

    @property
    def data(self) -> _Pointer:
        return _Pointer(self._host.ctypes.data, self._block)

    @property
    def base(self) -> Any:
        return None if self._host is self._block.host else _box(self._block.host)

    def reduced_view(self) -> Any:
        return self.view()


class _Pointer(NamedTuple):
    """Where an array begins: in the host's memory, which is what the device's is here."""

    ptr: int
    mem: MemoryPointer


def _box(host: np.ndarray[Any, Any]) -> ndarray:
    boxed = ndarray.__new__(ndarray)
    boxed._hold(host)
    return boxed


def _index(index: Any) -> Any:
    """An index, arrays of the host in it moved."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return array(index) if isinstance(index, np.ndarray) else index


def to_host(value: Any, seen: dict[int, ndarray]) -> Any:
    """Arguments for NumPy; the arrays in them are noted by the id of what is in the box."""
    if isinstance(value, ndarray):
        seen[id(value._host)] = value
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if type(value) in (list, tuple):
        return type(value)(to_host(item, seen) for item in value)
    return value


def to_device(value: Any, seen: dict[int, ndarray]) -> tuple[Any, bool]:
    """A result of NumPy, boxed, and whether any of it is new. An argument stays what it was."""
    if isinstance(value, (np.ndarray, np.generic)):
        if id(value) in seen:
            return seen[id(value)], False
        boxed = ndarray.__new__(ndarray)
        fresh = boxed._hold(np.asarray(value))
        return boxed, fresh
    if isinstance(value, (list, tuple)):
        boxes = [to_device(item, seen) for item in value]
        items = (box for box, _ in boxes)
        # Some of NumPy's tuples have names for their items.
        kind = getattr(type(value), "_make", type(value))
        return kind(items), any(fresh for _, fresh in boxes)
    return value, False


def compute(name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call NumPy on arrays of the device. What gives only views launches nothing."""
    seen: dict[int, ndarray] = {}
    if name in _BY_CUBLAS and fake.captures:
        raise NotImplementedError(
            "calling cuBLAS API during stream capture is currently unsupported"
        )
    host_args = [to_host(arg, seen) for arg in args]
    host_kwargs = {key: to_host(value, seen) for key, value in kwargs.items()}
    device = runtime.getDevice()
    with np.errstate(all="ignore"):
        result = func(*host_args, **host_kwargs)
    boxed, fresh = to_device(result, seen)
    if fresh or result is None or kwargs.get("out") is not None:
        # A graph keeps what NumPy has, and not the blocks: their memory is used again.
        hosts = [array._host for array in _arrays(boxed)]
        new = [host for host in hosts if id(host) not in seen]

        def again() -> None:
            with np.errstate(all="ignore"):
                results = func(*host_args, **host_kwargs)
            for host, value in zip(hosts, _arrays(results), strict=True):
                if host is not value:
                    host[...] = value

        fake.launch(device, name, again=again, new=new)
    return boxed


#: What CuPy does by cuBLAS.
_BY_CUBLAS = frozenset(("dot", "einsum", "inner", "matmul", "tensordot", "vdot"))


def _arrays(value: Any) -> Iterator[Any]:
    """The arrays in a result, in boxes or NumPy's."""
    if isinstance(value, (ndarray, np.ndarray, np.generic)):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)


def array(
    obj: Any, dtype: Any = None, copy: bool = True, order: Any = "K", subok: Any = 0, ndmin: int = 0
) -> Any:
    """A new array on the current device, of arrays on either side, or of lists or numbers."""
    seen: dict[int, ndarray] = {}
    host = obj if isinstance(obj, np.ndarray) else to_host(obj, seen)
    boxed = _box(np.array(host, dtype, order=order, ndmin=ndmin))
    # What comes from the host is staged when it is copied; what is on the device is read later.
    source = boxed._host.copy() if fake.captures and not seen else host
    again = functools.partial(np.copyto, boxed._host, source, "unsafe")
    name = "copy" if seen else "memcpy HtoD"
    fake.launch(boxed._block.device_id, name, again=again, new=[boxed._host])
    return boxed


def asarray(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """The array itself if it is on the device and of that type; or else a new one."""
    if isinstance(a, ndarray) and dtype in (None, a.dtype) and order in (None, "K", "A"):
        return a
    return array(a, dtype, order=order or "K")


def _attribute(name: str) -> property:
    """Views, such as T, are boxed; all else is as it is."""

    def read(self: ndarray) -> Any:
        value = getattr(self._host, name)
        return _box(value) if isinstance(value, np.ndarray) else value

    return property(read)


def _method(name: str) -> Callable[..., Any]:
    call = getattr(np.ndarray, name)

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        return compute(name, call, (self, *args), kwargs)

    return method


_ATTRIBUTES = "T dtype flags imag itemsize nbytes ndim real shape size strides"
_METHODS = """
all any argmax argmin argsort astype choose clip compress conj copy cumprod cumsum diagonal dot fill
flatten max mean min nonzero prod put ravel repeat reshape round searchsorted sort squeeze std sum
swapaxes take tobytes trace transpose var view
"""
for _name in _ATTRIBUTES.split():
    setattr(ndarray, _name, _attribute(_name))
for _name in _METHODS.split():
    setattr(ndarray, _name, _method(_name))
