from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.engines.chainer_engine import ChainerEngine
from chainer_profile.engines.equality import chainer_intermediates
from chainer_profile.engines.folded_engine import FoldedEngine
from chainer_profile.engines.protocol import EngineError, Inspecting, Saving, Versioned
from tests.engines.varied import Deciding, Residual, given, images, network, relative, vary

X = images(2, 3, 6, 6)


def test_it_can_all_that_an_engine_may_do() -> None:
    engine = FoldedEngine()
    for protocol in (Versioned, Saving, Inspecting):
        assert isinstance(engine, protocol)
    assert engine.version.startswith("Chainer 7.8.1, NumPy ")


def test_layers_account_for_all_of_chainer_s() -> None:
    model, x = given("resnet20")
    net = network(model, x)
    engine = FoldedEngine()
    engine.prepare(net)
    profile = engine.layers(net.inputs, 3)
    assert profile is not None
    done = [index for node in profile.nodes for index in node.layers]
    assert sorted([*done, *profile.gone]) == list(range(66))
    assert [net.layers[index].function for index in profile.gone] == ["Reshape"]
    assert profile.nodes[1].layers == (0, 1, 2)
    assert profile.nodes[1].kind == "convolution+relu"
    assert profile.node_ns.shape == (3, len(profile.nodes))
    assert (profile.node_ns.sum(axis=1) <= profile.run_ns).all()
    assert (profile.node_ns >= 0).all()


def test_another_precision() -> None:
    net = replace(network(vary(Residual()), X), precision="bf16")
    with pytest.raises(EngineError, match="folds in fp32 only, as NumPy has no fast bf16"):
        FoldedEngine().prepare(net)


def test_calls_that_depend_on_the_data() -> None:
    net = network(Deciding(), np.array([[1, 2, 3, -4]], np.float32))
    with pytest.raises(EngineError, match="calls depend on its data"):
        FoldedEngine().prepare(net)


def test_saved_and_loaded(tmp_path: Path) -> None:
    net = network(vary(Residual()), X)
    engine, other = FoldedEngine(), FoldedEngine()
    engine.prepare(net)
    engine.save(tmp_path / "folded.npz")
    other.load(network(Residual(), X), tmp_path / "folded.npz")
    np.testing.assert_array_equal(engine.run((X,))[0], other.run((X,))[0])


@pytest.mark.parametrize("content", [None, b"no npz"])
def test_a_file_that_is_none(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "folded.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"folded\.npz does not hold this network's weights"):
        FoldedEngine().load(network(Residual(), X), path)


def test_a_file_of_another_network(tmp_path: Path) -> None:
    engine = FoldedEngine()
    engine.prepare(network(*given("se-resnet9-fixup")))
    engine.save(tmp_path / "other.npz")
    with pytest.raises(EngineError, match="does not hold this network's weights"):
        FoldedEngine().load(network(Residual(), X), tmp_path / "other.npz")


@pytest.mark.parametrize("name", ["resnet20", "se-resnet9-fixup"])
def test_intermediates_are_chainer_s(name: str) -> None:
    net = network(*given(name))
    engine = FoldedEngine()
    engine.prepare(net)
    expected = chainer_intermediates(net)
    got = engine.intermediates(net.inputs)
    assert len(got) > 10
    for index, array in got.items():
        assert relative(expected[index], array) < 1e-4, net.layers[index]


def test_runs_give_what_chainer_s_engine_gives() -> None:
    net = network(vary(Residual()), X)
    engines = ChainerEngine(), FoldedEngine()
    for engine in engines:
        engine.prepare(net)
    first, second = (engine.run(net.inputs) for engine in engines)
    assert relative(first[0], second[0]) < 1e-6
