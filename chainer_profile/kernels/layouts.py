"""Orders in which a batch lies in memory, for a product of matrices for each image or for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from chainer_profile.kernels.windows import Array, Windows


class Order(Enum):
    """Position of the axis of images in memory; a product is for many images unless it is first."""

    FIRST = "before channels, as in Chainer"
    MIDDLE = "between channels and pixels"
    LAST = "after pixels"


@dataclass(frozen=True)
class Layout:
    """An order in memory of arrays (images, channels, ...), for a convolution of these windows."""

    order: Order
    windows: Windows

    @property
    def joins_images(self) -> bool:
        """Whether one matrix has the pixels of all images, and not a matrix for each image."""
        return self.order is not Order.FIRST

    def _axes(self, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Permutations of the axes of an array into this order, and back."""
        n_after = len(self.windows.dims) if self.order is Order.MIDDLE else 0
        return _permutations(ndim, ndim - n_after)

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """Make an uninitialised array in this layout; ``shape`` is (images, channels, ...)."""
        if not self.joins_images:
            return np.empty(shape, dtype)
        axes, back = self._axes(len(shape))
        return np.empty([shape[axis] for axis in axes], dtype).transpose(back)

    def arrange(self, array: Array) -> Array:
        """Return an array in this layout: itself, or a copy if its order in memory differs."""
        if not self.joins_images:
            return np.ascontiguousarray(array)
        axes, back = self._axes(array.ndim)
        return np.ascontiguousarray(array.transpose(axes)).transpose(back)

    def matrices(self, array: Array, n_offsets: int = 1) -> Array:
        """View an array in this layout as matrices: channels are rows, pixels are columns.

        The matrices are (groups, rows of a group, pixels of all images) if images are joined, or
        else (images, groups, rows, pixels). Columns of windows have a row for each channel and each
        of the ``n_offsets``.
        """
        groups = self.windows.groups
        shape = groups, array.shape[1] * n_offsets // groups, -1
        if not self.joins_images:
            return array.reshape(len(array), *shape)
        return array.transpose(self._axes(array.ndim)[0]).reshape(shape)


@lru_cache(maxsize=64)
def _permutations(ndim: int, before: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation that moves the first axis before axis ``before``, and its inverse."""
    axes = (*range(1, before), 0, *range(before, ndim))
    return axes, tuple(map(axes.index, range(ndim)))
