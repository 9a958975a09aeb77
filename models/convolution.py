"""The convolution that all networks here are made of."""

from __future__ import annotations

from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer.links as L


def bare_convolution(
    in_channels: int, out_channels: int, ksize: int, stride: int, initial_w: Any
) -> L.Convolution2D:
    """Makes a convolution without bias that keeps the side at stride 1.

    Args:
        in_channels: Channels of its input.
        out_channels: Channels of its output.
        ksize: Side of its kernel, odd.
        stride: Its stride.
        initial_w: Initialiser of its weights.

    Returns:
        L.Convolution2D: The link.

    """
    return L.Convolution2D(
        in_channels,
        out_channels,
        ksize,
        stride,
        pad=ksize // 2,
        nobias=True,
        initialW=initial_w,
    )
