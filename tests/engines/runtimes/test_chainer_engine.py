from __future__ import annotations

import chainer
import numpy as np

from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from tests.engines.exporting import NETWORKS, network_of, outputs_of, prepared


def test_it_is_chainer_itself_and_its_nodes_are_the_layers() -> None:
    net = network_of(NETWORKS["residual"]())
    engine = prepared(ChainerEngine, net)
    assert engine.version == chainer.__version__
    np.testing.assert_array_equal(engine.run(net.inputs), outputs_of(net))
    profile = engine.layers(net.inputs, 2)
    assert profile is not None
    assert [node.layers for node in profile.nodes] == [(i,) for i in range(len(net.layers))]
    assert [node.kind for node in profile.nodes] == [layer.function for layer in net.layers]
    assert (profile.node_ns.sum(axis=1) < profile.run_ns).all()
    assert profile.gone == ()
