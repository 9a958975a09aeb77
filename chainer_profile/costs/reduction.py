"""Sums and other reductions, broadcasting, cumulative sums, matrix decompositions, measures.

n elements reduced to m take n - m operations; a mean takes m divisions more.
"""

from __future__ import annotations

import math

from chainer_profile.costs.counting import Array, Call, Shape, reduced
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]


@forward("math.sum.Sum")
def sum_(c: Call) -> Array:
    """Of n elements to m: n - m operations."""
    return c.x[0].sum(axis=c.f.axis, keepdims=c.f.keepdims)


@forward("math.sum.SumTo")
def sum_to(c: Call) -> Array:
    """Of n elements to m: n - m operations."""
    return c.sum_to(c.x[0], c.outputs[0].shape)


@forward("array.broadcast.BroadcastTo", "array.broadcast.Broadcast")
def broadcast(c: Call) -> tuple[Array, ...]:
    """No operation and no bytes: views."""
    return tuple(c.broadcast_to(x, spec.shape) for x, spec in zip(c.x, c.outputs, strict=True))


@forward("math.average.Mean")
def mean(c: Call) -> Array:
    """Of n elements to m: n operations (sums and divisions)."""
    return c.x[0].mean(axis=c.f.axis, keepdims=c.f.keepdims)


@forward("math.prod.Prod")
def prod(c: Call) -> Array:
    """Of n elements to m: n - m operations."""
    return c.x[0].prod(axis=c.f.axis, keepdims=c.f.keepdims)


@backward("math.prod.Prod")
def prod_backward(c: Call) -> Array:
    """Products of what precedes and of what follows each element, their product, times g."""
    (x,) = c.x
    others = max(0, x.size - math.prod(reduced(x.shape, c.f.axis)))
    return c.count(2 * others + 2 * x.size, x, c.gy[0], shape=x.shape)


@forward("math.minmax.Max")
def maximum(c: Call) -> Array:
    """Of n elements to m: n - m comparisons."""
    return c.x[0].max(axis=c.f.axis, keepdims=c.f.keepdims)


@forward("math.minmax.Min")
def minimum(c: Call) -> Array:
    """Of n elements to m: n - m comparisons."""
    return c.x[0].min(axis=c.f.axis, keepdims=c.f.keepdims)


@backward("math.minmax.Max", "math.minmax.Min")
def maximum_backward(c: Call) -> Array:
    """A comparison of each element with the extreme one chooses between g and 0."""
    (x,), (y,), (gy,) = c.x, c.y, c.gy
    shape = reduced(x.shape, c.f.axis, True)
    return c.where(c.apply("equal", x, y.reshape(shape)), gy.reshape(shape), 0)


@forward("math.minmax.ArgMax", "math.minmax.ArgMin")
def argmax(c: Call) -> Array:
    """Of n elements to m: n - m comparisons."""
    return c.x[0].max(axis=c.f.axis)


@forward("math.logsumexp.LogSumExp")
def logsumexp(c: Call) -> Array:
    """Maximum, difference, exponential, sum; for each sum a logarithm and an addition."""
    (x,) = c.x
    m = x.max(axis=c.f.axis, keepdims=True)
    total = c.exp(x - m).sum(axis=c.f.axis)
    return c.log(total) + m.reshape(total.shape)


@forward("math.cumsum.Cumsum", "math.cumprod.Cumprod")
def cumulate(c: Call) -> Array:
    """An operation for each element but the first of a row."""
    (x,) = c.x
    return c.count(_steps(x.shape, c.f.axis), x, shape=c.outputs[0].shape)


@backward("math.cumprod.Cumprod")
def cumprod_backward(c: Call) -> Array:
    """From the end, s = g + x s: 2 operations a step; each but the first times what precedes."""
    (x,) = c.x
    return c.count(3 * _steps(x.shape, c.f.axis), x, c.y[0], c.gy[0], shape=x.shape)


@forward("math.cumprod.Cumprodsum")
def cumprodsum(c: Call) -> Array:
    """Computes s = a + m s: 2 operations a step; only of double backpropagation."""
    xmul, xadd = c.x
    return c.count(2 * xmul.size, xmul, xadd, shape=xadd.shape)


def _steps(shape: Shape, axis: int | None) -> int:
    size = math.prod(shape)
    length = size if axis is None else shape[axis]
    return size - size // length if length else 0


@forward("math.batch_l2_norm_squared.BatchL2NormSquared")
def squared_norm(c: Call) -> Array:
    """A square and an addition an element, less an addition an example."""
    (x,) = c.x
    return (x * x).sum(axis=tuple(range(1, x.ndim)))


@backward("math.batch_l2_norm_squared.BatchL2NormSquared")
def squared_norm_backward(c: Call) -> Array:
    """2 x g: 2 operations an element."""
    (x,) = c.x
    return 2 * x * c.gy[0].reshape((len(x), *(1,) * (x.ndim - 1)))


@forward("math.det.BatchDet")
def det(c: Call) -> Array:
    """Elimination (LU) of each matrix, and the product of its diagonal."""
    (x,) = c.x
    n = x.shape[-1]
    return c.count(len(x) * (elimination(n) + max(0, n - 1)), x, shape=c.outputs[0].shape)


def elimination(n: int) -> int:
    """Operations of an LU decomposition: a division a row below each pivot, then multiply-adds."""
    return sum(k + 2 * k * k for k in range(n))


@forward("math.inv.Inv", "math.inv.BatchInv")
def inverse(c: Call) -> Array:
    """2 n^3 operations for each matrix of n rows: the leading term of LAPACK's getrf and getri."""
    (x,) = c.x
    return c.count(2 * x.size * x.shape[-1], x, shape=x.shape)


@forward("math.cholesky.Cholesky")
def cholesky(c: Call) -> Array:
    """For each element of the lower half a sum of products, then a division or a square root."""
    (x,) = c.x
    n = x.shape[-1]
    return c.count(sum((n - k) * (2 * k + 1) for k in range(n)), x, shape=x.shape)


@backward("math.cholesky.Cholesky")
def cholesky_backward(c: Call) -> Array:
    """An inversion (2 n^3), three products (n^3 multiply-adds), and 3 operations an element."""
    (y,), (gy,) = c.y, c.gy
    n = y.shape[-1]
    gx = c.products(3 * n**3, y, gy, shape=y.shape)
    return c.count(2 * n**3 + 3 * n * n, gx, shape=y.shape)


@forward("evaluation.accuracy.Accuracy")
def accuracy(c: Call) -> Array:
    """Comparisons for the largest of each row; a comparison, an addition a label; a division."""
    y, t = c.x
    right = c.apply("equal", y.max(axis=1).reshape(t.shape), t)
    return right.mean()


@forward("evaluation.binary_accuracy.BinaryAccuracy")
def binary_accuracy(c: Call) -> Array:
    """Three comparisons an element and two sums, a comparison, a division."""
    y, t = c.x
    right = c.apply("equal", y >= 0, t).sum()
    counted = c.apply("not_equal", t, -1).sum()
    return right / c.maximum(counted, 1)


@forward("evaluation.classification_summary.ClassificationSummary")
def classification_summary(c: Call) -> Gradients:
    """Comparisons for the largest of each row; per label two comparisons and three counts.

    For each class precision, recall (a division each) and the F score (6 operations).
    """
    y, t = c.x
    y.max(axis=1)
    classes = c.outputs[0].size
    c.count(5 * t.size + 8 * classes, t)
    return tuple(c.new(spec.shape) for spec in c.outputs)


@forward("evaluation.r2_score.R2_score")
def r2_score(c: Call) -> Array:
    """1 - (sum of squared errors) / (sum of squared distances from the mean)."""
    pred, true = c.x
    residual = c.apply("square", pred - true).sum(axis=0)
    total = c.apply("square", true - true.mean(axis=0)).sum(axis=0)
    score = 1 - residual / c.where(c.apply("equal", total, 0), 1, total)
    return score if c.f.multioutput == "raw_values" else score.mean()
