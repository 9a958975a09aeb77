"""Chainer's CPU functions on NumPy arrays, without needless copies."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

#: A NumPy array of floating-point numbers.
Array = Any
Sizes = Sequence[int]

#: Bytes of windows that are copied at a time: they stay in a core's cache until they are
#: multiplied, and the same memory serves a whole batch.
_COPIED_NBYTES = 1 << 20


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
        self.is_image = single and not any(self.pad) and self.outs == self.dims

    @cached_property
    def places(self) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """The places of a window, each with its slices of the padded image."""
        return [
            (
                place,
                tuple(
                    slice(k * d, k * d + s * (o - 1) + 1, s)
                    for k, d, s, o in zip(place, self.dilate, self.stride, self.outs, strict=True)
                ),
            )
            for place in product(*map(range, self.ksize))
        ]

    @cached_property
    def within(self) -> list[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
        """The places, each with its slices of the image itself and of the windows."""
        return [(place, *self._within(place)) for place, _ in self.places]

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

    def _within(self, place: Sizes) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        image, windows = [], []
        for k, d, s, p, size, n in zip(
            place, self.dilate, self.stride, self.pad, self.dims, self.outs, strict=True
        ):
            first = max(0, -(-(p - k * d) // s))
            last = min(n, (size - 1 + p - k * d) // s + 1)
            begin = first * s + k * d - p
            image.append(slice(begin, begin + max(0, last - first - 1) * s + 1, s))
            windows.append(slice(first, last))
            if last <= first:
                image[-1] = windows[-1] = slice(0, 0)
        return tuple(image), tuple(windows)

    @cached_property
    def inner(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Slices of the covered image where the image lies, and of the image that lies there."""
        sizes = list(zip(self.pad, self.dims, self.covered, strict=True))
        return (
            tuple(slice(p, min(p + size, whole)) for p, size, whole in sizes),
            tuple(slice(0, max(0, min(size, whole - p))) for p, size, whole in sizes),
        )

    @cached_property
    def reversed(self) -> Windows | None:
        """The windows by which a deconvolution is a convolution: those of a stride of 1."""
        pad = tuple(
            (k - 1) * d - p for k, d, p in zip(self.ksize, self.dilate, self.pad, strict=True)
        )
        if prod(self.stride) != 1 or min(pad) < 0:
            return None
        return Windows(self.ksize, self.stride, pad, self.dilate, self.outs, self.dims)


def of(windows: Windows) -> ModuleType | None:
    """The module that computes a convolution of these windows.

    None for groups, which Chainer's own code computes without needless copies.
    """
    return sys.modules[__name__] if windows.groups == 1 else None


def _columns(x: Array, windows: Windows, joined: bool = False) -> Iterator[tuple[slice, Array]]:
    """Slices of the batch with their windows as columns, whose memory is used again."""
    # (images, channels x places, windows), or joined (channels x places, images x windows).
    n, c = x.shape[:2]
    rows, columns = c * prod(windows.ksize), prod(windows.outs)
    at_a_time = max(1, min(n, _COPIED_NBYTES // max(1, rows * columns * x.itemsize)))
    memory: Array = np.empty(0 if windows.is_image else at_a_time * rows * columns, x.dtype)
    sizes = zip(windows.covered, windows.dims, strict=True)
    padded = any(windows.pad) or any(covered > size for covered, size in sizes)
    if padded:
        inner, of_image = windows.inner
        whole: Array = np.zeros((at_a_time, c, *windows.covered), x.dtype)
    for first in range(0, n, at_a_time):
        some = slice(first, min(n, first + at_a_time))
        count, image = some.stop - first, x[some]
        if windows.is_image:
            image = image.reshape(count, rows, columns)
            yield some, image.swapaxes(0, 1).reshape(rows, -1) if joined else image
            continue
        if padded:
            whole[(slice(count), slice(None), *inner)] = image[(..., *of_image)]
            image = whole[:count]
        part = memory[: count * rows * columns]
        if joined:
            by_place = np.moveaxis(
                part.reshape(c, *windows.ksize, count, *windows.outs), 1 + len(windows.ksize), 0
            )
        else:
            by_place = part.reshape(count, c, *windows.ksize, *windows.outs)
        for place, covers in windows.places:
            by_place[(slice(None), slice(None), *place)] = image[(..., *covers)]
        yield some, part.reshape((rows, -1) if joined else (count, rows, columns))


def convolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array:
    """A convolution: the product of W and the windows is in Chainer's order at once."""
    # numpy.tensordot, by which Chainer multiplies, copies all windows into another order first.
    n, out = x.shape[0], w.shape[0]
    matrix = w.reshape(out, -1)
    y = np.empty((n, out, prod(windows.outs)), x.dtype)
    for some, columns in _columns(x, windows):
        np.matmul(matrix, columns, out=y[some])
    if b is not None:
        y += b[:, None]
    return y.reshape(n, out, *windows.outs)


def convolution_gradient_w(x: Array, gy: Array, w_shape: Sizes, windows: Windows) -> Array:
    """The gradient of a convolution's W: one product of some images at a time."""
    n, out = gy.shape[:2]
    gradients = gy.reshape(n, out, -1)
    total = None
    for some, columns in _columns(x, windows, joined=True):
        gw = gradients[some].swapaxes(0, 1).reshape(out, -1) @ columns.T
        total = gw if total is None else np.add(total, gw, out=total)
    if total is None:
        total = np.zeros((out, prod(w_shape[1:])), x.dtype)
    return total.reshape(w_shape)


def deconvolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array:
    """A deconvolution, of W (in, out, places); it is a convolution's gradient of x too."""
    n_windows = len(x) * w.shape[1] * prod(windows.ksize) * prod(windows.outs)
    if windows.reversed is not None and not windows.is_image and w.size < n_windows:
        # Gathering windows takes less than adding to them, and than turning W round.
        axes = tuple(range(2, w.ndim))
        return convolution(x, np.flip(w, axes).swapaxes(0, 1), b, windows.reversed)
    n, c = x.shape[:2]
    out = w.shape[1]
    matrix = w.reshape(c, -1).T
    gradients = x.reshape(n, c, -1)
    y: Array
    if windows.is_image:
        y = np.matmul(matrix, gradients).reshape(n, out, *windows.dims)
    else:
        y = np.zeros((n, out, *windows.dims), x.dtype)
        column = matrix.shape[0] * gradients.shape[2]
        count = max(1, min(n, _COPIED_NBYTES // max(1, column * x.itemsize)))
        columns: Array = np.empty((count, matrix.shape[0], gradients.shape[2]), x.dtype)
        for first in range(0, n, count):
            some = slice(first, min(n, first + count))
            part = columns[: some.stop - first]
            np.matmul(matrix, gradients[some], out=part)
            by_place: Array = part.reshape(len(part), out, *windows.ksize, *windows.outs)
            for place, image, which in windows.within:
                y[(some, slice(None), *image)] += by_place[
                    (slice(None), slice(None), *place, *which)
                ]
    if b is not None:
        y += b.reshape(-1, *(1,) * len(windows.dims))
    return y


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
    count = max(1, _COPIED_NBYTES // max(1, prod(windows.dims) * x.itemsize))
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
