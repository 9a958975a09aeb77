"""Each way to compute a convolution gives what Chainer gives, and the cheaper one is taken."""

import itertools

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.kernels import convolutions as module
from chainer_profile.kernels import functions, numpy_kernels, ways
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.windows import Windows

RNG = np.random.default_rng(0)


def results(call, arrays, options):
    """The output and the gradients of all arrays."""
    variables = [chainer.Variable(array) for array in arrays]
    y = call(*variables, **options)
    y.grad = np.resize(np.cos(np.arange(997)), y.shape)
    y.backward()
    return [y.array, *(variable.grad for variable in variables)]


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("order", Order)
def test_each_way_gives_the_outputs_and_gradients_of_chainer(monkeypatch, order, gathers):
    monkeypatch.setattr(module, "layout_of", lambda *given: Layout(order, given[-1]))
    monkeypatch.setattr(module, "gathers", lambda *_: gathers)
    # 5 images in parts of 2, the last of which is smaller.
    monkeypatch.setattr(module, "images_at_a_time", lambda *_: 2)
    for groups, dilate, stride, pad, k in itertools.product(
        (1, 2, 4), (1, 2), (1, 2), (0, 1), (1, 3)
    ):
        options = {"stride": stride, "pad": pad, "dilate": dilate, "groups": groups}
        x, b = RNG.normal(size=(5, 4, 9, 8)), RNG.normal(size=8)
        for call, shape in (
            (F.convolution_2d, (8, 4 // groups, k, k)),
            (F.deconvolution_2d, (4, 8 // groups, k, k)),
        ):
            arrays = [x, RNG.normal(size=shape), b]
            expected = results(call, arrays, options)
            with accelerate():
                accelerated = results(call, arrays, options)
            for ours, theirs in zip(accelerated, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * abs(theirs).max())


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_and_dilation_run_on_the_kernels(monkeypatch, groups):
    def chainers_own(*_, **__):
        raise AssertionError("Chainer's own code runs")

    for owner, name, _ in functions.replacements(numpy_kernels):
        if "onvolution" in owner.__name__:
            monkeypatch.setattr(owner, name, chainers_own)
    arrays = [RNG.normal(size=size) for size in ((2, 4, 6, 6), (4, 4 // groups, 3, 3))]
    for call in (F.convolution_2d, F.deconvolution_2d):
        with accelerate():
            results(call, arrays, {"groups": groups, "dilate": 2, "pad": 2})


def windows(pixels, k, stride=1):
    ksize, dims, pad = (k, k), (pixels * stride, pixels * stride), (k // 2, k // 2)
    return Windows(ksize, (stride, stride), pad, (1, 1), dims, (pixels, pixels))


@pytest.mark.parametrize(
    ("images", "inside", "outside", "pixels", "k", "order"),
    [
        (8, 512, 512, 2, 3, Order.LAST),
        (8, 256, 256, 14, 3, Order.LAST),
        (64, 512, 2048, 7, 1, Order.MIDDLE),
        (4, 64, 256, 56, 1, Order.FIRST),
        (8, 16, 16, 32, 3, Order.FIRST),
        (8, 3, 64, 64, 3, Order.FIRST),
        (1, 512, 512, 2, 3, Order.FIRST),
    ],
)
def test_images_of_few_pixels_and_many_channels_are_joined(
    images, inside, outside, pixels, k, order
):
    x = np.broadcast_to(np.float32(0), (images, inside, pixels, pixels))
    y = np.broadcast_to(np.float32(0), (images, outside, pixels, pixels))
    layout = ways.layout_of(x, y, inside * outside * k * k, windows(pixels, k))
    assert layout.order is order


def test_windows_are_gathered_where_that_copies_less():
    def gathers(n, inside, outside, pixels, stride=1, k=3):
        x = np.broadcast_to(np.float32(0), (n, inside, pixels, pixels))
        return ways.gathers(x, outside, inside * outside * k * k, windows(pixels, k, stride))

    assert gathers(8, 64, 64, 16)
    assert not gathers(8, 512, 512, 2)  # many weights to reverse
    assert not gathers(8, 64, 3, 64)  # few channels to add to
    assert not gathers(8, 64, 64, 16, stride=2)
    assert not gathers(8, 64, 64, 16, k=1)  # no windows at all


def test_columns_take_as_many_bytes_as_the_weights_that_one_product_reads():
    x = np.broadcast_to(np.float32(0), (64, 1, 1, 1))
    mib = 1 << 18  # float32
    assert ways.images_at_a_time(x, n_columns=mib // 4, n_weights=0) == 4
    assert ways.images_at_a_time(x, n_columns=mib // 4, n_weights=8 * mib) == 32
    assert ways.images_at_a_time(x, n_columns=8 * mib, n_weights=mib) == 1
    assert ways.images_at_a_time(x, n_columns=1, n_weights=0) == 64
