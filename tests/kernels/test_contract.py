"""Accelerated functions give what Chainer gives: the same result or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.kernels.accelerate import accelerate
from tests.kernels.test_equality import KERNELS

Call = tuple[Callable[..., Any], list[Any]]
#: What one array in three holds beside its numbers.
ODD = (np.inf, -np.inf, np.nan, 0.0)
#: Of the largest finite number.
TOLERANCE = {"f": 1e-4, "d": 1e-10}


def sizes(draw: st.DrawFn, usual: int, count: int, least: int = 1) -> tuple[int, ...]:
    """Sizes of so many axes; one draw in eight holds some that are 0 or negative."""
    if draw(st.integers(0, 7)) == 0:
        least = -1
    return tuple(draw(st.lists(st.integers(least, usual), min_size=count, max_size=count)))


def array(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Any:
    """Small integers, whose sums are exact in any order; some infinite or no numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    values = rng.integers(-3, 4, [max(0, size) for size in shape]).astype(dtype)
    if values.size and draw(st.integers(0, 2)) == 0:
        for _ in range(draw(st.integers(1, 3))):
            values.flat[rng.integers(values.size)] = draw(st.sampled_from(ODD))
    return values


def image(draw: st.DrawFn, channels: int, axes: int, dtype: str) -> Any:
    batch, *dims = sizes(draw, 2, 1) + sizes(draw, 7, axes)
    return array(draw, (batch, channels, *dims), dtype)


def bias(draw: st.DrawFn, channels: int, dtype: str) -> list[Any]:
    if draw(st.booleans()):
        return []
    other = draw(st.integers(0, 7)) == 0  # of another size
    return [array(draw, (1 if other else channels,), dtype)]


def convolutions(draw: st.DrawFn, dtype: str) -> Call:
    axes, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    two = axes == 2 and draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 0, -1]))
    inside, outside = sizes(draw, 3, 2)
    ksize, stride = sizes(draw, 3, axes), sizes(draw, 3, axes)
    pad, dilate = sizes(draw, 2, axes, least=0), sizes(draw, 2, axes)
    more: dict[str, Any] = {"dilate": dilate, "groups": groups}
    x = image(draw, inside * abs(groups), axes, dtype)
    if transposed:
        w = array(draw, (inside * abs(groups), outside, *ksize), dtype)
        if draw(st.booleans()):
            more["outsize"] = sizes(draw, 9, axes)
        call = F.deconvolution_2d if two else F.deconvolution_nd
        b = bias(draw, outside * abs(groups), dtype)
    else:
        w = array(draw, (outside * abs(groups), inside, *ksize), dtype)
        more["cover_all"] = draw(st.booleans())
        call = F.convolution_2d if two else F.convolution_nd
        b = bias(draw, outside * abs(groups), dtype)
    return lambda x, w, b=None: call(x, w, b, stride, pad, **more), [x, w, *b]


def poolings(draw: st.DrawFn, dtype: str) -> Call:
    axes = draw(st.integers(1, 3))
    ksize, stride = sizes(draw, 3, axes), sizes(draw, 3, axes)
    pad, cover_all = sizes(draw, 2, axes, least=0), draw(st.booleans())
    x = image(draw, *sizes(draw, 3, 1), axes, dtype)
    if axes == 2 and draw(st.booleans()):
        return lambda x: F.average_pooling_2d(x, ksize, stride, pad), [x]
    return lambda x: F.max_pooling_nd(x, ksize, stride, pad, cover_all), [x]


def normalizations(draw: st.DrawFn, dtype: str) -> Call:
    channels, axes = sizes(draw, 3, 1)[0], draw(st.integers(0, 3))
    x = image(draw, channels, axes, dtype)
    given = [array(draw, (channels,), dtype) for _ in range(4)]
    if draw(st.booleans()):
        return lambda *arrays: F.batch_normalization(*arrays, eps=0.1), [x, *given[:2]]
    given[3] = np.abs(given[3])
    return lambda *arrays: F.fixed_batch_normalization(*arrays, eps=0.1), [x, *given]


def activations(draw: st.DrawFn, dtype: str) -> Call:
    return F.relu, [image(draw, *sizes(draw, 3, 1), draw(st.integers(0, 3)), dtype)]


@st.composite
def calls(draw: st.DrawFn) -> tuple[Call, Any]:
    """A function, its inputs, and what the gradient of its output is drawn from."""
    kind = draw(
        st.sampled_from([convolutions, convolutions, poolings, normalizations, activations])
    )
    dtype = draw(st.sampled_from(["f", "d"]))
    return kind(draw, dtype), array(draw, (37,), dtype)


def outcome(call: Call, gradient: Any) -> Any:
    """The output and all gradients, or the error: its type and what it says."""
    function, arrays = call
    variables = [chainer.Variable(given.copy()) for given in arrays]
    try:
        y = function(*variables)
        y.grad = np.resize(gradient, y.shape).astype(y.dtype)
        y.backward()
    except Exception as error:
        return type(error), str(error)
    return [y.array, *(one.grad for one in variables)]


@pytest.mark.parametrize("kernels", KERNELS)
@settings(max_examples=400, deadline=None)
@given(drawn=calls())
def test_the_same_result_or_the_same_error(kernels: str, drawn: tuple[Call, Any]) -> None:
    with np.errstate(all="ignore"):
        expected = outcome(*drawn)
        with accelerate(kernels):
            found = outcome(*drawn)
    if isinstance(expected, tuple) or isinstance(found, tuple):
        assert found == expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-30)
        tolerance = TOLERANCE[theirs.dtype.char] * largest
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
