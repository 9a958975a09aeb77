"""Every kernel against Chainer's own code: outputs and gradients in float64, cases written anew."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from functools import partial
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
            if all(n + 2 * pad >= (k - 1) * dilate + 1 for n in dims):
                yield 1, k, stride, pad, dilate, cover_all, dims
    for groups in (2, 4, 8):
        yield groups, 3, 1, 1, 1, False, (7, 6)
        yield groups, 3, 2, 0, 1, True, (7, 6)


def arrays_of(groups: int, k: int, dims: tuple[int, ...], bias: int, out: int = 4) -> list[Any]:
    channels, out = (8, 8) if groups > 1 else (3, out)
    w = RNG.normal(size=(out, channels // groups, *(k,) * len(dims)))
    return [RNG.normal(size=(2, channels, *dims)), w, *[RNG.normal(size=out)] * bias]


@pytest.mark.parametrize("kernels", KERNELS)
def test_convolutions(kernels: str) -> None:
    cases = list(convolution_cases())
    assert len(cases) > 250
    for number, (groups, k, stride, pad, dilate, cover_all, dims) in enumerate(cases):
        call = F.convolution_2d if len(dims) == 2 else F.convolution_nd
        more = stride, pad, cover_all
        compare(
            lambda x, w, b=None: call(x, w, b, *more, dilate=dilate, groups=groups),  # noqa: B023
            arrays_of(groups, k, dims, number % 2),
            kernels,
        )


@pytest.mark.parametrize("kernels", KERNELS)
def test_deconvolutions(kernels: str) -> None:
    count = 0
    for groups, k, stride, pad, dilate, cover_all, dims in convolution_cases():
        sizes = [stride * (n - 1) + (k - 1) * dilate + 1 - 2 * pad for n in dims]
        if (cover_all and groups == 1) or min(sizes) <= 0:
            continue
        call = F.deconvolution_2d if len(dims) == 2 else F.deconvolution_nd
        for extra in {0, stride - 1}:  # an output of its own size, which may be a list
            outsize: Any = [n + extra for n in sizes]
            outsize = outsize if count % 2 else tuple(outsize)
            x, w, *b = arrays_of(groups, k, dims, count % 2)
            w = w if groups > 1 else w.swapaxes(0, 1)
            compare(
                lambda x, w, b=None: call(  # noqa: B023
                    *(x, w, b, stride, pad, outsize),  # noqa: B023
                    **{"dilate": dilate, "groups": groups},  # noqa: B023
                ),
                [x, w, *b],
                kernels,
            )
            count += 1
    assert count > 150


# Not two values a channel: their gradient is what rounding leaves.
BATCHES = [(4, 3, 5, 6), (4, 3, 5), (2, 3, 4, 5, 6), (5, 3), (1, 3, 4, 4), (3, 3, 1, 1)]


@pytest.mark.parametrize("kernels", KERNELS)
def test_batch_normalization(kernels: str) -> None:
    for shape, offset in itertools.product(BATCHES, (0.0, 1000.0)):
        check_batch_normalization(kernels, shape, offset)
    x = RNG.normal(size=(4, 3, 5, 6))
    for axis in ((0, 1), (0, 3), (0, 2, 3), (0,)):
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axis)
        arrays = [x, RNG.uniform(0.5, 2, shape), RNG.normal(size=shape)]
        compare(lambda *a, axis=axis: F.batch_normalization(*a, axis=axis), arrays, kernels)


def check_batch_normalization(kernels: str, shape: tuple[int, ...], offset: float) -> None:
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
def test_pooling(kernels: str) -> None:
    for case in itertools.product((1, 2, 3), (1, 2, 3), (0, 1), (True, False)):
        k, stride, pad, _ = case
        if pad == k:
            continue
        x = RNG.normal(size=(2, 3, 7, 6))
        ties = RNG.integers(0, 3, x.shape).astype(float)
        pool = partial(F.max_pooling_2d, ksize=k, stride=stride, pad=pad, cover_all=case[3])
        for array in (x, ties, x.transpose(0, 1, 3, 2)):
            compare(pool, [array], kernels)
            compare(
                partial(F.average_pooling_2d, ksize=k, stride=stride, pad=pad), [array], kernels
            )
        volume = RNG.normal(size=(2, 3, 5, 4, 6))
        compare(lambda x, case=case: F.max_pooling_nd(x, *case), [volume], kernels)
        with accelerate(kernels):
            _, found = pool(ties, return_indices=True)
        _, expected = pool(ties, return_indices=True)
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
