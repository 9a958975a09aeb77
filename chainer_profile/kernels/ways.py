"""The cost model of the NumPy convolutions: which way is faster for a shape.

A convolution is a product of the weights and the columns, which are copies of all windows. There
are two questions:

1. One product for each image, or one for many images? A product reads all weights. If it serves
   many images, they are read once, but the images and the results have to be copied into an order
   in which the pixels of all images are together, and back.
2. Does a deconvolution (and a convolution's gradient of x) gather the windows of its input, as a
   convolution with reversed weights, or add the product to the windows of its output? Gathering
   copies the input once for each place of a window, and the weights. Adding reads and writes the
   output once for each place.

Costs are counted in numbers read or copied.
"""

from __future__ import annotations

from math import prod

from chainer_profile.kernels.layouts import Layout, Order
from chainer_profile.kernels.windows import Array, Windows

#: Cost of a number that is copied into another order, in numbers of weights that a product reads.
_COPY_COST = 1.0
#: Cost of a number that is added to a window, in numbers that are copied.
_ADDITION_COST = 2.0
#: Cost of a weight that is reversed, in numbers that are copied.
_REVERSAL_COST = 5.0
#: Bytes of columns that are made at a time: they stay in the cache until they are multiplied.
COLUMNS_NBYTES = 1 << 20


def layout_of(x: Array, y: Array, n_weights: int, windows: Windows) -> Layout:
    """The layout in which a convolution between x and y is computed."""
    if len(x) < 2 or n_weights <= _COPY_COST * (x[0].size + y[0].size):
        return Layout(Order.FIRST, windows)
    # With the images last, a copy of windows has long runs in memory.
    return Layout(Order.MIDDLE if prod(windows.ksize) == 1 else Order.LAST, windows)


def images_at_a_time(x: Array, n_columns: int, n_weights: int) -> int:
    """Number of images whose columns are made at a time.

    Args:
        x: The images.
        n_columns: Numbers in the columns of an image.
        n_weights: Number of weights that one product reads; 0 if it serves one image.
    """
    # A product with as many columns as weights or more hides the reading of the weights.
    wanted = max(COLUMNS_NBYTES, n_weights * x.itemsize)
    return int(max(1, min(len(x), wanted // (n_columns * x.itemsize))))


def gathers(x: Array, out: int, n_weights: int, windows: Windows) -> bool:
    """Whether a deconvolution to ``out`` channels gathers the windows of x."""
    if windows.reversed is None or windows.is_image:
        return False
    n, places = len(x), prod(windows.ksize)
    gathered = n * x.shape[1] * places * prod(windows.dims) + _REVERSAL_COST * n_weights
    added = _ADDITION_COST * n * out * places * prod(windows.outs)
    return bool(gathered < added)
