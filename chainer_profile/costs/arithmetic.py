"""Arithmetic and functions of single elements, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, elementwise, forward

Gradients = tuple[Array | None, ...]

_BASIC = "math.basic_math."
_TRIGONOMETRIC = "math.trigonometric."

elementwise(
    "arithmetic",
    {
        _BASIC + "Neg": ("-x", "-g"),
        _BASIC + "Absolute": ("abs(x)", "sign(x) * g"),
        _BASIC + "AddConstant": ("x + f.value", "g"),
        _BASIC + "SubFromConstant": ("f.value - x", "-g"),
        _BASIC + "MulConstant": ("f.value * x", "f.value * g"),
        _BASIC + "DivFromConstant": ("f.value / x", "-f.value * g / x ** 2"),
        _BASIC + "PowVarConst": ("x ** f.value", "f.value * x ** (f.value - 1) * g"),
        _BASIC + "PowConstVar": ("f.value ** x", "log(f.value) * y * g"),
        "math.exponential.Exp": ("exp(x)", "y * g"),
        "math.exponential.Log": ("log(x)", "g / x"),
        "math.exponential.Log2": ("log2(x)", "g / x * 1.4426950408889634"),
        "math.exponential.Log10": ("log10(x)", "g / x * 0.4342944819032518"),
        "math.exponential_m1.Expm1": ("expm1(x)", "(y + 1) * g"),
        "math.logarithm_1p.Log1p": ("log1p(x)", "g / (x + 1)"),
        "math.sqrt.Sqrt": ("sqrt(x)", "g / (y * 2)"),
        "math.sqrt.RsqrtGPU": ("rsqrt(x)", "g * y ** 3 * -0.5"),
        "math.square.Square": ("square(x)", "g * 2 * x"),
        "math.hyperbolic.Cosh": ("cosh(x)", "sinh(x) * g"),
        "math.hyperbolic.Sinh": ("sinh(x)", "cosh(x) * g"),
        "math.arctanh.Arctanh": ("arctanh(x)", "1 / (1 - x ** 2) * g"),
        _TRIGONOMETRIC + "Sin": ("sin(x)", "cos(x) * g"),
        _TRIGONOMETRIC + "Cos": ("cos(x)", "-sin(x) * g"),
        _TRIGONOMETRIC + "Tan": ("tan(x)", "g / cos(x) ** 2"),
        _TRIGONOMETRIC + "Arcsin": ("arcsin(x)", "g / sqrt(1 - x ** 2)"),
        _TRIGONOMETRIC + "Arccos": ("arccos(x)", "-g / sqrt(1 - x ** 2)"),
        _TRIGONOMETRIC + "Arctan": ("arctan(x)", "g / (1 + x ** 2)"),
        "math.erf.Erf": ("erf(x)", "1.1283791670955126 * exp(-x ** 2) * g"),
        "math.erfc.Erfc": ("erfc(x)", "-1.1283791670955126 * exp(-x ** 2) * g"),
        "math.erfinv.ErfInv": ("erfinv(x)", "0.886226925452758 * exp(y ** 2) * g"),
        "math.erfcinv.ErfcInv": ("erfcinv(x)", "-0.886226925452758 * exp(y ** 2) * g"),
        "math.erfcx.Erfcx": ("erfcx(x)", "2 * (x * y - 0.5641895835477563) * g"),
        "math.ndtr.Ndtr": ("ndtr(x)", "0.3989422804014327 * exp(-0.5 * x ** 2) * g"),
        "math.ndtri.Ndtri": ("ndtri(x)", "2.5066282746310002 * exp(0.5 * y ** 2) * g"),
        "math.log_ndtr.LogNdtr": (
            "log_ndtr(x)",
            "0.7978845608028654 / erfcx(-x / 1.4142135623730951) * g",
        ),
        "math.lgamma.LGamma": ("lgamma(x)", "digamma(x) * g"),
        "math.digamma.DiGamma": ("digamma(x)", "polygamma(1, x) * g"),
        "math.zeta.Zeta": ("zeta(f._x, x)", "g * -f._x * zeta(f._x + 1, x)"),
    },
)


@forward(_BASIC + "Add")
def add(c: Call) -> Array:
    """x0 + x1: 1 operation an element of the sum."""
    return c.x[0] + c.x[1]


@backward(_BASIC + "Add", _BASIC + "MultiAdd")
def add_backward(c: Call) -> Gradients:
    """The gradient itself, summed over axes that were broadcast: no operation otherwise."""
    (gy,) = c.gy
    return tuple(c.sum_to(gy, x.shape) if c.needs(i) else None for i, x in enumerate(c.x))


@forward(_BASIC + "MultiAdd")
def multi_add(c: Call) -> Array:
    """An addition an element for every term after the first; one term is handed on."""
    total = c.x[0]
    for x in c.x[1:]:
        total = total + x
    return total


@forward(_BASIC + "Sub")
def sub(c: Call) -> Array:
    """x0 - x1: 1 operation an element."""
    return c.x[0] - c.x[1]


@forward(_BASIC + "Mul")
def mul(c: Call) -> Array:
    """x0 x1: 1 operation an element."""
    return c.x[0] * c.x[1]


@forward(_BASIC + "Div")
def div(c: Call) -> Array:
    """x0 / x1: 1 operation an element."""
    return c.x[0] / c.x[1]


@forward(_BASIC + "PowVarVar")
def power(c: Call) -> Array:
    """x0 to the power of x1: 1 operation an element."""
    return c.x[0] ** c.x[1]


@forward("math.fmod.Fmod")
def fmod(c: Call) -> Array:
    """Remainder of x0 / x1: 1 operation an element."""
    return c.apply("fmod", *c.x)


@forward(_TRIGONOMETRIC + "Arctan2")
def arctan2(c: Call) -> Array:
    """Angle of (x1, x0): 1 operation an element."""
    return c.apply("arctan2", *c.x)


@forward("math.maximum.Maximum")
def maximum(c: Call) -> Array:
    """The larger one: 1 operation an element."""
    return c.maximum(*c.x)


@forward("math.minimum.Minimum")
def minimum(c: Call) -> Array:
    """The smaller one: 1 operation an element."""
    return c.minimum(*c.x)


def _each(c: Call, *gradients: Callable[[], Array]) -> Gradients:
    """The gradients that are needed, each summed over axes along which its input was broadcast."""
    return tuple(
        c.sum_to(gradient(), c.x[i].shape) if c.needs(i) else None
        for i, gradient in enumerate(gradients)
    )


@backward(_BASIC + "Div")
def div_backward(c: Call) -> Gradients:
    """x0: g / x1; x1: -(g / x1) x0 / x1; each summed over axes that were broadcast."""
    (x0, x1), (gy,) = c.x, c.gy
    quotient = gy / x1
    return _each(c, lambda: quotient, lambda: -quotient * x0 / x1)


@backward(_BASIC + "PowVarVar")
def power_backward(c: Call) -> Gradients:
    """x0: x1 x0^(x1 - 1) g; x1: log(x0) y g, with y kept; each summed over broadcast axes."""
    (x0, x1), (gy,) = c.x, c.gy

    def gradient1() -> Array:
        y = c.kept("y", gy.shape, c.outputs[0].dtype)
        return c.log(x0) * y * gy

    return _each(c, lambda: x1 * x0 ** (x1 - 1) * gy, gradient1)


@backward("math.fmod.Fmod")
def fmod_backward(c: Call) -> Gradients:
    """x0: g; x1: -fix(x0 / x1) g, 4 operations an element."""
    (x0, x1), (gy,) = c.x, c.gy
    return gy, -c.apply("fix", x0 / x1) * gy if c.needs(1) else None


@backward(_TRIGONOMETRIC + "Arctan2")
def arctan2_backward(c: Call) -> Gradients:
    """With n = x0^2 + x1^2: x0: x1 / n g; x1: -x0 / n g."""
    (x0, x1), (gy,) = c.x, c.gy
    norm = x0**2 + x1**2
    return _each(c, lambda: x1 / norm * gy, lambda: -x0 / norm * gy)


@backward("math.maximum.Maximum", "math.minimum.Minimum")
def maximum_backward(c: Call) -> Gradients:
    """A comparison an element chooses between g and 0; sums over axes that were broadcast."""
    (x0, x1), (gy,) = c.x, c.gy
    first = x0 >= x1 if type(c.f).__name__ == "Maximum" else x0 <= x1
    return _each(c, lambda: c.where(first, gy, 0), lambda: c.where(first, 0, gy))


@forward("math.linear_interpolate.LinearInterpolate")
def linear_interpolate(c: Call) -> Array:
    """Computes p x + (1 - p) y: 4 operations an element."""
    p, x, y = c.x
    return p * x + (1 - p) * y


@backward("math.linear_interpolate.LinearInterpolate")
def linear_interpolate_backward(c: Call) -> Gradients:
    """p: (x - y) g; x: p g; y: g - p g."""
    (p, x, y), (gy,) = c.x, c.gy
    gp = (x - y) * gy if c.needs(0) else None
    if not (c.needs(1) or c.needs(2)):
        return gp, None, None
    gx = p * gy
    return gp, gx, gy - gx if c.needs(2) else None


@forward("math.polygamma.PolyGamma")
def polygamma(c: Call) -> Array:
    """Polygamma of order n at x: 1 operation an element."""
    return c.apply("polygamma", *c.x)


@forward("math.clip.Clip")
def clip(c: Call) -> Array:
    """A comparison an element for each bound that is given."""
    (x,) = c.x
    low, high = c.f.x_min, c.f.x_max
    if low is not None:
        x = c.maximum(x, low)
    return x if high is None else c.minimum(x, high)


@backward("math.clip.Clip")
def clip_backward(c: Call) -> Array:
    """A comparison an element for each bound that is given chooses between g and 0."""
    (x,), (gy,) = c.x, c.gy
    low, high = c.f.x_min, c.f.x_max
    inside = x >= low if low is not None else x <= high
    if low is not None and high is not None:
        inside = inside & (x <= high)
    return c.where(inside, gy, 0)


@forward("array.where.Where")
def where(c: Call) -> Array:
    """No operation: copies from one array or the other, by a condition that is read."""
    return c.where(_condition(c), *c.x)


@backward("array.where.Where")
def where_backward(c: Call) -> Gradients:
    """No operation but sums over axes that were broadcast."""
    (gy,) = c.gy
    condition = _condition(c)
    return _each(c, lambda: c.where(condition, gy, 0), lambda: c.where(condition, 0, gy))


def _condition(c: Call) -> Array:
    return c.kept("condition", c.outputs[0].shape, "bool")


@forward("math.fft.FFT")
def fft(c: Call) -> Gradients:
    """5 n log2(n) operations for each transform of n elements over the last axis: the usual count.

    What an algorithm takes depends on the factors of n; this one is of radix 2.
    """
    return _transforms(c, *c.x)


def _transforms(c: Call, real: Array, imaginary: Array) -> Gradients:
    n = real.shape[-1] if real.shape else 1
    stages = max(0, (n - 1).bit_length())
    y = c.count(5 * real.size * stages, real, imaginary, shape=real.shape)
    return y, c.new(y.shape)
