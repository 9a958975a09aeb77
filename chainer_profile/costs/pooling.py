"""Pooling. Windows count in full, with what of them lies in the padding or beyond the edge."""

from __future__ import annotations

import math
from typing import Any

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_AVERAGE = ("pooling.average_pooling_2d.AveragePooling2D", "pooling.average_pooling_nd.")
_UNPOOLING = ("pooling.unpooling_2d.Unpooling2D", "pooling.unpooling_nd.UnpoolingND")
_UPSAMPLING = "pooling.upsampling_2d.Upsampling2D"
_MAX = "pooling.max_pooling_nd.MaxPoolingND"
#: What Chainer on the CPU keeps the place of a maximum in; on a GPU that is int32.
_INDEX = "int64"


def _window(f: Any) -> int:
    """Number of places of a window."""
    if hasattr(f, "ksize"):
        return math.prod(f.ksize)
    window: int = f.kh * f.kw
    return window


@forward(_AVERAGE[0], _AVERAGE[1] + "AveragePoolingND")
def average_pooling(c: Call) -> Array:
    """As many operations an output element as a window has places: additions and a division."""
    shape = c.outputs[0].shape
    return c.count(c.outputs[0].size * _window(c.f), c.x[0], shape=shape)


@backward(_AVERAGE[0], _AVERAGE[1] + "AveragePoolingND")
def average_pooling_backward(c: Call) -> Array:
    """A division for each gradient that comes in; an addition for each place of its window."""
    (gy,) = c.gy
    return c.count(gy.size * (1 + _window(c.f)), gy, shape=c.x[0].shape)


@forward(_MAX)
def max_pooling(c: Call) -> Array:
    """A comparison an output element for each place of a window but the first.

    Chainer finds the maximum and its place in two passes; one is counted.
    """
    y = c.outputs[0]
    return c.count(y.size * (_window(c.f) - 1), c.x[0], shape=y.shape)


@backward(_MAX)
def max_pooling_backward(c: Call) -> Array:
    """An addition for each gradient that comes in, at a place that is read."""
    (gy,) = c.gy
    return c.count(gy.size, gy, c.kept("indexes", gy.shape, _INDEX), shape=c.x[0].shape)


@forward("pooling.max_pooling_nd.MaxPoolingNDWithIndexes")
def pick(c: Call) -> Array:
    """No operation: copies an element of each window; only of double backpropagation."""
    y = c.outputs[0]
    c.take_part(c.x[0], y.size)
    return c.new(y.shape)


@forward(*_UNPOOLING)
def unpooling(c: Call) -> Array:
    """An addition for each place of a window; none where windows do not overlap (2D, no pad)."""
    (x,) = c.x
    flops = 0 if getattr(c.f, "_use_int_scale_forward", False) else x.size * _window(c.f)
    return c.count(flops, x, shape=c.outputs[0].shape)


@backward(*_UNPOOLING)
def unpooling_backward(c: Call) -> Array:
    """The sum of each window of gradients: an addition for each place but the first."""
    (x,) = c.x
    return c.count(x.size * (_window(c.f) - 1), c.gy[0], shape=x.shape)


@forward(_UPSAMPLING)
def upsampling(c: Call) -> Array:
    """No operation: puts each element at a place that is read, zero elsewhere."""
    (x,) = c.x
    return c.copy(x, c.kept("indexes", x.shape, _INDEX), shape=c.outputs[0].shape)


@backward(_UPSAMPLING)
def upsampling_backward(c: Call) -> Array:
    """No operation: copies the gradient at a place of each window."""
    (x,), (gy,) = c.x, c.gy
    c.take(c.kept("indexes", x.shape, _INDEX))
    c.take_part(gy, x.size)
    return c.new(x.shape)


# Regions of interest. How many places a region has depends on its coordinates, not on shapes:
# each is taken to cover the whole feature map, and its bins to share that without overlap. The
# same figure for smaller regions is too large.

_ROI = "pooling.roi_"
_MAX_BINS = (_ROI + "pooling_2d.ROIPooling2D", _ROI + "max_pooling_2d.ROIMaxPooling2D")


def _places(c: Call) -> tuple[int, int]:
    """Places of the feature map in all regions and channels, and number of bins."""
    x, y = c.inputs[0], c.outputs[0]
    return y.shape[0] * y.shape[1] * math.prod(x.shape[2:]), y.size


@forward(*_MAX_BINS)
def roi_max_pooling(c: Call) -> Array:
    """A comparison for each place of a bin but the first; regions as large as the feature map."""
    places, bins = _places(c)
    return c.count(max(0, places - bins), *c.x, shape=c.outputs[0].shape)


@backward(*_MAX_BINS)
def roi_max_pooling_backward(c: Call) -> Gradients:
    """An addition for each bin, at a place that is read."""
    (gy,) = c.gy
    places = c.kept("argmax_data", gy.shape, "int32")
    return c.count(gy.size, gy, places, *c.x[1:], shape=c.x[0].shape), *_none(c)


@forward(_ROI + "average_pooling_2d.ROIAveragePooling2D")
def roi_average_pooling(c: Call) -> Array:
    """An operation for each place of a bin; regions as large as the feature map."""
    return c.count(_places(c)[0], *c.x, shape=c.outputs[0].shape)


@backward(_ROI + "average_pooling_2d.ROIAveragePooling2D")
def roi_average_pooling_backward(c: Call) -> Gradients:
    """A division a bin, an addition for each of its places; regions as large as the map."""
    places, bins = _places(c)
    return c.count(places + bins, c.gy[0], *c.x[1:], shape=c.x[0].shape), *_none(c)


def _none(c: Call) -> Gradients:
    """Coordinates and indices of regions have no gradient."""
    return (None,) * (len(c.x) - 1)


def _samples(c: Call) -> int:
    """Sampling points of a bin: as asked for, else enough for a region as large as the map."""
    _, _, height, width = c.inputs[0].shape
    ratios = c.f.sampling_ratio
    rows = ratios[0] or -(-height // c.f.outh)
    columns = ratios[1] or -(-width // c.f.outw)
    return int(rows * columns)


@forward(_ROI + "average_align_2d.ROIAverageAlign2D")
def roi_average_align(c: Call) -> Array:
    """4 multiply-adds a sampling point and a division a bin; where it lies is not counted.

    Without a sampling ratio there are as many points as for a region as large as the map.
    """
    y = c.outputs[0]
    return c.count(y.size * (8 * _samples(c) + 1), *c.x, shape=y.shape)


@backward(_ROI + "average_align_2d.ROIAverageAlign2D")
def roi_average_align_backward(c: Call) -> Gradients:
    """A division a bin; 4 products and 4 additions a sampling point."""
    gy = c.gy[0]
    flops = gy.size * (8 * _samples(c) + 1)
    return c.count(flops, gy, *c.x[1:], shape=c.x[0].shape), *_none(c)


@forward(_ROI + "max_align_2d.ROIMaxAlign2D")
def roi_max_align(c: Call) -> Array:
    """4 multiply-adds a sampling point and a comparison for each but the first."""
    y = c.outputs[0]
    return c.count(y.size * (9 * _samples(c) - 1), *c.x, shape=y.shape)


@backward(_ROI + "max_align_2d.ROIMaxAlign2D")
def roi_max_align_backward(c: Call) -> Gradients:
    """4 products and 4 additions a bin, at a point that is read."""
    (gy,) = c.gy
    points = c.kept("argmax_data", gy.shape, "int32")
    return c.count(8 * gy.size, gy, points, *c.x[1:], shape=c.x[0].shape), *_none(c)
