"""Calls of Chainer's functions with their gradients, and numbers that count operations."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
from scipy import special

from chainer_profile.costs import registry
from chainer_profile.costs.work import ArraySpec, Work, backward_work, following, forward_work
from chainer_profile.measure.hooks import WalkHook

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
        needed = needed or self.needed
        work = backward_work(self.function, *self.specs, needed) or self.followed(needed)
        assert work is not None
        return work

    def followed(self, needed: tuple[bool, ...]) -> Work | None:
        """The work by the functions that its backward calls."""
        followed: list[Any] = []
        running: list[Any] = []

        def begin(function: Any, arrays: Any, backward: bool, _frame: Any) -> None:
            if function is self.function and backward:
                followed.append(following(function, arrays))
            running.append(function)

        def end(function: Any, arrays: Any, outputs: Any, _frame: Any) -> None:
            running.pop()
            if running == [self.function] and followed[0] is not None:
                followed[0].call(function, arrays, outputs)

        assert self.function.inputs is not None
        xs = [
            v.get_variable() for v, need in zip(self.function.inputs, needed, strict=True) if need
        ]
        with WalkHook(begin, end):
            chainer.grad(list(self.ys), xs, list(map(chainer.Variable, self.gys)))
        return followed[0] and followed[0].work()


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
    """Counts operations, and notes those that had been done on the same operands before."""

    def __init__(self) -> None:
        self.operations = 0
        self.repeated: list[str] = []
        # Operands are kept, so that no other one gets their identity.
        self._done: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def count(self, name: str, *operands: Any) -> None:
        self.operations += 1
        known = [id(o) if isinstance(o, Number) else repr(float(o)) for o in operands]
        if name in ("+", "*"):
            known.sort(key=str)
        key = (name, *known)
        if key in self._done:
            self.repeated.append(name)
        self._done[key] = operands


def operator(name: str, result: Callable[..., float]) -> Callable[..., Any]:
    """An operator of two numbers; arrays are left to NumPy, which calls it for each element."""

    def method(self: Number, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented
        self.tally.count(name, self, other)
        return Number(float(result(self.value, float(other))), self.tally)

    return method


def reflected(name: str, result: Callable[..., float]) -> Callable[..., Any]:
    """The same with the number behind."""

    def method(self: Number, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented
        self.tally.count(name, other, self)
        return Number(float(result(float(other), self.value)), self.tally)

    return method


def comparison(name: str, result: Callable[..., bool]) -> Callable[..., bool]:
    def method(self: Number, other: Any) -> bool:
        self.tally.count(name, self, other)
        return bool(result(self.value, float(other)))

    return method


class Number:
    """A number that counts each operation on it; the count is that of all numbers of a tally."""

    __slots__ = ("tally", "value")

    def __init__(self, value: float, tally: Tally) -> None:
        self.value = value
        self.tally = tally

    __add__, __radd__ = operator("+", op.add), reflected("+", op.add)
    __sub__, __rsub__ = operator("-", op.sub), reflected("-", op.sub)
    __mul__, __rmul__ = operator("*", op.mul), reflected("*", op.mul)
    __truediv__, __rtruediv__ = operator("/", op.truediv), reflected("/", op.truediv)
    __pow__, __rpow__ = operator("**", op.pow), reflected("**", op.pow)
    __lt__, __le__ = comparison("<", op.lt), comparison("<=", op.le)
    __gt__, __ge__ = comparison(">", op.gt), comparison(">=", op.ge)

    def _of(self, name: str, value: float) -> Number:
        self.tally.count(name, self)
        return Number(value, self.tally)

    def __neg__(self) -> Number:
        return self._of("neg", -self.value)

    def __abs__(self) -> Number:
        return self._of("abs", abs(self.value))

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return float(self.value)


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
        self._kept: dict[str, Any] = {}
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
            self.tally.count(name, *elements)
            function = ELEMENTS.get(name) or getattr(math, name, None) or getattr(special, name)
            return Number(float(function(*map(float, elements))), self.tally)

        return np.frompyfunc(one, len(operands), 1)(*operands)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        flags = np.vectorize(bool, otypes=[bool])(condition)
        # Zeros of their own: one for all would be seen as the same sum again.
        shape = np.broadcast_shapes(*(np.shape(a) for a in (condition, yes, no)))
        zeros = numbers(np.zeros(shape), self.tally)
        first, second = (zeros if isinstance(a, int) else a for a in (yes, no))
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
        if name not in self._kept:
            self._kept[name] = numbers(getattr(self.f, name), self.tally)
        return self._kept[name]

    def random(self, name: str, shape: tuple[int, ...]) -> Any:
        self.tally.operations += math.prod(shape)
        return numbers(getattr(self.f, name), self.tally)

    def __getattr__(self, name: str) -> Any:
        if name in ("exp", "log", "sqrt", "tanh", "sign"):
            return lambda array: self.apply(name, array)
        if name in ("count", "products", "take", "take_part", "copy", "new", "matmul", "each"):
            raise NotOnNumbersError(name)
        raise AttributeError(name)
