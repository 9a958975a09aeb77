"""ONNX for functions that ``onnx_chainer`` lacks, or some of whose arguments it ignores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import chainer
import numpy as np
from chainer.utils.conv import get_conv_outsize

#: Makes ONNX nodes from a function and the names of its tensors, as the exporter gives them.
_Converter = Callable[[Any], Any]


def _single(params: Any, kind: str, **attributes: Any) -> Any:
    from onnx_chainer import onnx_helper

    node = onnx_helper.make_node(kind, params.input_names, params.output_names, **attributes)
    return (node,)


def _builder() -> Any:
    from onnx_chainer import onnx_helper

    return onnx_helper.GraphBuilder()


def _transpose(params: Any) -> Any:
    # ONNX has no negative axes here.
    axes, ndim = params.func.axes, len(params.func.inputs[0].shape)
    perm = range(ndim)[::-1] if axes is None else [axis % ndim for axis in axes]
    return _single(params, "Transpose", perm=list(perm))


def _resize_images(params: Any) -> Any:
    func = params.func
    size = (*func.inputs[0].shape[:2], func.out_H, func.out_W)
    empty = np.array([], np.float32)
    params.input_names.extend(
        [
            params.context.add_const(empty, "roi"),
            params.context.add_const(empty, "scales"),
            params.context.add_const(np.array(size, np.int64), "sizes"),
        ]
    )
    corners = getattr(func, "align_corners", True)
    nearest = getattr(func, "mode", "bilinear") == "nearest"
    return _single(
        params,
        "Resize",
        mode="nearest" if nearest else "linear",
        nearest_mode="round_prefer_floor",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )


def _convolution_nd(params: Any) -> Any:
    func = params.func
    return _single(
        params,
        "Conv",
        kernel_shape=func.inputs[1].shape[2:],
        pads=list(func.pad) * 2,
        strides=list(func.stride),
        dilations=list(func.dilate),
        group=func.groups,
    )


def _deconvolution(params: Any, sizes: Sequence[int], pad: Any, stride: Any, dilate: Any) -> Any:
    func = params.func
    kernel = func.inputs[1].shape[2:]
    # Chainer pads the beginning by ``pad``, and the end by the rest.
    shape = func.inputs[0].shape[2:]
    ends = [
        s * (n - 1) + d * (k - 1) + 1 - begin - size
        for n, k, s, d, begin, size in zip(shape, kernel, stride, dilate, pad, sizes, strict=True)
    ]
    extra = [max(0, -end) for end in ends]
    return _single(
        params,
        "ConvTranspose",
        kernel_shape=kernel,
        pads=[*pad, *(max(0, end) for end in ends)],
        output_padding=extra,
        strides=list(stride),
        dilations=list(dilate),
        group=func.groups,
    )


def _deconvolution_2d(params: Any) -> Any:
    func = params.func
    sizes, pad = (func.outh, func.outw), (func.ph, func.pw)
    return _deconvolution(params, sizes, pad, (func.sy, func.sx), (func.dy, func.dx))


def _deconvolution_nd(params: Any) -> Any:
    func = params.func
    return _deconvolution(params, func.outs, func.pad, func.stride, func.dilate)


def _per_channel(params: Any, gb: Any) -> str:
    """The second input, which belongs to the axes after the batch; in ONNX it would to the last."""
    x, second = (node.shape for node in params.func.inputs)
    name: str = params.input_names[1]
    missing = len(x) - 1 - len(second)
    if second and missing > 0:
        shape = np.array((*second, *([1] * missing)), np.int64)
        name = gb.op("Reshape", [name, params.context.add_const(shape, "shape")])
    return name


def _prelu(params: Any) -> Any:
    gb = _builder()
    gb.op("PRelu", [params.input_names[0], _per_channel(params, gb)])
    return gb.nodes(params.output_names)


def _normalize(params: Any) -> Any:
    func, (x,) = params.func, params.input_names
    eps = params.context.add_const(np.array(func.eps, func.inputs[0].dtype), "eps")
    axes = [func.axis] if isinstance(func.axis, int) else list(func.axis)
    gb = _builder()
    norm = gb.op("Add", [gb.op("ReduceL2", [x], axes=axes, keepdims=1), eps])
    gb.op("Div", [x, norm])
    return gb.nodes(params.output_names)


def _where(params: Any) -> Any:
    func, context = params.func, params.context
    name, is_input = context.name_list.get(id(func.condition), ("", False))
    if not is_input:
        condition = chainer.backends.cuda.to_cpu(func.condition).astype(np.bool_)
        name = context.add_const(condition, "condition")
    params.input_names.insert(0, name)
    return _single(params, "Where")


def _clipped_relu(params: Any) -> Any:
    dtype = params.func.inputs[0].dtype
    for name, value in (("zero", 0), ("cap", params.func.cap)):
        params.input_names.append(params.context.add_const(np.array(value, dtype), name))
    return _single(params, "Clip")


def _softplus(params: Any) -> Any:
    beta = float(params.func.beta)
    if beta == 1:
        return _single(params, "Softplus")
    dtype = params.func.inputs[0].dtype
    gb = _builder()
    factor = params.context.add_const(np.array(beta, dtype), "beta")
    inner = gb.op("Softplus", [gb.op("Mul", [params.input_names[0], factor])])
    gb.op("Div", [inner, factor])
    return gb.nodes(params.output_names)


def _swish(params: Any) -> Any:
    x = params.input_names[0]
    gb = _builder()
    gb.op("Mul", [x, gb.op("Sigmoid", [gb.op("Mul", [x, _per_channel(params, gb)])])])
    return gb.nodes(params.output_names)


def _layer_normalization(params: Any) -> Any:
    x, gamma, beta = params.input_names
    dtype = params.func.inputs[0].dtype
    eps = params.context.add_const(np.array(params.func.eps, dtype), "eps")
    gb = _builder()
    centred = gb.op("Sub", [x, gb.op("ReduceMean", [x], axes=[1], keepdims=1)])
    variance = gb.op("ReduceMean", [gb.op("Mul", [centred, centred])], axes=[1], keepdims=1)
    scaled = gb.op("Div", [centred, gb.op("Sqrt", [gb.op("Add", [variance, eps])])])
    gb.op("Add", [gb.op("Mul", [scaled, gamma]), beta])
    return gb.nodes(params.output_names)


def _max_pooling(params: Any) -> Any:
    # Pads are explicit, since ONNX's ceil_mode omits windows that begin in the padding. Windows of
    # padding alone do not exist in ONNX: they are added around the others.
    func = params.func
    begins, ends, before, behind = [], [], [], []
    sizes = zip(func.inputs[0].shape[2:], func.ksize, func.stride, func.pad, strict=True)
    for n, k, s, p in sizes:
        starts = [i * s - p for i in range(get_conv_outsize(n, k, s, p, func.cover_all))]
        real = [start for start in starts if -k < start < n]
        if not real or real[0] > 0:
            raise ValueError("its first windows hold only padding, and the next ones skip elements")
        begins.append(max(0, -real[0]))
        ends.append(max(0, real[-1] + k - n))
        before.append(starts.index(real[0]))
        behind.append(len(starts) - len(real) - before[-1])
    settings = {
        "kernel_shape": list(func.ksize),
        "strides": list(func.stride),
        "pads": [*begins, *ends],
    }
    if not any(before + behind):
        return _single(params, "MaxPool", **settings)
    pads = np.array([0, 0, *before, 0, 0, *behind], np.int64)
    least = np.array(-np.inf, func.inputs[0].dtype)
    gb = _builder()
    pooled = gb.op("MaxPool", [params.input_names[0]], **settings)
    constants = [params.context.add_const(pads, "pads"), params.context.add_const(least, "least")]
    gb.op("Pad", [pooled, *constants])
    return gb.nodes(params.output_names)


def _average_pooling_nd(params: Any) -> Any:
    func = params.func
    if func.cover_all:
        raise ValueError("cover_all")
    return _single(
        params,
        "AveragePool",
        kernel_shape=list(func.ksize),
        strides=list(func.stride),
        pads=list(func.pad) * 2,
        count_include_pad=int(func.pad_value is not None),
    )


def _multi_add(params: Any) -> Any:
    # ONNX's Sum may add in another order than Chainer, and round differently.
    first, *others = params.input_names
    if not others:
        return _single(params, "Identity")
    gb = _builder()
    for other in others:
        first = gb.op("Add", [first, other])
    return gb.nodes(params.output_names)


def _flip(axis: Callable[[Any], int]) -> _Converter:
    def convert(params: Any) -> Any:
        # Backwards; the least number stands for the place before the first element.
        numbers = {"starts": -1, "ends": np.iinfo(np.int64).min, "axes": axis(params.func)}
        for name, value in (numbers | {"steps": -1}).items():
            params.input_names.append(params.context.add_const(np.array([value], np.int64), name))
        return _single(params, "Slice")

    return convert


def _embed_id(params: Any) -> Any:
    func, context, (x, weights) = params.func, params.context, params.input_names
    gb = _builder()
    if func.ignore_label is None:
        gb.op("Gather", [weights, x], axis=0)
        return gb.nodes(params.output_names)
    indices, table = func.inputs
    label = context.add_const(np.array(func.ignore_label, indices.dtype), "ignore_label")
    ignored = gb.op("Equal", [x, label])
    inside = gb.op("Where", [ignored, context.add_const(np.array(0, indices.dtype), "first"), x])
    rows = gb.op("Gather", [weights, inside], axis=0)
    ignored_rows = gb.op("Unsqueeze", [ignored], axes=[len(indices.shape)])
    gb.op("Where", [ignored_rows, context.add_const(np.array(0, table.dtype), "nothing"), rows])
    return gb.nodes(params.output_names)


#: By the name of the function's class. They take precedence over the exporter's own.
CONVERTERS: dict[str, _Converter] = {
    "AveragePoolingND": _average_pooling_nd,
    "ClippedReLU": _clipped_relu,
    "ConvolutionND": _convolution_nd,
    "Deconvolution2DFunction": _deconvolution_2d,
    "DeconvolutionND": _deconvolution_nd,
    "EmbedIDFunction": _embed_id,
    "Erf": lambda params: _single(params, "Erf"),
    "Flip": _flip(lambda func: func.axis),
    "FlipLR": _flip(lambda func: 1),
    "FlipUD": _flip(lambda func: 0),
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
