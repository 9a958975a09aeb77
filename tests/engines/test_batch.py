"""Exported networks that take any batch."""

import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes.batch import larger_batch, take_any_batch
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests.engines.exporting import (
    NETWORKS,
    assert_close,
    images,
    net,
    network_of,
    outputs_of,
    prepared,
)


def engine_of(model, *inputs):
    network = network_of(model, *inputs, threads=1)
    return prepared(OnnxRuntimeEngine, network), network


FUNCTIONS = {
    "flattened": lambda x: F.reshape(x, (len(x), -1)),
    "merged": lambda x: F.reshape(x, (len(x) * x.shape[1], -1)),
    "broadcast": lambda x: x * F.broadcast_to(F.mean(x, axis=(2, 3), keepdims=True), x.shape),
    "unflattened": lambda x: F.reshape(F.reshape(x, (len(x), -1)), x.shape),
    "transposed": lambda x: F.transpose(x, (1, 0, 2, 3)),
}


def test_any_batch(subtests):
    # 6 is a side of the images, too: a number may stand for either.
    for name in FUNCTIONS:
        for batch in (1, 2, 6):
            with subtests.test(name, batch=batch):
                model = net(lambda net, x, name=name: FUNCTIONS[name](F.relu(x)))
                engine, _ = engine_of(model, images(batch, 4, 6, 6))
                take_any_batch(engine)
                for other in (1, 3, 7):
                    network = network_of(model, images(other, 4, 6, 6))
                    assert_close(engine.run(network.inputs), outputs_of(network))


def test_networks_of_any_batch(subtests):
    labels = np.array([[1, 3], [0, 2]], np.int32)
    embedding = net(lambda net, x: F.reshape(net.embed(x), (len(x), -1)), embed=L.EmbedID(4, 3))
    cases = {name: (make(), ()) for name, make in NETWORKS.items() if name != "grouped"}
    for name, (model, inputs) in {**cases, "labels": (embedding, (labels,))}.items():
        with subtests.test(name):
            engine, network = engine_of(model, *inputs)
            take_any_batch(engine)
            other = larger_batch(larger_batch(network))
            assert len(other.inputs[0]) == 2 + len(network.inputs[0])
            assert_close(engine.run(other.inputs), outputs_of(other), 1e-4)


def tiled(net, x):
    return F.tile(F.mean(x, axis=0, keepdims=True), (len(x), 1, 1, 1))


def test_a_batch_that_is_held_is_refused():
    for model in (net(tiled), NETWORKS["grouped"]()):
        engine, network = engine_of(model)
        with pytest.raises(EngineError):
            take_any_batch(engine)
        # It is as it was.
        assert_close(engine.run(network.inputs), outputs_of(network))
    network = network_of(net(lambda net, a, b: F.matmul(a, b)), images(2, 3), images(3, 3))
    with pytest.raises(EngineError, match="no common batch size"):
        larger_batch(network)
