"""The windows of a convolution or pooling, and where they lie in an image.

An offset is the position of an element in a window: one index for each axis, below ``ksize``.
Properties with "slices" in their names have an item for each offset, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from operator import gt
from typing import Any

import numpy as np

#: A NumPy array of floating-point numbers.
Array = Any
Sizes = Sequence[int]
#: An index of an array (images, channels, ...).
Index = tuple[Any, ...]
_ALL = slice(None), slice(None)


@dataclass(eq=False)
class Windows:
    """The windows of a convolution or pooling. Each of the sizes has a number for every axis."""

    ksize: Sizes
    stride: Sizes
    pad: Sizes
    dilate: Sizes
    dims: Sizes  #: Size of the image, without padding.
    outs: Sizes  #: Number of windows.
    groups: int = 1  #: Groups of channels of a convolution.

    def __post_init__(self) -> None:
        sizes = zip(self.outs, self.ksize, self.stride, self.dilate, strict=True)
        #: Size of the padded image, as far as windows cover it.
        self.covered = tuple((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in sizes)
        single = prod(self.ksize) == 1 and prod(self.stride) == 1
        #: Whether every pixel of the image is a window, in order.
        self.is_image = single and not any(self.pad) and self.outs == self.dims
        #: Whether there is one window, the whole image.
        self.is_whole = prod(self.outs) == 1 and not any(self.pad) and self.ksize == self.dims

    @cached_property
    def padded_slices(self) -> list[tuple[Index, Index]]:
        """For each offset, the indexes of its values in the columns and in the padded image."""
        return [
            (
                (*_ALL, *offset),
                (
                    *_ALL,
                    *(
                        slice(k * d, k * d + s * (o - 1) + 1, s)
                        for k, d, s, o in zip(
                            offset, self.dilate, self.stride, self.outs, strict=True
                        )
                    ),
                ),
            )
            for offset in product(*map(range, self.ksize))
        ]

    @cached_property
    def axis_slices(self) -> list[list[tuple[slice, slice]]]:
        """For each offset along each axis, where it lies on the image, and in which windows."""
        axes = zip(
            self.ksize, self.stride, self.pad, self.dilate, self.dims, self.outs, strict=True
        )
        return [
            [_axis_slices(offset * d, s, p, n, o) for offset in range(k)]
            for k, s, p, d, n, o in axes
        ]

    @cached_property
    def image_slices(self) -> list[tuple[Index, Index, Index]]:
        """For each offset, the indexes of its values in the columns, the windows and the image.

        Values in the padding are left out.
        """
        indexes = []
        for offset in product(*map(range, self.ksize)):
            image, which = zip(*map(list.__getitem__, self.axis_slices, offset), strict=True)
            indexes.append(((*_ALL, *offset, *which), (*_ALL, *which), (*_ALL, *image)))
        return indexes

    @cached_property
    def meet_image(self) -> bool:
        """Whether each window, and each offset in some window, lies on a pixel of the image."""
        for k, s, p, d, size, n in zip(
            self.ksize, self.stride, self.pad, self.dilate, self.dims, self.outs, strict=True
        ):
            lies = np.arange(n)[:, None] * s + np.arange(k) * d - p
            on_image = (lies >= 0) & (lies < size)
            if not (on_image.any(axis=0).all() and on_image.any(axis=1).all()):
                return False
        return True

    @cached_property
    def unpadded(self) -> tuple[Index, Index]:
        """Indexes of the image in the covered image, and of this part in the image."""
        sizes = list(zip(self.pad, self.dims, self.covered, strict=True))
        return (
            (*_ALL, *(slice(p, min(p + size, whole)) for p, size, whole in sizes)),
            (*_ALL, *(slice(0, max(0, min(size, whole - p))) for p, size, whole in sizes)),
        )

    @cached_property
    def is_padded(self) -> bool:
        """Whether some windows reach into the padding."""
        return any(self.pad) or any(map(gt, self.covered, self.dims))

    @cached_property
    def reversed(self) -> Windows | None:
        """The windows of a convolution that equals the deconvolution; None without one."""
        pad = tuple(
            (k - 1) * d - p for k, d, p in zip(self.ksize, self.dilate, self.pad, strict=True)
        )
        if prod(self.stride) != 1 or min(pad) < 0:
            return None
        return Windows(self.ksize, self.stride, pad, self.dilate, self.outs, self.dims, self.groups)


def _axis_slices(offset: int, stride: int, pad: int, size: int, outs: int) -> tuple[slice, slice]:
    """Slices of an image's axis and of the windows along it, where an offset lies on the image."""
    first = max(0, -(-(pad - offset) // stride))
    last = min(outs, (size - 1 + pad - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride + offset - pad
    return slice(begin, begin + (last - first - 1) * stride + 1, stride), slice(first, last)
