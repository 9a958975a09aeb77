"""SE-ResNet9 with Fixup, a feature extractor for embodied agents without normalization.

Squeeze-and-excitation is of Hu et al. 2017 (arXiv 1709.01507), Fixup of Zhang et al. 2019
(arXiv 1901.09321).
"""

from __future__ import annotations

from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L

from .parts import FastHeNormal, convolution

_STAGES = 4
_REDUCTION = 16


class SEResNet9Fixup(chainer.Chain):
    """A residual network of nine layers with squeeze-and-excitation and Fixup's scalars.

    This is the network of the fifth reference, which makes it faster by fusing layers. Each
    4 x 4 pixels become channels (space to depth); a 1x1 convolution to 64 channels and
    ReLU; four stages of one block (:class:`SEFixupBlock`) with 64, 128, 256 and 512
    channels, all but the first at half the side of the one before. It ends there, with
    feature maps: no pooling, no linear layer. No convolution has a bias, nothing is
    normalized.

    Shapes: input ``(batch, channels, H, W)`` float32 (64 x 64 in the reference; other
    multiples of 4 work); the blocks give sides of 1/4, 1/8, 1/16 and 1/32, rounded up;
    output ``(batch, 512, H/32, W/32)``.

    Channel ``(4 * row + column) * channels + c`` of the space to depth is channel c of the
    pixels at that row and column of each 4 x 4 (:func:`chainer.functions.space2depth`);
    others order them ``c * 16 + 4 * row + column``, so weights of ``/conv1`` from elsewhere
    may have to be reordered.

    Link paths: ``/conv1``, ``/res2/conv1``, ``/res2/se/fc1`` ... ``/res5/se/fc2``; the
    scalars are parameters of the block: ``/res2/bias1a``.

    Weights start as Fixup says: the first convolution of a block from a normal distribution
    of deviation sqrt(2 / (out * 9)) * L ** -0.5 with L = 4 blocks, the second from 0, scales
    from 1, scalar biases from 0, so a new network's blocks hand on their shortcut. Of the
    rest the reference does not speak: here ``/conv1`` and the shortcuts' convolutions have
    the same distribution without L, as in Fixup's own code, and the linear layers
    Chainer's default.

    Args:
        channels: Channels of the input: 3 for colour, 1 for depth.
    """

    def __init__(self, *, channels: int = 3) -> None:
        super().__init__()
        self.channels = channels
        with self.init_scope():
            self.conv1 = _conv(16 * channels, 64, ksize=1, stride=1)
            self.res2 = SEFixupBlock(64, 64, 1)
            self.res3 = SEFixupBlock(64, 128, 2)
            self.res4 = SEFixupBlock(128, 256, 2)
            self.res5 = SEFixupBlock(256, 512, 2)

    def forward(self, x: Any) -> chainer.Variable:
        """Gives the feature maps ``(batch, 512, H/32, W/32)`` of ``(batch, channels, H, W)``.

        Raises:
            ValueError: If the channels or the sides do not fit.
        """
        if len(x.shape) != 4 or x.shape[1] != self.channels or x.shape[2] % 4 or x.shape[3] % 4:
            given = " x ".join(map(str, x.shape[1:]))
            raise ValueError(
                f"this network takes inputs of {self.channels} x 64 x 64, or of other sides that "
                f"are multiples of 4, not {given}"
            )
        h = F.relu(self.conv1(F.space2depth(x, 4)))
        return self.res5(self.res4(self.res3(self.res2(h))))


class SEFixupBlock(chainer.Chain):
    """Two 3x3 convolutions between scalars, squeeze-and-excitation, and a shortcut.

    The scalars are parameters of shape ``(1,)``; ``+`` and ``*`` broadcast them, so each is
    one ``Add`` or ``Mul`` without a call to broadcast. A strided block's shortcut is a 3x3
    average pooling (stride 2, pad 1, the pad counted as zeros) and a 1x1 convolution
    (``downsample_conv``) of the input with bias1a, a sum that is computed once; else it is
    the input itself, without bias1a.

    Shapes: ``(batch, in_channels, H, W)`` to ``(batch, out_channels, H/s, W/s)`` with
    s the stride, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.projects = stride != 1
        self.stride = stride
        with self.init_scope():
            self.bias1a = chainer.Parameter(0, (1,))
            self.conv1 = _conv(in_channels, out_channels, 3, stride, scale=_STAGES**-0.5)
            self.bias1b = chainer.Parameter(0, (1,))
            self.bias2a = chainer.Parameter(0, (1,))
            self.conv2 = _conv(out_channels, out_channels, 3, 1, scale=0)
            self.scale = chainer.Parameter(1, (1,))
            self.bias2b = chainer.Parameter(0, (1,))
            self.se = SqueezeExcitation(out_channels)
            if self.projects:
                self.downsample_conv = _conv(in_channels, out_channels, ksize=1, stride=1)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        biased = x + self.bias1a
        h = F.relu(self.conv1(biased) + self.bias1b)
        h = self.conv2(h + self.bias2a) * self.scale + self.bias2b
        h = self.se(h)
        if self.projects:
            x = self.downsample_conv(F.average_pooling_2d(biased, 3, stride=self.stride, pad=1))
        return F.relu(h + x)


class SqueezeExcitation(chainer.Chain):
    """Weighs every channel by a number from 0 to 1 that all channels' averages decide.

    The average over the map; a linear layer to a sixteenth of the width, which is a multiple of
    16; ReLU; a linear layer back; sigmoid; the input times that.

    Shapes: ``(batch, channels, H, W)`` to the same.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        with self.init_scope():
            self.fc1 = L.Linear(channels, channels // _REDUCTION)
            self.fc2 = L.Linear(channels // _REDUCTION, channels)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        h = F.average_pooling_2d(x, x.shape[2:])
        h = F.reshape(h, x.shape[:2])
        h = F.sigmoid(self.fc2(F.relu(self.fc1(h))))
        return x * F.reshape(h, (*h.shape, 1, 1))


def _conv(
    in_channels: int, out_channels: int, ksize: int, stride: int, scale: float = 1.0
) -> L.Convolution2D:
    """Makes a convolution without bias of Fixup's initial weights."""
    weights = FastHeNormal(scale, "fan_out")
    return convolution(in_channels, out_channels, ksize, stride, initial_w=weights)
