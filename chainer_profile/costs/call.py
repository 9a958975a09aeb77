"""Input and result of formulas: specs of arrays, a call, and its operations and bytes."""

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
    """Shape of an array, and name of its data type, such as ``float32``."""

    shape: Shape
    dtype: str

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """Make the spec of an array, a Variable or its node; None counts as an empty array."""
        if array is None or array.shape is None:
            return cls((0,), "float32")
        return cls(tuple(int(n) for n in array.shape), dtype_name(array.dtype))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of a contiguous array in bytes."""
        return self.size * _itemsize(self.dtype)


Specs = tuple[ArraySpec, ...]


def specs_of(arrays: Iterable[Any]) -> Specs:
    return tuple(map(ArraySpec.of, arrays))


@dataclass(frozen=True)
class Work:
    """Operations and bytes of a call; docs/functions.md explains how they are counted."""

    flops: int  #: Floating-point operations; a multiply-add is two.
    nbytes_read: int  #: Fewest bytes that the call reads.
    nbytes_written: int  #: Fewest bytes that the call writes.
    macs: int = 0  #: Multiply-adds of matrix products and convolutions; ``flops`` includes them.
    about: bool = False  #: Whether operations and bytes are approximate.

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
    """The argument of a formula: a call of a function, forward or backward."""

    function: Any  #: The function; an old-style function without its adapter.
    inputs: Specs
    outputs: Specs  #: In backward, the gradients of the outputs have the same shapes and types.
    #: In backward, whether each input needs a gradient; empty in forward.
    needed: tuple[bool, ...] = ()

    @property
    def x(self) -> ArraySpec:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> ArraySpec:
        """The first output; in backward also the spec of its gradient."""
        return self.outputs[0]

    @property
    def largest(self) -> int:
        """Number of elements of the largest array."""
        return max(array.size for array in (*self.inputs, *self.outputs))

    def read(self, *inputs: int) -> int:
        """Bytes of the inputs with these indices, plus the incoming gradients in backward."""
        gradients = sum(y.nbytes for y in self.outputs) if self.needed else 0
        return gradients + sum(self.inputs[i].nbytes for i in inputs)

    def work(
        self,
        flops: int,
        *,
        macs: int = 0,
        read: int | None = None,
        written: int | None = None,
        about: bool = False,
    ) -> Work:
        """Make the :class:`Work` of this call.

        Args:
            flops: Floating-point operations.
            macs: Multiply-adds among them.
            read: Bytes read. Default: all inputs, plus the incoming gradients in backward.
            written: Bytes written. Default: all outputs; in backward the needed gradients.
            about: Whether operations and bytes are approximate.
        """
        if read is None:
            read = self.read(*range(len(self.inputs)))
        if written is None and self.needed:
            pairs = zip(self.inputs, self.needed, strict=True)
            written = sum(x.nbytes for x, need in pairs if need)
        elif written is None:
            written = sum(y.nbytes for y in self.outputs)
        return Work(max(0, flops), read, written, macs, about)
