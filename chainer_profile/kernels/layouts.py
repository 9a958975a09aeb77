"""Orders of a batch in memory, in which one product of matrices serves one image or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from chainer_profile.kernels.windows import Array, Windows


class Order(Enum):
    """The place of the axis of images in memory; one product serves many unless it is first."""

    FIRST = "before channels, as in Chainer"
    MIDDLE = "between channels and pixels"
    LAST = "after pixels"


@dataclass(frozen=True)
class Layout:
    """How arrays (images, channels, ...) lie in memory, for a convolution of these windows."""

    order: Order
    windows: Windows

    @property
    def joins_images(self) -> bool:
        """Whether the images are one matrix, or a matrix each."""
        return self.order is not Order.FIRST

    def _axes(self, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes of an array (images, channels, ...) in memory, and back."""
        return _axes(ndim, ndim - (len(self.windows.dims) if self.order is Order.MIDDLE else 0))

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """An array in this layout, without values."""
        if not self.joins_images:
            return np.empty(shape, dtype)
        axes, back = self._axes(len(shape))
        return np.empty([shape[axis] for axis in axes], dtype).transpose(back)

    def of(self, array: Array) -> Array:
        """An array in this layout: itself, or a copy if it lies otherwise."""
        if not self.joins_images:
            return np.ascontiguousarray(array)
        axes, back = self._axes(array.ndim)
        return np.ascontiguousarray(array.transpose(axes)).transpose(back)

    def matrices(self, array: Array, places: int = 1) -> Array:
        """A view of an array in this layout, with channels (and places) as rows, pixels as columns.

        (groups, rows of a group, pixels of all images), or (images, groups, ...) for each image.
        """
        groups = self.windows.groups
        shape = groups, array.shape[1] * places // groups, -1
        if not self.joins_images:
            return array.reshape(len(array), *shape)
        return array.transpose(self._axes(array.ndim)[0]).reshape(shape)


@lru_cache(maxsize=64)
def _axes(ndim: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes with the first one moved before that of ``place``, and the axes that undo it."""
    axes = (*range(1, place), 0, *range(place, ndim))
    return axes, tuple(map(axes.index, range(ndim)))
