"""Convolutions, their gradients and deconvolutions as products of matrices, with NumPy.

The columns of a convolution are copies of its windows, (images, channels, offsets in a window,
windows). Their product with W is the output. :mod:`.cost_model` chooses the order in memory. The
functions return None if Chainer's own code is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from chainer_profile.kernels.cost_model import (
    gathers,
    images_at_a_time,
    layout_for_convolution,
    layout_for_deconvolution,
    layout_for_gradient_w,
    n_columns_of,
)
from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.windows import Array, Sizes, Windows


def convolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    """Compute a convolution of x (n, in, ...) with W (out, in / groups, ...)."""
    shape = len(x), len(w), *windows.outs
    layout = layout_for_convolution(x.shape, shape, w.size, windows)
    if layout is None:
        return None
    y: Array = np.empty(shape, x.dtype)
    _convolve(x, w, y, layout)
    return y if b is None else _add_bias(y, b)


def convolution_gradient_w(x: Array, gy: Array, w_shape: Sizes, windows: Windows) -> Array | None:
    """Compute the gradient of a convolution's W, of shape ``w_shape``."""
    n_weights = prod(w_shape)
    layout = layout_for_gradient_w(x.shape, gy.shape, n_weights, windows)
    if layout is None:
        return None
    total = None
    for some, columns in _columns(x, n_weights, layout):
        part = np.matmul(layout.matrices(layout.arrange(gy[some])), columns.swapaxes(-1, -2))
        if not layout.joins_images:
            part = part[0] if len(part) == 1 else part.sum(axis=0)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total.reshape(w_shape)


def deconvolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    """Compute a deconvolution of x with W (in, out / groups, ...).

    With a convolution's gy for x, this is the gradient of its x.
    """
    shape = len(x), w.shape[1] * windows.groups, *windows.dims
    if (reverse := windows.reversed) and gathers(x.shape, shape[1], w.size, windows):
        y: Array = np.empty(shape, x.dtype)
        gathering = layout_for_convolution(x.shape, shape, w.size, reverse)
        gathering = gathering or Layout(Order.FIRST, reverse)
        _convolve(x, _reversed_weights(w, windows.groups), y, gathering)
        return y if b is None else _add_bias(y, b)
    layout = layout_for_deconvolution(x.shape, shape, w.size, windows)
    if layout is None:
        return None
    y = np.empty(shape, x.dtype)
    for some in _batch_slices(x, n_columns_of(y.shape[1], windows), w.size, layout):
        part = layout.empty(y[some].shape, y.dtype) if layout.joins_images else y[some]
        _deconvolve(layout.arrange(x[some]), w, part, layout)
        if layout.joins_images:
            y[some] = part
    return y if b is None else _add_bias(y, b)


def _convolve(x: Array, w: Array, y: Array, layout: Layout) -> None:
    """Compute a convolution into y."""
    # Chainer multiplies by numpy.tensordot, which first copies all windows into another order.
    groups = layout.windows.groups
    matrix = w.reshape(groups, len(w) // groups, -1)
    for some, columns in _columns(x, w.size, layout):
        part = layout.empty(y[some].shape, y.dtype) if layout.joins_images else y[some]
        # If the sum has a single term, multiplying elements is faster than a product of matrices.
        multiply = np.multiply if matrix.shape[-1] == 1 else np.matmul
        multiply(matrix, columns, out=layout.matrices(part))
        if layout.joins_images:
            y[some] = part


def _deconvolve(x: Array, w: Array, y: Array, layout: Layout) -> None:
    """Compute a deconvolution into y, by adding the product to the windows of y."""
    windows = layout.windows
    matrix = w.reshape(windows.groups, len(w) // windows.groups, -1).swapaxes(1, 2)
    if windows.is_image:
        np.matmul(matrix, layout.matrices(x), out=layout.matrices(y))
        return
    columns = layout.empty((*y.shape[:2], *windows.ksize, *windows.outs), y.dtype)
    np.matmul(matrix, layout.matrices(x), out=layout.matrices(columns, prod(windows.ksize)))
    y[...] = 0
    for in_columns, _, in_image in windows.image_slices:
        y[in_image] += columns[in_columns]


def _reversed_weights(w: Array, groups: int) -> Array:
    """The weights of the convolution that equals a deconvolution of stride 1 with W."""
    by_group = w.reshape(groups, len(w) // groups, *w.shape[1:])
    flipped = np.flip(by_group, tuple(range(3, by_group.ndim))).swapaxes(1, 2)
    return flipped.reshape(-1, len(w) // groups, *w.shape[2:])


def _add_bias(y: Array, b: Array) -> Array:
    y += b.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def _batch_slices(x: Array, n_columns: int, n_weights: int, layout: Layout) -> Iterator[slice]:
    """Yield slices of the images; the columns of one slice are in memory at a time."""
    step = images_at_a_time(len(x), n_columns, n_weights if layout.joins_images else 0)
    for first in range(0, len(x), step):
        yield slice(first, min(len(x), first + step))


def _columns(x: Array, n_weights: int, layout: Layout) -> Iterator[tuple[slice, Array]]:
    """Yield slices of the images with the matrices of their columns, valid until the next slice."""
    windows, channels = layout.windows, x.shape[1]
    n_offsets = prod(windows.ksize)
    columns: Array = None
    whole: Array = None
    for some in _batch_slices(x, n_columns_of(channels, windows), n_weights, layout):
        images = x[some]
        if windows.is_image:
            yield some, layout.matrices(layout.arrange(images))
            continue
        if columns is None or len(columns) != len(images):
            shape = len(images), channels
            columns = layout.empty((*shape, *windows.ksize, *windows.outs), x.dtype)
            whole = layout.empty((*shape, *windows.covered), x.dtype)
            whole[...] = 0
        if windows.is_padded or layout.joins_images:
            in_covered, in_image = windows.unpadded
            whole[in_covered] = images[in_image]
            images = whole
        for in_columns, in_padded in windows.padded_slices:
            columns[in_columns] = images[in_padded]
        yield some, layout.matrices(columns, n_offsets)
