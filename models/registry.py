"""The names that ``--model`` takes, and how each network is built.

Neither Chainer nor NumPy is imported here, so the names can be listed at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ModelEntry:
    """One network: what it is, what it takes, and how to build it.

    Attributes:
        name: What a user types, such as ``resnet20``.
        description: One line for the list of models and for reports.
        input_shape: Shape of one input without the batch, such as ``(3, 32, 32)``. Images of
            other sizes work too, unless the description says which ones do.
        classes: Number of outputs, handed to the network as ``classes``; None for a
            network that returns feature maps.
        mean: What to subtract from each channel of an image scaled to 0..1.
        std: What to divide each channel by after that.
        factory: The network's class as ``module:Callable``, imported by :meth:`build`.
        kwargs: The keyword arguments it is called with.
    """

    name: str
    description: str
    input_shape: tuple[int, ...]
    classes: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factory: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def build(self, **overrides: Any) -> Any:
        """Builds the network on the CPU with new initial weights.

        Args:
            overrides: Keyword arguments that take the place of the entry's own,
                such as ``classes=100``.

        Returns:
            chainer.Link: The network.
        """
        module, _, attribute = self.factory.partition(":")
        arguments: dict[str, Any] = {} if self.classes is None else {"classes": self.classes}
        arguments.update(self.kwargs)
        arguments.update(overrides)
        return getattr(importlib.import_module(module, __package__), attribute)(**arguments)


# The usual statistics of CIFAR-10's 50,000 training images, scaled to 0..1.
_CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
_CIFAR10_STD = (0.2470, 0.2435, 0.2616)


def _resnet_cifar(name: str, description: str, depth: int, identity_shortcuts: bool) -> ModelEntry:
    return ModelEntry(
        name=name,
        description=description,
        input_shape=(3, 32, 32),
        classes=10,
        mean=_CIFAR10_MEAN,
        std=_CIFAR10_STD,
        factory=".resnet_cifar:ResNetCIFAR",
        kwargs=MappingProxyType({"depth": depth, "identity_shortcuts": identity_shortcuts}),
    )


# The usual statistics of ImageNet's training images, scaled to 0..1.
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


def _resnet(name: str, description: str, depth: int, variant: str) -> ModelEntry:
    return ModelEntry(
        name=name,
        description=f"{description}, any image size",
        input_shape=(3, 224, 224),
        classes=1000,
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        factory=".resnet:ResNet",
        kwargs=MappingProxyType({"depth": depth, "variant": variant}),
    )


def _se_resnet9_fixup(name: str, description: str, channels: int) -> ModelEntry:
    return ModelEntry(
        name=name,
        description=f"{description}, sides of any multiple of 4",
        input_shape=(channels, 64, 64),
        classes=None,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        factory=".se_resnet9_fixup:SEResNet9Fixup",
        kwargs=MappingProxyType({"channels": channels}),
    )


_ENTRIES = (
    _resnet_cifar(
        "resnet20",
        "ResNet-20 for CIFAR-10 as in the reference report: no identity shortcuts, 66 calls "
        "(He et al.'s network is resnet20-he)",
        depth=20,
        identity_shortcuts=False,
    ),
    *(
        _resnet_cifar(
            f"resnet{depth}-he",
            f"ResNet-{depth} for CIFAR-10, He et al. 2015: identity shortcuts, {calls} calls",
            depth=depth,
            identity_shortcuts=True,
        )
        for depth, calls in ((20, 73), (32, 115), (44, 157), (56, 199), (110, 388))
    ),
    *(
        _resnet(
            f"resnet{depth}",
            f"ResNet-{depth} for ImageNet, He et al. 2015: {blocks} blocks, {calls} calls",
            depth=depth,
            variant="standard",
        )
        for depth, blocks, calls in (
            (18, "basic", 69),
            (34, "basic", 125),
            (50, "bottleneck", 175),
            (101, "bottleneck", 345),
            (152, "bottleneck", 515),
        )
    ),
    *(
        _resnet(
            f"resnet{depth}-plain",
            f"ResNet-{depth}'s stages with basic blocks (two 3x3), 64 to 512 channels{same}: "
            f"{calls} calls",
            depth=depth,
            variant="plain",
        )
        for depth, calls, same in ((50, 125, ", resnet34 again"), (101, 244, ""), (152, 363, ""))
    ),
    *(
        _resnet(
            f"resnet{depth}-bottleneck",
            f"ResNet-{depth}'s stages with narrow bottleneck blocks, 64 to 512 channels: "
            f"{calls} calls",
            depth=depth,
            variant="bottleneck",
        )
        for depth, calls in ((18, 93), (34, 173), (50, 173), (101, 343), (152, 513))
    ),
    *(
        _resnet(
            f"resnet{depth}-large",
            f"ResNet-{depth}'s stages with ResNet-50's blocks, 256 to 2048 channels{same}: "
            f"{calls} calls",
            depth=depth,
            variant="large",
        )
        for depth, calls, same in ((18, 95, ""), (34, 175, ", resnet50 again"))
    ),
    ModelEntry(
        name="resnet34-relu-bn",
        description="ResNet-34 of an engine comparison: biases, ReLU before BN, 3x3 shortcuts: "
        "141 calls, 224 x 224 only",
        input_shape=(3, 224, 224),
        classes=1000,
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        factory=".resnet34_relu_bn:ResNet34ReluBN",
    ),
    _se_resnet9_fixup(
        "se-resnet9-fixup",
        "SE-ResNet9 with Fixup for embodied agents, colour, gives feature maps: 81 calls",
        channels=3,
    ),
    _se_resnet9_fixup(
        "se-resnet9-fixup-depth",
        "SE-ResNet9 with Fixup for embodied agents, depth images, gives feature maps: 81 calls",
        channels=1,
    ),
)

#: Every network by its name, read-only; the first is the default.
REGISTRY: Mapping[str, ModelEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
