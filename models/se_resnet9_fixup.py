"""SE-ResNet9 with Fixup, a feature extractor for embodied agents without normalization.

Squeeze-and-excitation: Hu et al. 2017 (arXiv 1709.01507). Fixup: Zhang et al. 2019 (arXiv
1901.09321).
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

    The fifth reference accelerates this network by fusing layers. The layers are: space to depth
    of 4 x 4 pixels; a 1x1 convolution to 64 channels and ReLU; four blocks (:class:`SEFixupBlock`)
    with 64, 128, 256 and 512 channels, of which the last three halve height and width. The outputs
    are feature maps: the network has neither a final pooling nor a linear layer. The network
    has neither normalization nor biases of convolutions.

    Shapes: input ``(batch, channels, H, W)`` float32 (64 x 64 in the reference; other
    multiples of 4 work). The blocks have 1/4, 1/8, 1/16 and 1/32 of its height and width, rounded
    up. Output ``(batch, 512, H/32, W/32)``.

    After space to depth, channel ``(4 * row + column) * channels + c`` is channel c of the pixels
    at that row and column of each 4 x 4 (:func:`chainer.functions.space2depth`). Other frameworks
    use ``c * 16 + 4 * row + column``, so imported weights of ``/conv1`` may need another order.

    Link paths: ``/conv1``, ``/res2/conv1``, ``/res2/se/fc1`` ... ``/res5/se/fc2``; the
    scalars are parameters of the block: ``/res2/bias1a``.

    Initial weights are Fixup's. The first convolution of a block has a normal distribution with a
    standard deviation of sqrt(2 / (out * 9)) * L ** -0.5, for L = 4 blocks. The second one is 0,
    scales are 1, and scalar biases are 0, so the blocks of a new network return their shortcut.
    The reference does not specify the other weights. Here ``/conv1`` and the convolutions of
    shortcuts have the same distribution without L, as in Fixup's code, and linear layers have
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
        """Compute the feature maps ``(batch, 512, H/32, W/32)`` of ``(batch, channels, H, W)``.

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

    The scalars are parameters of shape ``(1,)``; ``+`` and ``*`` broadcast them, so each is one
    ``Add`` or ``Mul`` without a call of ``Broadcast``. The shortcut of a strided block is a 3x3
    average pooling (stride 2, pad 1, padded zeros count) and a 1x1 convolution
    (``downsample_conv``) of input + bias1a. Otherwise the shortcut is the input, without bias1a.

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
    """Multiplies each channel by a factor from 0 to 1, computed from the means of all channels.

    The layers are: global average pooling; a linear layer to a sixteenth of the channels, which
    must be a multiple of 16; ReLU; a linear layer to all channels; sigmoid; the product with the
    input.

    Shapes: input and output ``(batch, channels, H, W)``.
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
    """Make a convolution without bias and with Fixup's initial weights."""
    weights = FastHeNormal(scale, "fan_out")
    return convolution(in_channels, out_channels, ksize, stride, initial_w=weights)
