"""Orders of a batch in memory, in which one product of matrices serves one image or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

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

    def _axis(self, ndim: int) -> int:
        """The axis of images in memory."""
        middle = ndim - 1 - len(self.windows.dims)
        return {Order.FIRST: 0, Order.MIDDLE: middle, Order.LAST: ndim - 1}[self.order]

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """An array in this layout, without values."""
        axis = self._axis(len(shape))
        images, *others = shape
        others.insert(axis, images)
        return np.moveaxis(np.empty(others, dtype), axis, 0)

    def of(self, array: Array) -> Array:
        """An array in this layout: itself, or a copy if it lies otherwise."""
        axis = self._axis(array.ndim)
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, axis)), axis, 0)

    def matrices(self, array: Array, places: int = 1) -> Array:
        """A view of an array in this layout, with channels (and places) as rows, pixels as columns.

        (groups, rows of a group, pixels of all images), or (images, groups, ...) for each image.
        """
        groups = self.windows.groups
        shape = groups, array.shape[1] * places // groups, -1
        if not self.joins_images:
            return array.reshape(len(array), *shape)
        return np.moveaxis(array, 0, self._axis(array.ndim)).reshape(shape)
