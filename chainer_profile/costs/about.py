"""Figures that are approximate: operations for each element of the largest array, each array once.

Such functions are bound by memory on every machine, so that a digit more would say nothing.
"""

from __future__ import annotations

from chainer_profile.costs.call import ArraySpec, Call, Work, named
from chainer_profile.costs.exact import Count, Formula

#: Operations for each element: forward and backward. None is what :mod:`.exact` has, or what is
#: made of functions.
EACH: dict[str, tuple[int | None, int | None]] = {
    "Where": (None, 0),
    "_SetItemZero": (0, None),
    **named("Maximum Minimum", (None, 1)),
    **named("MeanAbsoluteError AbsoluteError", (None, 3)),
    **named("Div Fmod LinearInterpolate PReLUFunction Prod", (None, 4)),
    "PowVarVar": (None, 7),
    "Arctan2": (None, 8),
    "Swish": (None, 15),
    **named("ROIPooling2D ROIMaxPooling2D ROIAveragePooling2D", (1, 1)),
    **named("Cumsum Cumprodsum", (1, None)),
    "Cumprod": (1, 2),
    "BatchL2NormSquared": (2, 2),
    "NormalizeL2": (3, None),
    "Hinge": (3, 3),
    "RReLU": (3, 2),
    **named("BinaryAccuracy ClassificationSummary R2_score", (6, None)),
    **named("Contrastive Triplet", (6, 8)),
    "HuberLoss": (8, None),
    "ResizeImages": (8, 8),
    **named("ROIMaxAlign2D ROIAverageAlign2D", (9, 8)),
    "LocalResponseNormalization": (9, 10),
    "SigmoidCrossEntropy": (10, 7),
    "BatchRenormalizationFunction": (10, 10),
    "SpatialTransformerSampler": (14, 36),
    "ConnectionistTemporalClassification": (53, 8),
}

#: Multiply-adds of products; beside them two operations for each element.
MACS: dict[str, Count] = {
    "SimplifiedDropconnect": lambda c: c.x.shape[0] * c.inputs[1].size,
    "FixedDecorrelatedBatchNormalization": lambda c: c.x.size * c.inputs[2].shape[-1],
    **named("CrossCovariance DeCov", lambda c: c.x.size * c.inputs[-1].shape[1]),
}


def _largest(c: Call) -> int:
    return max(array.size for array in (*c.inputs, *c.outputs))


def _each(operations: int) -> Formula:
    return lambda c: operations * _largest(c)


def _products(macs: Count) -> Formula:
    def formula(c: Call) -> Work:
        # Each factor that has a gradient takes a product as large.
        factors = sum(len(c.inputs[i].shape) > 1 for i, need in enumerate(c.needed) if need)
        return c.products(macs(c) * max(1, factors), 2 * _largest(c))

    return formula


def _negative_sampling(c: Call) -> Work:
    """A product with the rows of W that are drawn, one more for each gradient; 4 a sample."""
    drawn = ArraySpec((c.x.shape[0] * (c.function.sample_size + 1), c.x.shape[1]), c.x.dtype)
    macs = drawn.size * (1 + sum(c.needed))
    read = {0: c.x.nbytes, 1: c.inputs[1].nbytes, 2: drawn.nbytes}
    return c.work(2 * macs + 4 * drawn.shape[0], macs=macs, inputs=read)


def _stages(c: Call) -> int:
    """Of a transform of n elements, log2(n)."""
    return max(0, ((c.x.shape or (1,))[-1] - 1).bit_length())


FORWARD: dict[str, Formula] = {
    **{name: _each(each) for name, (each, _) in EACH.items() if each is not None},
    **{name: _products(macs) for name, macs in MACS.items()},
    # Of matrices of n rows: the leading terms of LAPACK's inversion, 2 n^3, and elimination.
    **named("Inv BatchInv", lambda c: 2 * c.x.size * c.x.shape[-1]),
    **named("BatchDet Cholesky", lambda c: 2 * c.x.size * c.x.shape[-1] // 3),
    "FFT": lambda c: 5 * c.x.size * _stages(c),
    "NegativeSamplingFunction": _negative_sampling,
}
BACKWARD: dict[str, Formula] = {
    **{name: _each(each) for name, (_, each) in EACH.items() if each is not None},
    **{name: _products(MACS[name]) for name in MACS if name != "CrossCovariance"},
    "Cholesky": lambda c: 8 * c.x.size * c.x.shape[-1],
    "NegativeSamplingFunction": _negative_sampling,
}
