"""One forward pass as a list of calls: which function took what from which."""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
from chainer.functions.array.reshape import Reshape

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.protocol import EngineError, flat_arrays
from chainer_profile.measure.hooks import WalkHook


@dataclass(frozen=True)
class Value:
    """An array that is made anew in every pass: an input of the network, or a call's output.

    Attributes:
        number: Tells it from the others.
        shape: Its shape.
        dtype: Its type.
    """

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False)
class Call:
    """One function call.

    Attributes:
        index: Its place in the order of calls, which is its layer's index; -1 for a change of an
            input's shape outside of all functions, as ``L.Linear`` makes it of an array.
        function: The function, with its settings and without its part of a graph.
        inputs: What it takes: a :class:`Value`, or an array that is the same in every pass (a
            parameter, a constant).
        outputs: What it gives; None for an output that is not there. Empty where it takes nothing
            but what is the same in every pass: then its outputs are so as well.
    """

    index: int
    function: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Value | None, ...]

    @property
    def name(self) -> str:
        """Chainer's name of the function."""
        return str(self.function._impl_name)


@dataclass(frozen=True, eq=False)
class Trace:
    """The calls of one forward pass, and where its results come from.

    Attributes:
        calls: All calls, in order; calls that others make within themselves are left out, since
            those make them again.
        inputs: The network's inputs.
        outputs: For every array that the network gives, in order, the value that it is.
        results: These arrays.
        result: What the network gave, for its form: a variable, or a tuple or dict of them.
    """

    calls: tuple[Call, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    results: tuple[Any, ...]
    result: Any


class _Tracer:
    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.calls: list[Call] = []
        self.values: dict[int, Value] = {}
        # An array that is gone could give its identity to another one.
        self._alive: list[Any] = []
        self._values = 0
        self._count = 0
        self._depth = 0
        self._outputs: tuple[Any, ...] = ()
        self._inputs = inputs
        self.inputs = tuple(self.value(array) for array in inputs)

    def value(self, array: Any) -> Value:
        """A new value that this array is."""
        # Not the number of values: a function may give the array that it took.
        self._values += 1
        value = Value(
            self._values - 1, tuple(int(side) for side in array.shape), np.dtype(array.dtype)
        )
        self._alive.append(array)
        self.values[id(array)] = value
        return value

    def _source(self, array: Any) -> Any:
        """The value that an array is; the array itself where it is none."""
        known = self.values.get(id(array))
        if known is not None or array is None:
            return array if known is None else known
        for number, source in enumerate(self._inputs):
            if _is_reshaped(array, source):
                value = self.value(array)
                self.calls.append(Call(-1, Reshape(value.shape), (self.inputs[number],), (value,)))
                return value
        return array

    @property
    def hook(self) -> WalkHook:
        """What tells of the calls."""
        return WalkHook(self._begin, self._end)

    def _begin(self, function: Any, in_data: tuple[Any, ...], *_: Any) -> None:
        self._count += 1
        self._depth += 1
        if self._depth == 1:
            inputs = tuple(self._source(array) for array in in_data)
            self._running = self._count - 1, _without_graph(function), inputs

    def _end(self, function: Any, in_data: tuple[Any, ...], outputs: Any, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        index, plain, inputs = self._running
        made: tuple[Value | None, ...] = ()
        if any(isinstance(source, Value) for source in inputs):
            made = tuple(None if array is None else self.value(array) for array in outputs)
        else:
            self._alive += outputs
        self.calls.append(Call(index, plain, inputs, made))


def _is_reshaped(array: Any, source: Any) -> bool:
    """Whether an array is another one with other axes: the same numbers in the same order."""
    alike = array.size == source.size and array.dtype == source.dtype
    if not alike or not (array.flags.c_contiguous and source.flags.c_contiguous):
        return False
    return bool(_address(array) == _address(source))


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def _without_graph(function: Any) -> Any:
    """The function as it was made, before its call."""
    plain = copy.copy(function)
    inner = getattr(plain, "_function", None)
    if inner is not None:  # an old-style function in its adapter, which refers back to it
        plain._function = copy.copy(inner)
        plain._function._node = weakref.ref(plain)
    return plain


def trace(model: Any, inputs: tuple[Any, ...]) -> Trace:
    """Run the network once, in test mode, and note its calls.

    Args:
        model: The network, or any callable of arrays.
        inputs: Its arguments, arrays.

    Raises:
        EngineError: The network fails, or gives something that no function made.
    """
    tracer = _Tracer(inputs)
    with (
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
        tracer.hook,
    ):
        try:
            result = model(*inputs)
        except Exception as error:
            raise EngineError(f"the network fails: {one_line(error)}") from error
    results = flat_arrays(result)
    outputs = []
    for number, array in enumerate(results):
        value = tracer.values.get(id(array))
        if value is None:
            raise EngineError(
                f"output {number} of the network is an array that no Chainer function made: "
                "make it with functions of chainer.functions"
            )
        outputs.append(value)
    return Trace(tuple(tracer.calls), tracer.inputs, tuple(outputs), results, result)


def difference(one: Trace, other: Trace) -> str:
    """What depends on the network's data, by two passes on different inputs; empty if nothing."""
    for a, b in zip(one.calls, other.calls, strict=False):
        if type(a.function) is not type(b.function) or a.name != b.name:
            return f"call {a.index} was {a.name} for one input, and {b.name} for another"
        if [v and v.shape for v in a.outputs] != [v and v.shape for v in b.outputs]:
            return f"the outputs of call {a.index}, {a.name}, have other shapes for another input"
        for x, y in zip(a.inputs, b.inputs, strict=False):
            known = isinstance(x, Value), isinstance(y, Value)
            if known[0] != known[1] or (known[0] and x.number != y.number):
                return f"call {a.index}, {a.name}, takes its input from elsewhere"
            if not known[0] and x is not y and not _equal(x, y):
                return (
                    f"call {a.index}, {a.name}, takes an array that was computed outside of "
                    "Chainer's functions"
                )
        if not _settings_equal(a.function, b.function):
            return f"call {a.index}, {a.name}, has other settings for another input"
    if len(one.calls) != len(other.calls):
        return f"{len(one.calls)} calls for one input, and {len(other.calls)} for another"
    return ""


def _equal(x: Any, y: Any) -> bool:
    if x is None or y is None:
        return x is y
    same = x.shape == y.shape and x.dtype == y.dtype
    return bool(same and (x == y).all())


def _settings_equal(a: Any, b: Any) -> bool:
    """Whether the plain settings of two functions are the same."""
    plain = (int, float, bool, str, tuple, type(None))
    first, second = ({k: v for k, v in vars(f).items() if isinstance(v, plain)} for f in (a, b))
    return all(
        first[name] == second[name]
        for name in first.keys() & second.keys()
        if not name.startswith("_")
    )


def require_static(model: Any, inputs: tuple[Any, ...]) -> Trace:
    """The calls of a network that are the same for every input of these shapes.

    Two passes are compared: on the inputs, and on them turned round along their last axis.

    Raises:
        EngineError: They differ, or the network fails.
    """
    first = trace(model, inputs)
    second = trace(model, tuple(turned(array) for array in inputs))
    found = difference(first, second)
    if found:
        raise EngineError(f"the network's calls depend on its data: {found}")
    return first


def turned(array: Any) -> Any:
    """An array of the same values in another order: what is a valid input stays one."""
    flat = array.reshape(-1)[::-1].copy()
    return flat.reshape(array.shape)
