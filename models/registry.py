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
        input_shape: Shape of one input without the batch, such as ``(3, 32, 32)``.
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
        return getattr(importlib.import_module(module), attribute)(**arguments)


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
        factory="models.resnet_cifar:ResNetCIFAR",
        kwargs=MappingProxyType({"depth": depth, "identity_shortcuts": identity_shortcuts}),
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
)

#: Every network by its name, read-only; the first is the default.
REGISTRY: Mapping[str, ModelEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
