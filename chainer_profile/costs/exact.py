"""Formulas that are exact, by the name of the function's class in Chainer.

A formula gives the number of operations, each array being read or written once, or the work. A
backward without a formula is made of functions that have one: see :mod:`.called`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from chainer_profile.costs.call import ArraySpec, Call, Work, named

Formula = Callable[[Any], int | Work | None]
Count = Callable[[Call], int]


def _view(c: Call) -> Work:
    return c.work(0, inputs=(), gradients=0, written=0)


def _get_item(c: Call) -> Work:
    """A view by slices and numbers; by arrays of indices a copy of those elements."""
    arrays = [index for index in c.function.slices if not _is_basic(index)]
    if not arrays:
        return _view(c)
    indices = sum(int(getattr(index, "nbytes", 0)) for index in arrays)
    return c.work(0, inputs={0: c.y.nbytes}, others=indices)


def _is_basic(index: Any) -> bool:
    if index is None or index is Ellipsis or isinstance(index, (slice, int)):
        return True
    # A number of NumPy is one, a boolean of it is an array of them.
    return getattr(index, "shape", None) == () and str(getattr(index, "dtype", "")) != "bool"


def _clip(c: Call) -> int:
    """A comparison an element for each bound that is given."""
    return c.y.size * ((c.function.x_min is not None) + (c.function.x_max is not None))


# -- matrix products: a sum of k products is k multiply-adds


def _products(macs: Count) -> Formula:
    """So many multiply-adds; a third input is a bias, which is added to each element."""
    return lambda c: c.products(macs(c), c.y.size if len(c.inputs) > 2 else 0)


def _products_backward(macs: Count) -> Formula:
    """As many again for each of the first two inputs; the bias's gradient is a sum."""

    def formula(c: Call) -> Work:
        n = macs(c) * sum(c.needed[:2])
        bias = len(c.inputs) > 2 and c.needed[2]
        summed = max(0, c.y.size - c.inputs[2].size) if bias else 0
        return c.work(2 * n + summed, macs=n, inputs=[i for i in (0, 1) if c.needed[1 - i]])

    return formula


def _matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[-2] if c.function.transa and len(a) > 1 else a[-1])


def _batch_matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[1] if c.function.transa else math.prod(a[2:]))


def _convolution(c: Call) -> int:
    """A window has the channels of a group and the places of the kernel, padding included."""
    return c.y.size * math.prod(c.inputs[1].shape[1:])


def _local_convolution(c: Call) -> int:
    return c.y.size * math.prod(c.inputs[1].shape[3:])


def _einsum(c: Call) -> Work | int:
    """One sum over all places of the operands' indices.

    Each place is a multiplication for every operand after the first, and an addition.
    """
    sizes: dict[str, int] = {}
    for x, subscripts in zip(c.inputs, c.function.in_subs.split(","), strict=True):
        for letter, n in _named_axes(subscripts, x.shape):
            sizes[letter] = max(n, sizes.get(letter, 1))
    places = math.prod(sizes.values())
    # Letters of the result that no operand has: its diagonal, or elements that stay zero.
    kept = math.prod(n for letter, n in sizes.items() if letter[0] in c.function.out_sub)
    if len(c.inputs) == 1:
        return max(0, places - kept)
    if len(c.inputs) == 2 and places > kept:
        return c.products(places)
    return (len(c.inputs) - 1) * places + (places if places > kept else 0)


def _named_axes(subscripts: str, shape: Sequence[int]) -> list[tuple[str, int]]:
    """Names of an operand's axes; those of an ellipsis (``@``) count from the last."""
    before, ellipsis, after = subscripts.partition("@")
    n = len(shape) - len(before) - len(after) if ellipsis else 0
    names = [*before, *(f"@{n - i}" for i in range(n)), *after]
    return list(zip(names, shape, strict=True))


def _bilinear(c: Call) -> Work:
    """Outer products of e1 and e2, their product with W, and the linear terms."""
    n, w = c.x.shape[0], c.inputs[2]
    linear = sum(v.size for v in c.inputs[3:5])
    terms = 3 * c.y.size if linear else 0
    return c.products(n * (w.size + linear), n * math.prod(w.shape[:2]) + terms)


def _bilinear_backward(c: Call) -> Work:
    """W: outer products and their product with gy; e1, e2: gy W once, then a sum over the other."""
    n, w = c.x.shape[0], c.inputs[2]
    pairs = n * math.prod(w.shape[:2])
    macs = n * w.size * ((c.needed[0] or c.needed[1]) + c.needed[2]) + pairs * sum(c.needed[:2])
    beside = pairs * c.needed[2]
    for i, v in enumerate(c.inputs[3:5]):
        macs += n * v.size * (c.needed[i] + c.needed[3 + i])
        beside += c.inputs[i].size * c.needed[i]
    if len(c.inputs) == 6 and c.needed[5]:
        beside += c.y.size - c.inputs[5].size
    read = [i for i in range(len(c.inputs)) if i < 3 or (i < 5 and c.needed[i - 3])]
    return c.work(2 * macs + beside, macs=macs, inputs=read)


def _sparse(c: Call) -> Work:
    """Multiply-adds at the stored places, for each gradient; the indices are read as well."""
    columns = c.inputs[1].shape[-2 if c.function.transb else -1]
    macs = c.x.size * columns * (sum(c.needed) if c.needed else 1)
    indices = 2 * c.kept("sp_row", ArraySpec(c.x.shape, "int32"))
    return c.work(2 * macs, macs=macs, others=indices)


#: Multiply-adds of two arrays.
_MACS: dict[str, Count] = {
    "LinearFunction": lambda c: c.y.size * c.inputs[1].shape[1],
    "LinearGradData": lambda c: c.inputs[1].size * c.x.shape[1],
    "LinearGradWeight": lambda c: c.y.size * c.x.shape[0],
    "MatMul": _matmul,
    "BatchMatMul": _batch_matmul,
    # Of r x k, k x n and r x n elements the product is (r k n) squared.
    "TensorDot": lambda c: math.isqrt(c.x.size * c.inputs[1].size * c.y.size),
    **named("Convolution2DFunction ConvolutionND", _convolution),
    **named(
        "Deconvolution2DFunction DeconvolutionND",
        lambda c: c.x.size * math.prod(c.inputs[1].shape[1:]),
    ),
    **named(
        "Convolution2DGradW ConvolutionNDGradW",
        lambda c: c.inputs[1].size * math.prod(c.y.shape[1:]),
    ),
    "LocalConvolution2DFunction": _local_convolution,
}


# -- pooling: windows count in full, with what of them lies in the padding


def _window(c: Call) -> int:
    f = c.function
    return math.prod(f.ksize) if hasattr(f, "ksize") else int(f.kh * f.kw)


def _places(c: Call, like: ArraySpec) -> int:
    """Bytes of the places of maxima; Chainer keeps int64 on a CPU, int32 on a GPU."""
    return c.kept("indexes", ArraySpec(like.shape, "int64"))


def _unpooling(c: Call) -> int:
    """An addition for each place of a window; none where windows do not overlap."""
    return 0 if getattr(c.function, "_use_int_scale_forward", False) else c.x.size * _window(c)


# -- normalisation: n elements, c channels (elements of gamma)


def _batch_normalization(c: Call) -> Work:
    """Mean 1, difference 1, variance 2, over std 1, gamma and beta 2; a channel 3.

    Running averages are 3 a channel each, and are read and written.
    """
    f, channels = c.function, c.inputs[1]
    running = (getattr(f, "running_mean", None), getattr(f, "running_var", None))
    n_running = sum(average is not None for average in running)
    nbytes = n_running * channels.nbytes
    flops = 7 * c.x.size + 3 * channels.size * (1 + n_running)
    return c.work(flops, others=nbytes, written=c.y.nbytes + nbytes)


def _batch_normalization_backward(c: Call) -> Work:
    """Normalised x 2, gbeta 1, ggamma 2, gx 5; Chainer computes all three gradients together."""
    channels = c.inputs[1]
    flops = 5 * c.x.size - 2 * channels.size
    if c.needed[0]:
        flops += 5 * c.x.size + channels.size
    read = (0, 1) if c.needed[0] else (0,)
    return c.work(max(0, flops), inputs=read, others=2 * channels.nbytes)


def _fixed_batch_normalization_backward(c: Call) -> Work:
    """Gradients: x 1, beta 1, gamma 4; the mean's uses beta's, the variance's gamma's."""
    n, channels = c.x.size, c.inputs[1]
    x, gamma, beta, mean, variance = c.needed
    normalised = gamma or variance
    flops = n * x + (n - channels.size) * (beta or mean) + (4 * n - channels.size) * normalised
    flops += channels.size * ((x or mean) + 2 * mean + 3 * variance)
    read = (0, 1, 3) if normalised else (1,)
    return c.work(max(0, flops), inputs=read, others=channels.nbytes * (1 + variance))


def _normalization_backward(c: Call, normalised: int, kept: int = 0) -> Work:
    """Layer and group: normalised x so many, gbeta 1, ggamma 2, scaled g 1 and gx 7."""
    n, channels = c.x.size, c.inputs[1].size
    flops = normalised * (c.needed[0] or c.needed[1]) + 8 * n * c.needed[0]
    flops += (2 * n - channels) * c.needed[1] + (n - channels) * c.needed[2]
    return c.work(max(0, flops), inputs=(0, 1), others=kept)


def _group_normalization_backward(c: Call) -> Work:
    groups = ArraySpec((c.x.shape[0] * c.function.groups,), c.inputs[1].dtype)
    return _normalization_backward(c, 2 * c.x.size, kept=2 * groups.nbytes)


# -- softmax and its losses


def _rows(c: Call) -> int:
    length = c.x.shape[c.function.axis]
    return c.x.size // length if length else 0


def _softmax_cross_entropy(c: Call) -> Work:
    """Log-softmax 5, its exponential where kept; the labels' elements picked, summed and scaled."""
    f, x, t = c.function, c.x, c.inputs[1]
    labels = x.size // max(1, x.shape[1])
    flops, others = (6 if f.cache_score else 5) * x.size, 0
    if x.shape != t.shape:
        flops += labels
        if f.class_weight is not None:
            flops += x.size
            others = c.kept("class_weight", ArraySpec((x.shape[1],), x.dtype))
    elif f.soft_target_loss == "kl-divergence":
        flops += 5 * x.size - (labels if f.reduce == "no" else 0)
    else:
        flops += 2 * x.size + (0 if f.reduce == "no" else labels)
    return c.work(flops, others=others)


def _softmax_cross_entropy_backward(c: Call) -> Work:
    """A subtraction a label, a product an element; the softmax where it was not kept."""
    f, x, t = c.function, c.x, c.inputs[1]
    weighted = f.class_weight is not None and x.shape != t.shape
    flops = x.size * (1 + weighted + (0 if f.cache_score else 6)) + t.size
    return c.work(flops + (f.reduce == "mean"), written=x.nbytes)


# -- recurrent steps; a logistic function takes 4 operations, as Chainer computes it by tanh


def _tree_lstm_backward(c: Call) -> Work:
    """A cell 18, a child 5; the gates and c are kept from forward."""
    children = len(c.inputs) - 1
    flops, kept = c.y.size * (18 + 5 * children), c.y.nbytes * (4 + children)
    return c.work(flops, inputs=range(children), others=kept)


def _n_step(gates: int, operations: int, backward: int) -> Formula:
    """A recurrent network of cuDNN; on the CPU Chainer makes it of other functions.

    A step takes a product with the input and one with the state for each gate, which adds two
    biases and the two products. Backward takes two products for one.
    """

    def formula(c: Call) -> Work:
        hx, xs, layers = c.x.shape, c.inputs[-1].shape, int(c.function.n_layers)
        directions, hidden = hx[0] // max(1, layers), hx[2]
        n_inputs = xs[1] + (layers - 1) * directions * hidden
        steps = xs[0] * directions
        macs = steps * gates * hidden * (n_inputs + layers * hidden)
        macs, each = (2 * macs, backward) if c.needed else (macs, operations)
        flops = 2 * macs + steps * layers * hidden * (3 * gates + each)
        return c.work(flops, macs=macs, others=c.outputs[-1].nbytes if c.needed else 0)

    return formula


_N_STEP: dict[str, Formula] = {
    **named("NStepLSTM NStepBiLSTM", _n_step(4, 18, 36)),
    **named("NStepGRU NStepBiGRU", _n_step(3, 14, 27)),
    **named("NStepRNNTanh NStepBiRNNTanh NStepRNNReLU NStepBiRNNReLU", _n_step(1, 1, 3)),
}


# -- the tables

#: Operations for each element of functions that treat every element alike: forward, and backward
#: where that is not made of functions.
EACH: dict[str, tuple[int, int | None]] = {
    **named("Add Sub Mul Div PowVarVar Fmod Arctan2 Maximum Minimum", (1, None)),
    **named("AddConstant SubFromConstant MulConstant Neg Sqrt RsqrtGPU Square", (1, None)),
    **named("Exp Expm1 Log Log2 Log10 Log1p Cosh Sinh Tan Arctanh", (1, None)),
    **named("Erf Erfc Erfcx ErfInv ErfcInv Ndtr Ndtri LogNdtr LGamma Zeta PolyGamma", (1, None)),
    "ReLU": (1, 1),
    **named("Absolute Sin PowConstVar DiGamma", (1, 2)),
    **named("Tanh Cos Arctan DivFromConstant PowVarConst", (1, 3)),
    "Arcsin": (1, 4),
    "Arccos": (1, 5),
    **named("SquaredError AbsoluteError Zoneout PReLUFunction", (2, None)),
    **named("ClippedReLU LeakyReLU", (2, 2)),
    "Dropout": (3, 1),
    "ELU": (3, 3),
    "LinearInterpolate": (4, None),
    **named("Sigmoid HardSigmoid", (4, 3)),
    "Gaussian": (5, None),
    "Swish": (6, None),
    "Softplus": (8, 6),
}


def each(operations: int) -> Formula:
    """So many operations for each element of the output."""
    return lambda c: operations * c.y.size


FORWARD: dict[str, Formula] = {
    **{name: each(operations) for name, (operations, _) in EACH.items()},
    **{name: _products(macs) for name, macs in _MACS.items()},
    **_N_STEP,
    # Views.
    **named("Identity Reshape Transpose Swapaxes Moveaxis Rollaxis ExpandDims Squeeze", _view),
    **named("Flip FlipLR FlipUD AsStrided Diagonal Broadcast BroadcastTo", _view),
    **named("SplitAxis Separate", _view),
    # Copies.
    **named("Concat Stack Hstack Vstack Dstack PadSequence TransposeSequence", each(0)),
    **named("Depth2Space Space2Depth Permutate Pad Shift Tile Repeat Im2Col Assign", each(0)),
    "CudnnRNNWeightConcat": each(0),
    "Cast": lambda c: _view(c) if c.x.dtype == c.y.dtype else 0,
    "Copy": lambda c: _view(c) if c.function._in_device == c.function.out_device else 0,
    "Where": lambda c: c.work(0, others=c.kept("condition", ArraySpec(c.y.shape, "bool"))),
    # Only some elements of the first input are read: the others say which.
    "GetItem": _get_item,
    "SelectItem": lambda c: c.work(0, inputs={0: c.y.nbytes, 1: c.inputs[1].nbytes}),
    "MaxPoolingNDWithIndexes": lambda c: c.work(0, inputs={0: c.y.nbytes}),
    "EmbedIDFunction": lambda c: c.work(0, inputs={0: c.x.nbytes, 1: c.y.nbytes}),
    "EmbedIDGrad": lambda c: c.inputs[1].size,
    "ScatterAdd": lambda c: c.inputs[1].size,
    "MultiAdd": lambda c: c.y.size * (len(c.inputs) - 1),
    "Clip": _clip,
    "CReLU": lambda c: 3 * c.x.size,
    # Of n elements to m.
    **named("Sum SumTo Max Min Prod ArgMax ArgMin", lambda c: max(0, c.x.size - c.y.size)),
    "Mean": lambda c: c.x.size,
    "LogSumExp": lambda c: 4 * c.x.size,
    # The largest of each row; a comparison and an addition a label.
    "Accuracy": lambda c: c.x.size + c.inputs[1].size,
    **named("MeanSquaredError MeanAbsoluteError", lambda c: 3 * c.x.size),
    "SpatialTransformerGrid": lambda c: c.products(3 * c.y.size),
    "EinSum": _einsum,
    "BilinearFunction": _bilinear,
    "CooMatMul": _sparse,
    **named("AveragePooling2D AveragePoolingND", lambda c: c.y.size * _window(c)),
    "MaxPoolingND": lambda c: c.y.size * (_window(c) - 1),
    **named("Unpooling2D UnpoolingND", _unpooling),
    "Upsampling2D": lambda c: c.work(0, others=_places(c, c.x)),
    "BatchNormalization": _batch_normalization,
    "FixedBatchNormalization": lambda c: 4 * c.x.size + 3 * c.inputs[1].size,
    "LayerNormalization": lambda c: 7 * c.x.size + 3 * c.x.shape[0],
    "GroupNormalization": lambda c: 7 * c.x.size + 3 * c.x.shape[0] * c.function.groups,
    "Softmax": lambda c: 5 * c.x.size - 2 * _rows(c),
    "LogSoftmax": lambda c: 5 * c.x.size,
    "SoftmaxCrossEntropy": _softmax_cross_entropy,
    "LSTM": lambda c: 18 * c.inputs[1].size // 4,
    "SLSTM": lambda c: 32 * c.x.size,
    "TreeLSTM": lambda c: c.y.size * (12 + 6 * (len(c.inputs) - 1)),
}

BACKWARD: dict[str, Formula] = {
    **{name: each(operations) for name, (_, operations) in EACH.items() if operations is not None},
    **_N_STEP,
    "CudnnRNNWeightConcat": _view,
    "Diagonal": lambda c: c.work(0, inputs=()),
    "SelectItem": lambda c: c.work(0, inputs=(1,)),
    # Gradients that are added to zeros, and gradients of copies.
    **named("GetItem AsStrided Im2Col", lambda c: c.work(c.y.size, inputs=())),
    **named("Tile Repeat", lambda c: c.work(max(0, c.y.size - c.x.size), inputs=())),
    "Clip": _clip,
    "CReLU": lambda c: 3 * c.x.size,
    # Which flags choose.
    "Zoneout": lambda c: c.work(0, inputs=(), others=c.y.size),
    # A comparison with the extreme element chooses.
    **named("Max Min", lambda c: c.work(c.x.size, others=c.y.nbytes)),
    # The difference, its product with 2 g / n, and a change of sign for the second input.
    "MeanSquaredError": lambda c: c.x.size * (2 + c.needed[1]) + 1,
    **{
        name: _products_backward(_MACS[name])
        for name in ("BatchMatMul", "LocalConvolution2DFunction")
    },
    "SpatialTransformerGrid": lambda c: c.work(6 * c.y.size, macs=3 * c.y.size, inputs=()),
    "BilinearFunction": _bilinear_backward,
    "CooMatMul": _sparse,
    # A division for each gradient; an addition for each place of its window.
    **named(
        "AveragePooling2D AveragePoolingND",
        lambda c: c.work(c.y.size * (1 + _window(c)), inputs=()),
    ),
    "MaxPoolingND": lambda c: c.work(c.y.size, inputs=(), others=_places(c, c.y)),
    **named("Unpooling2D UnpoolingND", lambda c: c.work(c.x.size * (_window(c) - 1), inputs=())),
    "Upsampling2D": lambda c: c.work(0, inputs=(), gradients=c.x.nbytes, others=_places(c, c.x)),
    "BatchNormalization": _batch_normalization_backward,
    "FixedBatchNormalization": _fixed_batch_normalization_backward,
    "LayerNormalization": lambda c: _normalization_backward(c, 5 * c.x.size + 3 * c.x.shape[0]),
    "GroupNormalization": _group_normalization_backward,
    **named("Softmax LogSoftmax", lambda c: 4 * c.x.size - _rows(c)),
    "SoftmaxCrossEntropy": _softmax_cross_entropy_backward,
    # Gates and tanh(c) again 14, the cell's gradient 5, the gates' 16, the state's 1.
    "LSTM": lambda c: c.work(36 * c.inputs[1].size // 4, others=c.y.nbytes),
    # 24, 5, 28 and 2.
    "SLSTM": lambda c: c.work(59 * c.x.size, others=c.y.nbytes),
    "TreeLSTM": _tree_lstm_backward,
}
