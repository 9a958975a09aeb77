"""Chainer's CPU functions on NumPy arrays, without needless copies."""

from __future__ import annotations

from math import prod

import numpy as np

from chainer_profile.kernels import convolutions
from chainer_profile.kernels.cost_model import N_COLUMNS
from chainer_profile.kernels.windows import Array, Sizes, Windows

convolution = convolutions.convolution
convolution_gradient_w = convolutions.convolution_gradient_w
deconvolution = convolutions.deconvolution

# -- batch normalisation of (n, channels, ...), with statistics for every channel

#: With fewer pixels in an image, NumPy's loops over them are too short to be fast.
_MANY_PIXELS = 64
#: With fewer images, it does not pay to repeat the values of channels for each pixel.
_FEW_IMAGES = 4


def has_many_pixels(x: Array) -> bool:
    """Whether NumPy's loops over the pixels of an image are long enough to be fast."""
    return bool(prod(x.shape[2:]) >= _MANY_PIXELS)


def _loops_over_image(x: Array) -> bool:
    """Whether to loop over channels and pixels at once, because images are small but several."""
    return prod(x.shape[2:]) > 1 and not has_many_pixels(x) and len(x) >= _FEW_IMAGES


def _broadcastable(values: Array, x: Array) -> Array:
    """Reshape the values of channels to broadcast with x; repeat them if images have few pixels."""
    if _loops_over_image(x):
        return np.repeat(values, prod(x.shape[2:])).reshape(-1, *x.shape[2:])
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def _sum_by_channel(x: Array) -> Array:
    """The sum of every channel. NumPy adds along the last axis in pairs, which is more precise."""
    if _loops_over_image(x):
        return x.sum(axis=0).reshape(x.shape[1], -1).sum(axis=1)
    return x.reshape(*x.shape[:2], -1).sum(axis=2).sum(axis=0)


def _dot_by_channel(x: Array, y: Array) -> Array:
    """The sum of the products of x and y for every channel."""
    if _loops_over_image(x):
        by_pixel = np.einsum("ni,ni->i", x.reshape(len(x), -1), y.reshape(len(y), -1))
        return by_pixel.reshape(x.shape[1], -1).sum(axis=1)
    x, y = (array.reshape(*array.shape[:2], -1) for array in (x, y))
    return np.einsum("ncl,ncl->nc", x, y).sum(axis=0)


def normalized(x: Array, mean: Array, inv_std: Array, gamma: Array, beta: Array) -> Array:
    """Batch normalisation with given statistics. All arguments broadcast with x."""
    # Chainer takes five steps and makes three arrays, the last a copy of the same type.
    scale = inv_std * gamma
    shift = beta - mean * scale
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        y = x - mean
        y *= scale
        y += beta
        return y
    if x.ndim > 2 and scale.size == scale.shape[1] == x.shape[1]:
        scale, shift = _broadcastable(scale.ravel(), x), _broadcastable(shift.ravel(), x)
    y = x * scale
    y += shift
    return y


def batch_normalization(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Batch normalisation in training: the output; mean, variance and 1 / std of every channel."""
    count = x.size // gamma.size
    mean = _sum_by_channel(x) / count
    y = x - _broadcastable(mean, x)
    var = _dot_by_channel(y, y) / count
    inv_std = np.reciprocal(np.sqrt(var + eps, dtype=x.dtype))
    y *= _broadcastable(inv_std * gamma, x)
    y += _broadcastable(beta, x)
    return y, mean, var, inv_std


def batch_normalization_gradients(
    x: Array, gy: Array, gamma: Array, mean: Array, inv_std: Array
) -> tuple[Array, Array, Array]:
    """Gradients of x, gamma and beta of batch normalisation in training.

    gx = gamma inv_std (gy - (xhat ggamma + gbeta) / m), with m values in a channel.
    """
    gx = x - _broadcastable(mean, x)
    gbeta = _sum_by_channel(gy)
    ggamma = _dot_by_channel(gy, gx) * inv_std
    inv_m = gamma.size / x.size
    gx *= _broadcastable(ggamma * inv_std * -inv_m, x)
    gx += gy
    gx -= _broadcastable(gbeta * inv_m, x)
    gx *= _broadcastable(gamma * inv_std, x)
    return gx, ggamma, gbeta


# -- pooling


def max_pooling(x: Array, windows: Windows) -> tuple[Array, Array]:
    """The largest value of every window, and the number of its offset: the first, as in argmax."""
    shape = *x.shape[:2], *windows.outs
    if windows.is_whole:
        pixels = x.reshape(-1, prod(windows.dims))
        largest = pixels.argmax(axis=1)
        return pixels[np.arange(len(pixels)), largest].reshape(shape), largest.reshape(shape)
    # Compare the values of each offset with the largest so far; Chainer copies all windows.
    images = x.reshape(-1, 1, *windows.dims)
    y: Array = np.full((len(images), 1, *windows.outs), -np.inf, x.dtype)
    # Small integers, because a processor compares many of them at a time.
    indexes: Array = np.zeros(y.shape, np.min_scalar_type(prod(windows.ksize)))
    count = max(1, N_COLUMNS // prod(windows.dims))
    for first in range(0, len(images), count):
        some = slice(first, first + count)
        for number, (_, in_windows, in_image) in enumerate(windows.image_slices):
            candidate = np.ascontiguousarray(images[some][in_image])
            largest = y[some][in_windows]
            if number:
                index = indexes[some][in_windows]
                np.maximum(index, (candidate > largest) * index.dtype.type(number), out=index)
            np.maximum(largest, candidate, out=largest)
    return y.reshape(shape), indexes.astype(np.intp).reshape(shape)


def max_pooling_gradient(gy: Array, indexes: Array, windows: Windows) -> Array:
    """The gradient of x: each gradient is added at the largest value of its window."""
    gx: Array = np.zeros((*gy.shape[:2], *windows.dims), gy.dtype)
    if windows.is_whole:
        pixels = gx.reshape(-1, prod(windows.dims))
        pixels[np.arange(len(pixels)), indexes.ravel()] = gy.ravel()
        return gx
    small = indexes.astype(np.min_scalar_type(prod(windows.ksize)))
    for number, (_, in_windows, in_image) in enumerate(windows.image_slices):
        gx[in_image] += gy[in_windows] * (small[in_windows] == number)
    return gx


def sum_pooling(x: Array, windows: Windows) -> Array:
    """The sum of every window."""
    if windows.is_whole:
        pixels = x.reshape(-1, prod(windows.dims))
        return (pixels @ np.ones(pixels.shape[1], x.dtype)).reshape(*x.shape[:2], *windows.outs)
    y = x
    for axis, offsets in enumerate(windows.axis_slices):
        part: Array = np.zeros(
            (*y.shape[: axis + 2], windows.outs[axis], *y.shape[axis + 3 :]), x.dtype
        )
        others = (slice(None),) * (axis + 2)
        for image, which in offsets:
            part[(*others, which)] += y[(*others, image)]
        y = part
    return y


def sum_pooling_gradient(gy: Array, windows: Windows) -> Array:
    """The gradient of x: at each pixel, the sum of the gradients of the windows that contain it."""
    if windows.is_whole:
        return np.broadcast_to(gy, (*gy.shape[:2], *windows.dims)).copy()
    gx = gy
    for axis, offsets in enumerate(windows.axis_slices):
        part: Array = np.zeros(
            (*gx.shape[: axis + 2], windows.dims[axis], *gx.shape[axis + 3 :]), gy.dtype
        )
        others = (slice(None),) * (axis + 2)
        for image, which in offsets:
            part[(*others, image)] += gx[(*others, which)]
        gx = part
    return gx


# -- embeddings

#: With fewer words, or more numbers for a word, adding word after word is faster.
MIN_WORDS, MAX_NUMBERS = 512, 128
#: A word that occurs more often is added by itself, not together with others.
_MAX_TOGETHER = 8


def embedding_gradient(words: Array, gy: Array, w_shape: Sizes) -> Array:
    """The gradient of an embedding's table: the rows of gy are added to the rows of their words.

    The result is the same to the bit as adding one word after another. NumPy adds in another order
    only along the fastest axis of an array, and these sums are along another: a row has at least
    two numbers.
    """
    gw = np.zeros(w_shape, gy.dtype)
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(begins, append=len(words))
    rows, often = ordered[begins], counts > _MAX_TOGETHER
    for row, begin, count in zip(rows[often], begins[often], counts[often], strict=True):
        gradients = gy.take(order[begin : begin + count], axis=0)
        np.add.reduce(gradients, axis=0, out=gw[row], initial=0)
    rows, begins, counts = rows[~often], begins[~often], counts[~often]
    for number in range(_MAX_TOGETHER):
        left = counts > number
        rows, begins, counts = rows[left], begins[left], counts[left]
        gw[rows] += gy.take(order[begins + number], axis=0)
    return gw
