from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.engines.equality import chainer_intermediates
from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from chainer_profile.engines.runtimes.folded_engine import FoldedEngine
from tests.engines.varied import Deciding, Residual, given, images, network, relative, vary

X = images(2, 3, 6, 6)


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


def test_calls_that_depend_on_the_data() -> None:
    net = network(Deciding(), np.array([[1, 2, 3, -4]], np.float32))
    with pytest.raises(EngineError, match="calls depend on its data"):
        FoldedEngine().prepare(net)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no weights file .*folded"), (b"no npz", r"folded\.npz is not an npz file")],
)
def test_a_file_that_is_none(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "folded.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=message):
        FoldedEngine().load(network(Residual(), X), path)


class Armed:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)

    def __init__(self, path: Path) -> None:
        self.path = path


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    engine = FoldedEngine()
    net = network(vary(Residual()), X)
    engine.prepare(net)
    engine.save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as good:
        arrays = dict(good)
    arrays["bn1/N"] = np.array(Armed(tmp_path / "ran"), object)
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(EngineError, match=r"bad\.npz"):
        FoldedEngine().load(net, tmp_path / "bad.npz")
    assert not (tmp_path / "ran").exists()


def test_a_linear_layer_on_images_keeps_the_times_of_layers() -> None:
    net = network(chainer.Sequential(L.Linear(108, 4), F.relu, L.Linear(4, 2)), X)
    engine = FoldedEngine()
    engine.prepare(net)
    profile = engine.layers(net.inputs, 3)
    assert profile is not None
    assert [node.layers for node in profile.nodes if node.layers] == [(0, 1), (2,)]
    assert set(engine.intermediates(net.inputs)) == {1, 2}


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


def test_its_copy_holds_no_gradients_and_the_network_keeps_its_own() -> None:
    model = Residual()
    engine = FoldedEngine()
    engine.prepare(network(model, X))
    assert all(param.grad is None for param in engine._model.params())
    assert all(param.grad is not None for param in model.params())
