"""Chainer's CPU functions on PyTorch's kernels, with the names and arguments of the NumPy kernels.

Arrays are shared with PyTorch, not copied.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from chainer_profile.kernels import numpy_kernels
from chainer_profile.kernels.windows import Array, Sizes, Windows

max_pooling = numpy_kernels.max_pooling
max_pooling_gradient = numpy_kernels.max_pooling_gradient
sum_pooling = numpy_kernels.sum_pooling
sum_pooling_gradient = numpy_kernels.sum_pooling_gradient
threads, set_threads = torch.get_num_threads, torch.set_num_threads


def _accepts(windows: Windows) -> bool:
    """Whether PyTorch accepts windows: all lie in the padded image, and cover some of the image."""
    sizes = zip(windows.covered, windows.dims, windows.pad, strict=True)
    fit = all(covered <= n + 2 * p for covered, n, p in sizes)
    return len(windows.dims) <= 3 and fit and windows.meet_image


def _finite(*arrays: Array) -> bool:
    """Whether all numbers of arrays are finite; the arrays are small, because they are copied."""
    return bool(np.isfinite(np.concatenate(arrays, axis=None)).all())


def _tensor(array: Array) -> Any:
    """A tensor in the memory of an array, or of its copy if PyTorch cannot share that."""
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


#: With at most these channels, oneDNN is faster if the channels are last in memory.
_MAX_CHANNELS_LAST = 64
#: From these multiply-adds of an image on, the gradient of W is faster by BLAS. It also is if the
#: windows have both a stride and a dilation.
_MIN_BLAS_MACS = 1 << 25
#: With fewer multiply-adds, a convolution gains less than a call of PyTorch costs.
_MIN_MACS = 1 << 22
#: With fewer pixels in all outputs, oneDNN takes too long to reorder the weights.
_MIN_PIXELS = 128
#: Output channels of a group up to which oneDNN is faster than BLAS. With more, a window must have
#: at least this number of values for each output channel.
_MAX_OUT, _MIN_WINDOW = 32, 8
#: With fewer channels of an image in a group, or with more output channels for each channel of the
#: image, oneDNN computes the image's gradient slowly.
_MIN_CHANNELS, _MAX_RATIO = 16, 4
#: From these numbers on, batch normalisation is faster: with given statistics, in training, and its
#: gradients.
_MIN_NORMALIZED, _MIN_STATISTICS, _MIN_GRADIENTS = 1 << 16, 1 << 20, 1 << 16


def _is_faster(n: int, w_shape: Sizes, windows: Windows) -> bool:
    """Whether PyTorch is faster for a convolution or its gradient of W (out, in / groups, ...)."""
    macs = n * prod(w_shape) * prod(windows.outs)
    is_large = macs >= _MIN_MACS and n * prod(windows.outs) >= _MIN_PIXELS
    has_windows = prod(windows.ksize) > 1  # without, BLAS multiplies the image itself
    # Otherwise copying the windows for BLAS takes little of the time.
    out = w_shape[0] // windows.groups
    is_narrow = out <= _MAX_OUT or _MIN_WINDOW * out <= prod(w_shape[1:])
    return _accepts(windows) and is_large and has_windows and is_narrow


def _is_faster_deconvolution(n: int, w_shape: Sizes, windows: Windows) -> bool:
    """Whether PyTorch is faster for a deconvolution of W (in, out / groups, ...)."""
    macs = n * prod(w_shape) * prod(windows.outs)
    is_large = macs >= _MIN_MACS and n * prod(windows.outs) >= _MIN_PIXELS
    has_windows = prod(windows.ksize) > 1
    is_narrow = (
        w_shape[1] >= _MIN_CHANNELS and w_shape[0] <= _MAX_RATIO * w_shape[1] * windows.groups
    )
    return _accepts(windows) and is_large and has_windows and is_narrow


def _memory_format(windows: Windows, *channels: int) -> Any:
    """Choose PyTorch's memory format for the arrays and the result of a convolution."""
    last = len(windows.dims) == 2 and max(channels) <= _MAX_CHANNELS_LAST
    return torch.channels_last if last else torch.contiguous_format


def _geometry(windows: Windows) -> tuple[Any, ...]:
    """The arguments of PyTorch's convolution and of its backward that describe windows."""
    not_transposed, no_padding = False, [0] * len(windows.dims)
    placed = windows.stride, windows.pad, windows.dilate
    return *placed, not_transposed, no_padding, windows.groups


def convolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    if not _is_faster(len(x), w.shape, windows):
        return numpy_kernels.convolution(x, w, b, windows)
    order = _memory_format(windows, x.shape[1], len(w))
    return torch.ops.aten.convolution(
        _tensor(x).contiguous(memory_format=order),
        _tensor(w).contiguous(memory_format=order),
        None if b is None else _tensor(b),
        *_geometry(windows),
    ).numpy()


def _gradient(gy: Array, x: Any, w: Any, windows: Windows, of_x: bool) -> Array:
    """The gradient of a convolution's x if ``of_x``, or else of W; its values are not used."""
    order = _memory_format(windows, x.shape[1], len(w))
    gradients = torch.ops.aten.convolution_backward(
        *(tensor.contiguous(memory_format=order) for tensor in (_tensor(gy), x, w)),
        None,
        *_geometry(windows),
        [of_x, not of_x, False],
    )
    return gradients[0 if of_x else 1].numpy()


def convolution_gradient_w(x: Array, gy: Array, w_shape: Sizes, windows: Windows) -> Array | None:
    """The gradient of a convolution's W; contiguous, as W is."""
    by_blas = prod(w_shape) * prod(windows.outs) >= _MIN_BLAS_MACS
    by_blas |= max(windows.stride) > 1 and max(windows.dilate) > 1
    if by_blas or not _is_faster(len(x), w_shape, windows):
        return numpy_kernels.convolution_gradient_w(x, gy, w_shape, windows)
    image = _tensor(x)
    w = image.new_empty(tuple(w_shape))
    return np.ascontiguousarray(_gradient(gy, image, w, windows, of_x=False))


def deconvolution(x: Array, w: Array, b: Array | None, windows: Windows) -> Array | None:
    """A deconvolution, computed as the gradient of a convolution's input."""
    if not _is_faster_deconvolution(len(x), w.shape, windows):
        return numpy_kernels.deconvolution(x, w, b, windows)
    matrix = _tensor(w)
    order = _memory_format(windows, w.shape[1] * windows.groups, len(w))
    size = len(x), w.shape[1] * windows.groups, *windows.dims
    image = torch.empty(size, dtype=matrix.dtype, memory_format=order)
    y = _gradient(x, image, matrix, windows, of_x=True)
    if b is not None:
        y += b.reshape(-1, *(1,) * len(windows.dims))
    return y


def normalized(x: Array, mean: Array, inv_std: Array, gamma: Array, beta: Array) -> Array:
    """Batch normalisation with given statistics."""
    by_channel = x.ndim > 2 and mean.size == x.shape[1] == mean.shape[1]
    is_faster = by_channel and numpy_kernels.has_many_pixels(x) and x.size >= _MIN_NORMALIZED
    if not is_faster or not _finite(mean, inv_std, gamma, beta):
        return numpy_kernels.normalized(x, mean, inv_std, gamma, beta)
    statistics = (_tensor(array.reshape(-1)) for array in (gamma, beta, mean, inv_std**-2.0))
    y = torch.ops.aten.native_batch_norm(_tensor(x), *statistics, False, 0.0, 0.0)[0]
    return y.numpy()


def batch_normalization(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Batch normalisation in training: the output; mean, variance and 1 / std of every channel."""
    count = x.size // gamma.size
    if not numpy_kernels.has_many_pixels(x) or x.size < _MIN_STATISTICS:
        return numpy_kernels.batch_normalization(x, gamma, beta, eps)
    # With a momentum of 1, the running averages equal this batch's; the variance is unbiased.
    mean, var = np.zeros_like(gamma), np.zeros_like(gamma)
    y, _, inv_std = torch.ops.aten.native_batch_norm(
        *map(_tensor, (x, gamma, beta, mean, var)), True, 1.0, eps
    )
    if not _finite(gamma, beta, mean, var):
        return numpy_kernels.batch_normalization(x, gamma, beta, eps)
    var *= (count - 1) / count
    return y.numpy(), mean, var, inv_std.numpy()


def batch_normalization_gradients(
    x: Array, gy: Array, gamma: Array, mean: Array, inv_std: Array
) -> tuple[Array, Array, Array]:
    """Gradients of x, gamma and beta of batch normalisation in training."""
    if not numpy_kernels.has_many_pixels(x) or x.size < _MIN_GRADIENTS:
        return numpy_kernels.batch_normalization_gradients(x, gy, gamma, mean, inv_std)
    gx, ggamma, gbeta = torch.ops.aten.native_batch_norm_backward(
        *map(_tensor, (gy, x, gamma)),
        None,
        None,
        *map(_tensor, (mean, inv_std)),
        True,
        0.0,
        [True, True, True],
    )
    if not _finite(gamma, mean, inv_std, ggamma.numpy(), gbeta.numpy()):
        return numpy_kernels.batch_normalization_gradients(x, gy, gamma, mean, inv_std)
    return gx.numpy(), ggamma.numpy(), gbeta.numpy()
