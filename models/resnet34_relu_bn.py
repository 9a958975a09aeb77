"""The ResNet-34 of a comparison of execution engines: ReLU before batch normalization."""

from __future__ import annotations

from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L

from .parts import convolution, normalization, stage

#: Shape of an input. The linear layer fits only this size.
INPUT_SHAPE = (3, 224, 224)


class ResNet34ReluBN(chainer.Chain):
    """A 34-layer residual network with biases, and with ReLU before batch normalization.

    The fourth reference runs this network on several engines. It differs from He et al.'s: every
    convolution has a bias, ReLU comes before batch normalization, and a projecting shortcut is a
    3x3 convolution and ReLU without normalization (``downsample_conv`` of its block). The final
    average pooling is 2 x 2, so the linear layer has 512 x 3 x 3 inputs.

    Shapes: input ``(batch, 3, 224, 224)`` float32, no other size; output
    ``(batch, classes)``, the scores before the softmax.

    Args:
        classes: Number of outputs.
    """

    def __init__(self, *, classes: int = 1000) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = convolution(3, 64, ksize=7, stride=2, bias=True)
            self.bn1 = normalization(64)
            self.res2 = stage(ReluBNBlock, 64, 64, 3, 1)
            self.res3 = stage(ReluBNBlock, 64, 128, 4, 2)
            self.res4 = stage(ReluBNBlock, 128, 256, 6, 2)
            self.res5 = stage(ReluBNBlock, 256, 512, 3, 2)
            self.fc = L.Linear(512 * 3 * 3, classes)

    def forward(self, x: Any) -> chainer.Variable:
        """Compute the scores ``(batch, classes)`` of images ``(batch, 3, 224, 224)``.

        Raises:
            ValueError: If the images are of another size.
        """
        if x.shape[1:] != INPUT_SHAPE:
            given = " x ".join(map(str, x.shape[1:]))
            raise ValueError(f"this network takes inputs of 3 x 224 x 224 only, not {given}")
        h = self.bn1(F.relu(self.conv1(x)))
        h = F.max_pooling_2d(h, 3, stride=2, pad=1, cover_all=False)
        h = self.res5(self.res4(self.res3(self.res2(h))))
        h = F.average_pooling_2d(h, 2)
        h = F.reshape(h, (len(h), -1))
        return self.fc(h)


class ReluBNBlock(chainer.Chain):
    """Twice a 3x3 convolution, ReLU and batch normalization; a shortcut; ReLU after the sum.

    A strided block's shortcut is a strided 3x3 convolution (``downsample_conv``) and ReLU,
    the others' is the input itself.

    Shapes: ``(batch, in_channels, H, W)`` to ``(batch, out_channels, H/s, W/s)`` with
    s the stride, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.projects = stride != 1
        with self.init_scope():
            self.conv1 = convolution(in_channels, out_channels, ksize=3, stride=stride, bias=True)
            self.bn1 = normalization(out_channels)
            self.conv2 = convolution(out_channels, out_channels, ksize=3, stride=1, bias=True)
            self.bn2 = normalization(out_channels)
            if self.projects:
                self.downsample_conv = convolution(
                    in_channels, out_channels, ksize=3, stride=stride, bias=True
                )

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        h = self.bn1(F.relu(self.conv1(x)))
        h = self.bn2(F.relu(self.conv2(h)))
        if self.projects:
            x = F.relu(self.downsample_conv(x))
        return F.relu(h + x)
