"""Networks with parameters that are nowhere 0 or 1, so that nothing cancels out by luck."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from models import REGISTRY


def vary(model: Any, seed: int = 1) -> Any:
    """Give a network such parameters; scalars, normalisations and biases too."""
    rng = np.random.default_rng(seed)
    for _, parameter in sorted(model.namedparams()):
        array = parameter.array
        if array.ndim > 1:
            fan_in = array[0].size
            array[...] = rng.normal(0, np.sqrt(2 / fan_in), array.shape)
        else:
            array[...] = rng.uniform(0.5, 1.5, array.shape) * rng.choice((-1, 1), array.shape)
    for link in model.links():
        if isinstance(link, L.BatchNormalization):
            link.avg_mean[...] = rng.normal(0, 0.3, link.avg_mean.shape)
            link.avg_var[...] = rng.uniform(0.5, 1.5, link.avg_var.shape)
            link.gamma.array[...] = abs(link.gamma.array)
    return model


def given(name: str, batch: int = 1, side: int = 32) -> tuple[Any, Any]:
    """A network of the registry, and an input for it that is as small as it takes."""
    entry = REGISTRY[name]
    channels, height, _ = entry.input_shape
    side = height if name == "resnet34-relu-bn" or height < side else side
    rng = np.random.default_rng(2)
    x = rng.standard_normal((batch, channels, side, side)).astype(np.float32)
    return vary(entry.build()), x


def output(model: Any, *inputs: Any) -> Any:
    """What a network gives in test mode."""
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(*inputs)


class Residual(chainer.Chain):
    """Convolution, normalisation, ReLU; a sum with what came before; a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 4, 3, pad=1, nobias=True)
            self.bn1 = L.BatchNormalization(4)
            self.conv2 = L.Convolution2D(4, 4, 3, pad=1)
            self.bn2 = L.BatchNormalization(4)
            self.fc = L.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)) + h)
        return self.fc(F.reshape(F.average_pooling_2d(h, h.shape[2:]), (len(h), -1)))


class Deciding(chainer.Chain):
    """Takes one of two ways by the first number of its input."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        h = self.fc(x)
        return F.relu(h) if x[0, 0] > 0 else F.sigmoid(h)
