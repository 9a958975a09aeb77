"""Formulas of reductions, pooling, sampling of images, and normalisation."""

from __future__ import annotations

import math
from typing import Any

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import FunctionCost, about, exact, view


def _reduction(c: Call) -> int:
    """Count n - m operations for a reduction of n elements to m."""
    return c.x.size - c.y.size


# -- pooling: windows include their padding


def _window(c: Call) -> int:
    f = c.function
    return math.prod(f.ksize) if hasattr(f, "ksize") else int(f.kh * f.kw)


def _average_pooling_backward(c: Call) -> Work:
    """Count a division per gradient, and an addition per element of its window."""
    return c.work(c.y.size * (1 + _window(c)), read=c.read())


def _max_pooling_backward(c: Call) -> Work:
    """Count the indices of the maxima as read: int64 on a CPU, int32 on a GPU."""
    indices: Any = getattr(c.function, "indexes", None)
    nbytes = 8 * c.y.size if indices is None else int(indices.nbytes)
    return c.work(c.y.size, read=c.read() + nbytes)


# -- normalisation; channels are the elements of gamma


def _batch_normalization(c: Call) -> Work:
    """Count per element: mean 1, difference 1, variance 2, division 1, gamma and beta 2.

    Plus 3 operations per channel for the statistics and for each running average.
    """
    f, channels = c.function, c.inputs[1]
    running = (getattr(f, "running_mean", None), getattr(f, "running_var", None))
    n_running = sum(average is not None for average in running)
    nbytes = n_running * channels.nbytes
    flops = 7 * c.x.size + 3 * channels.size * (1 + n_running)
    return c.work(flops, read=c.read(0, 1, 2) + nbytes, written=c.y.nbytes + nbytes)


def _batch_normalization_backward(c: Call) -> Work:
    """Count per element: normalised x 2, gbeta 1, ggamma 2, gx 5.

    Chainer computes gbeta and ggamma even if they are not needed.
    """
    channels = c.inputs[1]
    flops = 5 * c.x.size - 2 * channels.size
    if c.needed[0]:
        flops += 5 * c.x.size + channels.size
    return c.work(flops, read=c.read(*(0, 1)[: 1 + c.needed[0]]) + 2 * channels.nbytes)


def _layer_normalization_backward(c: Call) -> Work:
    """Count per element: normalised x 5, gbeta 1, ggamma 2, scaled g 1, gx 7; 3 per example."""
    n, channels = c.x.size, c.inputs[1].size
    flops = (5 * n + 3 * c.x.shape[0]) * (c.needed[0] or c.needed[1]) + 8 * n * c.needed[0]
    flops += (2 * n - channels) * c.needed[1] + (n - channels) * c.needed[2]
    return c.work(flops, read=c.read(0, 1))


TABLE = (
    # Reductions.
    FunctionCost("Sum SumTo", forward=_reduction, backward=view),
    FunctionCost("Max Min", forward=_reduction, backward=about(1)),
    FunctionCost("Prod", forward=_reduction, backward=about(4)),
    FunctionCost("ArgMax ArgMin", forward=_reduction),
    FunctionCost(
        "Mean",
        forward=exact(1),
        backward=lambda c: c.work(c.y.size, read=c.read(), written=c.y.nbytes),
    ),
    FunctionCost("Cumsum", forward=about(1), backward=about(1, only_gradients=True)),
    FunctionCost("Cumprod Cumprodsum", forward=about(1), backward=about(2)),
    FunctionCost("LogSumExp", forward=exact(4), backward=about(3)),
    FunctionCost("BatchL2NormSquared", forward=about(2), backward=about(2)),
    # Pooling.
    FunctionCost(
        "AveragePooling2D AveragePoolingND",
        forward=lambda c: c.y.size * _window(c),
        backward=_average_pooling_backward,
    ),
    FunctionCost(
        "MaxPoolingND",
        forward=lambda c: c.y.size * (_window(c) - 1),
        backward=_max_pooling_backward,
    ),
    FunctionCost(
        "ROIPooling2D ROIMaxPooling2D ROIAveragePooling2D Unpooling2D UnpoolingND",
        forward=about(1),
        backward=about(1),
    ),
    FunctionCost("ROIMaxAlign2D ROIAverageAlign2D", forward=about(9), backward=about(8)),
    # Sampling of images.
    FunctionCost("ResizeImages", forward=about(8), backward=about(8)),
    FunctionCost("SpatialTransformerSampler", forward=about(14), backward=about(36)),
    # Normalisation.
    FunctionCost(
        "BatchNormalization",
        forward=_batch_normalization,
        backward=_batch_normalization_backward,
    ),
    FunctionCost(
        "FixedBatchNormalization",
        forward=lambda c: 4 * c.x.size + 3 * c.inputs[1].size,
        backward=about(6),
    ),
    FunctionCost("BatchRenormalizationFunction", forward=about(10), backward=about(10)),
    FunctionCost(
        "LayerNormalization",
        forward=lambda c: 7 * c.x.size + 3 * c.x.shape[0],
        backward=_layer_normalization_backward,
    ),
    FunctionCost("GroupNormalization", forward=about(7), backward=about(13)),
    FunctionCost("LocalResponseNormalization", forward=about(9), backward=about(10)),
    FunctionCost("NormalizeL2", forward=about(3), backward=about(8)),
)
