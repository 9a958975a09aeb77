"""Convolutions, their gradients and deconvolutions as products of matrices, with NumPy.

The columns of a convolution are copies of its windows, (images, channels, places, windows). Their
product with W is the output. :mod:`ways` decides how; a result of None is left to Chainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.ways import (
    gathers,
    images_at_a_time,
    layout_for_convolution,
    layout_for_deconvolution,
    layout_for_gradient_w,
    n_columns_of,
)
from chainer_profile.kernels.windows import Array, Sizes, Windows


def convolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    """A convolution of x (n, in, ...) with W (out, in / groups, ...)."""
    shape = len(x), len(w), *windows.outs
    layout = layout_for_convolution(x.shape, shape, w.size, windows)
    if layout is None:
        return None
    y: Array = np.empty(shape, x.dtype)
    _convolve(x, w, y, layout)
    return y if b is None else _add(y, b)


def convolution_gradient_w(x: Array, gy: Array, w_shape: Sizes, windows: Windows) -> Array | None:
    """The gradient of a convolution's W."""
    n_weights = prod(w_shape)
    layout = layout_for_gradient_w(x.shape, gy.shape, n_weights, windows)
    if layout is None:
        return None
    total = None
    for some, columns in _columns(x, n_weights, layout):
        part = np.matmul(layout.matrices(layout.of(gy[some])), columns.swapaxes(-1, -2))
        if not layout.joins_images:
            part = part[0] if len(part) == 1 else part.sum(axis=0)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total.reshape(w_shape)


def deconvolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    """A deconvolution of x with W (in, out / groups, ...); a convolution's gradient of x, too."""
    shape = len(x), w.shape[1] * windows.groups, *windows.dims
    if (reverse := windows.reversed) and gathers(x.shape, shape[1], w.size, windows):
        y: Array = np.empty(shape, x.dtype)
        gathering = layout_for_convolution(x.shape, shape, w.size, reverse)
        gathering = gathering or Layout(Order.FIRST, reverse)
        _convolve(x, _turned(w, windows.groups), y, gathering)
        return y if b is None else _add(y, b)
    layout = layout_for_deconvolution(x.shape, shape, w.size, windows)
    if layout is None:
        return None
    y = np.empty(shape, x.dtype)
    for some in _parts(x, n_columns_of(y.shape[1], windows), w.size, layout):
        part = layout.empty(y[some].shape, y.dtype) if layout.joins_images else y[some]
        _deconvolve(layout.of(x[some]), w, part, layout)
        if layout.joins_images:
            y[some] = part
    return y if b is None else _add(y, b)


def _convolve(x: Array, w: Array, y: Array, layout: Layout) -> None:
    """Write a convolution into y."""
    # numpy.tensordot, by which Chainer multiplies, copies all windows into another order first.
    groups = layout.windows.groups
    matrix = w.reshape(groups, len(w) // groups, -1)
    for some, columns in _columns(x, w.size, layout):
        part = layout.empty(y[some].shape, y.dtype) if layout.joins_images else y[some]
        # A product over one number has a fast loop only as a product of elements.
        multiply = np.multiply if matrix.shape[-1] == 1 else np.matmul
        multiply(matrix, columns, out=layout.matrices(part))
        if layout.joins_images:
            y[some] = part


def _deconvolve(x: Array, w: Array, y: Array, layout: Layout) -> None:
    """Write a deconvolution into y, by adding the product to the windows of y."""
    windows = layout.windows
    matrix = w.reshape(windows.groups, len(w) // windows.groups, -1).swapaxes(1, 2)
    if windows.is_image:
        np.matmul(matrix, layout.matrices(x), out=layout.matrices(y))
        return
    columns = layout.empty((*y.shape[:2], *windows.ksize, *windows.outs), y.dtype)
    np.matmul(matrix, layout.matrices(x), out=layout.matrices(columns, prod(windows.ksize)))
    y[...] = 0
    for of_columns, _, of_image in windows.within:
        y[of_image] += columns[of_columns]


def _turned(w: Array, groups: int) -> Array:
    """The weights of the convolution that is a deconvolution with W."""
    by_group = w.reshape(groups, len(w) // groups, *w.shape[1:])
    turned = np.flip(by_group, tuple(range(3, by_group.ndim))).swapaxes(1, 2)
    return turned.reshape(-1, len(w) // groups, *w.shape[2:])


def _add(y: Array, b: Array) -> Array:
    y += b.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def _parts(x: Array, n_columns: int, n_weights: int, layout: Layout) -> Iterator[slice]:
    """Slices of the images, those whose columns are in memory at a time."""
    step = images_at_a_time(len(x), n_columns, n_weights if layout.joins_images else 0)
    for first in range(0, len(x), step):
        yield slice(first, min(len(x), first + step))


def _columns(x: Array, n_weights: int, layout: Layout) -> Iterator[tuple[slice, Array]]:
    """Slices of the images with the matrices of their columns, whose memory is used again."""
    windows, channels = layout.windows, x.shape[1]
    places = prod(windows.ksize)
    columns: Array = None
    whole: Array = None
    for some in _parts(x, n_columns_of(channels, windows), n_weights, layout):
        images = x[some]
        if windows.is_image:
            yield some, layout.matrices(layout.of(images))
            continue
        if columns is None or len(columns) != len(images):
            shape = len(images), channels
            columns = layout.empty((*shape, *windows.ksize, *windows.outs), x.dtype)
            whole = layout.empty((*shape, *windows.covered), x.dtype)
            whole[...] = 0
        if windows.is_padded or layout.joins_images:
            inner, of_image = windows.inner
            whole[inner] = images[of_image]
            images = whole
        for of_columns, of_padded in windows.places:
            columns[of_columns] = images[of_padded]
        yield some, layout.matrices(columns, places)
