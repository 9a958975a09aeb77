"""Networks for export, and functions that prepare them for engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.engines import equality
from chainer_profile.engines.protocol import Network
from chainer_profile.measure.step_session import learned
from chainer_profile.measure.steps import ForwardStep
from models.resnet import BottleneckBlock
from models.resnet34_relu_bn import ReluBNBlock
from models.se_resnet9_fixup import SEFixupBlock
from tests import nets


def images(*shape: int, seed: int = 0) -> Any:
    """An array of normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network_of(model: Any, *inputs: Any, name: str = "net", **more: Any) -> Network:
    """Make a network for engines, by default with images of 2x8x8."""
    inputs = inputs or (images(2, 8, 8, 8),)
    step = ForwardStep(model, inputs)
    with step.configured():
        step()
        layers = learned(step).layers
    return Network(name, model, inputs, layers, **more)


def prepared(make: Callable[[], Any], network: Network) -> Any:
    """Make an engine and prepare it for a network."""
    engine = make()
    engine.prepare(network)
    return engine


def outputs_of(network: Network) -> tuple[Any, ...]:
    """Outputs that Chainer computes."""
    return equality.outputs_of(network.model, network.inputs)


def assert_close(
    outputs: tuple[Any, ...], expected: tuple[Any, ...], tolerance: float = 1e-5
) -> None:
    assert len(outputs) == len(expected)
    for array, reference in zip(outputs, expected, strict=True):
        assert array.shape == reference.shape
        assert array.dtype == reference.dtype
        finite = np.isfinite(reference)
        np.testing.assert_array_equal(array[~finite], reference[~finite])
        x, y = array[finite].astype("d"), reference[finite].astype("d")
        largest = max(1.0, float(np.abs(y).max(initial=0)))
        assert np.abs(x - y).max(initial=0) <= tolerance * largest


def net(forward: Callable[..., Any], **links: Any) -> Any:
    """Make a network of links and parameters; ``forward`` gets it and Variables."""
    return nets.net(lambda self, *xs: forward(self, *map(chainer.as_variable, xs)), **links)


def normalised(channels: int = 8, **more: Any) -> Any:
    """A batch normalisation with parameters that change its input."""
    return equality.with_other_parameters(L.BatchNormalization(channels, **more))


def convolution(channels: int = 8, **more: Any) -> Any:
    return L.Convolution2D(8, channels, 3, pad=1, **more)


def block(make: Callable[..., Any]) -> Any:
    """A block of our models, from 8 channels to 16 channels of half the size."""
    inner = equality.with_other_parameters(make(8, 16, 2))
    return net(lambda net, x: net.inner(x), inner=inner)


def links(convolutions: int, normalisations: int, **more: Any) -> dict[str, Any]:
    """Links conv1, conv2, ... and bn1, bn2, ..."""
    return {
        **{f"conv{n + 1}": convolution(**more) for n in range(convolutions)},
        **{f"bn{n + 1}": normalised() for n in range(normalisations)},
    }


def residual(net: Any, x: Any) -> Any:
    """Convolution, normalisation, sum and activation, which runtimes fuse."""
    h = F.relu(net.bn1(net.conv1(x)))
    return F.relu(net.bn2(net.conv2(h)) + net.bn3(net.conv3(x)))


def branches(net: Any, x: Any) -> Any:
    """Branches of different depth that are joined."""
    a = F.relu(net.conv1(x))
    b = F.max_pooling_2d(net.bn1(net.conv2(a)), 3, 1, 1)
    h = F.concat((a, b, F.sigmoid(net.conv3(x))))
    h = F.dropout(F.average_pooling_2d(h, 2))
    return F.softmax(net.fc(F.reshape(h, (len(h), -1))))


def twice(net: Any, x: Any) -> Any:
    """A link that is called twice, with a parameter that is also used directly."""
    h = F.relu(net.bn1(net.conv1(x)))
    h = F.tanh(net.bn1(net.conv1(h)))
    return h * F.reshape(net.conv1.b, (1, 8, 1, 1))


def scalars(net: Any, x: Any) -> Any:
    """Scalars instead of normalisations, as in Fixup."""
    h = F.relu(net.conv1(x + net.a) + net.b)
    return net.conv2(h) * net.factor + net.c


SCALARS = {"a": 0, "b": 0, "c": 0, "factor": 1}
NETWORKS: dict[str, Callable[[], Any]] = {
    "scalars without effect": lambda: net(
        scalars, **links(2, 0), **{name: chainer.Parameter(n, (1,)) for name, n in SCALARS.items()}
    ),
    "residual": lambda: net(residual, **links(3, 3, nobias=True)),
    "branches": lambda: net(branches, **links(3, 1), fc=L.Linear(None, 5)),
    "twice": lambda: net(twice, **links(1, 1)),
    "several outputs": lambda: net(
        lambda net, x: {"y": (F.relu(net.a(x)), x), "z": F.sum(net.a(x), axis=(2, 3))},
        a=convolution(),
    ),
    **{
        f"{make.__name__} of our models": partial(block, make)
        for make in (BottleneckBlock, ReluBNBlock, SEFixupBlock)
    },
    "grouped": lambda: net(
        lambda net, x: F.clipped_relu(net.a(x), 1.0) - F.broadcast_to(F.mean(x), x.shape),
        a=convolution(groups=4),
    ),
}
