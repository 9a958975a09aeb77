"""Formulas of matrix products, convolutions and linear algebra.

A sum of k products is k multiply-adds. A window of a convolution has the channels of a group times
the elements of the kernel, padding included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import Count, Formula, FunctionCost


def _matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[-2] if c.function.transa and len(a) > 1 else a[-1])


def _batch_matmul(c: Call) -> int:
    a = c.x.shape
    return c.y.size * (a[1] if c.function.transa else math.prod(a[2:]))


def _tensor_dot(c: Call) -> int:
    # The product of the sizes r k, k n and r n is (r k n) squared.
    return math.isqrt(c.x.size * c.inputs[1].size * c.y.size)


def _convolution(c: Call) -> int:
    return c.y.size * math.prod(c.inputs[1].shape[1:])


def _deconvolution(c: Call) -> int:
    return c.x.size * math.prod(c.inputs[1].shape[1:])


def _convolution_grad_w(c: Call) -> int:
    return c.inputs[1].size * math.prod(c.y.shape[1:])


def _local_convolution(c: Call) -> int:
    return c.y.size * math.prod(c.inputs[1].shape[3:])


def _product_forward(macs: Count) -> Formula:
    """Make a forward formula for a product. It adds a third input, the bias, to each element."""
    return lambda c: c.work(2 * macs(c) + (c.y.size if len(c.inputs) > 2 else 0), macs=macs(c))


def _product_backward(macs: Count) -> Callable[[Call], Work]:
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
    return replace(_product_backward(_matmul)(c), about=not plain)


def _product(names: str, macs: Count) -> FunctionCost:
    """Make a row for functions that are a product of two arrays, from its multiply-adds."""
    return FunctionCost(names, forward=_product_forward(macs), backward=_product_backward(macs))


def _about_product(names: str, macs: Count) -> FunctionCost:
    """Make a row for a product that also needs about two operations per element.

    The work has one product for each factor that needs a gradient.
    """

    def formula(c: Call) -> Work:
        factors = sum(len(c.inputs[i].shape) > 1 for i, need in enumerate(c.needed) if need)
        n = macs(c) * max(1, factors)
        return c.work(2 * (n + c.largest), macs=n, about=True)

    return FunctionCost(names, forward=formula, backward=formula)


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


def _negative_sampling(c: Call) -> Work:
    """Count a product with the sampled rows of W, one more per gradient, and 4 per sample."""
    drawn = c.x.shape[0] * (c.function.sample_size + 1)
    macs = drawn * c.x.shape[1] * (1 + sum(c.needed))
    read = c.read(0, 1) + drawn * (c.x.nbytes // max(1, c.x.shape[0]))
    return c.work(2 * macs + 4 * drawn, macs=macs, read=read, about=True)


TABLE = (
    _product("LinearFunction", lambda c: c.y.size * c.inputs[1].shape[1]),
    _product("LinearGradData", lambda c: c.inputs[1].size * c.x.shape[1]),
    _product("LinearGradWeight", lambda c: c.y.size * c.x.shape[0]),
    FunctionCost("MatMul", forward=_product_forward(_matmul), backward=_matmul_backward),
    _product("BatchMatMul", _batch_matmul),
    _product("TensorDot", _tensor_dot),
    _product("Convolution2DFunction ConvolutionND", _convolution),
    _product("Deconvolution2DFunction DeconvolutionND", _deconvolution),
    _product("Convolution2DGradW ConvolutionNDGradW", _convolution_grad_w),
    _product("LocalConvolution2DFunction", _local_convolution),
    _about_product("BilinearFunction", lambda c: c.x.shape[0] * c.inputs[2].size),
    _about_product("CooMatMul", lambda c: c.x.size * c.y.shape[-1]),
    _about_product("SpatialTransformerGrid", lambda c: 3 * c.y.size),
    _about_product("SimplifiedDropconnect", lambda c: c.x.shape[0] * c.inputs[1].size),
    _about_product(
        "FixedDecorrelatedBatchNormalization", lambda c: c.x.size * c.inputs[2].shape[-1]
    ),
    _about_product("CrossCovariance DeCov", lambda c: c.x.size * c.inputs[-1].shape[1]),
    FunctionCost("EinSum", forward=_einsum, backward=_einsum),
    FunctionCost(
        "NegativeSamplingFunction", forward=_negative_sampling, backward=_negative_sampling
    ),
    # Linear algebra.
    FunctionCost(
        "Inv BatchInv",
        forward=_square_matrices(lambda c: 2 * c.x.size),
        backward=_square_matrices(lambda c: 4 * c.x.size),
    ),
    FunctionCost(
        "BatchDet",
        forward=_square_matrices(lambda c: 2 * c.x.size // 3),
        backward=_square_matrices(lambda c: 2 * c.x.size),
    ),
    FunctionCost(
        "Cholesky",
        forward=_square_matrices(lambda c: 2 * c.x.size // 3),
        backward=_square_matrices(lambda c: 8 * c.x.size),
    ),
    FunctionCost("FFT", forward=_fft, backward=_fft),
)
