"""Residual networks for ImageNet, after He et al. 2015 (arXiv 1512.03385, section 3.3)."""

from __future__ import annotations

from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L

from .parts import convolution, normalization, stage

#: Numbers of blocks of the four stages, by depth (He et al., table 1).
BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}

#: Values of ``variant``.
VARIANTS = ("standard", "plain", "bottleneck", "large")


class ResNet(chainer.Chain):
    """A residual network for images of ImageNet's size, in four variants.

    The layers are: a 7x7 convolution of stride 2 to 64 channels, batch normalization, ReLU; a 3x3
    max pooling of stride 2; four stages of blocks, of which the last three halve height and width;
    global average pooling; a linear layer. No convolution has a bias. The second reference
    (ResNets at 224 x 224, operator by operator) compares these variants. ``depth`` selects the
    numbers of blocks (:data:`BLOCKS`). It is the number of weighted layers only in He et al.'s
    networks:

    - ``plain``: blocks of two convolutions (:class:`BasicBlock`), stages of 64, 128, 256
      and 512 channels.
    - ``bottleneck``: blocks of three convolutions (:class:`BottleneckBlock`) with the same output
      channels, and a quarter of them inside. So the first stage needs no projection.
    - ``large``: such blocks with 256, 512, 1024 and 2048 output channels, 64 to 512 inside.
    - ``standard``: He et al.'s networks, plain at depth 18 and 34 and large at 50, 101 and
      152, with the stride on the 3x3 convolution (the paper has it on the first 1x1).

    Shapes: input ``(batch, 3, H, W)`` float32 of any size. The stages have 1/4, 1/8, 1/16 and 1/32
    of its height and width, rounded up. Output ``(batch, classes)``, the scores before the softmax.

    Link paths: ``/conv1``, ``/bn1``, ``/res2/0/conv1`` ... ``/res5/2/bn3``, ``/fc``; a
    projecting shortcut is ``downsample_conv`` and ``downsample_bn`` of its block.

    Args:
        depth: 18, 34, 50, 101 or 152.
        variant: One of :data:`VARIANTS`.
        classes: Number of outputs.

    Raises:
        ValueError: There is no such depth or variant.
    """

    def __init__(self, depth: int = 50, *, variant: str = "standard", classes: int = 1000) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"depth must be one of {', '.join(map(str, BLOCKS))}, not {depth}")
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, not {variant!r}")
        if variant == "standard":
            variant = "plain" if depth < 50 else "large"
        block = BasicBlock if variant == "plain" else BottleneckBlock
        width = 256 if variant == "large" else 64
        n2, n3, n4, n5 = BLOCKS[depth]
        with self.init_scope():
            self.conv1 = convolution(3, 64, ksize=7, stride=2)
            self.bn1 = normalization(64)
            self.res2 = stage(block, 64, width, n2, 1)
            self.res3 = stage(block, width, 2 * width, n3, 2)
            self.res4 = stage(block, 2 * width, 4 * width, n4, 2)
            self.res5 = stage(block, 4 * width, 8 * width, n5, 2)
            self.fc = L.Linear(8 * width, classes)

    def forward(self, x: Any) -> chainer.Variable:
        """Compute the scores ``(batch, classes)`` of images ``(batch, 3, H, W)``."""
        h = F.relu(self.bn1(self.conv1(x)))
        # cover_all=False rounds height and width as PyTorch does.
        h = F.max_pooling_2d(h, 3, stride=2, pad=1, cover_all=False)
        h = self.res5(self.res4(self.res3(self.res2(h))))
        h = F.average_pooling_2d(h, h.shape[2:])
        h = F.reshape(h, (len(h), -1))
        return self.fc(h)


class BasicBlock(chainer.Chain):
    """Two 3x3 convolutions with batch normalization, and a shortcut.

    The shortcut is the input. If the shape changes, a strided 1x1 convolution with batch
    normalization (``downsample_conv``, ``downsample_bn``) projects it.

    Shapes: ``(batch, in_channels, H, W)`` to ``(batch, out_channels, H/s, W/s)`` with
    s the stride, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.projects = stride != 1 or in_channels != out_channels
        with self.init_scope():
            self.conv1 = convolution(in_channels, out_channels, ksize=3, stride=stride)
            self.bn1 = normalization(out_channels)
            self.conv2 = convolution(out_channels, out_channels, ksize=3, stride=1)
            self.bn2 = normalization(out_channels)
            if self.projects:
                self.downsample_conv = convolution(
                    in_channels, out_channels, ksize=1, stride=stride
                )
                self.downsample_bn = normalization(out_channels)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.projects:
            x = self.downsample_bn(self.downsample_conv(x))
        return F.relu(h + x)


class BottleneckBlock(chainer.Chain):
    """1x1, 3x3 and 1x1 convolutions with batch normalization, and a shortcut.

    The first convolution reduces the channels to a quarter of the output channels, which must be a
    multiple of 4. The second has the stride. The third restores the channels. The shortcut is as
    in :class:`BasicBlock`.

    Shapes: ``(batch, in_channels, H, W)`` to ``(batch, out_channels, H/s, W/s)`` with
    s the stride, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        inner = out_channels // 4
        self.projects = stride != 1 or in_channels != out_channels
        with self.init_scope():
            self.conv1 = convolution(in_channels, inner, ksize=1, stride=1)
            self.bn1 = normalization(inner)
            self.conv2 = convolution(inner, inner, ksize=3, stride=stride)
            self.bn2 = normalization(inner)
            self.conv3 = convolution(inner, out_channels, ksize=1, stride=1)
            self.bn3 = normalization(out_channels)
            if self.projects:
                self.downsample_conv = convolution(
                    in_channels, out_channels, ksize=1, stride=stride
                )
                self.downsample_bn = normalization(out_channels)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        if self.projects:
            x = self.downsample_bn(self.downsample_conv(x))
        return F.relu(h + x)
