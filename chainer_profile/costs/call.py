"""What formulas work with: shapes and types of arrays, a call, and the work of a call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

Shape = tuple[int, ...]
T = TypeVar("T")

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


Specs = tuple[ArraySpec, ...]


@dataclass(frozen=True)
class Work:
    """Work of one call; :mod:`chainer_profile.costs.work` says how it is counted.

    Attributes:
        flops: Floating-point operations; a multiply-add is two.
        nbytes_read: Bytes that it must read.
        nbytes_written: Bytes that it must write.
        macs: Multiply-adds of matrix products and convolutions, which are in flops as well.
        about: Whether operations and bytes are approximate.
    """

    flops: int
    nbytes_read: int
    nbytes_written: int
    macs: int = 0
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


class Call:
    """One call of a function, forward or backward, as its formula sees it.

    Attributes:
        function: The function: of an old-style one that itself, not its adapter.
        inputs: Shapes and types of the input arrays.
        outputs: Those of the output arrays; in backward also those of their gradients.
        needed: In backward, which inputs' gradients are computed; empty in forward.
        inputs_read: Bytes read of each input, once the work is known.
    """

    def __init__(
        self, function: Any, inputs: Specs, outputs: Specs, needed: tuple[bool, ...] = ()
    ) -> None:
        self.function = function
        self.inputs = inputs
        self.outputs = outputs
        self.needed = needed
        self.inputs_read = tuple(x.nbytes for x in inputs)

    @property
    def x(self) -> ArraySpec:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> ArraySpec:
        """The first output; its gradient is as large."""
        return self.outputs[0]

    def kept(self, name: str, like: ArraySpec) -> int:
        """Bytes of an array that the function keeps; before it does, of one like this."""
        value: Any = getattr(self.function, name, None)
        return int(value.nbytes) if hasattr(value, "nbytes") else like.nbytes

    def work(
        self,
        flops: int,
        *,
        macs: int = 0,
        inputs: Sequence[int] | Mapping[int, int] | None = None,
        gradients: int | None = None,
        others: int = 0,
        written: int | None = None,
    ) -> Work:
        """The work of the call.

        Args:
            flops: All its operations.
            macs: Multiply-adds of products among them.
            inputs: Which inputs it reads, or how many bytes of which; by default all of all.
            gradients: Bytes that a backward reads of the outputs' gradients; by default all.
            others: Bytes that it reads of arrays that the function keeps.
            written: Bytes that it writes; by default the outputs, in backward the gradients that
                are needed.
        """
        if inputs is not None:
            if not isinstance(inputs, Mapping):
                inputs = {i: self.inputs[i].nbytes for i in inputs}
            self.inputs_read = tuple(
                min(inputs.get(i, 0), x.nbytes) for i, x in enumerate(self.inputs)
            )
        made = sum(y.nbytes for y in self.outputs)
        if gradients is None:
            gradients = made if self.needed else 0
        if written is None and self.needed:
            pairs = zip(self.inputs, self.needed, strict=True)
            written = sum(x.nbytes for x, need in pairs if need)
        elif written is None:
            written = made
        return Work(flops, sum(self.inputs_read) + gradients + others, written, macs)

    def products(self, macs: int, beside: int = 0) -> Work:
        """The work of so many multiply-adds, and of operations beside them; each array once."""
        return self.work(2 * macs + beside, macs=macs)


def named(names: str, value: T) -> dict[str, T]:
    """The same for all of these names."""
    return dict.fromkeys(names.split(), value)


def is_a(cls: type, *names: str) -> bool:
    """Whether a class is one of these, known by name, since this needs no Chainer."""
    return any(f"{base.__module__}.{base.__qualname__}" in names for base in cls.__mro__)
