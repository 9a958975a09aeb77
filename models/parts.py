"""Parts of the networks: convolutions, their initial weights, and stages of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.links as L
import numpy


class FastHeNormal(chainer.Initializer):
    """:class:`chainer.initializers.HeNormal`, three times as fast.

    Chainer draws every value from NumPy's global generator, in float64. For the 60 million values
    of ResNet-152 this takes 2 s. This initializer draws float32 from a separate generator, which
    the global generator seeds, so that ``numpy.random.seed(seed)`` still determines the weights.

    Args:
        scale: Factor on the standard deviation, which is sqrt(2 / fan).
        fan_option: ``fan_in``, inputs of an output value, or ``fan_out``.
    """

    def __init__(self, scale: float = 1.0, fan_option: str = "fan_in") -> None:
        super().__init__()
        if fan_option not in ("fan_in", "fan_out"):
            raise ValueError(f"fan_option must be fan_in or fan_out, not {fan_option!r}")
        self.scale = scale
        self.fan_option = fan_option

    def __call__(self, array: Any) -> None:
        """Fill a weight array of shape ``(out, in, ...)`` in place."""
        fan_in, fan_out = chainer.initializer.get_fans(array.shape)
        fan = fan_in if self.fan_option == "fan_in" else fan_out
        seed = numpy.random.randint(2**32, dtype=numpy.uint64)  # noqa: NPY002  (see above)
        values = numpy.random.default_rng(seed).standard_normal(array.shape, numpy.float32)
        values *= numpy.float32(self.scale * (2 / fan) ** 0.5)
        array[...] = chainer.backend.get_device_from_array(array).send(values)


def convolution(
    in_channels: int,
    out_channels: int,
    ksize: int,
    stride: int,
    *,
    bias: bool = False,
    initial_w: Any = None,
) -> L.Convolution2D:
    """Make a convolution with :class:`FastHeNormal` weights; stride 1 preserves the image size."""
    return L.Convolution2D(
        in_channels,
        out_channels,
        ksize,
        stride,
        pad=ksize // 2,
        nobias=not bias,
        initialW=initial_w or FastHeNormal(),
    )


def normalization(channels: int) -> L.BatchNormalization:
    """Make a batch normalization with PyTorch's eps, because trained weights come from PyTorch."""
    return L.BatchNormalization(channels, eps=1e-5)


# chainer.Sequential numbers three or more links in another order (0, 2, 1), also in their paths.
class Stage(chainer.ChainList):
    """A sequence of blocks, named by their index: ``/res2/0``, ``/res2/1``."""

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Pass ``x`` through all blocks."""
        for block in self:
            x = block(x)
        return x


def stage(
    block: Callable[[int, int, int], chainer.Link],
    in_channels: int,
    out_channels: int,
    blocks: int,
    stride: int,
) -> Stage:
    """Make a stage. Its first block has the stride and changes the number of channels."""
    first = block(in_channels, out_channels, stride)
    return Stage(first, *(block(out_channels, out_channels, 1) for _ in range(blocks - 1)))
