"""Chainer's functions that kernels are put under: each with Chainer's own code to fall back to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import ModuleType
from typing import Any

import numpy as np
from chainer.functions.activation import relu
from chainer.functions.connection import (
    convolution_2d,
    convolution_nd,
    deconvolution_2d,
    deconvolution_nd,
)
from chainer.functions.normalization import batch_normalization
from chainer.functions.pooling import average_pooling_2d, max_pooling_nd
from chainer.utils.conv import get_conv_outsize

from chainer_profile.kernels.numpy_kernels import Windows, windows_of

#: A method of Chainer's, and one that takes its place.
Method = Callable[..., Any]
Replacement = tuple[Any, str, Callable[[Method], Method]]
_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def replacements(kernels: ModuleType) -> Iterator[Replacement]:
    """What is replaced: the owner, the name, and what gives the new method from Chainer's."""
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
    if hasattr(kernels, "relu"):
        yield relu.ReLU, "forward_cpu", partial(_relu, kernels)
        yield relu.ReLUGrad2, "forward_cpu", partial(_relu_gradient, kernels)


def _plain(*arrays: Any) -> bool:
    """Whether all are NumPy arrays of one type that kernels know; None is none."""
    given = [array for array in arrays if array is not None]
    dtypes = {array.dtype for array in given}
    return (
        len(dtypes) == 1 and dtypes <= _FLOATS and all(type(array) is np.ndarray for array in given)
    )


# -- convolutions of two or of any number of axes


def _windows(function: Any, ksize: Any, dims: Any, outs: Any = None) -> Windows:
    """The windows of a convolution; their number by Chainer's own rule where it is not known."""
    if hasattr(function, "stride"):
        stride, pad, dilate = function.stride, function.pad, function.dilate
    else:
        stride, pad = (function.sy, function.sx), (function.ph, function.pw)
        dilate = function.dy, function.dx
    if outs is None:
        sizes = zip(dims, ksize, stride, pad, dilate, strict=True)
        cover_all = function.cover_all
        outs = tuple(get_conv_outsize(n, k, s, p, cover_all, d) for n, k, s, p, d in sizes)
    # The size of a deconvolution's output is kept as the user gave it: a list has no hash.
    return windows_of(ksize, stride, pad, dilate, tuple(dims), outs, function.groups)


def _kernel(kernels: ModuleType, function: Any, windows: Windows | None) -> ModuleType | None:
    """What computes it; None leaves it to Chainer, and so what is no convolution at all."""
    if windows is None or min(windows.outs) <= 0 or getattr(function, "_use_ideep", False):
        return None
    found: ModuleType | None = kernels.of(windows)
    return found


def _convolution(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward(self: Any, x: Any, w: Any, b: Any, *xp: Any) -> Any:
        windows = _windows(self, w.shape[2:], x.shape[2:]) if _plain(x, w, b) else None
        kernel = _kernel(kernels, self, windows)
        if kernel is None:
            return stock(self, x, w, b, *xp)
        return (kernel.convolution(x, w, b, windows),)

    return forward


def _gradient_w(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward(self: Any, x: Any, gy: Any, *xp: Any) -> Any:
        ksize = self.W_shape[2:] if hasattr(self, "W_shape") else self.ksize
        plain = _plain(x, gy) and x.dtype == self.W_dtype
        windows = _windows(self, ksize, x.shape[2:], gy.shape[2:]) if plain else None
        kernel = _kernel(kernels, self, windows)
        if kernel is None:
            return stock(self, x, gy, *xp)
        of_w = gy.shape[1], x.shape[1] // self.groups, *ksize
        return (kernel.convolution_gradient_w(x, gy, of_w, windows),)

    return forward


def _deconvolution(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward(self: Any, x: Any, w: Any, b: Any, *xp: Any) -> Any:
        dims = self.outs if hasattr(self, "outs") else (self.outh, self.outw)
        plain = _plain(x, w, b)
        windows = _windows(self, w.shape[2:], dims, x.shape[2:]) if plain else None
        kernel = _kernel(kernels, self, windows)
        if kernel is None:
            return stock(self, x, w, b, *xp)
        return (kernel.deconvolution(x, w, b, windows),)

    return forward


# -- batch normalisation


def _by_channel(axis: Any, x: Any, gamma: Any) -> bool:
    """Whether statistics are those of channels, which stand behind the batch."""
    over = tuple(axis) == (0, *range(2, x.ndim))
    return bool(x.ndim > 2 and gamma.ndim == 1 and over and x.size)


def _batch_normalization(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward(
        self: Any,
        axis: Any,
        gamma: Any,
        x: Any,
        x_layout: Any,
        xp: Any,
        expander: Any,
        beta: Any,
        eps: Any,
        decay: Any,
        running_mean: Any,
        running_var: Any,
    ) -> Any:
        kept = () if running_mean is None else (running_mean, running_var)
        if (
            not _plain(x, gamma, beta)
            or not _by_channel(axis, x, gamma)
            or any(type(array) is not np.ndarray for array in kept)
        ):
            given = axis, gamma, x, x_layout, xp, expander, beta, eps, decay
            return stock(self, *given, running_mean, running_var)
        y, mean, var, inv_std = kernels.batch_normalization(x, gamma, beta, eps)
        if kept:
            count = x.size // gamma.size
            running_mean *= decay
            running_mean += (1 - decay) * mean
            running_var *= decay
            running_var += (1 - decay) * (count / max(count - 1.0, 1.0)) * var
        return y, x_layout, running_mean, running_var, mean, var, inv_std, None

    return forward


def _batch_normalization_gradients(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def backward(
        self: Any,
        axis: Any,
        gamma: Any,
        gy: Any,
        x: Any,
        x_layout: Any,
        xp: Any,
        expander: Any,
        mean: Any,
        inv_std: Any,
        *more: Any,
    ) -> Any:
        if not _plain(x, gy, gamma, mean, inv_std) or not _by_channel(axis, x, gamma):
            given = axis, gamma, gy, x, x_layout, xp, expander, mean, inv_std
            return stock(self, *given, *more)
        gx, ggamma, gbeta = kernels.batch_normalization_gradients(x, gy, gamma, mean, inv_std)
        return gx, None, ggamma, gbeta

    return backward


def _normalized(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def apply(xp: Any, x: Any, mean: Any, inv_std: Any, gamma: Any, beta: Any) -> Any:
        if not _plain(x, mean, inv_std, gamma, beta):
            return stock(xp, x, mean, inv_std, gamma, beta)
        return kernels.normalized(x, mean, inv_std, gamma, beta)

    return apply


# -- pooling


def _pooled(function: Any, x: Any) -> Windows | None:
    """The windows of a pooling of x; None leaves it to Chainer, and so what is none at all."""
    windows = _pooling_windows(function, x.shape[2:]) if _plain(x) else None
    return None if windows is None or min(windows.outs) <= 0 else windows


def _pooling_windows(function: Any, dims: Any, outs: Any = None) -> Windows:
    if hasattr(function, "ksize"):
        ksize, stride, pad = function.ksize, function.stride, function.pad
        cover_all = function.cover_all
    else:  # Chainer's average pooling knows no cover_all.
        ksize, cover_all = (function.kh, function.kw), False
        stride, pad = (function.sy, function.sx), (function.ph, function.pw)
    if outs is None:
        sizes = zip(dims, ksize, stride, pad, strict=True)
        outs = tuple(get_conv_outsize(n, k, s, p, cover_all) for n, k, s, p in sizes)
    return windows_of(ksize, stride, pad, (1,) * len(ksize), dims, outs)


def _max_pooling(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        (x,) = inputs
        windows = _pooled(self, x)
        if windows is None:
            return stock(self, inputs)
        y, indexes = kernels.max_pooling(x, windows)
        if np.isnan(y).any():  # Chainer gives the place of the first one.
            return stock(self, inputs)
        self._in_shape, self._in_dtype, self.indexes = x.shape, x.dtype, indexes
        return (y,)

    return forward_cpu


def _max_pooling_gradient(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        (gy,), pool = inputs, self.func
        if not _plain(gy) or gy.dtype != pool._in_dtype or type(pool.indexes) is not np.ndarray:
            return stock(self, inputs)
        windows = _pooling_windows(pool, pool._in_shape[2:], gy.shape[2:])
        return (kernels.max_pooling_gradient(gy, pool.indexes, windows),)

    return forward_cpu


def _average_pooling(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        (x,) = inputs
        windows = _pooled(self, x)
        if windows is None:
            return stock(self, inputs)
        self._in_shape, self._in_dtype = x.shape, x.dtype
        y = kernels.sum_pooling(x, windows)
        y /= self.kh * self.kw
        return (y,)

    return forward_cpu


def _average_pooling_gradient(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        (gy,) = inputs
        if not _plain(gy):
            return stock(self, inputs)
        windows = _pooling_windows(self, self._in_shape[2:], gy.shape[2:])
        gx = kernels.sum_pooling_gradient(gy, windows)
        gx /= self.kh * self.kw
        return (gx,)

    return forward_cpu


# -- activations


def _relu(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        if not _plain(*inputs):
            return stock(self, inputs)
        self.retain_outputs((0,))
        return (kernels.relu(*inputs),)

    return forward_cpu


def _relu_gradient(kernels: ModuleType, stock: Method) -> Method:
    @wraps(stock)
    def forward_cpu(self: Any, inputs: Any) -> Any:
        if not _plain(*inputs, self.b):
            return stock(self, inputs)
        return (kernels.relu_gradient(self.b, *inputs),)

    return forward_cpu
