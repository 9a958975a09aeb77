"""Replacements for the methods of Chainer's functions, which call kernels.

A method checks whether a kernel accepts its arrays, and calls the kernel. If it does not, or if the
kernel returns None, Chainer's own method runs. A kernel of PyTorch calls the NumPy kernel if NumPy
is faster for the shapes. docs/accelerate.md has a table of what runs when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial, wraps
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from chainer.functions.connection import (
    convolution_2d,
    convolution_nd,
    deconvolution_2d,
    deconvolution_nd,
    embed_id,
)
from chainer.functions.normalization import batch_normalization
from chainer.functions.pooling import average_pooling_2d, max_pooling_nd
from chainer.utils.conv import get_conv_outsize

from chainer_profile.kernels.numpy_kernels import (
    MAX_NUMBERS,
    MIN_WORDS,
    embedding_gradient,
)
from chainer_profile.kernels.windows import Sizes, Windows

#: A method of a Chainer function.
Method = Callable[..., Any]
#: Class or module, name of the method, and a function that makes the new one from Chainer's.
Replacement = tuple[Any, str, Callable[[Method], Method]]
_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
_INTEGERS = {int, np.int32, np.int64}
#: Sizes below which the checks take longer than a kernel gains: numbers in the columns of a
#: convolution and of a deconvolution; numbers to normalise with given statistics and in training;
#: and numbers in the backward of a normalisation.
_FEW_COLUMNS, _FEW_SCATTERED = 1 << 14, 1 << 15
_FEW_NORMALIZED, _FEW_IN_TRAINING, _FEW_GRADIENTS = 1 << 14, 1 << 11, 1 << 13


def replacements(kernels: ModuleType) -> Iterator[Replacement]:
    """Yield the replacements of Chainer's methods by methods that call these kernels."""
    for wrap, two, several in (
        (_convolution, convolution_2d.Convolution2DFunction, convolution_nd.ConvolutionND),
        (_gradient_w, convolution_2d.Convolution2DGradW, convolution_nd.ConvolutionNDGradW),
        (
            _deconvolution,
            deconvolution_2d.Deconvolution2DFunction,
            deconvolution_nd.DeconvolutionND,
        ),
    ):
        for owner, name in (
            (two, "_forward_cpu_core"),
            (two, "_forward_grouped_convolution"),
            (several, "_forward_xp_core"),
            (several, "_forward_grouped_convolution_xp"),
        ):
            yield owner, name, partial(wrap, kernels)
    general = batch_normalization.GeneralBatchNormalizationImpl
    yield general, "forward", partial(_batch_normalization, kernels)
    yield general, "backward", partial(_batch_normalization_gradients, kernels)
    yield batch_normalization, "_apply_bn_fwd", partial(_normalized, kernels)
    yield max_pooling_nd.MaxPoolingND, "forward_cpu", partial(_max_pooling, kernels)
    yield max_pooling_nd.MaxPoolingNDGrad, "forward_cpu", partial(_max_pooling_gradient, kernels)
    average = average_pooling_2d
    yield average.AveragePooling2D, "forward_cpu", partial(_average_pooling, kernels)
    yield average.AveragePooling2DGrad, "forward_cpu", partial(_average_pooling_gradient, kernels)
    yield embed_id.EmbedIDGrad, "forward", partial(_embedding_gradient, kernels)


def _with_fallback(compute: Callable[..., Any]) -> Callable[[ModuleType, Method], Method]:
    """Decorate ``compute(kernels, ...)``: Chainer's method runs if it returns None.

    The result makes the new method from the module of kernels and Chainer's method.
    """

    def wrap(kernels: ModuleType, stock: Method) -> Method:
        @wraps(stock)
        def method(*given: Any, **named: Any) -> Any:
            result = compute(kernels, *given, **named)
            return stock(*given, **named) if result is None else result

        return method

    return wrap


def _are_accepted(*arrays: Any) -> bool:
    """Whether kernels accept arrays: NumPy arrays of one float type, not empty; None is ignored."""
    given = [array for array in arrays if array is not None]
    dtypes = {array.dtype for array in given}
    return (
        len(dtypes) == 1
        and dtypes <= _FLOATS
        and all(type(array) is np.ndarray and array.size for array in given)
    )


def _windows(function: Any, ksize: Any, dims: Any, outs: Any = None) -> Windows | None:
    """Make the windows of a function with a kernel; None if Chainer's code must run.

    ``dims`` are the sizes of the image; ``outs``, for a deconvolution, the numbers of windows.
    """
    if getattr(function, "_use_ideep", False):
        return None
    if hasattr(function, "stride"):
        stride, pad = function.stride, function.pad
        dilate = getattr(function, "dilate", (1,) * len(ksize))
    else:
        stride, pad = (function.sy, function.sx), (function.ph, function.pw)
        dilate = getattr(function, "dy", 1), getattr(function, "dx", 1)
    groups = getattr(function, "groups", 1)
    # Chainer's average pooling ignores cover_all.
    has_cover_all = hasattr(function, "groups") or hasattr(function, "ksize")
    cover_all = has_cover_all and function.cover_all
    # Chainer keeps the size of a deconvolution's output as the user gave it, perhaps as a list.
    dims = tuple(dims)
    # The cache would take 2.0 for 2, but Chainer raises an error for it.
    if not {*map(type, (*ksize, *stride, *pad, *dilate, *dims, groups))} <= _INTEGERS:
        return None
    return _cached_windows(ksize, stride, pad, dilate, dims, outs, bool(cover_all), groups)


# Cached, because computing windows takes a while.
@lru_cache(maxsize=1024)
def _cached_windows(
    ksize: Sizes,
    stride: Sizes,
    pad: Sizes,
    dilate: Sizes,
    dims: Sizes,
    outs: Sizes | None,
    cover_all: bool,
    groups: int,
) -> Windows | None:
    # Chainer raises errors for sizes of 0 or less and for axes that do not match.
    lengths = {len(sizes) for sizes in (ksize, stride, pad, dilate, dims)}
    if len(lengths) > 1 or min(*ksize, *stride, *dilate, *dims, groups) < 1 or min(pad) < 0:
        return None
    if outs is None:
        axes = zip(dims, ksize, stride, pad, dilate, strict=True)
        outs = tuple(get_conv_outsize(n, k, s, p, cover_all, d) for n, k, s, p, d in axes)
    if len(outs) != len(dims) or min(outs) < 1:
        return None
    return Windows(ksize, stride, pad, dilate, dims, outs, groups)


# -- convolutions of two or of any number of axes


def _run_kernel(kernel: Callable[..., Any], x: Any, w: Any, *given: Any) -> Any:
    """Return a kernel's result as a tuple; None if Chainer's code must run."""
    y = kernel(x, w, *given)
    if y is None:
        return None
    # Kernels and Chainer multiply different elements of w by the zeros of padding, which gives NaN
    # for an infinite element. An infinite w also makes the result not finite, so the smaller of the
    # two is checked; but never a w of a single element, because BLAS skips a factor of 0.
    return (y,) if np.isfinite(w if 1 < w.size < y.size else y).all() else None


def _has_few_columns(function: Any, x: Any, ksize: Sizes) -> bool:
    """Return whether the columns of a convolution of x have so few numbers that Chainer is faster.

    This is quick: it does not count windows exactly.
    """
    stride = function.stride if hasattr(function, "stride") else (function.sy, function.sx)
    return bool(x.size * prod(ksize) < _FEW_COLUMNS * prod(stride))


@_with_fallback
def _convolution(kernels: ModuleType, self: Any, x: Any, w: Any, b: Any, *_: Any) -> Any:
    if _has_few_columns(self, x, w.shape[2:]):
        return None
    windows = _windows(self, w.shape[2:], x.shape[2:]) if _are_accepted(x, w, b) else None
    if (
        windows is None
        or x.shape[1] != w.shape[1] * windows.groups
        or len(w) % windows.groups
        or not (b is None or len(b) == len(w))
    ):
        return None
    return _run_kernel(kernels.convolution, x, w, b, windows)


@_with_fallback
def _gradient_w(kernels: ModuleType, self: Any, x: Any, gy: Any, *_: Any) -> Any:
    ksize = self.W_shape[2:] if hasattr(self, "W_shape") else self.ksize
    if _has_few_columns(self, x, ksize):
        return None
    accepted = _are_accepted(x, gy) and x.dtype == self.W_dtype
    windows = _windows(self, ksize, x.shape[2:]) if accepted else None
    if (
        windows is None
        or windows.outs != gy.shape[2:]
        or len(x) != len(gy)
        or x.shape[1] % windows.groups
        or gy.shape[1] % windows.groups
    ):
        return None
    of_w = gy.shape[1], x.shape[1] // windows.groups, *ksize
    return _run_kernel(kernels.convolution_gradient_w, x, gy, of_w, windows)


@_with_fallback
def _deconvolution(kernels: ModuleType, self: Any, x: Any, w: Any, b: Any, *_: Any) -> Any:
    # The columns have x.size / len(w) * groups * w.size / len(w) numbers; len(w) can be 0.
    if x.size * w.size * getattr(self, "groups", 1) < _FEW_SCATTERED * len(w) ** 2:
        return None
    dims = self.outs if hasattr(self, "outs") else (self.outh, self.outw)
    windows = _windows(self, w.shape[2:], dims, x.shape[2:]) if _are_accepted(x, w, b) else None
    if (
        windows is None
        or x.shape[1] != len(w)
        or len(w) % windows.groups
        or not (b is None or len(b) == w.shape[1] * windows.groups)
    ):
        return None
    return _run_kernel(kernels.deconvolution, x, w, b, windows)


# -- batch normalisation


def _has_channel_statistics(axis: Any, x: Any, gamma: Any) -> bool:
    """Whether batch normalisation over these axes has statistics for every channel (axis 1)."""
    over = tuple(axis) == (0, *range(2, x.ndim))
    return bool(x.ndim > 2 and gamma.ndim == 1 and over and x.size)


def _batch_normalization(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def method(self: Any, **named: Any) -> Any:  # Chainer names all arguments
        result = None
        if named["x"].size >= _FEW_IN_TRAINING:
            result = _normalized_in_training(kernels, **named)
        return stock(self, **named) if result is None else result

    return method


def _normalized_in_training(
    kernels: ModuleType, *, x: Any, running_mean: Any, running_var: Any, **named: Any
) -> Any:
    gamma, beta, decay = named["gamma"], named["beta"], named["decay"]
    kept = () if running_mean is None else (running_mean, running_var)
    if not _are_accepted(x, gamma, beta) or not _has_channel_statistics(named["axis"], x, gamma):
        return None
    if any(type(array) is not np.ndarray for array in kept):
        return None
    y, mean, var, inv_std = kernels.batch_normalization(x, gamma, beta, named["eps"])
    if kept:
        count = x.size // gamma.size
        running_mean *= decay
        running_mean += (1 - decay) * mean
        running_var *= decay
        running_var += (1 - decay) * (count / max(count - 1.0, 1.0)) * var
    return y, named["x_layout"], running_mean, running_var, mean, var, inv_std, None


@_with_fallback
def _batch_normalization_gradients(kernels: ModuleType, self: Any, *given: Any) -> Any:
    axis, gamma, gy, x, _, _, _, mean, inv_std, *_ = given
    if x.size < _FEW_GRADIENTS:
        return None
    if not _are_accepted(x, gy, gamma, mean, inv_std) or not _has_channel_statistics(
        axis, x, gamma
    ):
        return None
    if not np.isfinite(gamma).all():  # the kernel multiplies by gamma in another order
        return None
    gx, ggamma, gbeta = kernels.batch_normalization_gradients(x, gy, gamma, mean, inv_std)
    return gx, None, ggamma, gbeta


@_with_fallback
def _normalized(kernels: ModuleType, xp: Any, *given: Any) -> Any:
    if given[0].size < _FEW_NORMALIZED:
        return None
    return kernels.normalized(*given) if _are_accepted(*given) else None


# -- pooling


@_with_fallback
def _max_pooling(kernels: ModuleType, self: Any, inputs: Any) -> Any:
    (x,) = inputs
    if prod(self.ksize) == 1:
        return None
    windows = _windows(self, self.ksize, x.shape[2:]) if _are_accepted(x) else None
    if windows is None:
        return None
    y, indexes = kernels.max_pooling(x, windows)
    if np.isnan(y).any():  # for NaN, Chainer returns the index of the first one
        return None
    self._in_shape, self._in_dtype, self.indexes = x.shape, x.dtype, indexes
    return (y,)


@_with_fallback
def _max_pooling_gradient(kernels: ModuleType, self: Any, inputs: Any) -> Any:
    (gy,), pool = inputs, self.func
    if prod(pool.ksize) == 1:
        return None
    accepted = _are_accepted(gy) and gy.dtype == pool._in_dtype and type(pool.indexes) is np.ndarray
    windows = _windows(pool, pool.ksize, pool._in_shape[2:]) if accepted else None
    # The kernel multiplies gradients of other offsets by 0, so an infinite one would give NaN.
    if windows is None or gy.shape != pool.indexes.shape or not np.isfinite(gy).all():
        return None
    return (kernels.max_pooling_gradient(gy, pool.indexes, windows),)


@_with_fallback
def _average_pooling(kernels: ModuleType, self: Any, inputs: Any) -> Any:
    (x,) = inputs
    windows = _windows(self, (self.kh, self.kw), x.shape[2:]) if _are_accepted(x) else None
    if windows is None:
        return None
    self._in_shape, self._in_dtype = x.shape, x.dtype
    y = kernels.sum_pooling(x, windows)
    y /= self.kh * self.kw
    return (y,)


@_with_fallback
def _average_pooling_gradient(kernels: ModuleType, self: Any, inputs: Any) -> Any:
    (gy,) = inputs
    ksize = self.kh, self.kw
    windows = _windows(self, ksize, self._in_shape[2:]) if _are_accepted(gy) else None
    if windows is None or windows.outs != gy.shape[2:]:
        return None
    gx = kernels.sum_pooling_gradient(gy, windows)
    gx /= self.kh * self.kw
    return (gx,)


# -- embeddings


@_with_fallback
def _embedding_gradient(kernels: ModuleType, self: Any, inputs: Any) -> Any:
    words, gy = inputs
    if (
        words.size < MIN_WORDS
        or not _are_accepted(gy)
        or type(words) is not np.ndarray
        or len(self.w_shape) != 2
    ):
        return None
    if gy.shape != (*words.shape, self.w_shape[1]) or not 2 <= self.w_shape[1] <= MAX_NUMBERS:
        return None
    flat, rows = words.ravel(), gy.reshape(words.size, -1)
    if self.ignore_label is not None:
        counted = flat != self.ignore_label
        flat, rows = flat[counted], rows[counted]
    # Chainer raises errors for words without a row; negative words count from the last row.
    if flat.size < MIN_WORDS or flat.min() < 0 or flat.max() >= self.w_shape[0]:
        return None
    self.retain_inputs((0,))
    self._gy_shape = gy.shape
    return (embedding_gradient(flat, rows, self.w_shape),)
