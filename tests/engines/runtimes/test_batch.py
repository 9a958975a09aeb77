from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes.batch import larger_batch, take_any_batch
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests.engines.exporting import (
    NETWORKS,
    Net,
    assert_close,
    given,
    images,
    network_of,
    outputs_of,
    prepared,
)


def engine_of(model: Any, *inputs: Any) -> tuple[OnnxRuntimeEngine, Any]:
    network = network_of(model, *inputs, threads=1)
    return prepared(OnnxRuntimeEngine, network), network


FUNCTIONS = {
    "flattened": lambda x: F.reshape(x, (len(x), -1)),
    "merged": lambda x: F.reshape(x, (len(x) * x.shape[1], -1)),
    "broadcast": lambda x: x * F.broadcast_to(F.mean(x, axis=(2, 3), keepdims=True), x.shape),
    "unflattened": lambda x: F.reshape(F.reshape(x, (len(x), -1)), x.shape),
    "transposed": lambda x: F.transpose(x, (1, 0, 2, 3)),
}


@pytest.mark.parametrize("batch", [1, 2, 6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_batch(name: str, batch: int) -> None:
    # 6 is a side of the images, too: a number may stand for either.
    model = Net(lambda net, x: FUNCTIONS[name](F.relu(x)))
    engine, _ = engine_of(model, images(batch, 4, 6, 6))
    take_any_batch(engine)
    for other in (1, 3, 7):
        network = network_of(model, images(other, 4, 6, 6))
        assert_close(engine.run(network.inputs), outputs_of(network))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "grouped"])
def test_networks_of_any_batch(name: str) -> None:
    engine, network = engine_of(NETWORKS[name]())
    take_any_batch(engine)
    other = larger_batch(larger_batch(network))
    assert_close(engine.run(other.inputs), outputs_of(other), 1e-4)


def test_a_network_of_the_registry() -> None:
    model, x = given("resnet20")
    engine, network = engine_of(model, x)
    take_any_batch(engine)
    other = larger_batch(network)
    assert other.inputs[0].shape == (2, 3, 32, 32)
    assert_close(engine.run(other.inputs), outputs_of(other), 1e-4)


def tiled(net: Any, x: Any) -> Any:
    return F.tile(F.mean(x, axis=0, keepdims=True), (len(x), 1, 1, 1))


@pytest.mark.parametrize("make", [lambda: Net(tiled), NETWORKS["grouped"]])
def test_a_batch_that_is_held_is_refused(make: Any) -> None:
    engine, network = engine_of(make())
    with pytest.raises(EngineError):
        take_any_batch(engine)
    # It is as it was.
    assert_close(engine.run(network.inputs), outputs_of(network))


def test_inputs_of_several_sizes() -> None:
    network = network_of(Net(lambda net, a, b: F.matmul(a, b)), images(2, 3), images(3, 3))
    with pytest.raises(EngineError, match="not of one batch"):
        larger_batch(network)


def test_labels_stay_labels() -> None:
    class Labelled(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.embed = L.EmbedID(4, 3)

        def forward(self, x: Any) -> Any:
            return F.reshape(self.embed(x), (len(x), -1))

    engine, network = engine_of(Labelled(), np.array([[1, 3], [0, 2]], np.int32))
    take_any_batch(engine)
    other = larger_batch(network)
    assert_close(engine.run(other.inputs), outputs_of(other))
