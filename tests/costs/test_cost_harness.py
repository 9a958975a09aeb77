"""Calls of Chainer's functions with their gradients, and numbers that count operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
from scipy import special

from chainer_profile.costs import registry
from chainer_profile.costs.work import ArraySpec, Work, backward_work, forward_work

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    """Numbers of both signs, none near 0."""
    return RNG.uniform(0.2, 0.9, shape) * RNG.choice([-1.0, 1.0], shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.2, 0.9, shape)


def labels(*shape: int, below: int = 3) -> Any:
    return RNG.integers(0, below, shape).astype(np.int32)


def matrices(n: int) -> Any:
    a = RNG.normal(size=(2, n, n))
    return a @ a.transpose(0, 2, 1) + np.eye(n)


@dataclass
class Ran:
    """A call of a Chainer function, with its gradients."""

    function: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    gys: tuple[Any, ...]
    grads: tuple[Any, ...]
    needed: tuple[bool, ...]
    ys: tuple[Any, ...] = ()
    """The outputs as Variables, which hold the graph."""

    @property
    def specs(self) -> tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]:
        return tuple(map(ArraySpec.of, self.inputs)), tuple(map(ArraySpec.of, self.outputs))

    def forward(self) -> Work:
        work = forward_work(self.function, *self.specs)
        assert work is not None
        return work

    def backward(self, needed: tuple[bool, ...] | None = None) -> Work:
        work = backward_work(self.function, *self.specs, needed or self.needed)
        assert work is not None
        return work


class Recorder(chainer.FunctionHook):
    name = "cost-recorder"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.depth = 0

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        if not self.depth:
            self.calls.append((function, in_data))
        self.depth += 1

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        self.depth -= 1


def run(call: Callable[..., Any], *arrays: Any, gradients: bool = True) -> Ran:
    """Call one Chainer function and get the gradients of all its inputs of real numbers."""
    variables = [
        chainer.Variable(a, requires_grad=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a
        for a in arrays
    ]
    with Recorder() as recorder:
        result = call(*variables)
    (function, in_data) = recorder.calls[-1]
    assert len(recorder.calls) == 1
    ys = result if isinstance(result, (tuple, list)) else (result,)
    nodes = function.inputs or ()
    needed = tuple(node.requires_grad for node in nodes)
    gys: tuple[Any, ...] = tuple(np.asarray(real(*y.shape), y.dtype) for y in ys)
    grads: tuple[Any, ...] = ()
    if gradients and any(needed):
        xs = [node.get_variable() for node, need in zip(nodes, needed, strict=True) if need]
        some = iter(chainer.grad(list(ys), xs, [chainer.Variable(gy.copy()) for gy in gys]))
        grads = tuple(
            g if (g := next(some) if need else None) is None else g.array for need in needed
        )
    return Ran(function, in_data, tuple(y.array for y in ys), gys, grads, needed, tuple(ys))


class Tally:
    def __init__(self) -> None:
        self.operations = 0


def scalars(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Leave arrays to NumPy, which calls the method for each element."""

    def wrapped(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else method(self, other)

    return wrapped


class Number:
    """A number that counts each operation on it; the count is that of all numbers of a tally."""

    __slots__ = ("tally", "value")

    def __init__(self, value: float, tally: Tally) -> None:
        self.value = value
        self.tally = tally

    def _of(self, value: float) -> Number:
        self.tally.operations += 1
        return Number(value, self.tally)

    @scalars
    def __add__(self, other: Any) -> Number:
        return self._of(self.value + float(other))

    @scalars
    def __radd__(self, other: Any) -> Number:
        return self._of(float(other) + self.value)

    @scalars
    def __sub__(self, other: Any) -> Number:
        return self._of(self.value - float(other))

    @scalars
    def __rsub__(self, other: Any) -> Number:
        return self._of(float(other) - self.value)

    @scalars
    def __mul__(self, other: Any) -> Number:
        return self._of(self.value * float(other))

    __rmul__ = __mul__

    @scalars
    def __truediv__(self, other: Any) -> Number:
        return self._of(self.value / float(other))

    @scalars
    def __rtruediv__(self, other: Any) -> Number:
        return self._of(float(other) / self.value)

    @scalars
    def __pow__(self, other: Any) -> Number:
        return self._of(self.value ** float(other))

    @scalars
    def __rpow__(self, other: Any) -> Number:
        return self._of(float(other) ** self.value)

    def __neg__(self) -> Number:
        return self._of(-self.value)

    def __abs__(self) -> Number:
        return self._of(abs(self.value))

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return float(self.value)

    def _compared(self, result: bool) -> bool:
        self.tally.operations += 1
        return result

    def __lt__(self, other: Any) -> bool:
        return self._compared(self.value < float(other))

    def __le__(self, other: Any) -> bool:
        return self._compared(self.value <= float(other))

    def __gt__(self, other: Any) -> bool:
        return self._compared(self.value > float(other))

    def __ge__(self, other: Any) -> bool:
        return self._compared(self.value >= float(other))


def numbers(array: Any, tally: Tally) -> Any:
    result = np.empty(array.shape, object)
    for place in np.ndindex(*array.shape):
        result[place] = Number(float(array[place]), tally)
    return result


def values(array: Any) -> Any:
    return np.vectorize(float, otypes=[float])(array)


ELEMENTS: dict[str, Callable[..., float]] = {
    "maximum": max,
    "minimum": min,
    "abs": abs,
    "sign": lambda v: float(np.sign(v)),
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "square": lambda v: v * v,
    "rsqrt": lambda v: 1 / math.sqrt(v),
    "arcsin": math.asin,
    "arccos": math.acos,
    "arctan": math.atan,
    "arctan2": math.atan2,
    "arctanh": math.atanh,
    "fix": math.trunc,
    "lgamma": math.lgamma,
    "polygamma": lambda n, v: float(special.polygamma(n, v)),
}


class NotOnNumbersError(Exception):
    """A formula that counts without computing."""


class NumberCall:
    """A call whose arrays hold numbers that count: it computes what a formula says."""

    def __init__(self, ran: Ran, needed: tuple[bool, ...] = ()) -> None:
        self.tally = Tally()
        self.function = self.f = registry.inner(ran.function)
        self.inputs, self.outputs = ran.specs
        self.needed = needed
        self.x, self.y, self.gy = (
            tuple(numbers(a, self.tally) for a in arrays)
            for arrays in (ran.inputs, ran.outputs, ran.gys)
        )

    def needs(self, index: int) -> bool:
        return self.needed[index]

    def apply(self, name: str, *operands: Any) -> Any:
        def one(*elements: Any) -> Number:
            self.tally.operations += 1
            function = ELEMENTS.get(name) or getattr(math, name, None) or getattr(special, name)
            return Number(float(function(*map(float, elements))), self.tally)

        return np.frompyfunc(one, len(operands), 1)(*operands)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        flags = np.vectorize(bool, otypes=[bool])(condition)
        zero = Number(0.0, self.tally)
        first, second = (np.asarray(zero) if isinstance(a, int) else a for a in (yes, no))
        return np.where(flags, first, second)

    def maximum(self, *operands: Any) -> Any:
        return self.apply("maximum", *operands)

    def minimum(self, *operands: Any) -> Any:
        return self.apply("minimum", *operands)

    def sigmoid(self, array: Any) -> Any:
        return self.apply("tanh", array * 0.5) * 0.5 + 0.5

    def broadcast_to(self, array: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(array, shape)

    def sum_to(self, array: Any, shape: tuple[int, ...]) -> Any:
        lead = array.ndim - len(shape)
        axes = tuple(i + lead for i, n in enumerate(shape) if n == 1 and array.shape[i + lead] != 1)
        return array.sum(axis=(*range(lead), *axes), keepdims=True).reshape(shape)

    def kept(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        return numbers(getattr(self.f, name), self.tally)

    def random(self, name: str, shape: tuple[int, ...]) -> Any:
        self.tally.operations += math.prod(shape)
        return numbers(getattr(self.f, name), self.tally)

    def __getattr__(self, name: str) -> Any:
        if name in ("exp", "log", "sqrt", "tanh", "sign"):
            return lambda array: self.apply(name, array)
        if name in ("count", "products", "take", "take_part", "copy", "new", "matmul", "each"):
            raise NotOnNumbersError(name)
        raise AttributeError(name)
