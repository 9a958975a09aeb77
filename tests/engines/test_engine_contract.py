"""What engines that save files and say whose layer each of their nodes is have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import pytest

from chainer_profile.engines.onnx.export import export_model
from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.engines.runtimes.openvino_engine import OpenVinoEngine
from models.registry import REGISTRY
from tests.command import file_size_limit
from tests.engines.exporting import (
    NETWORKS,
    assert_accounts,
    assert_close,
    assert_same_intermediates,
    functions_of,
    images,
    network_of,
    outputs_of,
    prepared,
)

CONVOLUTION = ["Convolution2DFunction", "FixedBatchNormalization"]


@dataclass(frozen=True)
class Kind:
    """An engine, and what of the contract is its own."""

    make: Callable[[], Any]
    #: What its version begins with.
    version: str
    #: Kinds of steps that are no layer's.
    own: frozenset[str]
    #: What it saves.
    files: tuple[str, ...]
    #: Whether it gives the times of every trial, and not of blocks of them.
    trials: bool
    #: Functions of ResNet-20 that are no node's.
    gone: tuple[str, ...]


KINDS = {
    "onnxruntime": Kind(
        OnnxRuntimeEngine,
        onnxruntime.__version__,
        frozenset({"Identity", "ReorderInput", "ReorderOutput"}),
        ("net.onnx",),
        True,
        (),
    ),
    "openvino": Kind(
        OpenVinoEngine,
        openvino.__version__.partition("-")[0],
        frozenset({"Identity", "Reorder"}),
        ("net.xml", "net.bin"),
        False,
        ("Reshape",),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def refusal(action: Callable[..., None], *arguments: Any) -> str:
    with pytest.raises(EngineError) as error:
        action(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_it_is_all_that_an_engine_may_be(kind: Kind) -> None:
    engine = kind.make()
    for name in ("suffix", "save", "load", "intermediates", "serve"):
        assert hasattr(engine, name)
    assert engine.version.startswith(kind.version)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_of_ours(kind: Kind, name: str) -> None:
    network = network_of(NETWORKS[name](), threads=1)
    engine = prepared(kind.make, network)
    assert_close(engine.run(network.inputs), outputs_of(network))
    profile = engine.layers(network.inputs, 3)
    assert_accounts(profile, network, 3 if kind.trials else None)
    # A layer that takes less than the runtime's clock tells is there, too.
    gone = {network.layers[index].function for index in profile.gone}
    assert gone <= {"Reshape", "BroadcastTo"}
    # Changes of layout and copies are the only steps of its own.
    assert {node.kind for node in profile.nodes if not node.layers} <= kind.own
    assert_same_intermediates(engine.intermediates(network.inputs), network)


def test_outputs_stay_when_it_runs_again(kind: Kind) -> None:
    network = network_of(NETWORKS["mlp"]())
    engine = prepared(kind.make, network)
    (first,) = engine.run(network.inputs)
    kept = first.copy()
    (second,) = engine.run((network.inputs[0] * 2,))
    assert (first == kept).all()
    assert (second != kept).any()


def test_inputs_in_another_order_of_memory(kind: Kind) -> None:
    network = network_of(NETWORKS["residual"]())
    (x,) = network.inputs
    (y,) = prepared(kind.make, network).run((np.asfortranarray(x),))
    assert_close((y,), outputs_of(network))


def test_resnet20_layer_by_layer(kind: Kind) -> None:
    entry = REGISTRY["resnet20"]
    network = network_of(entry.build(), images(1, *entry.input_shape), threads=1)
    profile = prepared(kind.make, network).layers(network.inputs, 4)
    assert_accounts(profile, network, 4 if kind.trials else None)
    found = functions_of(profile, network)
    assert found.count([*CONVOLUTION, "ReLU"]) == 17
    assert len(found) == 24 - len(kind.gone)
    # The sum and its activation belong to the convolution that runs last.
    assert found.count([*CONVOLUTION, "Add", "ReLU"]) == 2
    assert [node.layers for node in profile.nodes if 0 in node.layers] == [(0, 1, 2)]
    assert tuple(network.layers[index].function for index in profile.gone) == kind.gone


# Files.


def test_a_saved_engine_is_the_same(kind: Kind, tmp_path: Path) -> None:
    network = network_of(NETWORKS["residual"]())
    engine = prepared(kind.make, network)
    path = tmp_path / kind.files[0]
    engine.save(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kind.files)
    loaded = kind.make()
    loaded.load(network, path)
    for one, other in zip(loaded.run(network.inputs), engine.run(network.inputs), strict=True):
        assert (one == other).all()
    profile = loaded.layers(network.inputs, 2)
    assert_accounts(profile, network, 2 if kind.trials else None)
    assert [*CONVOLUTION, "ReLU"] in functions_of(profile, network)
    assert_same_intermediates(loaded.intermediates(network.inputs), network)


def test_the_weights_are_those_of_the_file(kind: Kind, tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    engine = prepared(kind.make, network)
    expected = engine.run(network.inputs)
    engine.save(tmp_path / kind.files[0])
    network.model.a.W.array[...] = 0
    engine.load(network, tmp_path / kind.files[0])
    assert_close(engine.run(network.inputs), expected)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("branches", (2, 8, 8, 8), "the file is of another network: its layer 1 is"),
        ("residual", (3, 8, 8, 8), "takes inputs of 2x8x8x8, and the network's are 3x8x8x8"),
    ],
)
def test_a_file_of_another_network(
    kind: Kind, name: str, shape: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    path = tmp_path / kind.files[0]
    prepared(kind.make, network_of(NETWORKS["residual"]())).save(path)
    other = network_of(NETWORKS[name](), images(*shape))
    assert message in refusal(kind.make().load, other, path)


def test_missing_and_damaged_files(kind: Kind, tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    path = tmp_path / kind.files[0]
    engine = prepared(kind.make, network)
    engine.save(path)
    for content in (path.read_bytes()[:200], b"something else", b"", b"\x08\x07" * 9):
        path.write_bytes(content)
        assert f"{path} is damaged, or no " in refusal(engine.load, network, path)
    # The one that is named comes last.
    for name in kind.files[::-1]:
        (tmp_path / name).unlink()
        assert refusal(engine.load, network, path) == f"there is no file {tmp_path / name}"
    path.mkdir()
    assert "cannot be read" in refusal(engine.load, network, path)


def test_a_full_disk(kind: Kind, tmp_path: Path) -> None:
    engine = prepared(kind.make, network_of(NETWORKS["residual"]()))
    with file_size_limit(1000), pytest.raises(Exception, match="cannot be written"):
        engine.save(tmp_path / kind.files[0])
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_others_has_no_layers(kind: Kind, tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    model, path = export_model(network), tmp_path / kind.files[0]
    del model.metadata_props[:]
    if path.suffix == ".xml":
        made = openvino.Core().read_model(model.SerializeToString())
        openvino.save_model(made, path, compress_to_fp16=False)
    else:
        path.write_bytes(model.SerializeToString())
    engine = kind.make()
    engine.load(network, path)
    assert_close(engine.run(network.inputs), outputs_of(network))
    profile = engine.layers(network.inputs, 1)
    assert {node.layers for node in profile.nodes} == {()}
    assert len(profile.gone) == len(network.layers)
    assert engine.intermediates(network.inputs) == {}
    wrong = network_of(NETWORKS["mlp"](), images(3, 4))
    assert "takes inputs of 2x8x8x8, and the network's are 3x4" in refusal(engine.load, wrong, path)


def test_several_runs_at_a_time(kind: Kind) -> None:
    network = network_of(NETWORKS["residual"](), threads=1)
    engine = prepared(kind.make, network)
    expected = outputs_of(network)
    make = engine.serve(network.inputs, 7, 2)
    for _ in range(2):
        make()
    # It is as it was.
    assert_close(engine.run(network.inputs), expected)


# What it cannot do.


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("onnxruntime", {"precision": "bf16"}, "no kernels for bfloat16"),
        ("onnxruntime", {"precision": "fp16"}, "it would compute in float32"),
        ("onnxruntime", {"device": "gpu:0"}, "runs on CPUs only"),
        ("openvino", {"device": "gpu:0"}, "runs on CPUs only"),
    ],
)
def test_what_it_cannot_do(name: str, more: dict[str, Any], message: str) -> None:
    network = network_of(NETWORKS["mlp"](), **more)
    assert message in refusal(KINDS[name].make().prepare, network)
    assert message in refusal(KINDS[name].make().load, network, Path("none"))
