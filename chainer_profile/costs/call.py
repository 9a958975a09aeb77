"""Input and result of formulas: shapes and types of arrays, a call, and its work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Shape = tuple[int, ...]

#: Name and bytes of a data type, cached, because NumPy computes both at every access.
dtype_name = cache(lambda dtype: str(np.dtype(dtype)))
_itemsize = cache(lambda dtype: int(np.dtype(dtype).itemsize))


@dataclass(frozen=True)
class ArraySpec:
    """Shape of an array, and the name of its data type, such as ``float32``."""

    shape: Shape
    dtype: str

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """The spec of an array, a Variable or its node; a missing array has no elements."""
        if array is None or array.shape is None:
            return cls((0,), "float32")
        return cls(tuple(int(n) for n in array.shape), dtype_name(array.dtype))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, if it is contiguous."""
        return self.size * _itemsize(self.dtype)


Specs = tuple[ArraySpec, ...]


def specs_of(arrays: Iterable[Any]) -> Specs:
    return tuple(map(ArraySpec.of, arrays))


@dataclass(frozen=True)
class Work:
    """Work of a call; docs/functions.md says how it is counted."""

    #: Floating-point operations; a multiply-add is two.
    flops: int
    #: Bytes that it must read, and write.
    nbytes_read: int
    nbytes_written: int
    #: Multiply-adds of matrix products and convolutions, which are in flops as well.
    macs: int = 0
    #: Whether operations and bytes are approximate.
    about: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.nbytes_read + self.nbytes_written

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.nbytes_read + other.nbytes_read,
            self.nbytes_written + other.nbytes_written,
            self.macs + other.macs,
            self.about or other.about,
        )


@dataclass(frozen=True)
class Call:
    """A call of a function, forward or backward, as its formula sees it."""

    #: The function; an old-style function without its adapter.
    function: Any
    #: Shapes and types of arrays; in backward outputs are also those of their gradients.
    inputs: Specs
    outputs: Specs
    #: In backward, which inputs' gradients are computed; empty in forward.
    needed: tuple[bool, ...] = ()

    @property
    def x(self) -> ArraySpec:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> ArraySpec:
        """The first output; its gradient is as large."""
        return self.outputs[0]

    @property
    def largest(self) -> int:
        """Elements of the largest array."""
        return max(array.size for array in (*self.inputs, *self.outputs))

    def read(self, *inputs: int) -> int:
        """Bytes of these inputs, and in backward of the gradients that come in."""
        coming = sum(y.nbytes for y in self.outputs) if self.needed else 0
        return coming + sum(self.inputs[i].nbytes for i in inputs)

    def work(
        self,
        flops: int,
        *,
        macs: int = 0,
        read: int | None = None,
        written: int | None = None,
        about: bool = False,
    ) -> Work:
        """The work of so many operations; by default each array is moved once."""
        # It reads all inputs and writes the outputs; in backward it reads the inputs and the
        # gradients that come in, and writes the gradients that are needed.
        if read is None:
            read = self.read(*range(len(self.inputs)))
        if written is None and self.needed:
            pairs = zip(self.inputs, self.needed, strict=True)
            written = sum(x.nbytes for x, need in pairs if need)
        elif written is None:
            written = sum(y.nbytes for y in self.outputs)
        return Work(max(0, flops), read, written, macs, about)
