"""Residual networks for CIFAR-10, after He et al. 2015 (arXiv 1512.03385, section 4.2)."""

from __future__ import annotations

from functools import partial
from typing import Any

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L

from .parts import convolution, stage


class ResNetCIFAR(chainer.Chain):
    """A residual network of depth 6n + 2 for small images.

    The layers are: a 3x3 convolution to 16 channels, batch normalization and ReLU; three stages of
    n basic blocks with 16, 32 and 64 channels, of which the last two halve height and width; global
    average pooling; a linear layer. No convolution has a bias. Two variants have the same links,
    and so the same weights:

    - ``identity_shortcuts=True`` is the network of He et al.: every block adds its
      input to its result. If the shape changes, the shortcut is a strided 1x1
      convolution with batch normalization (the paper's option B; its CIFAR-10 results
      use option A, which pads with zeros and has no parameters there).
    - ``identity_shortcuts=False`` is the network that the reference report profiled
      (ResNet20 on CIFAR-10 under Chainer's TimerHook): only the two strided blocks
      have a shortcut, the others are plain pairs of convolutions.

    Shapes: input ``(batch, 3, H, W)`` float32 of any size. The outputs of the stages are
    ``(batch, 16, H, W)``, ``(batch, 32, H/2, W/2)`` and ``(batch, 64, H/4, W/4)``, rounded up.
    Output ``(batch, classes)``, the scores before the softmax.

    Link paths: ``/conv1``, ``/bn1``, ``/res2/0/conv1`` ... ``/res4/2/bn2``, ``/fc``; a
    projecting shortcut is ``conv3`` and ``bn3`` of its block, such as ``/res3/0/conv3``.

    Args:
        depth: Number of weighted layers on the main path, 6n + 2.
        identity_shortcuts: Whether the blocks of stride 1 add their input.
        classes: Number of outputs.

    Raises:
        ValueError: ``depth`` is not 6n + 2 with n >= 1.
    """

    def __init__(
        self, depth: int = 20, *, identity_shortcuts: bool = False, classes: int = 10
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest != 0 or blocks < 1:
            raise ValueError(
                f"depth must be 6n + 2 (8, 14, 20, 26, 32, ...) for a CIFAR ResNet, not {depth}"
            )
        block = partial(BasicBlock, identity_shortcut=identity_shortcuts)
        with self.init_scope():
            self.conv1 = _conv(3, 16, ksize=3, stride=1)
            self.bn1 = L.BatchNormalization(16)
            self.res2 = stage(block, 16, 16, blocks, 1)
            self.res3 = stage(block, 16, 32, blocks, 2)
            self.res4 = stage(block, 32, 64, blocks, 2)
            self.fc = L.Linear(64, classes)

    def forward(self, x: Any) -> chainer.Variable:
        """Compute the scores ``(batch, classes)`` of images ``(batch, 3, H, W)``."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.res4(self.res3(self.res2(h)))
        h = F.average_pooling_2d(h, h.shape[2:])
        h = F.reshape(h, (len(h), -1))
        return self.fc(h)


class BasicBlock(chainer.Chain):
    """Two 3x3 convolutions with batch normalization, and an optional shortcut.

    A strided block projects its input by a 1x1 convolution (``conv3``, ``bn3``). Another block adds
    its unchanged input, or has no shortcut.

    Shapes: ``(batch, in_channels, H, W)`` to ``(batch, out_channels, H/s, W/s)`` with
    s the stride, rounded up.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, identity_shortcut: bool
    ) -> None:
        super().__init__()
        self.projects = stride != 1
        self.adds_input = identity_shortcut and not self.projects
        with self.init_scope():
            self.conv1 = _conv(in_channels, out_channels, ksize=3, stride=stride)
            self.bn1 = L.BatchNormalization(out_channels)
            self.conv2 = _conv(out_channels, out_channels, ksize=3, stride=1)
            self.bn2 = L.BatchNormalization(out_channels)
            if self.projects:
                self.conv3 = _conv(in_channels, out_channels, ksize=1, stride=stride)
                self.bn3 = L.BatchNormalization(out_channels)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.projects:
            h = h + self.bn3(self.conv3(x))
        elif self.adds_input:
            h = h + x
        return F.relu(h)


def _conv(in_channels: int, out_channels: int, ksize: int, stride: int) -> L.Convolution2D:
    """Make a convolution with Chainer's HeNormal weights."""
    weights = chainer.initializers.HeNormal()
    return convolution(in_channels, out_channels, ksize, stride, initial_w=weights)
