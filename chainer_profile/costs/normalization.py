"""Normalisations. Elements are those of x; channels are elements of gamma."""

from __future__ import annotations

import math

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_BATCH = "normalization.batch_normalization."
_GROUP = "normalization.group_normalization."


def _axes(c: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes that statistics are taken over, and shape of a channel's parameter beside x.

    The function knows its axes once it has run; before that they are the usual ones.
    """
    x, gamma = c.x[:2]
    axis = getattr(c.f, "axis", None)
    if axis is None:
        axis = (0, *range(gamma.ndim + 1, x.ndim))
    axes = tuple(axis)
    return axes, tuple(1 if a in axes else n for a, n in enumerate(x.shape))


def _statistics(c: Call, x: Array, axes: tuple[int, ...]) -> tuple[Array, ...]:
    """The mean, x less the mean, and the variance: 1, 1 and 2 operations an element."""
    m = x.mean(axis=axes, keepdims=True)
    centred = x - m
    return m, centred, (centred * centred).mean(axis=axes, keepdims=True)


def _running(c: Call, channels: tuple[int, ...], *names: str) -> None:
    """Running averages r = decay r + (1 - decay) s: 3 operations a channel, read and written."""
    for name in names:
        if getattr(c.f, name, None) is not None:
            array = c.kept(name, channels, c.inputs[1].dtype)
            c.count(3 * array.size, array)
            c.updates(array)


@forward(_BATCH + "BatchNormalization")
def batch_normalization(c: Call) -> Array:
    """Training: 7 operations an element; 3 a channel, and 6 for its running averages.

    Mean 1, difference 1, variance 2 (square, sum with a division), the difference over std 1,
    gamma and beta 2; the variance plus eps, its root, and the reciprocal of that.
    """
    x, gamma, beta = c.x
    axes, channels = _axes(c)
    _, centred, variance = _statistics(c, x, axes)
    inv_std = 1 / c.sqrt(variance + float(c.f.eps))
    _running(c, gamma.shape, "running_mean", "running_var")
    return centred * inv_std * gamma.reshape(channels) + beta.reshape(channels)


@backward(_BATCH + "BatchNormalization")
def batch_normalization_backward(c: Call) -> Gradients:
    """Normalised x 2, gbeta 1, ggamma 2, gx 5 operations an element; a few a channel.

    Chainer computes all three gradients together, as do we: gx needs the other two.
    gx = gamma inv_std (g - (xhat ggamma + gbeta) / m).
    """
    x, gamma = c.x[:2]
    (gy,) = c.gy
    axes, channels = _axes(c)
    stats = math.prod(channels)
    mean = c.kept("mean", (stats,), c.inputs[1].dtype).reshape(channels)
    inv_std = c.kept("inv_std", (stats,), c.inputs[1].dtype).reshape(channels)
    x_hat = (x - mean) * inv_std
    gbeta = gy.sum(axis=axes)
    ggamma = (gy * x_hat).sum(axis=axes)
    gx = None
    if c.needs(0):
        inner = x_hat * ggamma.reshape(channels) + gbeta.reshape(channels)
        inv_m = stats / x.size if x.size else 0.0
        gx = (gamma.reshape(channels) * inv_std) * (gy - inner * inv_m)
    return gx, ggamma, gbeta


@forward(_BATCH + "FixedBatchNormalization")
def fixed_batch_normalization(c: Call) -> Array:
    """Test mode: 4 operations an element, 3 a channel.

    A difference, and products with 1 / std and gamma, and beta; the variance plus eps, its
    reciprocal, and the root of that.
    """
    x, gamma, beta, mean, var = c.x
    _, channels = _axes(c)
    inv_std = c.sqrt(1 / (var + float(c.f.eps))).reshape(channels)
    return (x - mean.reshape(channels)) * inv_std * gamma.reshape(channels) + beta.reshape(channels)


@backward(_BATCH + "FixedBatchNormalization")
def fixed_batch_normalization_backward(c: Call) -> Gradients:
    """Gradients: x 1, beta 1, gamma 4 operations an element (normalised x, product, sum).

    A few a channel. The mean's uses beta's, the variance's gamma's. 1 / std is read.
    """
    x, gamma = c.x[:2]
    (gy,) = c.gy
    axes, channels = _axes(c)
    dtype = c.inputs[1].dtype
    inv_std = c.kept("inv_std", gamma.shape, dtype)
    scale = gamma * inv_std if c.needs(0) or c.needs(3) else None
    gx = ggamma = gbeta = gmean = gvar = None
    if c.needs(0) and scale is not None:
        gx = scale.reshape(channels) * gy
    if c.needs(2) or c.needs(3):
        gbeta = gy.sum(axis=axes)
    if c.needs(1) or c.needs(4):
        x_hat = (x - c.x[3].reshape(channels)) * inv_std.reshape(channels)
        ggamma = (x_hat * gy).sum(axis=axes)
    if c.needs(3) and scale is not None and gbeta is not None:
        gmean = -scale * gbeta
    if c.needs(4) and ggamma is not None:
        gvar = -0.5 * c.kept("inv_var", gamma.shape, dtype) * (gamma * ggamma)
    return gx, ggamma, gbeta, gmean, gvar


@forward("normalization.batch_renormalization.BatchRenormalizationFunction")
def batch_renormalization(c: Call) -> Array:
    """As batch normalisation, with r and d: 9 operations an element, about 20 a channel.

    A channel: std 2, running std 2, r 3 (quotient, two bounds), d 4, running averages 6.
    """
    x, gamma, beta = c.x
    axes, channels = _axes(c)
    m, centred, variance = _statistics(c, x, axes)
    std = c.sqrt(variance + float(c.f.eps))
    dtype = c.inputs[1].dtype
    running_mean = c.kept("_running_mean", gamma.shape, dtype).reshape(channels)
    running_var = c.kept("_running_var", gamma.shape, dtype).reshape(channels)
    sigma = c.sqrt(running_var + float(c.f.eps))
    r = c.minimum(c.maximum(std / sigma, 1 / c.f.rmax), c.f.rmax)
    d = c.minimum(c.maximum((m - running_mean) / sigma, -c.f.dmax), c.f.dmax)
    if c.f.update_statistics:
        _running(c, gamma.shape, "_running_mean", "_running_var")
    renormalised = centred / std * r + d
    return gamma.reshape(channels) * renormalised + beta.reshape(channels)


@backward("normalization.batch_renormalization.BatchRenormalizationFunction")
def batch_renormalization_backward(c: Call) -> Gradients:
    """Gradients: beta 1, gamma 2, the scale's sum 2, x 5 operations an element; 2 a channel."""
    x, gamma = c.x[:2]
    (gy,) = c.gy
    axes, channels = _axes(c)
    dtype = c.outputs[0].dtype
    gbeta = gy.sum(axis=axes)
    ggamma = (gy * c.kept("x_hat_renorm", x.shape, dtype)).sum(axis=axes)
    x_hat = c.kept("x_hat", x.shape, dtype)
    gsigma = (gy * x_hat).sum(axis=axes)
    r = c.kept("r", gamma.shape, dtype).reshape(gamma.shape)
    std = c.kept("std", gamma.shape, dtype).reshape(gamma.shape)
    scale = (r * gamma / std).reshape(channels)
    inner = x_hat * gsigma.reshape(channels) + gbeta.reshape(channels)
    m = x.size // max(1, gamma.size)
    return scale * (gy - inner / m), ggamma, gbeta


@forward(_GROUP + "GroupNormalization")
def group_normalization(c: Call) -> Array:
    """7 operations an element, 3 a group: as batch normalisation over each group.

    A group: the variance plus eps, its root, the reciprocal.
    """
    x, gamma, beta = c.x
    n, channels = x.shape[:2]
    groups = x.reshape((n * c.f.groups, _rest(x.size, n * c.f.groups)))
    centred = groups - groups.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    x_hat = centred * (1 / c.sqrt(variance + float(c.f.eps)))
    y = x_hat.reshape((n, channels, _rest(x.size, n * channels)))
    return (y * gamma.reshape((1, channels, 1)) + beta.reshape((1, channels, 1))).reshape(x.shape)


@backward(_GROUP + "GroupNormalization")
def group_normalization_backward(c: Call) -> Gradients:
    """Normalised x 2, scaled g 1, gbeta 1, ggamma 2, gx 7 operations an element; 2 a group.

    With h = g gamma: gx = inv_std (h - mean(h) - xhat mean(h xhat)).
    """
    x, gamma = c.x[:2]
    (gy,) = c.gy
    n, channels = x.shape[:2]
    n_groups = n * c.f.groups
    by_group = (n_groups, _rest(x.size, n_groups))
    by_channel = (n, channels, _rest(x.size, n * channels))
    dtype = c.inputs[1].dtype
    mean = c.kept("mean", (n_groups,), dtype).reshape((n_groups, 1))
    inv_std = c.kept("inv_std", (n_groups,), dtype).reshape((n_groups, 1))
    gx = ggamma = gbeta = None
    g = gy.reshape(by_channel)
    x_hat = None
    if c.needs(0) or c.needs(1):
        x_hat = (x.reshape(by_group) - mean) * inv_std
    if c.needs(2):
        gbeta = g.sum(axis=(0, 2))
    if c.needs(1) and x_hat is not None:
        ggamma = (g * x_hat.reshape(by_channel)).sum(axis=(0, 2))
    if c.needs(0) and x_hat is not None:
        h = (g * gamma.reshape((1, channels, 1))).reshape(by_group)
        average = h.mean(axis=1, keepdims=True)
        projection = (h * x_hat).mean(axis=1, keepdims=True)
        gx = (inv_std * (h - average - x_hat * projection)).reshape(x.shape)
    return gx, ggamma, gbeta


def _rest(size: int, part: int) -> int:
    return size // part if part else 0


@forward("normalization.layer_normalization.LayerNormalization")
def layer_normalization(c: Call) -> Array:
    """7 operations an element, 3 an example: mean, variance, (x - mean) / std, gamma, beta."""
    x, gamma, beta = c.x
    m = x.mean(axis=1, keepdims=True)
    centred = x - m
    variance = c.apply("square", centred).mean(axis=1, keepdims=True)
    inv_std = 1.0 / c.sqrt(variance + float(c.f.eps))
    return centred * inv_std * gamma + beta


@backward("normalization.layer_normalization.LayerNormalization")
def layer_normalization_backward(c: Call) -> Gradients:
    """Normalised x again 5, scaled g 1, gbeta 1, ggamma 2, gx 7 operations an element.

    With h = g gamma: gx = inv_std (h - mean(h) - xhat mean(h xhat)). Chainer's own way, which
    takes the square root and the sums apart, needs some more.
    """
    x, gamma = c.x[:2]
    (gy,) = c.gy
    gx = ggamma = gbeta = x_hat = inv_std = None
    if c.needs(0) or c.needs(1):
        centred = x - x.mean(axis=1, keepdims=True)
        variance = c.apply("square", centred).mean(axis=1, keepdims=True)
        inv_std = 1.0 / c.sqrt(variance + float(c.f.eps))
        x_hat = centred * inv_std
    if c.needs(2):
        gbeta = gy.sum(axis=0)
    if c.needs(1):
        ggamma = (gy * x_hat).sum(axis=0)
    if c.needs(0) and inv_std is not None:
        h = gy * gamma
        average = h.mean(axis=1, keepdims=True)
        projection = (h * x_hat).mean(axis=1, keepdims=True)
        gx = inv_std * (h - average - x_hat * projection)
    return gx, ggamma, gbeta


@forward("normalization.l2_normalization.NormalizeL2")
def normalize_l2(c: Call) -> Array:
    """Computes x / (root of the sum of squares + eps): 3 operations an element, 1 a norm."""
    (x,) = c.x
    norm = c.sqrt(c.apply("square", x).sum(axis=c.f.axis, keepdims=True)) + float(c.f.eps)
    return x / norm


@forward("normalization.local_response_normalization.LocalResponseNormalization")
def local_response_normalization(c: Call) -> Array:
    """Computes x (k + alpha sum(x^2))^-beta: 5 operations an element, and the sum's additions.

    The sum over n neighbouring channels adds each pair of channels up to n // 2 apart both ways.
    """
    (x,) = c.x
    squares = c.apply("square", x)
    neighbours = c.count(_neighbours(c, x), squares, shape=x.shape)
    return x * (float(c.f.k) + float(c.f.alpha) * neighbours) ** -float(c.f.beta)


@backward("normalization.local_response_normalization.LocalResponseNormalization")
def local_response_normalization_backward(c: Call) -> Array:
    """Computes g s - 2 alpha beta x sum(y g / u): 6 operations an element, and the sum's additions.

    The scale s and its base u are kept from forward, and read.
    """
    (x,), (y,), (gy,) = c.x, c.y, c.gy
    dtype = c.outputs[0].dtype
    summand = y * gy / c.kept("unit_scale", x.shape, dtype)
    neighbours = c.count(_neighbours(c, x), summand, shape=x.shape)
    scale = c.kept("scale", x.shape, dtype)
    return gy * scale - 2 * float(c.f.alpha) * float(c.f.beta) * x * neighbours


def _neighbours(c: Call, x: Array) -> int:
    channels = x.shape[1]
    pairs = sum(max(0, channels - i) for i in range(1, c.f.n // 2 + 1))
    return 2 * pairs * _rest(x.size, channels)


_FIXED_DECORRELATED = (
    "normalization.decorrelated_batch_normalization.FixedDecorrelatedBatchNormalization"
)


@forward(_FIXED_DECORRELATED)
def fixed_decorrelated_batch_normalization(c: Call) -> Array:
    """A difference an element, and a product with the projection of its group of channels."""
    x, mean, projection = c.x
    macs = x.size * projection.shape[-1]
    c.count(x.size, mean)
    return c.products(macs, x, projection, shape=x.shape)


@backward(_FIXED_DECORRELATED)
def fixed_decorrelated_batch_normalization_backward(c: Call) -> Gradients:
    """x: a product with the projection; it: 2 differences an element and a product; mean: signs.

    The mean's gradient is taken from that of x, as Chainer does.
    """
    x, mean, projection = c.x
    (gy,) = c.gy
    macs = x.size * projection.shape[-1]
    gx = gmean = gprojection = None
    if c.needs(0) or c.needs(1):
        gx = c.products(macs, gy, projection, shape=x.shape)
    if c.needs(1):
        gmean = c.count(mean.size, shape=mean.shape)
    if c.needs(2):
        c.count(2 * x.size, x, mean)
        gprojection = c.products(macs, gy, shape=projection.shape)
    return gx, gmean, gprojection
