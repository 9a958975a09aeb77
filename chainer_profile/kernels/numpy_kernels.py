"""Chainer's CPU functions on NumPy arrays, without needless copies."""

from __future__ import annotations

from math import prod

import numpy as np

from chainer_profile.kernels import convolutions
from chainer_profile.kernels.ways import COLUMNS_NBYTES
from chainer_profile.kernels.windows import Array, Sizes, Windows

convolution = convolutions.convolution
convolution_gradient_w = convolutions.convolution_gradient_w
deconvolution = convolutions.deconvolution

# -- batch normalisation of (n, channels, ...), over all but the channels


def _by_channel(x: Array) -> Array:
    return x.reshape(*x.shape[:2], -1)


def _sum(x: Array) -> Array:
    """The sum of every channel: in pairs, as NumPy adds along the last axis."""
    return x.sum(axis=2).sum(axis=0)


def _dot(x: Array, y: Array) -> Array:
    return np.einsum("ncl,ncl->nc", x, y).sum(axis=0)


def normalized(x: Array, mean: Array, inv_std: Array, gamma: Array, beta: Array) -> Array:
    """Batch normalisation with statistics in the shape that they are broadcast in."""
    # Chainer takes five steps and makes three arrays, the last a copy of the same type.
    y = x - mean
    y *= inv_std * gamma
    y += beta
    return y


def batch_normalization(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Batch normalisation in training: the output; mean, variance and 1 / std of every channel."""
    y = _by_channel(x)
    count = y.shape[0] * y.shape[2]
    mean = _sum(y) / count
    y = y - mean[:, None]
    var = _dot(y, y) / count
    inv_std = np.reciprocal(np.sqrt(var + eps, dtype=x.dtype))
    y *= (inv_std * gamma)[:, None]
    y += beta[:, None]
    return y.reshape(x.shape), mean, var, inv_std


def batch_normalization_gradients(
    x: Array, gy: Array, gamma: Array, mean: Array, inv_std: Array
) -> tuple[Array, Array, Array]:
    """Its gradients of x, gamma and beta: gx = gamma inv_std (gy - (xhat ggamma + gbeta) / m)."""
    of_y = _by_channel(gy)
    gx = _by_channel(x) - mean[:, None]
    gbeta = _sum(of_y)
    ggamma = _dot(of_y, gx) * inv_std
    inv_m = gamma.size / x.size
    gx *= (ggamma * inv_std * -inv_m)[:, None]
    gx += of_y
    gx -= (gbeta * inv_m)[:, None]
    gx *= (gamma * inv_std)[:, None]
    return gx.reshape(x.shape), ggamma, gbeta


# -- pooling


def max_pooling(x: Array, windows: Windows) -> tuple[Array, Array]:
    """The largest of every window, and its place: the first one, as argmax gives it."""
    # Compares every place with the largest so far, where Chainer copies all windows.
    images = x.reshape(-1, *windows.dims)
    y: Array = np.full((len(images), *windows.outs), -np.inf, x.dtype)
    # Small integers, of which a processor compares many at a time.
    indexes: Array = np.zeros(y.shape, np.min_scalar_type(prod(windows.ksize)))
    count = max(1, COLUMNS_NBYTES // max(1, prod(windows.dims) * x.itemsize))
    for first in range(0, len(images), count):
        some = slice(first, first + count)
        for number, (_, image, which) in enumerate(windows.within):
            candidate = np.ascontiguousarray(images[(some, *image)])
            largest = y[(some, *which)]
            if number:
                place = indexes[(some, *which)]
                np.maximum(place, (candidate > largest) * place.dtype.type(number), out=place)
            np.maximum(largest, candidate, out=largest)
    shape = *x.shape[:2], *windows.outs
    return y.reshape(shape), indexes.astype(np.intp).reshape(shape)


def max_pooling_gradient(gy: Array, indexes: Array, windows: Windows) -> Array:
    """The gradients at the places of the largest values."""
    gx: Array = np.zeros((*gy.shape[:2], *windows.dims), gy.dtype)
    small = indexes.astype(np.min_scalar_type(prod(windows.ksize)))
    for number, (_, image, which) in enumerate(windows.within):
        gx[(..., *image)] += gy[(..., *which)] * (small[(..., *which)] == number)
    return gx


def sum_pooling(x: Array, windows: Windows) -> Array:
    y: Array = np.zeros((*x.shape[:2], *windows.outs), x.dtype)
    for _, image, which in windows.within:
        y[(..., *which)] += x[(..., *image)]
    return y


def sum_pooling_gradient(gy: Array, windows: Windows) -> Array:
    """The sum of the gradients of all windows that a place is in."""
    gx: Array = np.zeros((*gy.shape[:2], *windows.dims), gy.dtype)
    for _, image, which in windows.within:
        gx[(..., *image)] += gy[(..., *which)]
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
