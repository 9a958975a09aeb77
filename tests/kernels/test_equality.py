"""Accelerated functions give the same outputs and gradients as Chainer, or the same error."""

import importlib.util
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.functions.connection.embed_id import EmbedIDGrad
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.kernels.accelerate import accelerate

KERNELS = [
    "numpy",
    pytest.param(
        "torch",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
        ),
    ),
]
RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("all_shapes")
Call = tuple[Callable[..., Any], list[Any]]
#: Special values in one array out of three.
ODD = (np.inf, -np.inf, np.nan, 0.0)
#: Tolerance relative to the largest finite number.
TOLERANCE = {"f": 1e-4, "d": 1e-10}


def sizes(draw, usual, count, minimum=1):
    """Draw ``count`` sizes; one draw in eight may have sizes of 0 or -1."""
    if draw(st.integers(0, 7)) == 0:
        minimum = -1
    return tuple(draw(st.lists(st.integers(minimum, usual), min_size=count, max_size=count)))


def array(draw, shape, dtype):
    """Draw small integers with ties, exact sums in any order, and some special values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    values = rng.integers(-3, 4, [max(0, size) for size in shape]).astype(dtype)
    if values.size and draw(st.integers(0, 2)) == 0:
        for _ in range(draw(st.integers(1, 3))):
            values.flat[rng.integers(values.size)] = draw(st.sampled_from(ODD))
    return np.asfortranarray(values) if draw(st.integers(0, 3)) == 0 else values


def image(draw, channels, axes, dtype):
    batch, *dims = sizes(draw, 2, 1) + sizes(draw, 7, axes)
    return array(draw, (batch, channels, *dims), dtype)


def bias(draw, channels, dtype):
    if draw(st.booleans()):
        return []
    other = draw(st.integers(0, 7)) == 0  # a wrong size
    return [array(draw, (1 if other else channels,), dtype)]


def convolutions(draw, dtype):
    axes, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    two = axes == 2 and draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 0, -1]))
    inside, outside = sizes(draw, 3, 2)
    ksize, stride = sizes(draw, 3, axes), sizes(draw, 3, axes)
    pad, dilate = sizes(draw, 2, axes, minimum=0), sizes(draw, 2, axes)
    more = {"dilate": dilate, "groups": groups}
    x = image(draw, inside * abs(groups), axes, dtype)
    if transposed:
        w = array(draw, (inside * abs(groups), outside, *ksize), dtype)
        if draw(st.booleans()):
            more["outsize"] = draw(st.sampled_from([list, tuple]))(sizes(draw, 9, axes))
        call = F.deconvolution_2d if two else F.deconvolution_nd
    else:
        w = array(draw, (outside * abs(groups), inside, *ksize), dtype)
        more["cover_all"] = draw(st.booleans())
        call = F.convolution_2d if two else F.convolution_nd
    b = bias(draw, outside * abs(groups), dtype)
    return lambda x, w, b=None: call(x, w, b, stride, pad, **more), [x, w, *b]


def poolings(draw, dtype):
    axes = draw(st.integers(1, 3))
    ksize, stride = sizes(draw, 3, axes), sizes(draw, 3, axes)
    pad, cover_all = sizes(draw, 2, axes, minimum=0), draw(st.booleans())
    x = image(draw, *sizes(draw, 3, 1), axes, dtype)
    if axes == 2 and draw(st.booleans()):
        return lambda x: F.average_pooling_2d(x, ksize, stride, pad), [x]
    return lambda x: F.max_pooling_nd(x, ksize, stride, pad, cover_all), [x]


def normalizations(draw, dtype):
    channels, axes = sizes(draw, 3, 1)[0], draw(st.integers(0, 3))
    x = image(draw, channels, axes, dtype)
    given = [array(draw, (channels,), dtype) for _ in range(4)]
    if draw(st.booleans()):
        return lambda *arrays: F.batch_normalization(*arrays, eps=0.1), [x, *given[:2]]
    given[3] = np.abs(given[3])
    return lambda *arrays: F.fixed_batch_normalization(*arrays, eps=0.1), [x, *given]


def activations(draw, dtype):
    return F.relu, [image(draw, *sizes(draw, 3, 1), draw(st.integers(0, 3)), dtype)]


@st.composite
def calls(draw):
    """Draw a function, its inputs, and numbers for the gradient of its output."""
    kinds = [convolutions, convolutions, convolutions, poolings, normalizations, activations]
    dtype = draw(st.sampled_from(["f", "d"]))
    return draw(st.sampled_from(kinds))(draw, dtype), array(draw, (37,), dtype)


def outcome(call, gradient):
    """Return the output, inputs and all gradients, or the type and message of the error."""
    function, arrays = call
    variables = [chainer.Variable(given.copy(order="K")) for given in arrays]
    try:
        y = function(*variables)
        y.grad = gy = np.resize(gradient, y.shape).astype(y.dtype)
        y.backward()
    except Exception as error:
        return type(error), str(error)
    # The gradient of the output and the inputs must not change.
    return [y.array, gy, *(part for x in variables for part in (x.array, x.grad))]


def check(kernels, call, gradient, tolerance=0.0):
    with np.errstate(all="ignore"):
        expected = outcome(call, gradient)
        with accelerate(kernels):
            accelerated = outcome(call, gradient)
    if isinstance(expected, tuple) or isinstance(accelerated, tuple):
        assert accelerated == expected
        return
    for ours, theirs in zip(accelerated, expected, strict=True):
        assert type(ours) is np.ndarray
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-30)
        atol = (tolerance or TOLERANCE[theirs.dtype.char]) * largest
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("kernels", KERNELS)
@given(call=calls())
def test_any_call_gives_the_same_result_or_the_same_error(kernels, call):
    check(kernels, *call)


# -- in float64, with real numbers


def compare(function, arrays, kernels, scale=1):
    check(kernels, (function, arrays), np.cos(np.arange(997)), TOLERANCE["d"] * scale)


@pytest.mark.parametrize("kernels", KERNELS)
def test_convolutions_of_usual_sizes_equal_chainer(kernels):
    for groups, dilate, stride, pad in itertools.product((1, 2, 8), (1, 2), (1, 2), (0, 1)):
        x, w = RNG.normal(size=(2, 8, 9, 8)), RNG.normal(size=(8, 8 // groups, 3, 3))
        for call in (F.convolution_2d, F.deconvolution_2d):
            same = partial(call, stride=stride, pad=pad, dilate=dilate, groups=groups)
            compare(same, [x, w, RNG.normal(size=8)], kernels)


# No shape with two values per channel: their gradient would be only rounding error.
BATCHES = [
    (2, 3, 9, 8),
    (4, 3, 5, 6),
    (4, 3, 5),
    (2, 3, 4, 5, 6),
    (5, 3),
    (1, 3, 4, 4),
    (3, 3, 1, 1),
]


@pytest.mark.parametrize("kernels", KERNELS)
def test_batch_normalization_equals_chainer(kernels):
    running = []

    def training(x, gamma, beta):
        running[:] = np.ones(3), np.ones(3)
        mean, var = running
        return F.batch_normalization(x, gamma, beta, running_mean=mean, running_var=var)

    for shape, offset in itertools.product(BATCHES, (0.0, 1000.0)):
        x = RNG.normal(size=shape) + offset
        gamma, beta, mean = RNG.uniform(0.5, 2, 3), RNG.normal(size=3), RNG.normal(size=3) + offset
        # A large mean costs digits of precision.
        scale = max(1.0, offset)
        compare(training, [x, gamma, beta], kernels, scale)
        accelerated = [array.copy() for array in running]
        training(x, gamma, beta)
        np.testing.assert_allclose(accelerated, running, rtol=1e-11)
        variance = RNG.uniform(0.5, 2, 3)
        fixed = F.fixed_batch_normalization
        compare(fixed, [x, gamma, beta, mean, variance], kernels, scale)
    x = RNG.normal(size=(4, 3, 5, 6))
    for axis in ((0, 1), (0, 3), (0, 2, 3), (0,)):
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axis)
        arrays = [x, RNG.uniform(0.5, 2, shape), RNG.normal(size=shape)]
        compare(partial(F.batch_normalization, axis=axis), arrays, kernels)


def penalty(x, w):
    """Compute a loss that needs second gradients."""
    h = F.max_pooling_2d(F.relu(F.convolution_2d(x, w, pad=1)), 2)
    (gx,) = chainer.grad([F.sum(h * h)], [x], enable_double_backprop=True)
    return F.sum(gx * gx)


@pytest.mark.parametrize("kernels", KERNELS)
def test_pooling_second_gradients_and_special_values_equal_chainer(kernels):
    ties, image = RNG.integers(0, 3, (2, 3, 7, 6)).astype(float), RNG.normal(size=(1, 2, 40, 40))
    w = RNG.normal(size=(4, 3, 3, 3))
    compare(lambda x: F.max_pooling_2d(x, 3, 2), [ties], kernels)
    compare(lambda x: F.max_pooling_2d(x, 20, 7, 3), [image], kernels)
    compare(lambda x: F.average_pooling_2d(x, 3, 2, 1), [image], kernels)
    compare(lambda x: F.average_pooling_2d(x, x.shape[2:]), [image], kernels)
    compare(penalty, [RNG.normal(size=(2, 3, 6, 6)), w], kernels)
    # An infinite element of W times a zero of the padding is NaN. A deconvolution by windows has
    # this padding, Chainer's does not. In max pooling, the first NaN counts as the largest value.
    w[0, 0, 0, 0], ties[0, 0, 1, 1] = np.inf, np.nan
    compare(F.deconvolution_2d, [image[:, :1], w[:1, :1]], kernels)
    compare(lambda x: F.max_pooling_2d(x, 3, 2), [ties], kernels)
    x, odd = np.array([[[2, 1]], [[0, -2]]], "f"), np.array([np.inf], "f")
    check(kernels, (partial(F.batch_normalization, eps=0.1), [x, odd, odd]), np.full(4, 2, "f"))


# -- embeddings, equal bit by bit


@st.composite
def embeddings(draw):
    """Draw word IDs, with frequent, ignored and invalid ones, and gradients."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    words, numbers = draw(st.integers(1, 30)), draw(st.sampled_from([1, 2, 5, 128, 129]))
    count = draw(st.sampled_from([0, 1, 170, 171, 400])), 3
    minimum, ignored = draw(st.sampled_from([(0, None), (-1, -1), (0, 0), (-1, None)]))
    often = rng.integers(minimum, words, draw(st.integers(1, 3)))
    x = np.where(
        rng.random(count) < 0.5, rng.choice(often, count), rng.integers(minimum, words, count)
    )
    if draw(st.integers(0, 9)) == 0:
        x[:1] = words
    dtype = draw(st.sampled_from(["f", "d"]))
    gy = np.where(rng.random((*count, numbers)) < 0.1, -0.0, rng.normal(size=(*count, numbers)))
    order = draw(st.sampled_from("CF"))
    return x, ignored, (words, numbers), gy.astype(dtype, order=order)


def embedding_gradient(x, ignored, shape, gy):
    """Return the bits of the gradient of the embedding matrix, or the error."""
    try:
        grad = EmbedIDGrad(shape, ignored).apply((x, gy))[0].array
    except (IndexError, ValueError) as error:
        return str(error)
    return grad.shape, grad.dtype, grad.tobytes()


@given(arguments=embeddings())
def test_gradients_of_embeddings_have_the_same_bits(arguments):
    expected = embedding_gradient(*arguments)
    with accelerate():
        assert embedding_gradient(*arguments) == expected
