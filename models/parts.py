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
    """:class:`chainer.initializers.HeNormal`, drawn three times as fast.

    Chainer draws every value from NumPy's global generator, in float64; for the 60 million
    of ResNet-152 that takes 2 s. This initializer draws from a generator of its own in float32,
    whose seed comes from the global generator: ``numpy.random.seed(seed)`` has its effect.

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
        """Fills a weight array of shape ``(out, in, ...)`` in place."""
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
    """Makes a convolution that keeps the side at stride 1, of :class:`FastHeNormal` weights."""
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
    """Makes a batch normalization with the eps of PyTorch, where trained weights come from."""
    return L.BatchNormalization(channels, eps=1e-5)


# chainer.Sequential would do, but it numbers three or more links out of order
# (0, 2, 1), and its link paths with them.
class Stage(chainer.ChainList):
    """Blocks that run in turn, named by their place: ``/res2/0``, ``/res2/1``."""

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Hands ``x`` through every block in turn."""
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
    """Makes a stage; its first block takes the stride and the change of width."""
    first = block(in_channels, out_channels, stride)
    return Stage(first, *(block(out_channels, out_channels, 1) for _ in range(blocks - 1)))
