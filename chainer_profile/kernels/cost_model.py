"""The cost model of the NumPy convolutions: estimates which method is the fastest for a shape.

A convolution is a product of the weights and the columns, which are copies of all windows. It can
be computed by four methods:

- A product for each image (``Order.FIRST``). Each product reads all weights.
- A product for many images, which reads the weights once. The images and the results are copied
  into an order in which the pixels of all images are together: the axis of images is between
  channels and pixels (``MIDDLE``), or last (``LAST``). In the last order, the runs of numbers that
  are copied for windows are longer.
- Chainer's own code (None). It copies the columns once more, but does not copy the result.

A deconvolution, such as a convolution's gradient of x, either gathers the windows of its input, as
a convolution with reversed weights, or adds its product to the windows of its output.

docs/accelerate.md has the measurements.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.windows import Sizes, Windows

#: Nanoseconds to read a weight for a product, to add to the gradient of one, to begin a product.
_WEIGHT_NS, _GRADIENT_NS, _PRODUCT_NS = 0.3, 1.5, 700.0
#: Nanoseconds to begin a run of numbers that are copied, and for each of them.
_RUN_NS, _NUMBER_NS = 5.0, 0.3
#: Nanoseconds to copy a number into an order in which its neighbours are not near.
_TRANSPOSED_NS = 2.0
#: Nanoseconds in which Chainer copies a number of the columns, or of a gradient, once more.
_CHAINERS_COPY_NS = 1.6
#: Cost of a number that is added to a window, and of a weight that is reversed, in numbers copied.
_ADDITION_COST, _REVERSAL_COST = 2.0, 5.0
#: Nanoseconds by which Chainer's Python code for a deconvolution is faster.
_DECONVOLUTION_NS = 20_000.0
#: Numbers of columns that are made at a time: they stay in the cache until they are multiplied.
N_COLUMNS = 1 << 18


# A network calls its functions with the same shapes in every iteration.
@lru_cache(maxsize=1024)
def layout_for_convolution(
    x_shape: Sizes, y_shape: Sizes, n_weights: int, windows: Windows
) -> Layout | None:
    """Choose the layout for a convolution from x to y; None if Chainer's own code is faster."""
    columns = n_columns_of(x_shape[1], windows)
    copied = _CHAINERS_COPY_NS * columns
    return _fastest(x_shape, y_shape, n_weights, _WEIGHT_NS, windows, columns, copied)


@lru_cache(maxsize=1024)
def layout_for_gradient_w(
    x_shape: Sizes, gy_shape: Sizes, n_weights: int, windows: Windows
) -> Layout | None:
    """Choose the layout for a gradient of W; None if Chainer's own code is faster."""
    columns = n_columns_of(x_shape[1], windows)
    copied = _CHAINERS_COPY_NS * (columns + prod(gy_shape[1:]))
    return _fastest(x_shape, gy_shape, n_weights, _GRADIENT_NS, windows, columns, copied)


@lru_cache(maxsize=1024)
def layout_for_deconvolution(
    x_shape: Sizes, y_shape: Sizes, n_weights: int, windows: Windows
) -> Layout | None:
    """Choose the layout to add a product to the windows of y; None if Chainer's code is faster."""
    columns = n_columns_of(y_shape[1], windows)
    # Images of one pixel are a matrix without a copy.
    copied = _copy_ns(x_shape) if prod(windows.outs) > 1 else 0
    copied -= _DECONVOLUTION_NS / x_shape[0]
    return _fastest(x_shape, y_shape, n_weights, _WEIGHT_NS, windows, columns, copied)


def _fastest(
    x_shape: Sizes,
    y_shape: Sizes,
    n_weights: int,
    weight_ns: float,
    windows: Windows,
    n_columns: int,
    copied_ns: float,
) -> Layout | None:
    """Choose the layout with the lowest cost for an image; None if Chainer's own code costs less.

    ``weight_ns`` is the time to read a weight for a product, ``n_columns`` the number of values in
    an image's columns, and ``copied_ns`` the time of Chainer's additional copies.
    """
    n = x_shape[0]
    # NumPy copies without a loop over an axis of length 1.
    run = next((size for size in reversed(windows.outs) if size > 1), 1)
    product = n_weights * weight_ns + windows.groups * _PRODUCT_NS
    columns = 0 if windows.is_image else n_columns
    costs = {Order.FIRST: product + _RUN_NS * columns / run}
    together = images_at_a_time(n, n_columns, n_weights)
    if together > 1:
        copied = _copy_ns(x_shape) + _copy_ns(y_shape)
        costs[Order.MIDDLE] = product / together + _RUN_NS * columns / run + copied
        transposed = _TRANSPOSED_NS * (prod(x_shape[1:]) + prod(y_shape[1:]))
        long_run = together * (windows.outs[-1] if windows.stride[-1] == 1 else 1)
        costs[Order.LAST] = product / together + _RUN_NS * columns / long_run + transposed
    order = min(costs, key=costs.__getitem__)
    if costs[order] > product / n + _RUN_NS * n_columns / run + copied_ns:
        return None
    return Layout(order, windows)


def n_columns_of(channels: int, windows: Windows) -> int:
    """Number of values in the columns of an image with this number of channels."""
    return channels * prod(windows.ksize) * prod(windows.outs)


def _copy_ns(shape: Sizes) -> float:
    """Nanoseconds to copy an image of a batch of this shape, channel by channel."""
    return _NUMBER_NS * prod(shape[1:]) + _RUN_NS * shape[1]


def images_at_a_time(n: int, n_columns: int, n_weights: int) -> int:
    """Number of images whose columns are made at a time.

    Args:
        n: Number of images.
        n_columns: Number of values in the columns of an image.
        n_weights: Number of weights that a product for many images reads; 0 if it is for one image.
    """
    # With at least as many columns as weights, the time to read the weights does not matter.
    return max(1, min(n, max(N_COLUMNS, n_weights) // n_columns))


@lru_cache(maxsize=1024)
def gathers(x_shape: Sizes, out: int, n_weights: int, windows: Windows) -> bool:
    """Whether a deconvolution to ``out`` channels is faster by gathering the windows of x."""
    if windows.reversed is None or windows.is_image:
        return False
    n = x_shape[0]
    gathered = n * n_columns_of(x_shape[1], windows.reversed) + _REVERSAL_COST * n_weights
    return gathered < _ADDITION_COST * n * n_columns_of(out, windows)
