"""Operations and bytes of each function of Chainer, by the name of its class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chainer_profile.costs.call import Call, Work

Formula = Callable[[Call], "int | Work | None"]
Count = Callable[[Call], int]

#: Operations per element of the largest array, forward and backward; each array is read or written
#: once. ``~``: the figure is approximate. Memory limits such functions on every machine, so exact
#: figures would change nothing. ``g``: the call reads only the incoming gradients. ``view``: no
#: work. ``-``: a formula below counts it.
_EACH = {
    "view view": "Identity Reshape Transpose Swapaxes Moveaxis Rollaxis ExpandDims Squeeze Flip "
    "FlipLR FlipUD",
    "view 0g": "SplitAxis Separate",
    "view -": "BroadcastTo",
    "view ~0g": "Diagonal",
    "view ~1g": "AsStrided Broadcast",
    # Copies.
    "0 view": "Concat Stack Hstack Vstack Dstack PadSequence Pad CudnnRNNWeightConcat",
    "0 0g": "TransposeSequence Depth2Space Space2Depth Permutate Shift",
    "0 ~1g": "Tile Repeat Im2Col",
    "~0": "Assign MaxPoolingNDWithIndexes _SetItemZero",
    "~0 ~0g": "Where Upsampling2D",
    # Arithmetic.
    "- view": "Sum SumTo",
    "- ~1": "Max Min",
    "- ~4": "Prod",
    "~1 ~0g": "ScatterAdd",
    "~1 ~1g": "Cumsum",
    "~1 ~2": "Cumprod Cumprodsum",
    "1 -": "Add Sub Mul Mean",
    "1 view": "AddConstant",
    "1 1g": "SubFromConstant MulConstant Neg",
    "1 1": "ReLU Exp Log",
    "1 ~1": "Maximum Minimum",
    "1 2": "Absolute Sin PowConstVar DiGamma LGamma Expm1 Square Cosh Sinh Log2 Log10 Log1p Sqrt",
    "1 3": "Tanh Cos Tan Arctan DivFromConstant PowVarConst",
    "1 ~3": "RsqrtGPU Zeta PolyGamma",
    "1 4": "Arcsin Arctanh ErfInv ErfcInv Erfcx",
    "1 ~4": "Div Fmod",
    "1 5": "Arccos Erf Erfc Ndtr Ndtri LogNdtr",
    "1 ~8": "PowVarVar Arctan2",
    "~2 ~2": "Clip CReLU BatchL2NormSquared",
    "~3 ~8": "NormalizeL2",
    # Activations and noise.
    "2 ~0": "Zoneout",
    "2 2": "ClippedReLU LeakyReLU",
    "2 ~4": "PReLUFunction",
    "3 1": "Dropout",
    "3 3": "ELU",
    "~3 ~2": "RReLU",
    "4 ~4": "LinearInterpolate",
    "4 3": "Sigmoid HardSigmoid",
    "5 ~5": "Gaussian",
    "~6 ~15": "Swish",
    "8 6": "Softplus",
    # Images.
    "~1 ~1": "ROIPooling2D ROIMaxPooling2D ROIAveragePooling2D Unpooling2D UnpoolingND",
    "~8 ~8": "ResizeImages",
    "~9 ~8": "ROIMaxAlign2D ROIAverageAlign2D",
    "~14 ~36": "SpatialTransformerSampler",
    # Normalisation.
    "- ~6": "FixedBatchNormalization",
    "~7 ~13": "GroupNormalization",
    "~9 ~10": "LocalResponseNormalization",
    "~10 ~10": "BatchRenormalizationFunction",
    # Losses and measures.
    "2 4": "SquaredError",
    "2 ~3": "AbsoluteError",
    "3 -": "MeanSquaredError",
    "3 ~3": "MeanAbsoluteError",
    "~3 ~3": "Hinge",
    "4 ~3": "LogSumExp",
    "5 -": "LogSoftmax",
    "~6": "BinaryAccuracy ClassificationSummary R2_score",
    "~6 ~8": "Contrastive Triplet",
    "~8 ~5": "HuberLoss",
    "~10 ~7": "SigmoidCrossEntropy",
    "~53 ~8": "ConnectionistTemporalClassification",
}


def _view(_: Call) -> Work:
    return Work(0, 0, 0)


def _each(operations: str) -> Formula:
    if operations == "view":
        return _view
    n, about = int(operations.strip("~g")), operations.startswith("~")
    if operations.endswith("g"):
        return lambda c: c.work(n * c.largest, read=c.read(), about=about)
    return lambda c: c.work(n * c.largest, about=about)


def _table_of_each(column: int) -> dict[str, Formula]:
    cells = {names: [*key.split(), "-"][column] for key, names in _EACH.items()}
    return {
        name: _each(cell) for names, cell in cells.items() if cell != "-" for name in names.split()
    }


def _named(names: str, formula: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), formula)


# -- products: a sum of k products is k multiply-adds


def _matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[-2] if c.function.transa and len(a) > 1 else a[-1])


def _batch_matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[1] if c.function.transa else math.prod(a[2:]))


#: Multiply-adds of a product of two arrays. A window of a convolution has the channels of a group
#: times the elements of the kernel, padding included.
_PRODUCTS: dict[str, Count] = {
    "LinearFunction": lambda c: c.y.size * c.inputs[1].shape[1],
    "LinearGradData": lambda c: c.inputs[1].size * c.x.shape[1],
    "LinearGradWeight": lambda c: c.y.size * c.x.shape[0],
    "MatMul": _matmul,
    "BatchMatMul": _batch_matmul,
    # The product of the sizes r k, k n and r n is (r k n) squared.
    "TensorDot": lambda c: math.isqrt(c.x.size * c.inputs[1].size * c.y.size),
    **_named(
        "Convolution2DFunction ConvolutionND",
        lambda c: c.y.size * math.prod(c.inputs[1].shape[1:]),
    ),
    **_named(
        "Deconvolution2DFunction DeconvolutionND",
        lambda c: c.x.size * math.prod(c.inputs[1].shape[1:]),
    ),
    **_named(
        "Convolution2DGradW ConvolutionNDGradW",
        lambda c: c.inputs[1].size * math.prod(c.y.shape[1:]),
    ),
    "LocalConvolution2DFunction": lambda c: c.y.size * math.prod(c.inputs[1].shape[3:]),
}

#: Multiply-adds of products that also need about two operations per element.
_ABOUT_PRODUCTS: dict[str, Count] = {
    "BilinearFunction": lambda c: c.x.shape[0] * c.inputs[2].size,
    "CooMatMul": lambda c: c.x.size * c.y.shape[-1],
    "SpatialTransformerGrid": lambda c: 3 * c.y.size,
    "SimplifiedDropconnect": lambda c: c.x.shape[0] * c.inputs[1].size,
    "FixedDecorrelatedBatchNormalization": lambda c: c.x.size * c.inputs[2].shape[-1],
    **_named("CrossCovariance DeCov", lambda c: c.x.size * c.inputs[-1].shape[1]),
}


def _products(macs: Count) -> Formula:
    """Make a forward formula for a product; adds a third input, the bias, to each element."""
    return lambda c: c.work(2 * macs(c) + (c.y.size if len(c.inputs) > 2 else 0), macs=macs(c))


def _products_backward(macs: Count) -> Callable[[Call], Work]:
    """Make a backward formula: one product for each needed gradient of the first two inputs.

    The gradient of the bias is a sum.
    """

    def formula(c: Call) -> Work:
        n = macs(c) * sum(c.needed[:2])
        bias = len(c.inputs) > 2 and c.needed[2]
        summed = max(0, c.y.size - c.inputs[2].size) if bias else 0
        return c.work(2 * n + summed, macs=n, read=c.read(*(i for i in (0, 1) if c.needed[1 - i])))

    return formula


def _matmul_backward(c: Call) -> Work:
    """Count a product of matrices; approximate for vectors and for broadcast arrays."""
    plain = all(len(x.shape) > 1 and x.shape[:-2] == c.y.shape[:-2] for x in c.inputs)
    return replace(_products_backward(_matmul)(c), about=not plain)


def _about_products(macs: Count) -> Formula:
    """Make a formula with one product for each factor that needs a gradient."""

    def formula(c: Call) -> Work:
        factors = sum(len(c.inputs[i].shape) > 1 for i, need in enumerate(c.needed) if need)
        n = macs(c) * max(1, factors)
        return c.work(2 * (n + c.largest), macs=n, about=True)

    return formula


def _einsum(c: Call) -> Work:
    """Count a sum over all combinations of the operands' indices; ``@`` is the ellipsis."""
    sizes: dict[str, int] = {}
    for x, names in zip(c.inputs, c.function.in_subs.split(","), strict=True):
        before, ellipsis, after = names.partition("@")
        end = len(x.shape) - len(after)
        named = [*zip(before, x.shape), *zip(after, x.shape[end:])]  # noqa: B905
        if ellipsis:
            named.append(("@", math.prod(x.shape[len(before) : end])))
        for name, n in named:
            sizes[name] = max(n, sizes.get(name, 1))
    terms = math.prod(sizes.values())
    terms *= max(1, sum(c.needed))
    macs = terms if len(c.inputs) == 2 else 0
    return c.work(len(c.inputs) * terms, macs=macs, about=True)


def _square_matrices(operations: Count) -> Formula:
    """Make a formula for LAPACK on n x n matrices, from the leading term divided by n."""
    return lambda c: c.work(operations(c) * c.x.shape[-1], about=True)


def _fft(c: Call) -> Work:
    return c.work(5 * c.x.size * (max(1, *c.x.shape[-1:]) - 1).bit_length(), about=True)


# -- gradients of broadcast arrays, which are sums


def _broadcast_backward(*each: int, reads: bool = False) -> Formula:
    """Make a backward formula for a function of broadcast arrays.

    A gradient without operations and without a sum is the incoming array itself.

    Args:
        each: For each input, operations per element of its gradient, in addition to its sum.
        reads: Whether the gradients need the other inputs. They are then computed before the sum.
    """

    def formula(c: Call) -> Work:
        flops, written, read = 0, 0, set()
        for i, (x, need) in enumerate(zip(c.inputs, c.needed, strict=True)):
            n = each[i] if i < len(each) else 0
            if need and (n or x.size < c.y.size):
                flops += n * (c.y if reads else x).size + c.y.size - x.size
                written += x.nbytes
                read |= set(range(len(c.inputs))) - {i} if reads else set()
        return c.work(flops, read=c.read(*read) if written else 0, written=written)

    return formula


# -- copies of some elements


def _copy(c: Call) -> Work:
    f = c.function
    return _view(c) if f._in_device == f.out_device else c.work(0, read=c.y.nbytes)


def _cast(c: Call) -> Work:
    source = c.y if c.needed else c.x
    return _view(c) if c.x.dtype == c.y.dtype else c.work(0, read=source.nbytes)


def _get_item(c: Call) -> Work:
    """Count no work for slices and numbers, which make a view, and a copy for arrays of indices."""
    arrays = [index for index in c.function.slices if not _is_basic(index)]
    if not arrays:
        return _view(c)
    indices = sum(int(getattr(index, "nbytes", 0)) for index in arrays)
    return c.work(0, read=min(c.x.nbytes, c.y.nbytes) + indices)


def _is_basic(index: Any) -> bool:
    if index is None or index is Ellipsis or isinstance(index, (slice, int)):
        return True
    # NumPy treats its own integers as integers, and its own booleans as arrays.
    return getattr(index, "shape", None) == () and str(getattr(index, "dtype", "")) != "bool"


def _negative_sampling(c: Call) -> Work:
    """Count a product with the sampled rows of W, one more per gradient, and 4 per sample."""
    drawn = c.x.shape[0] * (c.function.sample_size + 1)
    macs = drawn * c.x.shape[1] * (1 + sum(c.needed))
    read = c.read(0, 1) + drawn * (c.x.nbytes // max(1, c.x.shape[0]))
    return c.work(2 * macs + 4 * drawn, macs=macs, read=read, about=True)


# -- pooling: windows include their padding


def _window(c: Call) -> int:
    f = c.function
    return math.prod(f.ksize) if hasattr(f, "ksize") else int(f.kh * f.kw)


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


# -- softmax and its losses


def _rows(c: Call) -> int:
    length = c.x.shape[c.function.axis]
    return c.x.size // length if length else 0


def _softmax_cross_entropy(c: Call) -> Work:
    """Count log-softmax 5 and its cached exponential 1 per element, and 1 per label for the sum."""
    f, x, t = c.function, c.x, c.inputs[1]
    labels = x.size // max(1, x.shape[1])
    flops, read = (6 if f.cache_score else 5) * x.size, c.read(0, 1)
    if x.shape != t.shape:
        flops += labels
        if f.class_weight is not None:
            flops += x.size
            read += int(f.class_weight.nbytes)
    # The labels are probabilities of all classes.
    elif f.soft_target_loss == "kl-divergence":
        flops += 5 * x.size - (labels if f.reduce == "no" else 0)
    else:
        flops += 2 * x.size + (0 if f.reduce == "no" else labels)
    return c.work(flops, read=read)


def _softmax_cross_entropy_backward(c: Call) -> Work:
    """Count 1 per label and 1 per element, and the softmax again if forward did not cache it."""
    f, x, t = c.function, c.x, c.inputs[1]
    weighted = f.class_weight is not None and x.shape != t.shape
    flops = x.size * (1 + weighted + (0 if f.cache_score else 6)) + t.size
    return c.work(flops + (f.reduce == "mean"), written=x.nbytes)


# -- recurrent steps; a logistic function has 4 operations, because Chainer computes it by tanh


def _tree_lstm_backward(c: Call) -> Work:
    """Count 18 per cell and 5 per child; forward stores the gates and c."""
    children = len(c.inputs) - 1
    stored = c.y.nbytes * (4 + children)
    return c.work(c.y.size * (18 + 5 * children), read=c.read(*range(children)) + stored)


def _n_step(gates: int, operations: int, backward: int) -> Formula:
    """Make a formula for a recurrent function of cuDNN. On the CPU Chainer uses other functions.

    Args:
        gates: Gates per cell.
        operations: Operations per element of the hidden state in forward, without products.
        backward: The same in backward.
    """

    def formula(c: Call) -> Work:
        hx, xs, layers = c.x.shape, c.inputs[-1].shape, int(c.function.n_layers)
        directions, hidden = hx[0] // max(1, layers), hx[2]
        n_inputs = xs[1] + (layers - 1) * directions * hidden
        steps = xs[0] * directions
        # Each gate needs a product with the input, a product with the state, and three additions of
        # these and two biases. Backward needs each product twice, and also reads the output.
        macs = steps * gates * hidden * (n_inputs + layers * hidden)
        macs, each = (2 * macs, backward) if c.needed else (macs, operations)
        flops = 2 * macs + steps * layers * hidden * (3 * gates + each)
        output = c.outputs[-1].nbytes if c.needed else 0
        return c.work(flops, macs=macs, read=c.read(*range(len(c.inputs))) + output)

    return formula


_N_STEP: dict[str, Formula] = {
    **_named("NStepLSTM NStepBiLSTM", _n_step(4, 18, 36)),
    **_named("NStepGRU NStepBiGRU", _n_step(3, 14, 27)),
    **_named("NStepRNNTanh NStepBiRNNTanh NStepRNNReLU NStepBiRNNReLU", _n_step(1, 1, 3)),
}


def _reading_output(flops: int, c: Call) -> Work:
    """Count a backward that reads all inputs and the first output."""
    return c.work(flops, read=c.read(*range(len(c.inputs))) + c.y.nbytes)


# -- the tables

FORWARD: dict[str, Formula] = {
    **_table_of_each(0),
    **{name: _products(macs) for name, macs in _PRODUCTS.items()},
    **{name: _about_products(macs) for name, macs in _ABOUT_PRODUCTS.items()},
    **_N_STEP,
    "EinSum": _einsum,
    "NegativeSamplingFunction": _negative_sampling,
    **_named("Inv BatchInv", _square_matrices(lambda c: 2 * c.x.size)),
    **_named("BatchDet Cholesky", _square_matrices(lambda c: 2 * c.x.size // 3)),
    "FFT": _fft,
    "Cast": _cast,
    "Copy": _copy,
    "GetItem": _get_item,
    "SelectItem": lambda c: c.work(0, read=c.y.nbytes + c.read(1)),
    # Reads only the rows of the labels.
    "EmbedIDFunction": lambda c: c.work(0, read=c.x.nbytes + min(c.y.nbytes, c.inputs[1].nbytes)),
    "EmbedIDGrad": lambda c: c.inputs[1].size,
    "MultiAdd": lambda c: c.y.size * (len(c.inputs) - 1),
    # A reduction of n elements to m needs n - m operations.
    **_named("Sum SumTo Max Min Prod ArgMax ArgMin", lambda c: c.x.size - c.y.size),
    # The maximum of each row; a comparison and an addition per label.
    "Accuracy": lambda c: c.x.size + c.inputs[1].size,
    **_named("AveragePooling2D AveragePoolingND", lambda c: c.y.size * _window(c)),
    "MaxPoolingND": lambda c: c.y.size * (_window(c) - 1),
    "BatchNormalization": _batch_normalization,
    "FixedBatchNormalization": lambda c: 4 * c.x.size + 3 * c.inputs[1].size,
    "LayerNormalization": lambda c: 7 * c.x.size + 3 * c.x.shape[0],
    "Softmax": lambda c: 5 * c.x.size - 2 * _rows(c),
    "SoftmaxCrossEntropy": _softmax_cross_entropy,
    "LSTM": lambda c: 18 * c.inputs[1].size // 4,
    "SLSTM": lambda c: 32 * c.x.size,
    "TreeLSTM": lambda c: c.y.size * (12 + 6 * (len(c.inputs) - 1)),
}

BACKWARD: dict[str, Formula] = {
    **_table_of_each(1),
    **{name: _products_backward(macs) for name, macs in _PRODUCTS.items()},
    **{name: _about_products(macs) for name, macs in _ABOUT_PRODUCTS.items()},
    "MatMul": _matmul_backward,
    "EinSum": _einsum,
    **_N_STEP,
    "NegativeSamplingFunction": _negative_sampling,
    **_named("Inv BatchInv", _square_matrices(lambda c: 4 * c.x.size)),
    "BatchDet": _square_matrices(lambda c: 2 * c.x.size),
    "Cholesky": _square_matrices(lambda c: 8 * c.x.size),
    "FFT": _fft,
    **_named("Add MultiAdd BroadcastTo", _broadcast_backward()),
    "Sub": _broadcast_backward(0, 1),
    "Mul": _broadcast_backward(1, 1, reads=True),
    "Mean": lambda c: c.work(c.y.size, read=c.read(), written=c.y.nbytes),
    "Cast": _cast,
    "Copy": _copy,
    "EmbedIDFunction": lambda c: c.work(c.y.size, read=c.read(0)),
    "SelectItem": lambda c: c.work(0, read=c.read(1)),
    # Adds the gradient to an array of zeros.
    "GetItem": lambda c: c.work(c.y.size, read=c.read()),
    # The difference, its product with 2 g / n, and a change of sign for the second input.
    "MeanSquaredError": lambda c: c.x.size * (2 + c.needed[1]) + 1,
    # A division per gradient, and an addition per element of its window.
    **_named(
        "AveragePooling2D AveragePoolingND",
        lambda c: c.work(c.y.size * (1 + _window(c)), read=c.read()),
    ),
    "MaxPoolingND": _max_pooling_backward,
    "BatchNormalization": _batch_normalization_backward,
    "LayerNormalization": _layer_normalization_backward,
    **_named("Softmax LogSoftmax", lambda c: 4 * c.x.size - _rows(c)),
    "SoftmaxCrossEntropy": _softmax_cross_entropy_backward,
    # Gates and tanh(c) again 14, gradients of the cell 5, of the gates 16, of the state 1.
    "LSTM": lambda c: _reading_output(36 * c.inputs[1].size // 4, c),
    # The same terms: 24, 5, 28 and 2.
    "SLSTM": lambda c: _reading_output(59 * c.x.size, c),
    "TreeLSTM": _tree_lstm_backward,
}
