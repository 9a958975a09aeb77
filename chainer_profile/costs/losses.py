"""Formulas of softmax, losses and measures of quality."""

from __future__ import annotations

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import FunctionCost, about, exact


def _rows(c: Call) -> int:
    length = c.x.shape[c.function.axis]
    return c.x.size // length if length else 0


def _softmax_backward(c: Call) -> int:
    return 4 * c.x.size - _rows(c)


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


def _mean_squared_error_backward(c: Call) -> int:
    """Count the difference, its product with 2 g / n, and a change of sign for the second input."""
    return c.x.size * (2 + c.needed[1]) + 1


def _accuracy(c: Call) -> int:
    """Count the maximum of each row, and a comparison and an addition per label."""
    return c.x.size + c.inputs[1].size


TABLE = (
    # Softmax.
    FunctionCost(
        "Softmax", forward=lambda c: 5 * c.x.size - 2 * _rows(c), backward=_softmax_backward
    ),
    FunctionCost("LogSoftmax", forward=exact(5), backward=_softmax_backward),
    FunctionCost(
        "SoftmaxCrossEntropy",
        forward=_softmax_cross_entropy,
        backward=_softmax_cross_entropy_backward,
    ),
    # Other losses.
    FunctionCost("SquaredError", forward=exact(2), backward=exact(4)),
    FunctionCost("AbsoluteError", forward=exact(2), backward=about(3)),
    FunctionCost("MeanSquaredError", forward=exact(3), backward=_mean_squared_error_backward),
    FunctionCost("MeanAbsoluteError", forward=exact(3), backward=about(3)),
    FunctionCost("Hinge", forward=about(3), backward=about(3)),
    FunctionCost("Contrastive Triplet", forward=about(6), backward=about(8)),
    FunctionCost("HuberLoss", forward=about(8), backward=about(5)),
    FunctionCost("SigmoidCrossEntropy", forward=about(10), backward=about(7)),
    FunctionCost("ConnectionistTemporalClassification", forward=about(53), backward=about(8)),
    # Measures of quality.
    FunctionCost("Accuracy", forward=_accuracy),
    FunctionCost("BinaryAccuracy ClassificationSummary R2_score", forward=about(6)),
)
