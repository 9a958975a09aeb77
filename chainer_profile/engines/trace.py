"""One forward pass as a list of calls, which must not depend on the network's data.

What a network computes by Chainer's functions can be exported; what its code reads by itself (``if
x.sum() > 0``, ``h.array *= 2``, ``x / 255`` of an array) may be another thing for every input. So a
second pass is made, on other inputs, whose arrays tell when somebody looks at their numbers.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import chainer
import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.equality import other_inputs
from chainer_profile.engines.protocol import EngineError, flat_arrays
from chainer_profile.measure.hooks import WalkHook

_listening: ContextVar[Callable[[str], None] | None] = ContextVar("listening", default=None)

#: Functions of NumPy that look at shapes and types alone.
_OF_SHAPES = frozenset(
    [
        *("shape", "ndim", "size", "reshape", "result_type", "can_cast", "shares_memory"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "may_share_memory"),
    ]
)
#: Methods that do, or that give the same numbers with other axes at the same place.
_HARMLESS = frozenset(["reshape", "ravel", "squeeze", "view", "setflags", "astype"])
_OPERATORS = ("bool", "int", "float", "complex", "index", "iter", "contains", "getitem", "setitem")


class Tracked(np.ndarray[Any, Any]):
    """A view of an array in a pass in which somebody listens; see :func:`listening`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        _tell(ufunc.__name__)
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ not in _OF_SHAPES:
            _tell(function.__name__)
        return function(*_plain(args), **_plain(kwargs))

    def astype(self, dtype: Any, *args: Any, copy: Any = True, **kwargs: Any) -> Any:
        """The array itself where it is of the type already, as Chainer's operators ask for it."""
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        _tell("astype")
        convert: Any = super().astype
        return convert(dtype, *args, copy=copy, **kwargs)


def _telling(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(name.strip("_"))
        return original(self, *args, **kwargs)

    return method


_PUBLIC = [name for name in dir(np.ndarray) if not name.startswith("_")]
for _name in [*_PUBLIC, *(f"__{name}__" for name in _OPERATORS)]:
    if callable(getattr(np.ndarray, _name)) and _name not in _HARMLESS:
        setattr(Tracked, _name, _telling(_name))


def _plain(value: Any) -> Any:
    """The same without tracked arrays."""
    if isinstance(value, Tracked):
        return value.view(np.ndarray)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def _tell(what: str) -> None:
    listener = _listening.get()
    if listener is not None:
        listener(what)


@contextmanager
def _listening_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Within this, a function is told what looks at numbers of tracked arrays."""
    token = _listening.set(listener)
    try:
        yield
    finally:
        _listening.reset(token)


def _whose_line() -> str:
    """File and line of the code that is running, outside of NumPy, Chainer and this package."""
    own = [Path(module.__file__ or "").parent for module in (np, chainer)]
    own.append(Path(__file__).parents[1])
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if not any(folder in path.parents for folder in own):
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@dataclass(frozen=True)
class Value:
    """An array that is made anew in every pass: an input of the network, or a call's output."""

    number: int
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Call:
    #: Its layer's index.
    index: int
    name: str
    kind: type
    #: What it holds beside values.
    settings: dict[str, Any]
    #: Values, also in another shape as ``L.Linear`` gives one to an array; or arrays that are the
    #: same in every pass (parameters, constants).
    inputs: tuple[Any, ...]
    #: None for one that is not there; empty where it takes nothing but what is always the same.
    outputs: tuple[Value | None, ...]
    #: Numbers of the values that it holds, by the names of its attributes.
    held: dict[str, int]


@dataclass(frozen=True, eq=False)
class Trace:
    """The calls of one forward pass, and where its results come from."""

    #: In order, without those that others make within themselves, which make them again.
    calls: tuple[Call, ...]
    outputs: tuple[Value, ...]
    #: What its own code did with numbers outside of all functions; known of tracked inputs alone.
    looked: str = ""
    #: What the network gives that no function made.
    unknown: str = ""


class _Tracer:
    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self.calls: list[Call] = []
        self.values: dict[int, Value] = {}
        self.looked = ""
        # An array that is gone could give its identity, and its place, to another one.
        self._alive: list[Any] = []
        self._at: dict[int, tuple[Any, Value]] = {}
        self._values = 0
        self._count = 0
        self._depth = 0
        for array in arrays:
            self.value(array)

    def value(self, array: Any) -> Value:
        """A new value that this array is."""
        value = Value(self._values, tuple(map(int, array.shape)))
        # Not the number of values: a function may give the array that it took.
        self._values += 1
        self._alive.append(array)
        self.values[id(array)] = value
        if array.flags.c_contiguous and array.size:
            self._at[_address(array)] = array, value
        return value

    def source(self, array: Any) -> Any:
        """The value that an array is; the array itself where it is none."""
        known = self.values.get(id(array))
        if known is not None or array is None:
            return array if known is None else known
        self._alive.append(array)
        if array.flags.c_contiguous and array.size:
            # The same numbers in the same order: another array's with other axes.
            other, value = self._at.get(_address(array), (None, None))
            if other is not None and (other.size, other.dtype) == (array.size, array.dtype):
                return value
        if isinstance(array, Tracked):
            self.look("an array that is part of another one")
        return array

    def look(self, what: str) -> None:
        """The network's own code does something with numbers."""
        if not self._depth and not self.looked:
            self.looked = f"{what}, {_whose_line()}".rstrip(" ,")

    @property
    def hook(self) -> WalkHook:
        return WalkHook(self._begin, self._end)

    def _begin(self, function: Any, in_data: tuple[Any, ...], *_: Any) -> None:
        self._count += 1
        if not self._depth:
            inputs = tuple(self.source(array) for array in in_data)
            held = {
                name: self.values[id(part)].number
                for name, part in vars(function).items()
                if id(part) in self.values
            }
            settings = _settings(function, held)
            if any(isinstance(array, Tracked) for array in _arrays_in(settings)):
                self.look(f"{function._impl_name} keeps them")
            self._running = self._count - 1, settings, inputs, held
            if any(isinstance(array, Tracked) for array in in_data):
                function.forward = _on_plain(function.forward)
        self._depth += 1

    def _end(self, function: Any, in_data: tuple[Any, ...], outputs: Any, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        vars(function).pop("forward", None)
        index, settings, inputs, held = self._running
        made: tuple[Value | None, ...] = ()
        if held or any(isinstance(source, Value) for source in inputs):
            made = tuple(None if array is None else self.value(array) for array in outputs)
        else:
            self._alive += outputs
        kind = type(function)
        self.calls.append(Call(index, function._impl_name, kind, settings, inputs, made, held))


def _on_plain(forward: Any) -> Any:
    """A function's forward on plain arrays, which gives tracked ones."""

    def on_plain(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        plain = tuple(x.view(np.ndarray) if isinstance(x, Tracked) else x for x in inputs)
        # Some functions give the array that they took.
        same = {id(x): tracked for x, tracked in zip(plain, inputs, strict=True)}
        return tuple(
            None if y is None else same.get(id(y), y.view(Tracked)) for y in forward(plain)
        )

    return on_plain


def _arrays_in(value: Any) -> Iterator[Any]:
    """The arrays that something holds, in lists, tuples, sets, slices and dicts too."""
    if isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _arrays_in(part)
    elif isinstance(value, dict):
        yield from _arrays_in(list(value.values()))
    elif isinstance(value, slice):
        yield from _arrays_in((value.start, value.stop, value.step))
    elif isinstance(value, chainer.Variable):
        yield value.array
    elif isinstance(value, chainer.Function):  # within its adapter
        yield from _arrays_in(vars(value))
    elif isinstance(value, chainer.get_array_types()):
        yield value


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def trace(model: Any, inputs: tuple[Any, ...]) -> Trace:
    """Run the network once, in test mode, and note its calls."""
    tracer = _Tracer(tuple(chainer.as_variable(value).array for value in inputs))
    with (
        chainer.using_config("train", False),
        chainer.using_config("enable_backprop", False),
        _listening_to(tracer.look),
        tracer.hook,
    ):
        result = model(*inputs)
    outputs: list[Value] = []
    results: tuple[Any, ...] = ()
    unknown = ""
    try:
        results = flat_arrays(result)
    except EngineError as error:
        unknown = str(error)
    for number, array in enumerate(results):
        value = tracer.source(array)
        if isinstance(value, Value):
            outputs.append(value)
        else:
            unknown = (
                f"output {number} of the network is an array that no Chainer function made: make "
                "it with functions of chainer.functions"
            )
    return Trace(tuple(tracer.calls), tuple(outputs), tracer.looked, unknown)


def difference(one: Trace, other: Trace) -> str:
    """What depends on the network's data, by two passes on different inputs; empty if nothing."""
    if other.looked:
        return f"its own code reads values ({other.looked})"
    for a, b in zip(one.calls, other.calls, strict=False):
        if a.kind is not b.kind or a.name != b.name:
            return f"call {a.index} was {a.name} for one input, and {b.name} for another"
        if [v and v.shape for v in a.outputs] != [v and v.shape for v in b.outputs]:
            return (
                f"the outputs of call {a.index}, {a.name}, have different shapes for another input"
            )
        for x, y in zip(a.inputs, b.inputs, strict=False):
            known = isinstance(x, Value), isinstance(y, Value)
            if known[0] != known[1] or (known[0] and x.number != y.number):
                return (
                    f"call {a.index}, {a.name}, takes its input from another call for another input"
                )
            if not known[0] and not _equal(x, y):
                return (
                    f"call {a.index}, {a.name}, takes an array that was computed outside of "
                    "Chainer's functions"
                )
        if a.held != b.held:
            return f"call {a.index}, {a.name}, keeps different values for another input"
        if not _equal(a.settings, b.settings):
            return f"call {a.index}, {a.name}, has different settings for another input"
    if len(one.calls) != len(other.calls):
        return f"{len(one.calls)} calls for one input, but {len(other.calls)} for another"
    if [value.number for value in one.outputs] != [value.number for value in other.outputs]:
        return "its outputs come from other calls for another input"
    return ""


def _settings(function: Any, held: Collection[str]) -> dict[str, Any]:
    """What a function holds beside values, without what refers back to itself."""
    if hasattr(function, "custom_function_node_name"):
        return {}  # made up by the ONNX exporter, which keeps in it what it was called with
    inner = getattr(function, "_function", None) or function
    own = {"_node", "_owned_node", *held}
    return {key: value for key, value in vars(inner).items() if key not in own}


def _equal(x: Any, y: Any) -> bool:
    """Whether two values are the same: numbers, arrays, or what holds them."""
    if x is y:
        return True
    if isinstance(x, chainer.Variable) and isinstance(y, chainer.Variable):
        return _equal(x.array, y.array)
    arrays = chainer.get_array_types()
    if isinstance(x, arrays) and isinstance(y, arrays):
        same = x.shape == y.shape and x.dtype == y.dtype
        return same and bool(((x == y) | ((x != x) & (y != y))).all())
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_equal(x[key], y[key]) for key in x)
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and all(map(_equal, x, y))
    if isinstance(x, slice) and isinstance(y, slice):
        return _equal((x.start, x.stop, x.step), (y.start, y.stop, y.step))
    if type(x) is not type(y):
        return False
    if isinstance(x, (bool, int, float, complex, str, bytes, np.generic, set, frozenset)):
        return bool(x == y or (x != x and y != y))
    if callable(x) and hasattr(x, "__code__"):  # defined within the network's own code
        cells = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (x, y)]
        return x.__code__ is y.__code__ and _equal(*cells)
    return hasattr(x, "__dict__") and _equal(vars(x), vars(y))


def require_static(model: Any, inputs: tuple[Any, ...]) -> Trace:
    """The calls of a network that are the same for every input of these shapes."""
    try:
        first = trace(model, inputs)
    except Exception as error:  # the network's own code
        raise EngineError(f"the network fails: {one_line(error)}") from error
    # A copy makes a second pass, and its own code is watched meanwhile. What it reports is dropped.
    others = other_inputs(tuple(chainer.as_variable(value).array for value in inputs))
    given = [array.view(Tracked) if type(array) is np.ndarray else array for array in others]
    pairs = zip(inputs, given, strict=True)
    given = [chainer.Variable(y) if isinstance(x, chainer.Variable) else y for x, y in pairs]
    copied = model
    if isinstance(model, chainer.Link):
        try:
            copied = copy.deepcopy(model, {id(p.array): p.array for p in model.params()})
        except Exception as error:  # something in it cannot be copied
            raise EngineError(f"the network cannot be copied: {one_line(error)}") from error
    with _Unheard():
        try:
            second = trace(copied, tuple(given))
        except Exception as error:  # the network's own code
            raise EngineError(
                f"the network fails on other inputs of this shape: {one_line(error)}"
            ) from error
    if second.looked or not first.unknown:
        found = difference(first, second)
        if found:
            raise EngineError(f"the network's calls depend on its data: {found}")
    if first.unknown:
        raise EngineError(first.unknown)
    return first


class _Unheard(chainer.Reporter):
    """Drops what the second pass reports, of links that no reporter knows, too."""

    def report(self, values: dict[str, Any], observer: Any = None) -> None:
        pass
