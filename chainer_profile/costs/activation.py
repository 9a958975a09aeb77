"""Activation functions, softmax, dropout and other noise."""

from __future__ import annotations

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, elementwise, forward

Gradients = tuple[Array | None, ...]

elementwise(
    "activation",
    {
        "activation.relu.ReLU": ("maximum(x, 0)", "where(y > 0, g, 0)"),
        "activation.clipped_relu.ClippedReLU": (
            "minimum(maximum(x, 0), f.cap)",
            "where((x > 0) & (x < f.cap), g, 0)",
        ),
        "activation.elu.ELU": (
            "where(x > 0, x, f.alpha * expm1(x))",
            "where(y > 0, g, (y + f.alpha) * g)",
        ),
        "activation.hard_sigmoid.HardSigmoid": (
            "minimum(maximum(x * 0.2 + 0.5, 0), 1)",
            "where((x > -2.5) & (x < 2.5), g * 0.2, 0)",
        ),
        "activation.leaky_relu.LeakyReLU": (
            "where(x > 0, x, x * f.slope)",
            "where(y > 0, g, g * f.slope)",
        ),
        "activation.sigmoid.Sigmoid": ("tanh(x * 0.5) * 0.5 + 0.5", "g * y * (1 - y)"),
        "activation.tanh.Tanh": ("tanh(x)", "g * (1 - y * y)"),
    },
)


@forward("activation.softplus.Softplus")
def softplus(c: Call) -> Array:
    """(max(b x, 0) + log1p(exp(-|b x|))) / b: 8 operations an element."""
    bx = c.x[0] * float(c.f.beta)
    return (c.maximum(bx, 0) + c.apply("log1p", c.exp(-abs(bx)))) * float(c.f.beta_inv)


@backward("activation.softplus.Softplus")
def softplus_backward(c: Call) -> Array:
    """(1 - 1 / (1 + exp(b x))) g: 6 operations an element."""
    return (1 - 1 / (1 + c.exp(c.x[0] * float(c.f.beta)))) * c.gy[0]


@forward("activation.crelu.CReLU")
def crelu(c: Call) -> Array:
    """max(x, 0) and max(-x, 0): 3 operations an element of x."""
    (x,) = c.x
    positive, negative = c.maximum(x, 0), c.maximum(-x, 0)
    return c.copy(positive, negative, shape=c.outputs[0].shape)


@backward("activation.crelu.CReLU")
def crelu_backward(c: Call) -> Array:
    """Two comparisons and a subtraction, an element of x."""
    (x,) = c.x
    both = c.gy[0].view(x.shape)
    return c.where(x > 0, both, 0) - c.where(x < 0, both, 0)


@forward("activation.prelu.PReLUFunction")
def prelu(c: Call) -> Array:
    """Computes x where x >= 0, else x W: 2 operations an element."""
    x, w = c.x
    return c.where(x >= 0, x, x * _along_channels(w, x))


@backward("activation.prelu.PReLUFunction")
def prelu_backward(c: Call) -> Gradients:
    """A comparison; x: a product an element; W: a product an element and its sum."""
    x, w = c.x
    (gy,) = c.gy
    positive = x >= 0
    gx = c.where(positive, gy, gy * _along_channels(w, x)) if c.needs(0) else None
    gw = c.where(positive, 0, gy * x).sum(_all_but_channels(w, x)) if c.needs(1) else None
    return gx, gw


@forward("activation.swish.Swish")
def swish(c: Call) -> Array:
    """Computes x sigmoid(b x): 6 operations an element."""
    x, beta = c.x
    return x * c.sigmoid(x * _along_channels(beta, x))


@backward("activation.swish.Swish")
def swish_backward(c: Call) -> Gradients:
    """With s = sigmoid(b x), y = x s: x: (b y + s (1 - b y)) g; b: sum of g y (x - y)."""
    x, beta = c.x
    (gy,) = c.gy
    wide = _along_channels(beta, x)
    s = c.sigmoid(x * wide)
    y = x * s
    gx = gb = None
    if c.needs(0):
        by = y * wide
        gx = (by + s * (1 - by)) * gy
    if c.needs(1):
        gb = (gy * y * (x - y)).sum(_all_but_channels(beta, x))
    return gx, gb


def _along_channels(parameter: Array, x: Array) -> Array:
    """A parameter of channels (and places), as it is broadcast with x."""
    n_after = len(x.shape) - len(parameter.shape) - 1
    return parameter.reshape((1, *parameter.shape, *(1,) * n_after))


def _all_but_channels(parameter: Array, x: Array) -> tuple[int, ...]:
    return (0, *range(1 + len(parameter.shape), len(x.shape)))


@forward("activation.rrelu.RReLU")
def rrelu(c: Call) -> Array:
    """Draws r; x where x >= 0, else x r: 3 operations an element (in test mode r is drawn, too)."""
    (x,) = c.x
    return c.where(x >= 0, x, x * c.random("r", x.shape))


@backward("activation.rrelu.RReLU")
def rrelu_backward(c: Call) -> Array:
    """Computes g where y >= 0, else g r: 2 operations an element."""
    (gy,) = c.gy
    (y,) = c.y
    return c.where(y >= 0, gy, gy * c.kept("r", gy.shape, "float32"))


@forward("activation.softmax.Softmax")
def softmax(c: Call) -> Array:
    """Maximum, difference, exponential, sum, quotient: 5 operations an element less 2 a row."""
    (x,) = c.x
    e = c.exp(x - x.max(axis=c.f.axis, keepdims=True))
    return e / e.sum(axis=c.f.axis, keepdims=True)


@backward("activation.softmax.Softmax")
def softmax_backward(c: Call) -> Array:
    """Computes y g - y sum(y g): 4 operations an element less 1 a row."""
    (y,), (gy,) = c.y, c.gy
    product = y * gy
    return product - y * product.sum(axis=c.f.axis, keepdims=True)


@forward("activation.log_softmax.LogSoftmax")
def log_softmax(c: Call) -> Array:
    """Computes x - (m + log(sum(exp(x - m)))), m the maximum: 5 operations an element."""
    return log_softmax_of(c, c.x[0], c.f.axis)


def log_softmax_of(c: Call, x: Array, axis: int) -> Array:
    """Count a log-softmax over an axis."""
    m = x.max(axis=axis, keepdims=True)
    return x - (m + c.log(c.exp(x - m).sum(axis=axis, keepdims=True)))


@backward("activation.log_softmax.LogSoftmax")
def log_softmax_backward(c: Call) -> Array:
    """Computes g - exp(y) sum(g): 4 operations an element less 1 a row."""
    (y,), (gy,) = c.y, c.gy
    return gy - c.exp(y) * gy.sum(axis=c.f.axis, keepdims=True)


@forward("noise.dropout.Dropout")
def dropout(c: Call) -> Array:
    """Draws a number, compares it, multiplies x by the mask: 3 operations an element."""
    (x,) = c.x
    ratio = float(c.f.dropout_ratio)
    return x * c.where(c.random("mask", x.shape) >= ratio, 1 / (1 - ratio), 0)


@backward("noise.dropout.Dropout")
def dropout_backward(c: Call) -> Array:
    """A product with the mask, which is read: 1 operation an element."""
    (gy,) = c.gy
    return gy * c.kept("mask", gy.shape, c.outputs[0].dtype)


@forward("noise.zoneout.Zoneout")
def zoneout(c: Call) -> Array:
    """Draws a number, compares it, chooses h or x by it: 2 operations an element."""
    h, x = c.x
    return c.where(c.random("flag_x", x.shape) >= c.f.zoneout_ratio, x, h)


@backward("noise.zoneout.Zoneout")
def zoneout_backward(c: Call) -> Gradients:
    """No operation: gradients are chosen by the flags."""
    (gy,) = c.gy
    from_x = c.kept("flag_x", gy.shape, "bool")
    gh = c.where(from_x, 0, gy) if c.needs(0) else None
    return gh, c.where(from_x, gy, 0) if c.needs(1) else None


@forward("noise.gaussian.Gaussian")
def gaussian(c: Call) -> Array:
    """Draws e; mean + exp(ln_var / 2) e: 5 operations an element."""
    mean, ln_var = c.x
    return mean + c.exp(ln_var * 0.5) * c.random("eps", ln_var.shape)
