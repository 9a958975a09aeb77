"""Networks of ``models/`` in eager PyTorch, as a yardstick for ``benchmarks.accelerate``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from models.resnet import BLOCKS


def network(name: str) -> nn.Module:
    """The network of this name, with random weights.

    Raises:
        KeyError: It is not written for PyTorch.
    """
    return {"resnet20": _resnet20, "resnet50": _resnet50, "se-resnet9-fixup": _SEResNet9}[name]()


def step(name: str, phase: str, x: Any) -> Any:
    """Make the step of a network: a forward pass, or a training step by momentum SGD."""
    model, images = network(name), torch.from_numpy(x)
    if phase == "forward":
        model.eval()

        def forward() -> None:
            with torch.inference_mode():
                model(images)

        return forward
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
    labels = torch.zeros(len(x), dtype=torch.long)

    def train() -> None:
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train


def _convolution(inside: int, outside: int, ksize: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, ksize, stride, ksize // 2, bias=False)


def _normalized(inside: int, outside: int, ksize: int, stride: int = 1) -> list[nn.Module]:
    return [_convolution(inside, outside, ksize, stride), nn.BatchNorm2d(outside)]


class _Block(nn.Module):
    """A path of layers, added to a shortcut if there is one, and ReLU."""

    def __init__(self, path: list[nn.Module], shortcut: nn.Module | None) -> None:
        super().__init__()
        self.path, self.shortcut = nn.Sequential(*path), shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.path(x)
        if self.shortcut is not None:
            h = h + self.shortcut(x)
        return functional.relu(h)


def _resnet20() -> nn.Module:
    """Its blocks of stride 1 have no shortcut, as in ``models``."""
    layers: list[nn.Module] = [*_normalized(3, 16, 3), nn.ReLU()]
    inside = 16
    for outside in (16, 32, 64):
        for _ in range(3):
            stride = 1 if inside == outside else 2
            path = [*_normalized(inside, outside, 3, stride), nn.ReLU()]
            path += _normalized(outside, outside, 3)
            projection = nn.Sequential(*_normalized(inside, outside, 1, stride))
            layers.append(_Block(path, projection if stride == 2 else None))
            inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _resnet50() -> nn.Module:
    layers = [*_normalized(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for number, blocks in enumerate(BLOCKS[50]):
        middle, outside = 64 << number, 256 << number
        for block in range(blocks):
            stride = 2 if block == 0 and number else 1
            path = [*_normalized(inside, middle, 1), nn.ReLU()]
            path += [*_normalized(middle, middle, 3, stride), nn.ReLU()]
            path += _normalized(middle, outside, 1)
            projection = nn.Sequential(*_normalized(inside, outside, 1, stride))
            layers.append(_Block(path, nn.Identity() if inside == outside else projection))
            inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class _SEResNet9(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _convolution(48, 64, 1)
        self.blocks = nn.Sequential(
            *(_SEBlock(max(64, width // 2), width) for width in (64, 128, 256, 512))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(functional.relu(self.conv1(functional.pixel_unshuffle(x, 4))))


class _SEBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        stride = 1 if inside == outside else 2
        self.bias1a, self.bias1b, self.bias2a, self.bias2b, self.scale = (
            nn.Parameter(torch.full((1,), value)) for value in (0.0, 0.0, 0.0, 0.0, 1.0)
        )
        self.conv1 = _convolution(inside, outside, 3, stride)
        self.conv2 = _convolution(outside, outside, 3)
        self.fc1, self.fc2 = nn.Linear(outside, outside // 16), nn.Linear(outside // 16, outside)
        self.shortcut = _convolution(inside, outside, 1) if stride == 2 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        biased = x + self.bias1a
        h = functional.relu(self.conv1(biased) + self.bias1b)
        h = self.conv2(h + self.bias2a) * self.scale + self.bias2b
        weights = functional.relu(self.fc1(h.mean((2, 3))))
        h = h * torch.sigmoid(self.fc2(weights))[:, :, None, None]
        if self.shortcut is not None:
            x = self.shortcut(functional.avg_pool2d(biased, 3, 2, 1))
        return functional.relu(h + x)
