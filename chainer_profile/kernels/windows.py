"""The windows of a convolution or pooling, and where they lie in an image."""

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
    """Where the windows of a convolution or pooling lie in an image, along every axis."""

    ksize: Sizes
    stride: Sizes
    pad: Sizes
    dilate: Sizes
    dims: Sizes
    outs: Sizes
    groups: int = 1

    def __post_init__(self) -> None:
        sizes = zip(self.outs, self.ksize, self.stride, self.dilate, strict=True)
        #: Size of the image that the windows cover, padding included.
        self.covered = tuple((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in sizes)
        single = prod(self.ksize) == 1 and prod(self.stride) == 1
        #: Whether each pixel of the image is a window.
        self.is_image = single and not any(self.pad) and self.outs == self.dims
        #: Whether the one window is the image.
        self.is_whole = prod(self.outs) == 1 and not any(self.pad) and self.ksize == self.dims

    @cached_property
    def places(self) -> list[tuple[Index, Index]]:
        """For each place of a window its indexes in columns and in the padded image."""
        return [
            (
                (*_ALL, *place),
                (
                    *_ALL,
                    *(
                        slice(k * d, k * d + s * (o - 1) + 1, s)
                        for k, d, s, o in zip(
                            place, self.dilate, self.stride, self.outs, strict=True
                        )
                    ),
                ),
            )
            for place in product(*map(range, self.ksize))
        ]

    @cached_property
    def along(self) -> list[list[tuple[slice, slice]]]:
        """For each axis its places in a window, each with its slices of image and windows."""
        axes = zip(
            self.ksize, self.stride, self.pad, self.dilate, self.dims, self.outs, strict=True
        )
        return [[_along(place * d, s, p, n, o) for place in range(k)] for k, s, p, d, n, o in axes]

    @cached_property
    def within(self) -> list[tuple[Index, Index, Index]]:
        """For each place its indexes in columns, in the windows, and in the image itself."""
        indexes = []
        for place in product(*map(range, self.ksize)):
            image, which = zip(*map(list.__getitem__, self.along, place), strict=True)
            indexes.append(((*_ALL, *place, *which), (*_ALL, *which), (*_ALL, *image)))
        return indexes

    @cached_property
    def meet_image(self) -> bool:
        """Whether each window, and each place of a window, lies on the image and not on padding."""
        for k, s, p, d, size, n in zip(
            self.ksize, self.stride, self.pad, self.dilate, self.dims, self.outs, strict=True
        ):
            lies = np.arange(n)[:, None] * s + np.arange(k) * d - p
            on_image = (lies >= 0) & (lies < size)
            if not (on_image.any(axis=0).all() and on_image.any(axis=1).all()):
                return False
        return True

    @cached_property
    def inner(self) -> tuple[Index, Index]:
        """Indexes of the covered image where the image lies, and of the image that lies there."""
        sizes = list(zip(self.pad, self.dims, self.covered, strict=True))
        return (
            (*_ALL, *(slice(p, min(p + size, whole)) for p, size, whole in sizes)),
            (*_ALL, *(slice(0, max(0, min(size, whole - p))) for p, size, whole in sizes)),
        )

    @cached_property
    def is_padded(self) -> bool:
        """Whether some windows lie on padding."""
        return any(self.pad) or any(map(gt, self.covered, self.dims))

    @cached_property
    def reversed(self) -> Windows | None:
        """The windows by which a deconvolution of stride 1 is a convolution; None for others."""
        pad = tuple(
            (k - 1) * d - p for k, d, p in zip(self.ksize, self.dilate, self.pad, strict=True)
        )
        if prod(self.stride) != 1 or min(pad) < 0:
            return None
        return Windows(self.ksize, self.stride, pad, self.dilate, self.outs, self.dims, self.groups)


def _along(first_place: int, stride: int, pad: int, size: int, outs: int) -> tuple[slice, slice]:
    """Slices of an axis and of its windows, where a place of the windows lies on the axis."""
    first = max(0, -(-(pad - first_place) // stride))
    last = min(outs, (size - 1 + pad - first_place) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride + first_place - pad
    return slice(begin, begin + (last - first - 1) * stride + 1, stride), slice(first, last)
