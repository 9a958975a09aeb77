from __future__ import annotations

import chainer
import numpy as np

from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from tests.engines.exporting import images, network_of
from tests.engines.varied import Residual, output, vary


def test_it_is_chainer_itself() -> None:
    model, x = vary(Residual()), images(2, 3, 6, 6)
    net = network_of(model, x)
    engine = ChainerEngine()
    assert engine.version == chainer.__version__
    engine.prepare(net)
    (got,) = engine.run((x,))
    np.testing.assert_array_equal(got, output(model, x).array)


def test_its_nodes_are_the_layers() -> None:
    net = network_of(vary(Residual()), images(2, 3, 6, 6))
    engine = ChainerEngine()
    engine.prepare(net)
    profile = engine.layers(net.inputs, 2)
    assert profile is not None
    assert [node.layers for node in profile.nodes] == [(i,) for i in range(len(net.layers))]
    assert [node.kind for node in profile.nodes] == [layer.function for layer in net.layers]
    assert (profile.node_ns.sum(axis=1) < profile.run_ns).all()
    assert profile.gone == ()
