"""Each algorithm for convolutions gives Chainer's results, and the cheaper one is chosen."""

import itertools

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.kernels import convolutions as module
from chainer_profile.kernels import cost_model
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.windows import Windows

RNG = np.random.default_rng(0)


def results(call, arrays, options):
    """Return the output and the gradients of all arrays."""
    variables = [chainer.Variable(array) for array in arrays]
    y = call(*variables, **options)
    y.grad = np.resize(np.cos(np.arange(997)), y.shape)
    y.backward()
    return [y.array, *(variable.grad for variable in variables)]


@pytest.mark.usefixtures("all_shapes")
@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("order", Order)
def test_each_algorithm_gives_the_outputs_and_gradients_of_chainer(monkeypatch, order, gathers):
    for name in ("convolution", "gradient_w", "deconvolution"):
        monkeypatch.setattr(module, f"layout_for_{name}", lambda *given: Layout(order, given[-1]))
    monkeypatch.setattr(module, "gathers", lambda *_: gathers)
    # 5 images in parts of 2, so the last part is smaller.
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


def windows(pixels, k, stride=1):
    ksize, dims, pad = (k, k), (pixels * stride, pixels * stride), (k // 2, k // 2)
    return Windows(ksize, (stride, stride), pad, (1, 1), dims, (pixels, pixels))


def images(n, channels, pixels):
    return np.broadcast_to(np.float32(0), (n, channels, pixels, pixels))


@pytest.mark.parametrize(
    ("n", "inside", "outside", "pixels", "k", "order"),
    [
        (8, 512, 512, 2, 3, Order.LAST),
        (8, 512, 512, 7, 3, Order.LAST),
        (64, 512, 2048, 7, 1, Order.MIDDLE),
        (4, 64, 256, 56, 1, Order.FIRST),
        (8, 16, 16, 32, 3, Order.FIRST),
        (8, 3, 64, 64, 3, Order.FIRST),
    ],
)
def test_images_of_few_pixels_and_many_channels_are_joined(n, inside, outside, pixels, k, order):
    x, y, covers = images(n, inside, pixels), images(n, outside, pixels), windows(pixels, k)
    n_weights = inside * outside * k * k
    assert cost_model.layout_for_convolution(x.shape, y.shape, n_weights, covers).order is order
    assert cost_model.layout_for_gradient_w(x.shape, y.shape, n_weights, covers).order is order
    assert cost_model.layout_for_deconvolution(y.shape, x.shape, n_weights, covers).order is order


def test_single_image_is_not_copied():
    x, covers = images(1, 512, 2), windows(2, 3)
    layout = cost_model.layout_for_convolution(x.shape, x.shape, 512 * 512 * 9, covers)
    assert layout.order is Order.FIRST


def test_results_that_are_larger_than_the_columns_are_left_to_chainer():
    x, y = images(32, 3, 2), images(32, 1024, 2)
    assert cost_model.layout_for_convolution(x.shape, y.shape, 3 * 1024, windows(2, 1)) is None


def test_small_deconvolutions_are_left_to_chainer():
    x, y = images(2, 4, 3), images(2, 8, 3)
    assert cost_model.layout_for_deconvolution(x.shape, y.shape, 4 * 8, windows(3, 1)) is None
    x, y = images(8, 512, 2), images(8, 512, 2)
    n_weights, covers = 512 * 512 * 9, windows(2, 3)
    assert cost_model.layout_for_deconvolution(x.shape, y.shape, n_weights, covers) is not None


def test_windows_are_gathered_where_that_copies_less():
    def gathers(n, inside, outside, pixels, stride=1, k=3):
        x = images(n, inside, pixels)
        n_weights = inside * outside * k * k
        return cost_model.gathers(x.shape, outside, n_weights, windows(pixels, k, stride))

    assert gathers(8, 64, 64, 16)
    assert not gathers(8, 512, 512, 2)  # many weights to reverse
    assert not gathers(8, 64, 3, 64)  # few channels to add to
    assert not gathers(8, 64, 64, 16, stride=2)
    assert not gathers(8, 64, 64, 16, k=1)  # no windows


def test_columns_are_as_many_as_the_weights_that_one_product_reads():
    many = cost_model.N_COLUMNS
    assert cost_model.images_at_a_time(64, n_columns=many // 4, n_weights=0) == 4
    assert cost_model.images_at_a_time(64, n_columns=many // 4, n_weights=8 * many) == 32
    assert cost_model.images_at_a_time(64, n_columns=8 * many, n_weights=many) == 1
    assert cost_model.images_at_a_time(64, n_columns=1, n_weights=0) == 64


def test_images_lie_last_only_if_many_are_copied_at_a_time():
    def order(n, inside, outside, dims, k, stride):
        to = [(size - k) // stride + 1 for size in dims]
        sizes = Windows((k, k), (stride,) * 2, (0, 0), (1, 1), dims, to)
        shapes = (n, inside, *dims), (n, outside, *to)
        layout = cost_model.layout_for_convolution(*shapes, inside * outside * k * k, sizes)
        return layout and layout.order

    assert order(8, 18, 3, (46, 16), 7, 2) is Order.FIRST  # columns of 2 images at a time
    assert order(8, 512, 512, (4, 4), 3, 1) is Order.LAST
    # The copy runs over the 26 places of the other axis.
    assert order(7, 261, 8, (28, 3), 3, 1) is Order.FIRST
