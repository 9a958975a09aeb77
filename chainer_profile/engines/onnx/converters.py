"""Converters to ONNX, for functions that ``onnx_chainer`` does not convert or converts wrongly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import chainer
import numpy as np
from chainer.utils.conv import get_conv_outsize


class _Graph:
    """The ONNX nodes of a function. The last node has the function's output."""

    def __init__(self, params: Any) -> None:
        from onnx_chainer import onnx_helper

        #: Names of the function's inputs.
        self.inputs: list[str] = params.input_names
        self.context = params.context
        self._dtype = params.func.inputs[0].dtype
        self._builder = onnx_helper.GraphBuilder()
        self._n_constants = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name: str = self._builder.op(kind, list(inputs), **attributes)
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant; return its name. Default type: the type of the first input."""
        self._n_constants += 1
        array = np.array(value, dtype or self._dtype)
        name: str = self.context.add_const(array, str(self._n_constants))
        return name

    def per_channel(self, func: Any) -> str:
        """Reshape the second input so that ONNX broadcasts it from the axis after the batch.

        ONNX would align it with the last axes. Returns the name of the reshaped input.
        """
        x, second = (node.shape for node in func.inputs)
        n_missing = len(x) - 1 - len(second)
        if not second or n_missing <= 0:
            return self.inputs[1]
        shape = self.constant((*second, *([1] * n_missing)), np.int64)
        return self.op("Reshape", self.inputs[1], shape)

    def nodes(self, output_names: list[str]) -> Any:
        return self._builder.nodes(output_names)


#: A function that adds the nodes of a Chainer function to a graph.
_Converter = Callable[[_Graph, Any], object]


def _transpose(graph: _Graph, func: Any) -> None:
    # ONNX's Transpose has no negative axes.
    ndim = len(func.inputs[0].shape)
    perm = range(ndim)[::-1] if func.axes is None else [axis % ndim for axis in func.axes]
    graph.op("Transpose", *graph.inputs, perm=list(perm))


def _resize_images(graph: _Graph, func: Any) -> None:
    size = (*func.inputs[0].shape[:2], func.out_H, func.out_W)
    no_roi, no_scales = graph.constant([], np.float32), graph.constant([], np.float32)
    corners = getattr(func, "align_corners", True)
    nearest = getattr(func, "mode", "bilinear") == "nearest"
    graph.op(
        "Resize",
        *(*graph.inputs, no_roi, no_scales, graph.constant(size, np.int64)),
        mode="nearest" if nearest else "linear",
        nearest_mode="round_prefer_floor",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )


def _convolution_nd(graph: _Graph, func: Any) -> None:
    graph.op(
        "Conv",
        *graph.inputs,
        kernel_shape=func.inputs[1].shape[2:],
        pads=list(func.pad) * 2,
        strides=list(func.stride),
        dilations=list(func.dilate),
        group=func.groups,
    )


def _deconvolution(graph: _Graph, func: Any) -> None:
    if hasattr(func, "outs"):
        sizes, pad, stride, dilate = func.outs, func.pad, func.stride, func.dilate
    else:
        sizes, pad = (func.outh, func.outw), (func.ph, func.pw)
        stride, dilate = (func.sy, func.sx), (func.dy, func.dx)
    shape, kernel = (node.shape[2:] for node in func.inputs[:2])
    # Chainer pads the beginning by ``pad``, and the end as far as the output size requires.
    ends = [
        s * (n - 1) + d * (k - 1) + 1 - begin - size
        for n, k, s, d, begin, size in zip(shape, kernel, stride, dilate, pad, sizes, strict=True)
    ]
    graph.op(
        "ConvTranspose",
        *graph.inputs,
        kernel_shape=kernel,
        pads=[*pad, *(max(0, end) for end in ends)],
        output_padding=[max(0, -end) for end in ends],
        strides=list(stride),
        dilations=list(dilate),
        group=func.groups,
    )


def _prelu(graph: _Graph, func: Any) -> None:
    graph.op("PRelu", graph.inputs[0], graph.per_channel(func))


def _swish(graph: _Graph, func: Any) -> None:
    x = graph.inputs[0]
    graph.op("Mul", x, graph.op("Sigmoid", graph.op("Mul", x, graph.per_channel(func))))


def _normalize(graph: _Graph, func: Any) -> None:
    (x,) = graph.inputs
    axes = [func.axis] if isinstance(func.axis, int) else list(func.axis)
    norm = graph.op("ReduceL2", x, axes=axes, keepdims=1)
    graph.op("Div", x, graph.op("Add", norm, graph.constant(func.eps)))


def _where(graph: _Graph, func: Any) -> None:
    name, is_input = graph.context.name_list.get(id(func.condition), ("", False))
    if not is_input:
        name = graph.constant(chainer.backends.cuda.to_cpu(func.condition), np.bool_)
    graph.op("Where", name, *graph.inputs)


def _clipped_relu(graph: _Graph, func: Any) -> None:
    graph.op("Clip", *graph.inputs, graph.constant(0), graph.constant(func.cap))


def _softplus(graph: _Graph, func: Any) -> None:
    (x,) = graph.inputs
    if func.beta == 1:
        graph.op("Softplus", x)
        return
    beta = graph.constant(float(func.beta))
    graph.op("Div", graph.op("Softplus", graph.op("Mul", x, beta)), beta)


def _layer_normalization(graph: _Graph, func: Any) -> None:
    x, gamma, beta = graph.inputs
    centred = graph.op("Sub", x, graph.op("ReduceMean", x, axes=[1], keepdims=1))
    squares = graph.op("Mul", centred, centred)
    variance = graph.op("ReduceMean", squares, axes=[1], keepdims=1)
    deviation = graph.op("Sqrt", graph.op("Add", variance, graph.constant(func.eps)))
    graph.op("Add", graph.op("Mul", graph.op("Div", centred, deviation), gamma), beta)


def _max_pooling(graph: _Graph, func: Any) -> None:
    # Pads are explicit, because ONNX's ceil_mode omits windows that begin in the padding. ONNX has
    # no windows that contain only padding: a Pad node adds them.
    begins, ends, before, after = [], [], [], []
    sizes = zip(func.inputs[0].shape[2:], func.ksize, func.stride, func.pad, strict=True)
    for n, k, s, p in sizes:
        starts = [i * s - p for i in range(get_conv_outsize(n, k, s, p, func.cover_all))]
        real = [start for start in starts if -k < start < n]
        if not real or real[0] > 0:
            raise ValueError("its first windows contain only padding, and the next skip elements")
        begins.append(max(0, -real[0]))
        ends.append(max(0, real[-1] + k - n))
        before.append(starts.index(real[0]))
        after.append(len(starts) - len(real) - before[-1])
    pooled = graph.op(
        "MaxPool",
        *graph.inputs,
        kernel_shape=list(func.ksize),
        strides=list(func.stride),
        pads=[*begins, *ends],
    )
    if any(before + after):
        pads = graph.constant([0, 0, *before, 0, 0, *after], np.int64)
        graph.op("Pad", pooled, pads, graph.constant(-np.inf))


def _average_pooling_nd(graph: _Graph, func: Any) -> None:
    if func.cover_all:
        raise ValueError("cover_all")
    graph.op(
        "AveragePool",
        *graph.inputs,
        kernel_shape=list(func.ksize),
        strides=list(func.stride),
        pads=list(func.pad) * 2,
        count_include_pad=int(func.pad_value is not None),
    )


def _multi_add(graph: _Graph, _func: Any) -> None:
    # ONNX's Sum may add in another order than Chainer, with other rounding errors.
    total, *others = graph.inputs
    if not others:
        graph.op("Identity", total)
    for other in others:
        total = graph.op("Add", total, other)


def _flip(graph: _Graph, axis: int) -> None:
    # From the last element backwards; the smallest integer ends the slice after the first element.
    start, end, step = -1, np.iinfo(np.int64).min, -1
    numbers = (graph.constant([number], np.int64) for number in (start, end, axis, step))
    graph.op("Slice", *graph.inputs, *numbers)


def _embed_id(graph: _Graph, func: Any) -> None:
    x, weights = graph.inputs
    if func.ignore_label is None:
        graph.op("Gather", weights, x, axis=0)
        return
    indices, table = func.inputs
    ignored = graph.op("Equal", x, graph.constant(func.ignore_label))
    rows = graph.op("Gather", weights, graph.op("Where", ignored, graph.constant(0), x), axis=0)
    ignored_rows = graph.op("Unsqueeze", ignored, axes=[len(indices.shape)])
    graph.op("Where", ignored_rows, graph.constant(0, table.dtype), rows)


def _convert(converter: _Converter, params: Any) -> Any:
    """Make the ONNX nodes of a function, as ``onnx_chainer`` calls its converters."""
    graph = _Graph(params)
    converter(graph, params.func)
    return graph.nodes(params.output_names)


_BY_KIND: dict[str, _Converter] = {
    "AveragePoolingND": _average_pooling_nd,
    "ClippedReLU": _clipped_relu,
    "ConvolutionND": _convolution_nd,
    "Deconvolution2DFunction": _deconvolution,
    "DeconvolutionND": _deconvolution,
    "EmbedIDFunction": _embed_id,
    "Erf": lambda graph, _: graph.op("Erf", *graph.inputs),
    "Flip": lambda graph, func: _flip(graph, func.axis),
    "FlipLR": lambda graph, _: _flip(graph, 1),
    "FlipUD": lambda graph, _: _flip(graph, 0),
    "LayerNormalization": _layer_normalization,
    "MaxPoolingND": _max_pooling,
    "MultiAdd": _multi_add,
    "NormalizeL2": _normalize,
    "PReLUFunction": _prelu,
    "ResizeImages": _resize_images,
    "Softplus": _softplus,
    "Swish": _swish,
    "Transpose": _transpose,
    "Where": _where,
}
#: Converters by the name of the function's class. Each makes ONNX nodes from the exporter's
#: parameters, and replaces the exporter's own converter.
CONVERTERS: dict[str, Callable[[Any], Any]] = {
    kind: partial(_convert, converter) for kind, converter in _BY_KIND.items()
}
