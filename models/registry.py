"""The networks of ``--model``, by name.

This module imports neither Chainer nor NumPy, so that ``--list-models`` is fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ModelEntry:
    """A network: its description, its input, and its class."""

    name: str  #: The name that a user types, such as ``resnet20``.
    description: str  #: One line for the list of models and for reports.
    #: Usual shape of an input, without the batch. The description names restrictions of the size.
    input_shape: tuple[int, ...]
    #: Number of outputs, the network's argument ``classes``; None for a network of feature maps.
    classes: int | None
    mean: tuple[float, ...]  #: Mean of each channel of images from 0 to 1, for normalisation.
    std: tuple[float, ...]  #: Standard deviation of each channel.
    factory: str  #: The network's class as ``module:Callable``, imported by :meth:`build`.
    kwargs: Mapping[str, Any] = field(default_factory=dict)  #: Arguments of the class.

    def build(self, **overrides: Any) -> Any:
        """Build the network on the CPU with initial weights; ``overrides`` replace kwargs."""
        module, _, attribute = self.factory.partition(":")
        classes = {} if self.classes is None else {"classes": self.classes}
        network = getattr(importlib.import_module(module, __package__), attribute)
        return network(**{**classes, **self.kwargs, **overrides})


_CIFAR = partial(
    ModelEntry,
    input_shape=(3, 32, 32),
    classes=10,
    # The usual statistics of CIFAR-10's 50,000 training images, scaled to 0..1.
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    factory=".resnet_cifar:ResNetCIFAR",
)
_IMAGENET = partial(
    ModelEntry,
    input_shape=(3, 224, 224),
    classes=1000,
    # The usual statistics of ImageNet's training images, scaled to 0..1.
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
#: ResNets for ImageNet, by the suffix of their names: the variant, its description, and for each
#: depth the number of calls and an addition to the description.
_RESNETS: dict[str, tuple[str, str, tuple[tuple[int, int, str], ...]]] = {
    "": (
        "standard",
        "ResNet-{depth} for ImageNet, He et al. 2015: {more} blocks, {calls} calls",
        (
            *((18, 69, "basic"), (34, 125, "basic"), (50, 175, "bottleneck")),
            *((101, 345, "bottleneck"), (152, 515, "bottleneck")),
        ),
    ),
    "-plain": (
        "plain",
        "ResNet-{depth}'s stages with basic blocks (two 3x3), 64 to 512 channels{more}: {calls} "
        "calls",
        ((50, 125, ", resnet34 again"), (101, 244, ""), (152, 363, "")),
    ),
    "-bottleneck": (
        "bottleneck",
        "ResNet-{depth}'s stages with narrow bottleneck blocks, 64 to 512 channels: {calls} calls",
        ((18, 93, ""), (34, 173, ""), (50, 173, ""), (101, 343, ""), (152, 513, "")),
    ),
    "-large": (
        "large",
        "ResNet-{depth}'s stages with ResNet-50's blocks, 256 to 2048 channels{more}: {calls} "
        "calls",
        ((18, 95, ""), (34, 175, ", resnet50 again")),
    ),
}

_ENTRIES = (
    _CIFAR(
        name="resnet20",
        description="ResNet-20 for CIFAR-10 as in the reference report: no identity shortcuts, 66 "
        "calls (He et al.'s network is resnet20-he)",
        kwargs={"depth": 20, "identity_shortcuts": False},
    ),
    *(
        _CIFAR(
            name=f"resnet{depth}-he",
            description=f"ResNet-{depth} for CIFAR-10, He et al. 2015: identity shortcuts, {calls} "
            "calls",
            kwargs={"depth": depth, "identity_shortcuts": True},
        )
        for depth, calls in ((20, 73), (32, 115), (44, 157), (56, 199), (110, 388))
    ),
    *(
        _IMAGENET(
            name=f"resnet{depth}{suffix}",
            description=f"{about.format(depth=depth, calls=calls, more=more)}, any image size",
            factory=".resnet:ResNet",
            kwargs={"depth": depth, "variant": variant},
        )
        for suffix, (variant, about, members) in _RESNETS.items()
        for depth, calls, more in members
    ),
    _IMAGENET(
        name="resnet34-relu-bn",
        description="ResNet-34 of an engine comparison: biases, ReLU before BN, 3x3 shortcuts: "
        "141 calls, 224 x 224 only",
        factory=".resnet34_relu_bn:ResNet34ReluBN",
    ),
    *(
        ModelEntry(
            name=f"se-resnet9-fixup{suffix}",
            description=f"SE-ResNet9 with Fixup for embodied agents, {images}, gives feature maps: "
            "81 calls, sides of any multiple of 4",
            input_shape=(channels, 64, 64),
            classes=None,
            mean=(0.0,) * channels,
            std=(1.0,) * channels,
            factory=".se_resnet9_fixup:SEResNet9Fixup",
            kwargs={"channels": channels},
        )
        for suffix, images, channels in (("", "colour", 3), ("-depth", "depth images", 1))
    ),
)

#: All networks by name, read-only. The first is the default.
REGISTRY: Mapping[str, ModelEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
