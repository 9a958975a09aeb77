"""Chainer's CPU functions on NumPy arrays, without needless copies."""

from __future__ import annotations

from math import prod

import numpy as np

from chainer_profile.kernels import convolutions
from chainer_profile.kernels.ways import N_COLUMNS
from chainer_profile.kernels.windows import Array, Sizes, Windows

convolution = convolutions.convolution
convolution_gradient_w = convolutions.convolution_gradient_w
deconvolution = convolutions.deconvolution

# -- batch normalisation of (n, channels, ...), over all but the channels

#: Pixels of an image with fewer of which NumPy's loops over them are too short to be fast.
_MANY_PIXELS = 64
#: Images from which values for each pixel are worth their memory.
_FEW_IMAGES = 4


def has_many_pixels(x: Array) -> bool:
    """Whether the loops over an image's pixels are long."""
    return bool(prod(x.shape[2:]) >= _MANY_PIXELS)


def _is_short(x: Array) -> bool:
    """Whether the channels of an image are computed in one loop, as those over pixels are short."""
    return prod(x.shape[2:]) > 1 and not has_many_pixels(x) and len(x) >= _FEW_IMAGES


def _for_pixels(values: Array, x: Array) -> Array:
    """Values of channels, to compute with x: repeated for each pixel if images have few."""
    if _is_short(x):
        return np.repeat(values, prod(x.shape[2:])).reshape(-1, *x.shape[2:])
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def _sum(x: Array) -> Array:
    """The sum of every channel: in pairs, as NumPy adds along the last axis."""
    if _is_short(x):
        return x.sum(axis=0).reshape(x.shape[1], -1).sum(axis=1)
    return x.reshape(*x.shape[:2], -1).sum(axis=2).sum(axis=0)


def _dot(x: Array, y: Array) -> Array:
    """The sum of the products of every channel."""
    if _is_short(x):
        by_pixel = np.einsum("ni,ni->i", x.reshape(len(x), -1), y.reshape(len(y), -1))
        return by_pixel.reshape(x.shape[1], -1).sum(axis=1)
    x, y = (array.reshape(*array.shape[:2], -1) for array in (x, y))
    return np.einsum("ncl,ncl->nc", x, y).sum(axis=0)


def normalized(x: Array, mean: Array, inv_std: Array, gamma: Array, beta: Array) -> Array:
    """Batch normalisation with statistics in the shape that they are broadcast in."""
    # Chainer takes five steps and makes three arrays, the last a copy of the same type.
    scale = inv_std * gamma
    shift = beta - mean * scale
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        y = x - mean
        y *= scale
        y += beta
        return y
    if x.ndim > 2 and scale.size == scale.shape[1] == x.shape[1]:
        scale, shift = _for_pixels(scale.ravel(), x), _for_pixels(shift.ravel(), x)
    y = x * scale
    y += shift
    return y


def batch_normalization(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Batch normalisation in training: the output; mean, variance and 1 / std of every channel."""
    count = x.size // gamma.size
    mean = _sum(x) / count
    y = x - _for_pixels(mean, x)
    var = _dot(y, y) / count
    inv_std = np.reciprocal(np.sqrt(var + eps, dtype=x.dtype))
    y *= _for_pixels(inv_std * gamma, x)
    y += _for_pixels(beta, x)
    return y, mean, var, inv_std


def batch_normalization_gradients(
    x: Array, gy: Array, gamma: Array, mean: Array, inv_std: Array
) -> tuple[Array, Array, Array]:
    """Its gradients of x, gamma and beta: gx = gamma inv_std (gy - (xhat ggamma + gbeta) / m)."""
    gx = x - _for_pixels(mean, x)
    gbeta = _sum(gy)
    ggamma = _dot(gy, gx) * inv_std
    inv_m = gamma.size / x.size
    gx *= _for_pixels(ggamma * inv_std * -inv_m, x)
    gx += gy
    gx -= _for_pixels(gbeta * inv_m, x)
    gx *= _for_pixels(gamma * inv_std, x)
    return gx, ggamma, gbeta


# -- pooling


def max_pooling(x: Array, windows: Windows) -> tuple[Array, Array]:
    """The largest of every window, and its place: the first one, as argmax gives it."""
    shape = *x.shape[:2], *windows.outs
    if windows.is_whole:
        pixels = x.reshape(-1, prod(windows.dims))
        largest = pixels.argmax(axis=1)
        return pixels[np.arange(len(pixels)), largest].reshape(shape), largest.reshape(shape)
    # Compares every place with the largest so far, where Chainer copies all windows.
    images = x.reshape(-1, 1, *windows.dims)
    y: Array = np.full((len(images), 1, *windows.outs), -np.inf, x.dtype)
    # Small integers, of which a processor compares many at a time.
    indexes: Array = np.zeros(y.shape, np.min_scalar_type(prod(windows.ksize)))
    count = max(1, N_COLUMNS // prod(windows.dims))
    for first in range(0, len(images), count):
        some = slice(first, first + count)
        for number, (_, of_windows, of_image) in enumerate(windows.within):
            candidate = np.ascontiguousarray(images[some][of_image])
            largest = y[some][of_windows]
            if number:
                place = indexes[some][of_windows]
                np.maximum(place, (candidate > largest) * place.dtype.type(number), out=place)
            np.maximum(largest, candidate, out=largest)
    return y.reshape(shape), indexes.astype(np.intp).reshape(shape)


def max_pooling_gradient(gy: Array, indexes: Array, windows: Windows) -> Array:
    """The gradients at the places of the largest values."""
    gx: Array = np.zeros((*gy.shape[:2], *windows.dims), gy.dtype)
    if windows.is_whole:
        pixels = gx.reshape(-1, prod(windows.dims))
        pixels[np.arange(len(pixels)), indexes.ravel()] = gy.ravel()
        return gx
    small = indexes.astype(np.min_scalar_type(prod(windows.ksize)))
    for number, (_, of_windows, of_image) in enumerate(windows.within):
        gx[of_image] += gy[of_windows] * (small[of_windows] == number)
    return gx


def sum_pooling(x: Array, windows: Windows) -> Array:
    """The sum of every window."""
    if windows.is_whole:
        pixels = x.reshape(-1, prod(windows.dims))
        return (pixels @ np.ones(pixels.shape[1], x.dtype)).reshape(*x.shape[:2], *windows.outs)
    y = x
    for axis, places in enumerate(windows.along):
        part: Array = np.zeros(
            (*y.shape[: axis + 2], windows.outs[axis], *y.shape[axis + 3 :]), x.dtype
        )
        others = (slice(None),) * (axis + 2)
        for image, which in places:
            part[(*others, which)] += y[(*others, image)]
        y = part
    return y


def sum_pooling_gradient(gy: Array, windows: Windows) -> Array:
    """The sum of the gradients of all windows that a place is in."""
    if windows.is_whole:
        return np.broadcast_to(gy, (*gy.shape[:2], *windows.dims)).copy()
    gx = gy
    for axis, places in enumerate(windows.along):
        part: Array = np.zeros(
            (*gx.shape[: axis + 2], windows.dims[axis], *gx.shape[axis + 3 :]), gy.dtype
        )
        others = (slice(None),) * (axis + 2)
        for image, which in places:
            part[(*others, image)] += gx[(*others, which)]
        gx = part
    return gx


# -- embeddings

#: With fewer words, or more numbers a word, adding word after word is faster.
FEWEST_WORDS, MOST_NUMBERS = 512, 128
#: Times that a word may occur to be added together with others.
_MAX_TOGETHER = 8


def embedding_gradient(words: Array, gy: Array, w_shape: Sizes) -> Array:
    """The gradients of words added to their rows, in the order of the words.

    The bits are those of adding one word after another: NumPy parts a sum only along the fastest
    axis of an array, and the rows of ``take``, of two numbers or more, are along another.
    """
    gw = np.zeros(w_shape, gy.dtype)
    order = np.argsort(words, kind="stable")
    of_place = words[order]
    begins = np.flatnonzero(np.concatenate(([True], of_place[1:] != of_place[:-1])))
    counts = np.diff(begins, append=len(words))
    rows, often = of_place[begins], counts > _MAX_TOGETHER
    for row, begin, count in zip(rows[often], begins[often], counts[often], strict=True):
        own = gy.take(order[begin : begin + count], axis=0)
        np.add.reduce(own, axis=0, out=gw[row], initial=0)
    rows, begins, counts = rows[~often], begins[~often], counts[~often]
    for place in range(_MAX_TOGETHER):
        left = counts > place
        rows, begins, counts = rows[left], begins[left], counts[left]
        gw[rows] += gy.take(order[begins + place], axis=0)
    return gw
