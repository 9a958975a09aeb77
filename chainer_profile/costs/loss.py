"""Losses. Labels that are ignored count like the others: how many there are is in no shape."""

from __future__ import annotations

from chainer_profile.costs.activation import log_softmax_of
from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_SOFTMAX = "loss.softmax_cross_entropy.SoftmaxCrossEntropy"
_SIGMOID = "loss.sigmoid_cross_entropy.SigmoidCrossEntropy"
_SAMPLING = "loss.negative_sampling.NegativeSamplingFunction"
_CTC = "loss.ctc.ConnectionistTemporalClassification"


def _is_mean(c: Call) -> bool:
    return getattr(c.f, "reduce", "mean") == "mean"


def _averaged(c: Call, losses: Array) -> Array:
    return losses.sum() / max(1, losses.size) if _is_mean(c) else losses


def _both(c: Call, gradient: Array) -> Gradients:
    """Gradients of a function of a difference: the second is the first with its sign changed."""
    return gradient if c.needs(0) else None, -gradient if c.needs(1) else None


@forward(_SOFTMAX)
def softmax_cross_entropy(c: Call) -> Array:
    """Log-softmax, its exponential where kept, the labels' elements picked, summed and scaled.

    5 operations an element and one more for the exponential (Chainer keeps it for backward);
    with class weights a product an element. A label: an addition, or a change of sign with
    ``reduce='no'``. Targets that are probabilities take a product and an addition an element.
    """
    x, t = c.x
    log_y = log_softmax_of(c, x, 1)
    if c.f.cache_score:
        c.exp(log_y)
    if x.shape == t.shape:
        if c.f.soft_target_loss == "kl-divergence":
            loss = (t * (c.log(t + c.f.eps) - log_y)).sum(axis=1)
        else:
            loss = -(t * log_y).sum(axis=1)
        return loss.sum() * _mean_factor(x) if _is_mean(c) else loss
    if c.f.class_weight is not None:
        log_y = log_y * c.kept("class_weight", (x.shape[1],), c.inputs[0].dtype).reshape(
            (1, x.shape[1], *(1,) * (x.ndim - 2))
        )
    c.take(t)
    picked = log_y.view(t.shape)
    return picked.sum() * -_mean_factor(x) if _is_mean(c) else -picked


def _mean_factor(x: Array) -> float:
    """1 / number of labels."""
    return x.shape[1] / x.size if x.size else 0.0


@backward(_SOFTMAX)
def softmax_cross_entropy_backward(c: Call) -> Gradients:
    """A subtraction a label (an element for soft targets), a product an element.

    The softmax is read where it was kept, else computed again; class weights are one product more
    an element; that of the loss's gradient with the mean's factor one a call.
    """
    x, t = c.x
    (gy,) = c.gy
    if c.f.cache_score:
        y = c.kept("y", x.shape, c.inputs[0].dtype)
    else:
        y = c.exp(log_softmax_of(c, x, 1))
    gx = y - t if x.shape == t.shape else c.count(t.size, y, t, shape=x.shape)
    if c.f.class_weight is not None and x.shape != t.shape:
        gx = gx * 1.0
    if _is_mean(c):
        return gx * (gy * _mean_factor(x)), None
    factor = gy.reshape((len(x), 1, *x.shape[2:]))
    return gx * factor, None


@forward(_SIGMOID)
def sigmoid_cross_entropy(c: Call) -> Array:
    """-(x (t - [x >= 0]) - log1p(exp(-|x|))): 9 operations an element; their mean, if asked for."""
    x, t = c.x
    loss = -(x * (t - (x >= 0)) - c.apply("log1p", c.exp(-abs(x))))
    return _averaged(c, loss)


@backward(_SIGMOID)
def sigmoid_cross_entropy_backward(c: Call) -> Gradients:
    """Computes g (sigmoid(x) - t): 6 operations an element; a division more each for the mean."""
    x, t = c.x
    gx = c.gy[0] * (c.sigmoid(x) - t)
    return (gx / max(1, x.size) if _is_mean(c) else gx), None


@forward("loss.mean_squared_error.MeanSquaredError")
def mean_squared_error(c: Call) -> Array:
    """Difference, square, sum: 3 operations an element."""
    difference = c.x[0] - c.x[1]
    return (difference * difference).sum() / max(1, difference.size)


@backward("loss.mean_squared_error.MeanSquaredError")
def mean_squared_error_backward(c: Call) -> Gradients:
    """2 g / n times the difference: 2 operations an element; a change of sign for the other."""
    difference = c.x[0] - c.x[1]
    return _both(c, c.gy[0] * (2.0 / max(1, difference.size)) * difference)


@forward("loss.mean_absolute_error.MeanAbsoluteError")
def mean_absolute_error(c: Call) -> Array:
    """Difference, its absolute value, sum: 3 operations an element."""
    difference = abs(c.x[0] - c.x[1])
    return difference.sum() / max(1, difference.size)


@backward("loss.mean_absolute_error.MeanAbsoluteError")
def mean_absolute_error_backward(c: Call) -> Gradients:
    """The kept difference's sign times g / n: 2 operations an element; a sign for the other."""
    difference = c.kept("diff", c.x[0].shape, c.inputs[0].dtype)
    return _both(c, c.gy[0] * (1.0 / max(1, difference.size)) * c.sign(difference))


@forward("loss.squared_error.SquaredError")
def squared_error(c: Call) -> Array:
    """Difference and square: 2 operations an element."""
    difference = c.x[0] - c.x[1]
    return difference * difference


@forward("loss.absolute_error.AbsoluteError")
def absolute_error(c: Call) -> Array:
    """Difference and absolute value: 2 operations an element."""
    return abs(c.x[0] - c.x[1])


@backward("loss.absolute_error.AbsoluteError")
def absolute_error_backward(c: Call) -> Gradients:
    """The kept difference's sign times g: 2 operations an element; a sign for the other."""
    difference = c.kept("diff", c.x[0].shape, c.inputs[0].dtype)
    return _both(c, c.gy[0] * c.sign(difference))


@forward("loss.huber_loss.HuberLoss")
def huber_loss(c: Call) -> Array:
    """Half of min(d^2, max(2 delta |d| - delta^2, delta^2)): 8 operations an element; the sums."""
    difference = abs(c.x[0] - c.x[1])
    delta = float(c.f.delta)
    linear = c.maximum(difference * (2 * delta) - delta * delta, delta * delta)
    y = c.minimum(c.apply("square", difference), linear) * 0.5
    return y.sum(axis=1) if c.f.reduce == "sum_along_second_axis" else y


@forward("loss.hinge.Hinge")
def hinge(c: Call) -> Array:
    """A change of sign a label; max(0, 1 + x), its square (L2), and sum: 3 or 4 an element."""
    x, t = c.x
    loss = c.maximum(c.count(t.size, x, t, shape=x.shape) + 1, 0)
    if c.f.norm == "L2":
        loss = loss**2
    return loss.sum() / max(1, len(x)) if _is_mean(c) else loss


@backward("loss.hinge.Hinge")
def hinge_backward(c: Call) -> Gradients:
    """A change of sign a label; g times the sign (L1) or the double (L2): 2 an element."""
    x, t = c.x
    (gy,) = c.gy
    difference = c.kept("bottom_diff", x.shape, c.inputs[0].dtype)
    difference = c.count(t.size, difference, t, shape=x.shape)
    if _is_mean(c):
        gy = gy / max(1, len(x))
    return (gy * c.sign(difference) if c.f.norm == "L1" else 2 * difference * gy), None


@forward("loss.contrastive.Contrastive")
def contrastive(c: Call) -> Array:
    """Difference, square, sum: 3 operations an element; 9 an example; the mean, where asked for.

    An example: root, margin, maximum, and (y d^2 + (1 - y) m m) / 2.
    """
    x0, x1, y = c.x
    squared = ((x0 - x1) ** 2).sum(axis=1)
    distance = c.maximum(c.f.margin - c.sqrt(squared), 0)
    return _averaged(c, (y * squared + (1 - y) * distance * distance) * 0.5)


@backward("loss.contrastive.Contrastive")
def contrastive_backward(c: Call) -> Gradients:
    """With d the distance: (y - (1 - y) max(margin - d, 0) / d) g (x0 - x1); a sign for x1.

    4 operations an element (difference, square, sum, product), 9 an example and the mean's factor.
    """
    x0, x1, y = c.x
    difference = x0 - x1
    distance = c.maximum(c.sqrt((difference**2).sum(axis=1)), 1e-7)
    hinge = c.maximum(c.f.margin - distance, 0)
    factor = (y - (1 - y) * hinge / distance) * c.gy[0]
    if _is_mean(c):
        factor = factor / max(1, len(x0))
    return *_both(c, factor.reshape((len(x0), 1)) * difference), None


@forward("loss.triplet.Triplet")
def triplet(c: Call) -> Array:
    """Two differences, their squares, the squares' difference, sum: 6 an element; 2 an example."""
    anchor, positive, negative = c.x
    distance = ((anchor - positive) ** 2 - (anchor - negative) ** 2).sum(axis=1) + c.f.margin
    return _averaged(c, c.maximum(distance, 0))


@backward("loss.triplet.Triplet")
def triplet_backward(c: Call) -> Gradients:
    """2 g of each example with a loss, times a difference: 2 an element for each input."""
    (gy,) = c.gy
    anchor, positive, negative = c.x
    n = anchor.shape[0]
    factor = 2 * (gy / max(1, n) if _is_mean(c) else gy)
    rest = anchor.shape[2:]
    active = c.kept("dist_hinge", (n, *rest), c.inputs[0].dtype) > 0
    factor = c.where(active, factor, 0).reshape((n, 1, *rest))
    pairs = ((negative, positive), (positive, anchor), (anchor, negative))
    return tuple(factor * (a - b) if c.needs(i) else None for i, (a, b) in enumerate(pairs))


@forward("loss.cross_covariance.CrossCovariance")
def cross_covariance(c: Call) -> Array:
    """Means taken off (2 an element), a product of the transposed, and its half squared sum."""
    y, z = c.x
    covariance = _covariance(c, _centred(y), _centred(z))
    return _half_squared_sum(c, covariance)


@forward("loss.decov.DeCov")
def decov(c: Call) -> Array:
    """Means taken off (2 an element), a product of the transposed, and its half squared sum."""
    h = _centred(c.x[0])
    return _half_squared_sum(c, _covariance(c, h, h))


@backward("loss.decov.DeCov")
def decov_backward(c: Call) -> Array:
    """A product of the kept centred input with the kept covariance, and 2 operations an element.

    Without the sum the product is with the gradient and its transpose added, 2 a pair.
    """
    h, n = c.x[0], c.x[0].shape[1]
    dtype = c.inputs[0].dtype
    centred = c.kept("h_centered", h.shape, dtype)
    scale = c.gy[0] / max(1, len(h))
    if c.f.reduce == "half_squared_sum":
        covariance = c.kept("covariance", (n, n), dtype)
        return 2.0 * c.matmul(centred, covariance) * scale
    return c.matmul(centred, scale + scale)


def _centred(x: Array) -> Array:
    return x - x.mean(axis=0, keepdims=True)


def _covariance(c: Call, y: Array, z: Array) -> Array:
    product = c.products(y.size * z.shape[1], y, z, shape=(y.shape[1], z.shape[1]))
    return product / max(1, len(y))


def _half_squared_sum(c: Call, covariance: Array) -> Array:
    """2 operations a pair, and the half."""
    if c.f.reduce != "half_squared_sum":
        return covariance
    return c.count(2 * covariance.size, covariance) * 0.5


@forward(_SAMPLING)
def negative_sampling(c: Call) -> Array:
    """A product of x with the rows of W that were drawn; log(1 + e^..) and a sum a sample.

    The label's product changes its sign. Drawing is the sampler's, and is not counted. Of W only
    the rows that were drawn are read.
    """
    x, t, w = c.x
    n, samples = x.shape[0], c.f.sample_size + 1
    _take_rows(c, w, n * samples)
    c.take(t)
    c.products(n * samples * w.shape[1], x)
    loss = c.count(n + n * samples + n * (samples - 1), shape=(n,))
    return loss.sum() if c.f.reduce == "sum" else loss


@backward(_SAMPLING)
def negative_sampling_backward(c: Call) -> Gradients:
    """The product again; 4 operations a sample, 2 signs a label; a product for x, one for W."""
    x, _, w = c.x
    n, samples = x.shape[0], c.f.sample_size + 1
    _take_rows(c, w, n * samples)
    c.take(c.kept("samples", (n, samples), "int32"))
    macs = n * samples * w.shape[1]
    c.products(macs, x, c.gy[0])
    c.count(4 * n * samples + 2 * n)
    gx = c.products(macs, shape=x.shape) if c.needs(0) else None
    return gx, None, c.products(macs, shape=w.shape) if c.needs(2) else None


def _take_rows(c: Call, w: Array, rows: int) -> None:
    c.take_part(w, rows * w.shape[1])


@forward(_CTC)
def connectionist_temporal_classification(c: Call) -> Array:
    """Softmax and logarithm (6 an element); 28 operations a step and place of the path; the loss.

    A path has a blank around each label. For each step and place, from the front and from the end:
    log-sum-exp of 3 (12), and 2 additions. All sequences are taken to be as long as the longest.
    """
    xs, labels = c.x[-1], c.x[2]
    steps, n, _ = xs.shape
    path = 2 * labels.shape[1] + 1
    e = c.exp(xs - xs.max(axis=2, keepdims=True))
    c.log(e / e.sum(axis=2, keepdims=True))
    c.take(*c.x[:3])
    c.count(28 * steps * n * path)
    loss = -_log_sum(c, n, path)
    return loss.mean() if _is_mean(c) else loss


@backward(_CTC)
def connectionist_temporal_classification_backward(c: Call) -> Gradients:
    """Difference, exponential, sum a step and place of the path; 2 operations an element of x."""
    xs, labels = c.x[-1], c.x[2]
    steps, n, _ = xs.shape
    path = 2 * labels.shape[1] + 1
    dtype = c.inputs[-1].dtype
    places = c.kept("prob_trans", (steps, n, path), dtype)
    c.take(c.kept("path", (n, path), "int32"))
    _log_sum(c, n, path)
    c.count(3 * places.size, places)
    yseq = c.kept("yseq", xs.shape, dtype)
    factor = c.gy[0] / max(1, n) if _is_mean(c) else c.gy[0].reshape((n, 1))
    return None, None, None, (yseq - c.new(xs.shape)) * factor


def _log_sum(c: Call, n: int, path: int) -> Array:
    """Log-sum-exp of each of n paths: maximum, difference, exponential, sum; 2 for each path."""
    values = c.new((n, path))
    m = values.max(axis=1)
    return m + c.log(c.exp(values - m.reshape((n, 1))).sum(axis=1))
