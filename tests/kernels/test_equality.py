"""Every kernel against Chainer's own code: outputs and gradients in float64, cases written anew."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest

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
#: As a part of the largest number.
TOLERANCE = 1e-12
RNG = np.random.default_rng(0)


def results(function: Callable[..., Any], arrays: list[Any]) -> list[Any]:
    """A function's output, and the gradients of all its inputs."""
    variables = [chainer.Variable(array.copy()) for array in arrays]
    y = function(*variables)
    gy = np.cos(np.arange(y.size, dtype=y.dtype)).reshape(y.shape)
    gradients = chainer.grad([y], variables, [chainer.Variable(gy)])
    return [y.array, *(g.array for g in gradients)]


def compare(
    function: Callable[..., Any],
    arrays: list[Any],
    kernels: str,
    tolerance: float = TOLERANCE,
) -> None:
    """Fail unless the kernels give what Chainer gives, and Chainer itself gives it again."""
    expected = results(function, arrays)
    with accelerate(kernels):
        found = results(function, arrays)
    again = results(function, arrays)
    for ours, theirs, once_more in zip(found, expected, again, strict=True):
        assert type(ours) is np.ndarray
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-300)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * largest)
        np.testing.assert_array_equal(theirs, once_more)


def convolution_cases() -> Iterator[tuple[Any, ...]]:
    sizes = itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2), (False, True))
    for k, stride, pad, dilate, cover_all in sizes:
        for dims in ((7, 6), (5,), (5, 4, 6)):
            extent = (k - 1) * dilate + 1
            if all(n + 2 * pad >= extent for n in dims):
                yield k, stride, pad, dilate, cover_all, dims


@pytest.mark.parametrize("kernels", KERNELS)
def test_convolutions(kernels: str) -> None:
    cases = list(convolution_cases())
    assert len(cases) > 250
    for number, (k, stride, pad, dilate, cover_all, dims) in enumerate(cases):
        arrays = [RNG.normal(size=(2, 3, *dims)), RNG.normal(size=(4, 3, *(k,) * len(dims)))]
        arrays += [RNG.normal(size=4)] * (number % 2)
        call = F.convolution_2d if len(dims) == 2 else F.convolution_nd

        def convolution(x: Any, w: Any, b: Any = None, call: Any = call, *more: Any) -> Any:
            return call(x, w, b, stride, pad, cover_all, dilate=dilate)  # noqa: B023

        compare(convolution, arrays, kernels)


@pytest.mark.parametrize("kernels", KERNELS)
def test_deconvolutions(kernels: str) -> None:
    count = 0
    for k, stride, pad, dilate, cover_all, dims in convolution_cases():
        sizes = [stride * (n - 1) + (k - 1) * dilate + 1 - 2 * pad for n in dims]
        if cover_all or min(sizes) <= 0:
            continue
        for more in (0, stride - 1):  # an output of its own size
            outsize = tuple(n + more for n in sizes)
            arrays = [RNG.normal(size=(2, 4, *dims)), RNG.normal(size=(4, 3, *(k,) * len(dims)))]
            arrays += [RNG.normal(size=3)] * (count % 2)
            call = F.deconvolution_2d if len(dims) == 2 else F.deconvolution_nd

            def deconvolution(x: Any, w: Any, b: Any = None, call: Any = call) -> Any:
                return call(x, w, b, stride, pad, outsize, dilate=dilate)  # noqa: B023

            compare(deconvolution, arrays, kernels)
            count += 1
    assert count > 150


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_size_that_is_a_list(kernels: str) -> None:
    arrays = [RNG.normal(size=(2, 4, 5, 4)), RNG.normal(size=(4, 3, 3, 3))]
    for call in (F.deconvolution_2d, F.deconvolution_nd):
        compare(lambda x, w, call=call: call(x, w, None, 2, 1, [9, 8]), arrays, kernels)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize(("stride", "pad", "cover_all"), [(1, 1, False), (2, 0, True)])
def test_groups(kernels: str, groups: int, stride: int, pad: int, cover_all: bool) -> None:
    x, w = RNG.normal(size=(2, 8, 7, 6)), RNG.normal(size=(8, 8 // groups, 3, 3))
    b = RNG.normal(size=8)

    def convolution(x: Any, w: Any, b: Any) -> Any:
        return F.convolution_2d(x, w, b, stride, pad, cover_all, groups=groups)

    def deconvolution(x: Any, w: Any, b: Any) -> Any:
        return F.deconvolution_2d(x, w, b, stride, pad, groups=groups)

    compare(convolution, [x, w, b], kernels)
    compare(deconvolution, [x, w, b], kernels)


# Not two values a channel: their gradient is what rounding leaves.
BATCHES = [(4, 3, 5, 6), (4, 3, 5), (2, 3, 4, 5, 6), (5, 3), (1, 3, 4, 4), (3, 3, 1, 1)]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shape", BATCHES)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_batch_normalization(kernels: str, shape: tuple[int, ...], offset: float) -> None:
    x = RNG.normal(size=shape) + offset
    gamma, beta, mean = RNG.uniform(0.5, 2, 3), RNG.normal(size=3), RNG.normal(size=3) + offset
    running: list[Any] = []

    def training(x: Any, gamma: Any, beta: Any) -> Any:
        running[:] = np.ones(3), np.ones(3)
        return F.batch_normalization(
            x, gamma, beta, running_mean=running[0], running_var=running[1]
        )

    # What a large mean leaves of the digits.
    tolerance = TOLERANCE * max(1.0, offset)
    compare(training, [x, gamma, beta], kernels, tolerance)
    expected = [array.copy() for array in running]
    with accelerate(kernels):
        results(training, [x, gamma, beta])
    np.testing.assert_allclose(running, expected, rtol=1e-11)
    variance = RNG.uniform(0.5, 2, 3)
    fixed = F.fixed_batch_normalization
    compare(fixed, [x, gamma, beta, mean, variance], kernels, tolerance)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("axis", [(0, 1), (0, 3), (0, 2, 3), (0,)])
def test_batch_normalization_over_other_axes(kernels: str, axis: tuple[int, ...]) -> None:
    x = RNG.normal(size=(4, 3, 5, 6))
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axis)
    arrays = [x, RNG.uniform(0.5, 2, shape), RNG.normal(size=shape)]
    compare(lambda *a: F.batch_normalization(*a, axis=axis), arrays, kernels)


def pooling_cases() -> Iterator[tuple[int, int, int, bool]]:
    for k, stride, pad, cover_all in itertools.product((1, 2, 3), (1, 2, 3), (0, 1), (True, False)):
        if pad < k:
            yield k, stride, pad, cover_all


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("case", list(pooling_cases()))
def test_pooling(kernels: str, case: tuple[int, int, int, bool]) -> None:
    k, stride, pad, _ = case
    x = RNG.normal(size=(2, 3, 7, 6))
    ties = RNG.integers(0, 3, x.shape).astype(float)
    for array in (x, ties, x.transpose(0, 1, 3, 2)):
        compare(lambda x: F.max_pooling_2d(x, *case), [array], kernels)
        compare(lambda x: F.average_pooling_2d(x, k, stride, pad), [array], kernels)
    compare(lambda x: F.max_pooling_nd(x, *case), [RNG.normal(size=(2, 3, 5, 4, 6))], kernels)
    with accelerate(kernels):
        _, found = F.max_pooling_2d(ties, *case, return_indices=True)
    _, expected = F.max_pooling_2d(ties, *case, return_indices=True)
    np.testing.assert_array_equal(found, expected)


def test_pooling_of_windows_with_many_places() -> None:
    x = RNG.normal(size=(1, 2, 40, 40))
    compare(lambda x: F.max_pooling_2d(x, 20, 7, 3), [x], "numpy")


def test_pooling_of_what_is_no_number() -> None:
    x = RNG.normal(size=(2, 3, 6, 6))
    x[0, 1, 2:4, 3] = np.nan
    expected, where = F.max_pooling_2d(x, 3, 2, return_indices=True)
    with accelerate():
        found, place = F.max_pooling_2d(x, 3, 2, return_indices=True)
    np.testing.assert_array_equal(found.array, expected.array)
    np.testing.assert_array_equal(place, where)


@pytest.mark.parametrize("kernels", KERNELS)
def test_relu(kernels: str) -> None:
    compare(F.relu, [RNG.normal(size=(3, 4, 5))], kernels)
    compare(F.relu, [RNG.normal(size=(3, 4, 5)).swapaxes(0, 2)], kernels)


@pytest.mark.parametrize("kernels", KERNELS)
def test_second_gradients(kernels: str) -> None:
    x, w = RNG.normal(size=(2, 3, 6, 6)), RNG.normal(size=(4, 3, 3, 3))

    def penalty(x: Any, w: Any) -> Any:
        h = F.max_pooling_2d(F.relu(F.convolution_2d(x, w, pad=1)), 2)
        (gx,) = chainer.grad([F.sum(h * h)], [x], enable_double_backprop=True)
        return F.sum(gx * gx)

    compare(penalty, [x, w], kernels)
