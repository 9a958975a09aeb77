"""Convolutions, transposed convolutions and what gathers their windows.

A convolution's window is a dot product over the input channels of its group and all places of the
kernel. Places in the padding count: Chainer multiplies those zeros too, as do the usual figures.
"""

from __future__ import annotations

import math

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

_2D = "connection.convolution_2d."
_ND = "connection.convolution_nd."
_DE_2D = "connection.deconvolution_2d."
_DE_ND = "connection.deconvolution_nd."

Gradients = tuple[Array | None, ...]


@forward(_2D + "Convolution2DFunction", _ND + "ConvolutionND")
def convolution(c: Call) -> Array:
    """Output elements x input channels of a group x kernel places multiply-adds, and a bias.

    Any stride, dilation, number of groups and of dimensions: they are in the shapes.
    """
    x, w = c.x[:2]
    (y,) = c.outputs
    result = c.products(y.size * math.prod(w.shape[1:]), x, w, shape=y.shape)
    return _biased(c, result)


@forward(_DE_2D + "Deconvolution2DFunction", _DE_ND + "DeconvolutionND")
def deconvolution(c: Call) -> Array:
    """Input elements x output channels of a group x kernel places multiply-adds, and a bias.

    Those that fall outside of the output, by padding, count.
    """
    x, w = c.x[:2]
    shape = c.outputs[0].shape
    return _biased(c, c.products(x.size * math.prod(w.shape[1:]), x, w, shape=shape))


def _biased(c: Call, y: Array) -> Array:
    if len(c.x) < 3:
        return y
    return c.count(y.size, c.x[2], shape=y.shape)


@forward(_2D + "Convolution2DGradW", _ND + "ConvolutionNDGradW")
def convolution_gradient_of_w(c: Call) -> Array:
    """Elements of gy x input channels of a group x kernel places multiply-adds.

    A row of its own only where the graph goes through a gradient (double backpropagation).
    """
    x, gy = c.x
    w = c.outputs[0].shape
    return c.products(gy.size * math.prod(w[1:]), x, gy, shape=w)


@forward("connection.local_convolution_2d.LocalConvolution2DFunction")
def local_convolution(c: Call) -> Array:
    """Output elements x input channels x kernel places multiply-adds, and a bias an element."""
    x, w = c.x[:2]
    (y,) = c.outputs
    return _biased(c, c.products(y.size * math.prod(w.shape[3:]), x, w, shape=y.shape))


@backward("connection.local_convolution_2d.LocalConvolution2DFunction")
def local_convolution_backward(c: Call) -> Gradients:
    """As many multiply-adds as forward for each of x and W; b: sum over the batch."""
    x, w = c.x[:2]
    (gy,) = c.gy
    macs = gy.size * math.prod(w.shape[3:])
    gx = c.products(macs, gy, w, shape=x.shape) if c.needs(0) else None
    gw = c.products(macs, gy, x, shape=w.shape) if c.needs(1) else None
    if len(c.x) < 3:
        return gx, gw
    return gx, gw, gy.sum(0) if c.needs(2) else None


@forward("connection.shift.Shift")
def shift(c: Call) -> Array:
    """No operation: a copy."""
    return c.copy(c.x[0])


@forward("array.im2col.Im2Col")
def im2col(c: Call) -> Array:
    """No operation: copies every window."""
    return c.copy(c.x[0], shape=c.outputs[0].shape)


@backward("array.im2col.Im2Col")
def im2col_backward(c: Call) -> Array:
    """An addition for every element of every window."""
    return c.count(c.gy[0].size, c.gy[0], shape=c.x[0].shape)
