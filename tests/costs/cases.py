"""Calls of every function with a formula, on tiny arrays; arrays that count operations."""

from functools import partial
from typing import Any, NamedTuple

import chainer
import chainer.functions as F
import numpy as np
from chainer.functions.activation.rrelu import RReLU
from chainer.functions.loss.ctc import ConnectionistTemporalClassification
from chainer.functions.math.average import Mean
from chainer.functions.math.cumprod import Cumprodsum
from chainer.functions.math.sparse_matmul import CooMatMul

from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.hooks import WalkHook

RNG = np.random.default_rng(0)


def real(*shape):
    """Random numbers of both signs, not near 0."""
    return positive(*shape) * RNG.choice([-1.0, 1.0], shape)


def positive(*shape):
    return RNG.uniform(0.2, 0.9, shape)


def labels(*shape, below=3):
    return RNG.integers(0, below, shape).astype(np.int32)


def matrices(n):
    a = RNG.normal(size=(2, n, n))
    return a @ a.transpose(0, 2, 1) + np.eye(n)


def array(description):
    """Make a random array: 2x3, above 0 (+2x3), integers below 5 (2x3:5), float32 (2x3f)."""
    size, _, below = description.strip("+f").partition(":")
    shape = [int(n) for n in size.split("x")]
    if below:
        return labels(*shape, below=int(below))
    values = positive(*shape) if description.startswith("+") else real(*shape)
    return values.astype("f" if description.endswith("f") else "d")


class FunctionCall(NamedTuple):
    """A call of a Chainer function with its gradients. ``ys`` are variables, all others arrays."""

    function: Any
    inputs: tuple[Any, ...]
    ys: tuple[Any, ...]
    gys: tuple[Any, ...]
    grads: tuple[Any, ...]
    needed: tuple[bool, ...]

    @property
    def specs(self):
        return specs_of(self.inputs), specs_of(self.ys)

    @property
    def has_backward(self):
        return any(self.needed) and (not self.grads or any(g is not None for g in self.grads))

    def forward(self):
        return forward_work(self.function, *self.specs)

    def backward(self, needed=None):
        return backward_work(self.function, *self.specs, needed or self.needed)


def run(call, *arrays, gradients=True, xp=np):
    """Call a Chainer function, and compute the gradients of all inputs of floats."""
    variables = [
        chainer.Variable(a if xp is np else xp.asarray(a), requires_grad=a.dtype.kind == "f")
        if isinstance(a, np.ndarray)
        else a
        for a in arrays
    ]
    calls, running = [], []

    def begin(*function_and_inputs):
        if not running:
            calls.append(function_and_inputs[:2])
        running.append(function_and_inputs)

    with WalkHook(begin, lambda *_: running.pop()):
        result = call(*variables)
    ((function, in_data),) = calls
    ys = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    nodes = function.inputs or ()
    needed = tuple(node.requires_grad for node in nodes)
    gys = tuple(xp.asarray(np.asarray(real(*y.shape), y.dtype)) for y in ys)
    grads = ()
    if gradients and any(needed):
        xs = [node.get_variable() for node, need in zip(nodes, needed, strict=True) if need]
        x_grads = iter(chainer.grad(ys, xs, [chainer.Variable(gy.copy()) for gy in gys]))
        grads = tuple(next(x_grads) if need else None for need in needed)
    return FunctionCall(
        function, in_data, ys, gys, tuple(getattr(g, "array", None) for g in grads), needed
    )


#: Makes arrays that are not variables. tests/gpu replaces it by CuPy's function.
A = np.array


#: Calls and their arrays.
CASES = {}


def case(name):
    """Run a case."""
    call, arrays = CASES[name]
    return run(call, *arrays)


def add(name, call, descriptions="", *arrays):
    """Add a case: a function, descriptions of arrays, and further arrays."""
    assert name not in CASES
    CASES[name] = call, (*map(array, descriptions.split()), *arrays)


def named(names):
    """Functions in chainer.functions, by name."""
    return {name: getattr(F, name) for name in names.split()}


# Functions of one array.
for _name, _call in {
    **named(
        "relu elu leaky_relu sigmoid tanh exp expm1 square cosh sinh arctanh sin cos tan "
        "arcsin arccos arctan erf erfc erfinv erfcx ndtr log_ndtr crelu identity softmax "
        "log_softmax logsumexp sum max argmax prod cumsum batch_l2_norm_squared transpose "
        "fliplr flipud diagonal"
    ),
    "softplus": lambda x: F.softplus(x, 2.0),
    "clipped_relu": lambda x: F.clipped_relu(x, 0.5),
    "neg": lambda x: -x,
    "abs": abs,
    "add_constant": lambda x: x + 2,
    "sub_from_constant": lambda x: 2 - x,
    "mul_constant": lambda x: x * 3,
    "div_from_constant": lambda x: 2 / x,
    "pow_constant": lambda x: x**3,
    "constant_pow": lambda x: 3**x,
    "clip": lambda x: F.clip(x, -0.5, 0.5),
    "clip_low": lambda x: F.clip(x, -0.5, None),
    "rrelu": lambda x: RReLU().apply((x,))[0],
    "dropout": lambda x: F.dropout(x, 0.4),
    "softmax_axis": lambda x: F.softmax(x, axis=-1),
    "sum_axis": lambda x: F.sum(x, axis=(0, 2)),
    "sum_to": lambda x: F.sum_to(x, (1, 4)),
    "mean": lambda x: Mean(None, False).apply((x,))[0],
    "mean_axis": lambda x: Mean((-1, 0), False).apply((x,))[0],
    "max_axis": lambda x: F.max(x, axis=1),
    "min_keepdims": lambda x: F.min(x, axis=(1, 2), keepdims=True),
    "argmin": lambda x: F.argmin(x, axis=1),
    "cumprod": lambda x: F.cumprod(x, axis=1),
    "broadcast_to": lambda x: F.broadcast_to(x, (5, 2, 3, 4)),
    "normalize": lambda x: F.normalize(x, axis=1),
    # Array functions.
    "reshape": lambda x: F.reshape(x, (4, 6)),
    "swapaxes": lambda x: F.swapaxes(x, 0, 1),
    "moveaxis": lambda x: F.moveaxis(x, 0, 2),
    "rollaxis": lambda x: F.rollaxis(x, 2),
    "expand_dims": lambda x: F.expand_dims(x, 1),
    "flip": lambda x: F.flip(x, 1),
    "cast": lambda x: F.cast(x, np.float32),
    "split_axis": lambda x: F.split_axis(x, 2, 2),
    "separate": lambda x: F.separate(x, 1),
    "get_item": lambda x: x[0, 1:],
    "get_items": lambda x: x[:, A([0, 0, 2, 1])],
    "get_mask": lambda x: x[A([True, False])],
    "pad": lambda x: F.pad(x, 1, "constant"),
    "tile": lambda x: F.tile(x, (2, 1, 3)),
    "repeat": lambda x: F.repeat(x, 2, 1),
    "permutate": lambda x: F.permutate(x, A([2, 0, 1], np.int32), axis=1),
    "copy": lambda x: F.copy(x, -1),
}.items():
    add(_name, _call, "2x3x4")

add("hard_sigmoid", F.hard_sigmoid, "", real(2, 3, 4) * 6)

for _name, _call in {
    **named("log log2 log10 log1p sqrt erfcinv ndtri lgamma digamma"),
    "zeta": lambda x: F.zeta(A(2.0), x),
}.items():
    add(_name, _call, "+2x3")

# Functions of several arrays.
add("add", lambda a, b: a + b, "2x3 2x3")
add("add_broadcast", lambda a, b: a + b, "2x3 3")
add("multi_add", lambda a, b, c: F.add(a, b, c), "2x3 2x3 3")
add("sub", lambda a, b: a - b, "2x1x3 4x1")
add("mul", lambda a, b: a * b, "2x3 2x3")
add("mul_broadcast", lambda a, b: a * b, "2x3x1x1 2x3x2x2")
add("div", lambda a, b: a / b, "2x3 2x3")
add("pow", lambda a, b: a**b, "+2x3 2x3")
add("fmod", F.fmod, "", positive(2, 3) * 5, positive(2, 3))
add("arctan2", F.arctan2, "2x3 2x3")
add("maximum", F.maximum, "2x3 2x3")
add("minimum", F.minimum, "2x3 2x1")
add("linear_interpolate", F.linear_interpolate, "+2x3 2x3 2x3")
add("polygamma", F.polygamma, "", np.ones((2, 3), np.int32), positive(2, 3))
add("where", lambda a, b: F.where(A([True, False, True]), a, b), "2x3 2x3")
add("broadcast", F.broadcast, "2x3 3")
add("fft", lambda a, b: F.fft((a, b)), "2x8 2x8")
add("concat", lambda a, b: F.concat([a, b]), "2x3 2x4")
add("stack", lambda a, b: F.stack([a, b]), "2x3 2x3")
add("hstack", lambda a, b: F.hstack([a, b]), "2x3 2x4")
add("vstack", lambda a, b: F.vstack([a, b]), "2x3 1x3")
add("dstack", lambda a, b: F.dstack([a, b]), "2x3 2x3")
add("pad_sequence", lambda a, b: F.pad_sequence([a, b]), "3x2 2x2")
add("transpose_sequence", lambda a, b: F.transpose_sequence([a, b]), "3x2 2x2")
add("scatter_add", lambda a, b: F.scatter_add(a, A([0, 0]), b), "3x2 2x2")
add("select_item", F.select_item, "4x3 4:3")
add("squeeze", F.squeeze, "2x1x3")
add("depth2space", lambda x: F.depth2space(x, 2), "2x8x2x3")
add("space2depth", lambda x: F.space2depth(x, 2), "2x2x4x6")
add("shift", F.shift, "2x9x3x4")
add("im2col", lambda x: F.im2col(x, 2), "2x3x3x4")
add("spatial_transformer_grid", lambda t: F.spatial_transformer_grid(t, (4, 5)), "2x2x3")
add("spatial_transformer_sampler", F.spatial_transformer_sampler, "2x3x4x4 2x2x3x5")
add("prelu", F.prelu, "2x3x4 3")
add("swish", F.swish, "2x3x4 3")
add("zoneout", lambda h, x: F.zoneout(h, x, 0.4), "2x3 2x3")
add("gaussian", F.gaussian, "2x3 2x3")
add("dropconnect", F.simplified_dropconnect, "2x3 4x3 4")

# Products.
add("linear", F.linear, "2x3 4x3 4")
add("linear_no_bias", F.linear, "2x3 4x3")
add("bilinear", F.bilinear, "2x3f 2x4f 3x4x5f 3x5f 4x5f 5f")
add("bilinear_no_bias", F.bilinear, "2x3f 2x4f 3x4x5f")
add("matmul", F.matmul, "2x3 3x4")
add("matmul_transposed", lambda a, b: F.matmul(a, b, True, True), "3x2 4x3")
add("matmul_stack", F.matmul, "5x2x3 5x3x4")
add("matmul_broadcast", F.matmul, "5x2x3 3x4")
add("matmul_vector", F.matmul, "2x3 3")
add("vector_matmul", F.matmul, "3 3x4")
add("vector_vector", F.matmul, "3 3")
add("batch_matmul", F.batch_matmul, "5x2x3f 5x3x4f")
add("batch_matmul_vector", lambda a, b: F.batch_matmul(a, b, True), "5x3x2f 5x3f")
add("tensordot", lambda a, b: F.tensordot(a, b, 2), "2x3x4 3x4x5")
add("einsum", lambda a, b: F.einsum("nij,njk->nik", a, b), "5x2x3 5x3x4")
add("einsum_outer", lambda a, b: F.einsum("i,j->ij", a, b), "3 4")
add("einsum_trace", lambda a: F.einsum("ii->", a), "3x3")
add("einsum_ellipsis", lambda a, b: F.einsum("...i,i->...", a, b), "2x5x3 3")
add("einsum_three", lambda a, b, c: F.einsum("i,ij,j->", a, b, c), "3 3x4 4")
add(
    "sparse_matmul",
    lambda a, b: CooMatMul(A([0, 2], np.int32), A([1, 3], np.int32), (3, 4)).apply((a, b))[0],
    "2 4x5",
)
add("as_strided", lambda x: F.as_strided(x, (3, 2), (1, 1)), "5")
add("embed_id", F.embed_id, "2x4:5 5x3")

# Convolutions.
add("convolution", lambda *a: F.convolution_2d(*a, stride=2, pad=1), "2x3x5x4 4x3x3x2 4")
add("convolution_dilated", lambda *a: F.dilated_convolution_2d(*a, dilate=2), "2x3x5x5 4x3x2x2")
add("convolution_grouped", lambda *a: F.convolution_2d(*a, groups=2), "2x4x4x4 6x2x3x3 6")
add("convolution_depthwise", lambda *a: F.convolution_2d(*a, groups=3), "2x3x4x4 6x1x2x2")
add("convolution_1d", F.convolution_1d, "2x3x6 4x3x2 4")
add("convolution_3d", lambda *a: F.convolution_3d(*a, pad=1), "1x2x3x3x3 3x2x2x2x2")
add("deconvolution", lambda *a: F.deconvolution_2d(*a, stride=2, pad=1), "2x3x3x2 3x4x3x3 4")
add("deconvolution_grouped", lambda *a: F.deconvolution_2d(*a, groups=2), "2x4x3x3 4x3x2x2")
add("deconvolution_3d", F.deconvolution_3d, "1x2x2x2x2 2x3x2x2x2 3")
add("local_convolution", F.local_convolution_2d, "2x3x4x4 2x3x3x3x2x2 2x3x3")

# Pooling.
for _name, _call in {
    "average_pooling": lambda x: F.average_pooling_2d(x, 3, 2, 1),
    "average_pooling_global": lambda x: F.average_pooling_2d(x, (4, 6)),
    "average_pooling_nd": lambda x: F.average_pooling_nd(x, 2, pad=1, pad_value=None),
    "max_pooling": lambda x: F.max_pooling_2d(x, 3, 2, 1),
    "max_pooling_floor": lambda x: F.max_pooling_2d(x, 3, 2, 0, cover_all=False),
    "unpooling": lambda x: F.unpooling_2d(x, 2, cover_all=False),
    "unpooling_overlap": lambda x: F.unpooling_2d(x, 3, 2, 1),
    "unpooling_nd": lambda x: F.unpooling_nd(x, 2),
    "upsampling": lambda x: F.upsampling_2d(
        x, RNG.integers(0, 4, (2, 3, 4, 6)), 2, cover_all=False
    ),
}.items():
    add(_name, _call, "2x3x4x6")

add("resize_images", lambda x: F.resize_images(x, (3, 5)), "2x3x4x6f")

_ROIS = A([[0, 0, 4, 6], [0, 0, 4, 6]], np.float64), A([0, 1], np.int32)
_ROIS32 = _ROIS[0].astype("f"), _ROIS[1]
_ROI = A([[0, 0, 0, 5, 3]], np.float64)
add("roi_pooling", lambda x, r: F.roi_pooling_2d(x, r, 2, 3, 1.0), "2x3x4x6", _ROI)
add("roi_max_pooling", lambda *a: F.roi_max_pooling_2d(*a, (2, 3), 1.0), "2x3x4x6", *_ROIS)
add("roi_average_pooling", lambda *a: F.roi_average_pooling_2d(*a, (2, 3), 1.0), "2x3x4x6", *_ROIS)
add("roi_max_align", lambda *a: F.roi_max_align_2d(*a, (2, 3), 1.0, 2), "2x3x4x6f", *_ROIS32)
add("roi_average_align", lambda *a: F.roi_average_align_2d(*a, (2, 3), 1.0), "2x3x4x6f", *_ROIS32)

# Normalisation.
add(
    "batch_normalization_running",
    lambda *a: F.batch_normalization(*a, running_mean=A([0.0, 0.0]), running_var=A([1.0, 1.0])),
    "3x2x4 2 2",
)
add("batch_normalization", F.batch_normalization, "3x2x4 2 2")
add("batch_normalization_axis", lambda *a: F.batch_normalization(*a, axis=(0, 1)), "3x4x2 2 2")
add("fixed_batch_normalization", F.fixed_batch_normalization, "3x2x4 2 2 2 +2")
add(
    "batch_renormalization",
    lambda x, g, b: F.batch_renormalization(
        *(x, g, b, 2.0, 1.0, 2e-5, A([0.1, -0.2], x.dtype), A([0.5, 0.7], x.dtype))
    ),
    "3x2x4 2 2",
)
add("group_normalization", lambda x, g, b: F.group_normalization(x, 2, g, b), "2x4x3 4 4")
add("layer_normalization", F.layer_normalization, "3x4 4 4")
add("local_response_normalization", F.local_response_normalization, "2x6x2")

# Losses.
for _name, _more, _words in [
    ("", {}, "4x3 4:3"),
    ("_no", {"reduce": "no"}, "4x3x2 4x2:3"),
    ("_soft", {}, "4x3 +4x3f"),
    ("_kl", {"soft_target_loss": "kl-divergence"}, "4x3 +4x3f"),
]:
    _call = partial(F.softmax_cross_entropy, **_more)
    add(f"softmax_cross_entropy{_name}", _call, _words)
add(
    "softmax_cross_entropy_weight",
    lambda x, t: F.softmax_cross_entropy(x, t, class_weight=A([1.0, 2.0, 3.0], x.dtype)),
    "4x3 4:3",
)
add("sigmoid_cross_entropy", F.sigmoid_cross_entropy, "4x3 4x3:2")
add("mean_squared_error", F.mean_squared_error, "4x3 4x3")
add("mean_absolute_error", F.mean_absolute_error, "4x3 4x3")
add("squared_error", F.squared_error, "4x3 4x3")
add("absolute_error", F.absolute_error, "4x3 4x3")
add("huber_loss", lambda a, b: F.huber_loss(a, b, 0.7), "4x3 4x3")
add("hinge", F.hinge, "4x3 4:3")
# Distances within the margin, with both labels.
_NEAR = real(4, 3) / 4, real(4, 3) / 4, A([0, 1, 0, 1], np.int32)
add("contrastive", F.contrastive, "", *_NEAR)
add("triplet", F.triplet, "4x3 4x3 4x3")
add("cross_covariance", F.cross_covariance, "4x3 4x2")
add("decov", F.decov, "4x3")
add(
    "negative_sampling",
    lambda x, t, w: F.negative_sampling(x, t, w, lambda shape: A(labels(*shape, below=5)), 2),
    "4x3 4:3 50x3",
)
_LENGTHS = A([5, 5], np.int32), A([2, 2], np.int32), A([[1, 2], [2, 1]], np.int32)
add("ctc", ConnectionistTemporalClassification(0, "mean"), "", *_LENGTHS, real(5, 2, 3))

# Recurrent cells.
add("lstm", F.lstm, "2x2 2x8")
add("lstm_ends", F.lstm, "3x2 2x8")
add("slstm", F.slstm, "2x3 2x3 2x12 2x12")
add("tree_lstm", F.tree_lstm, "2x3 2x3 2x15")

# Matrices.
add("inv", F.inv, "", matrices(3)[0])
add("batch_inv", F.batch_inv, "", matrices(3))
add("batch_det", F.batch_det, "", matrices(3))
add("cholesky", F.cholesky, "", matrices(3)[0])

# Measures.
add("accuracy", F.accuracy, "4x3 4:3")
add("binary_accuracy", F.binary_accuracy, "4x3 4x3:2")
add("classification_summary", F.classification_summary, "4x3", A([0, 1, 2, 1], np.int32))
add("r2_score", F.r2_score, "4x3 4x3")
add(
    "fixed_decorrelated_batch_normalization",
    lambda *a: F.fixed_decorrelated_batch_normalization(*a, 2),
    "3x4x5 2x2 2x2x2",
)
add("cumprodsum", lambda m, a: Cumprodsum(1).apply((m, a))[0], "2x2x4 2x3x4")


# -- arrays that count the operations of any NumPy code

#: Logical operations do not count as arithmetic.
FREE = {"logical_and", "logical_not", "bitwise_and", "invert", "isnan"}
PRODUCTS = (np.dot, np.tensordot, np.einsum)


class CountingArray(np.ndarray[Any, Any]):
    """An array that counts operations on it. Results are counting arrays, too."""

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        plain = [to_plain(value) for value in inputs]
        out = more.pop("out", ())
        if out:
            more["out"] = tuple(map(to_plain, out))
        result = getattr(ufunc, method)(*plain, **more)
        if ufunc is np.matmul:
            CountingArray.flops += 2 * int(np.sum(np.matmul(*map(np.ones_like, plain))))
        elif method == "reduce":
            CountingArray.flops += np.size(plain[0]) - np.size(result)
        elif method == "at":
            CountingArray.flops += np.size(plain[2])
        elif ufunc.__name__ not in FREE:
            CountingArray.flops += np.size(result)
        return out[0] if out else to_counting(result)

    def __array_function__(self, function, types, args, more):
        if function not in PRODUCTS:
            return super().__array_function__(function, types, args, more)
        args = [to_plain(value) for value in args]
        ones = [np.ones_like(value) if isinstance(value, np.ndarray) else value for value in args]
        CountingArray.flops += 2 * int(np.sum(function(*ones, **more)))
        return to_counting(function(*args, **more))

    def dot(self, other, *_):
        return np.dot(self, other)


def to_counting(array):
    return array.view(CountingArray) if isinstance(array, np.ndarray) else array


def to_plain(array):
    return array.view(np.ndarray) if isinstance(array, CountingArray) else array
