"""Arithmetic on arrays that have a shape and no values: it counts instead of computing.

A formula is a function of a :class:`Call`. It writes a Chainer function down as its NumPy code
would, on the call's arrays; each operation adds to the call's tally, and what an operation takes
has been read. So a formula shows what it counts, and a test may run it on numbers as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Axis = int | Sequence[int] | None


#: Name of a data type, and bytes of one: NumPy makes both anew each time.
dtype_name = cache(lambda dtype: str(np.dtype(dtype)))
_itemsize = cache(lambda dtype: int(np.dtype(dtype).itemsize))


@dataclass(frozen=True)
class ArraySpec:
    """Shape and data type of an array.

    Attributes:
        shape: Its shape.
        dtype: Name of its data type, such as ``float32``.
    """

    shape: Shape
    dtype: str

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """That of an array, a Variable or a variable's node; no array is kept."""
        return cls(tuple(int(n) for n in array.shape), dtype_name(array.dtype))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, if it is contiguous."""
        return self.size * _itemsize(self.dtype)


@dataclass(frozen=True)
class Work:
    """Work of one call; :mod:`chainer_profile.costs.work` says how it is counted.

    Attributes:
        flops: Floating-point operations; a multiply-add is two.
        nbytes_read: Bytes that it must read.
        nbytes_written: Bytes that it must write.
        macs: Multiply-adds of matrix products and convolutions, which are in flops as well.
    """

    flops: int
    nbytes_read: int
    nbytes_written: int
    macs: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.nbytes_read + self.nbytes_written

    @property
    def intensity(self) -> float | None:
        """Operations for each byte; None where no byte moves."""
        return self.flops / self.nbytes if self.nbytes else None

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.nbytes_read + other.nbytes_read,
            self.nbytes_written + other.nbytes_written,
            self.macs + other.macs,
        )


class Memory:
    """What arrays are views of: an array that was given, or one that was computed."""

    __slots__ = ("itemsize", "read", "size")

    def __init__(self, size: int, itemsize: int = 0) -> None:
        self.size = size
        self.itemsize = itemsize
        """Bytes of an element of an array that was given; 0 for one that was computed."""
        self.read = 0
        """Elements of it that were read."""


class Array:
    """An array without values. Arithmetic counts one operation for each element of the result."""

    __slots__ = ("call", "memory", "shape")
    # So that NumPy's and CuPy's arrays leave ``their * this`` to this class.
    __array_ufunc__ = None

    def __init__(self, call: Call, shape: Shape, memory: Memory | None = None) -> None:
        self.call = call
        self.shape = shape
        self.memory = memory or Memory(math.prod(shape))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    # -- one operation an element

    def _with(self, *others: Any) -> Array:
        return self.call.each(1, self, *others)

    def __add__(self, other: Any) -> Array:
        return self._with(other)

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __add__
    __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __neg__(self) -> Array:
        return self._with()

    __abs__ = __neg__

    def __and__(self, other: Any) -> Array:
        """Logic on the results of comparisons is no floating-point operation."""
        return self.call.each(0, self, other)

    # -- reductions: n elements to m take n - m operations

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Array:
        """Sum over axes, by default over all."""
        result = Array(self.call, reduced(self.shape, axis, keepdims))
        self.call.take(self)
        self.call.flops += max(0, self.size - result.size)
        return result

    max = min = prod = sum

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Array:
        """Sum over axes, and a division."""
        return self.sum(axis, keepdims) / 1

    # -- views

    def view(self, shape: Sequence[int]) -> Array:
        """The same memory under another shape: nothing is done."""
        return Array(self.call, tuple(shape), self.memory)

    def reshape(self, shape: Sequence[int]) -> Array:
        """The same elements in another shape."""
        return self.view(shape)


def reduced(shape: Shape, axis: Axis, keepdims: bool = False) -> Shape:
    """Shape that remains after a reduction over axes; None stands for all."""
    if axis is None:
        axes = set(range(len(shape)))
    else:
        axes = {a % len(shape) for a in ((axis,) if isinstance(axis, int) else axis)}
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


class Call:
    """One call of a function, forward or backward, as its formula sees it.

    Attributes:
        function: The function: of an old-style one that itself, not its adapter.
        inputs: Shapes and types of the input arrays.
        outputs: Those of the output arrays.
        needed: In backward, which inputs' gradients are computed; empty in forward.
        x: The inputs, to count with.
        y: The outputs, to count with, for backward formulas that use them.
        gy: In backward, the gradients of the outputs; all of them are taken to come in.
        flops: Operations so far.
        macs: Multiply-adds of products among them.
    """

    def __init__(
        self,
        function: Any,
        inputs: tuple[ArraySpec, ...],
        outputs: tuple[ArraySpec, ...],
        needed: tuple[bool, ...] = (),
    ) -> None:
        self.function = function
        self.inputs = inputs
        self.outputs = outputs
        self.needed = needed
        self.flops = 0
        self.macs = 0
        self._given: list[Memory] = []
        self._kept: dict[str, Array] = {}
        self._more_read = 0
        self._more_written = 0
        self.x = tuple(self.given(spec) for spec in inputs)
        self.y = tuple(self.given(spec) for spec in outputs)
        self.gy = tuple(self.given(spec) for spec in outputs)

    @property
    def f(self) -> Any:
        """The function, short for formulas."""
        return self.function

    def needs(self, index: int) -> bool:
        """Whether the gradient of an input is computed."""
        return self.needed[index]

    # -- arrays

    def given(self, spec: ArraySpec) -> Array:
        """An array that is there already: it costs bytes when an operation takes it."""
        memory = Memory(spec.size, _itemsize(spec.dtype))
        self._given.append(memory)
        return Array(self, spec.shape, memory)

    def kept(self, name: str, shape: Sequence[int], dtype: str) -> Array:
        """An array that the function keeps as an attribute between forward and backward.

        Args:
            name: The attribute.
            shape: Shape to count with where the attribute is not there (yet).
            dtype: Data type in that case.
        """
        if name not in self._kept:
            value = getattr(self.function, name, None)
            known = hasattr(value, "shape") and hasattr(value, "dtype")
            spec = ArraySpec.of(value) if known else ArraySpec(tuple(shape), dtype)
            self._kept[name] = self.given(spec)
        return self._kept[name]

    def updates(self, array: Array) -> None:
        """Count that an array which was given is overwritten in place."""
        self._more_written += array.memory.size * array.memory.itemsize

    def new(self, shape: Sequence[int]) -> Array:
        """A computed array, whose operations are counted apart."""
        return Array(self, tuple(shape))

    def take(self, *arrays: Any) -> None:
        """Count that arrays are read."""
        for array in arrays:
            if isinstance(array, Array):
                array.memory.read = array.memory.size

    def take_part(self, array: Array, size: int) -> None:
        """Count that so many elements of an array are read."""
        array.memory.read = min(array.memory.size, array.memory.read + size)

    def take_bytes(self, nbytes: int) -> None:
        """Count bytes read of an array that is no input, such as an index."""
        self._more_read += nbytes

    def copy(self, *arrays: Array, shape: Sequence[int] | None = None) -> Array:
        """A copy of arrays, joined in one of this shape: bytes, and no operations."""
        self.take(*arrays)
        return self.new(arrays[0].shape if shape is None else shape)

    # -- operations

    def count(self, flops: int, *arrays: Array, shape: Sequence[int] = ()) -> Array:
        """So many operations on arrays, that make one of this shape."""
        self.flops += flops
        self.take(*arrays)
        return self.new(shape)

    def products(self, macs: int, *arrays: Array, shape: Sequence[int] = ()) -> Array:
        """So many multiply-adds on arrays, that make one of this shape."""
        self.macs += macs
        return self.count(2 * macs, *arrays, shape=shape)

    def each(self, operations: int, *operands: Any) -> Array:
        """So many operations for every element of the operands' common shape."""
        self.take(*operands)
        shape = np.broadcast_shapes(*(getattr(operand, "shape", ()) for operand in operands))
        self.flops += operations * math.prod(shape)
        return Array(self, shape)

    def apply(self, name: str, *operands: Any) -> Array:
        """A function of single elements, such as ``exp``: one operation for each."""
        return self.each(1, *operands)

    def where(self, condition: Any, yes: Any, no: Any) -> Array:
        """Choosing between arrays by a condition: no operation."""
        return self.each(0, condition, yes, no)

    def maximum(self, first: Any, second: Any) -> Array:
        """The larger one: one operation an element."""
        return self.apply("maximum", first, second)

    def minimum(self, first: Any, second: Any) -> Array:
        """The smaller one."""
        return self.apply("minimum", first, second)

    def exp(self, array: Array) -> Array:
        """Exponential."""
        return self.apply("exp", array)

    def log(self, array: Array) -> Array:
        """Natural logarithm."""
        return self.apply("log", array)

    def sqrt(self, array: Array) -> Array:
        """Square root."""
        return self.apply("sqrt", array)

    def tanh(self, array: Array) -> Array:
        """Hyperbolic tangent."""
        return self.apply("tanh", array)

    def sign(self, array: Array) -> Array:
        """-1, 0 or 1."""
        return self.apply("sign", array)

    def sigmoid(self, array: Array) -> Array:
        """Logistic function the way Chainer computes it, by tanh: 4 operations an element."""
        return self.tanh(array * 0.5) * 0.5 + 0.5

    def random(self, name: str, shape: Sequence[int]) -> Array:
        """Numbers drawn at random, one operation each, that the function keeps as an attribute."""
        self.flops += math.prod(shape)
        return self.new(shape)

    def broadcast_to(self, array: Array, shape: Sequence[int]) -> Array:
        """The same elements repeated: a view."""
        return array.view(shape)

    def sum_to(self, array: Array, shape: Shape) -> Array:
        """Sum over the axes along which an array of this shape was broadcast, if any."""
        if array.shape == shape:
            return array
        self.take(array)
        self.flops += max(0, array.size - math.prod(shape))
        return self.new(shape)

    def matmul(self, first: Array, second: Array) -> Array:
        """Product of two matrices, or of stacks of them."""
        shape = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
        shape += (first.shape[-2], second.shape[-1])
        return self.products(math.prod(shape) * first.shape[-1], first, second, shape=shape)

    # -- what it came to

    def work(self, results: Any) -> Work:
        """The work, once a formula has counted.

        Args:
            results: What the formula returned: the outputs, or the gradients of the inputs. Those
                that are views of an array that was given are not written; each of the others is.
        """
        results = (results,) if isinstance(results, Array) else tuple(results)
        specs = self.inputs if self.needed else self.outputs
        written: dict[int, int] = {}
        for i, result in enumerate(results):
            computed = result is not None and result.memory.itemsize == 0
            if computed and (not self.needed or self.needed[i]):
                memory = result.memory
                written[id(memory)] = memory.size * int(np.dtype(specs[i].dtype).itemsize)
        return Work(
            flops=self.flops,
            nbytes_read=sum(m.read * m.itemsize for m in self._given) + self._more_read,
            nbytes_written=sum(written.values()) + self._more_written,
            macs=self.macs,
        )

    def plain_work(self, flops: int) -> Work:
        """So many operations, each array once: what a formula that returns a number means.

        In backward that reads the inputs and the gradients of the outputs, and writes the
        gradients that are needed.
        """
        self.flops = flops
        self.take(*self.x, *(self.gy if self.needed else ()))
        return self.work(
            [self.new(s.shape) for s in (self.inputs if self.needed else self.outputs)]
        )

    @property
    def inputs_read(self) -> tuple[int, ...]:
        """Bytes read of each input."""
        return tuple(x.memory.read * x.memory.itemsize for x in self.x)
