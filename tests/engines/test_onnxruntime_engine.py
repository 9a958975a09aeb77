"""ONNX Runtime: its numbers, its files, and whose layer each of its nodes is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chainer.functions as F
import onnx
import onnxruntime
import pytest

from chainer_profile.engines import onnxruntime_engine
from chainer_profile.engines.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.engines.protocol import EngineError, Inspecting, Network, Saving, Versioned
from models.registry import REGISTRY
from tests.command import file_size_limit
from tests.engines.exporting import (
    NETWORKS,
    Net,
    assert_accounts,
    assert_close,
    assert_same_intermediates,
    functions_of,
    images,
    network_of,
    outputs_of,
    with_scalars,
)


def prepared(network: Network) -> OnnxRuntimeEngine:
    engine = OnnxRuntimeEngine()
    engine.prepare(network)
    return engine


def test_it_is_all_that_an_engine_may_be() -> None:
    engine = OnnxRuntimeEngine()
    assert isinstance(engine, Versioned)
    assert isinstance(engine, Saving)
    assert isinstance(engine, Inspecting)
    assert engine.version == onnxruntime.__version__


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_of_ours(name: str) -> None:
    network = network_of(NETWORKS[name](), threads=1)
    engine = prepared(network)
    assert_close(engine.run(network.inputs), outputs_of(network))
    profile = engine.layers(network.inputs, 3)
    assert profile is not None
    assert_accounts(profile, network, 3)
    # Changes of layout are the only steps of its own.
    own = {node.kind for node in profile.nodes if not node.layers}
    assert own <= {"Identity", "ReorderInput", "ReorderOutput"}
    assert_same_intermediates(engine.intermediates(network.inputs), network)


def test_outputs_stay_when_it_runs_again() -> None:
    network = network_of(NETWORKS["mlp"]())
    engine = prepared(network)
    (first,) = engine.run(network.inputs)
    kept = first.copy()
    (second,) = engine.run((network.inputs[0] * 2,))
    assert (first == kept).all()
    assert (second != kept).any()


def test_a_residual_block_is_two_or_three_nodes() -> None:
    network = network_of(NETWORKS["residual"]())
    profile = prepared(network).layers(network.inputs, 1)
    assert profile is not None
    found = functions_of(profile, network)
    both = ["Convolution2DFunction", "FixedBatchNormalization"]
    assert [*both, "ReLU"] in found
    assert both in found
    # The sum and its activation belong to the convolution that runs last.
    assert [*both, "Add", "ReLU"] in found
    assert len(found) == 3
    assert profile.gone == ()


def test_resnet20_layer_by_layer() -> None:
    entry = REGISTRY["resnet20"]
    network = network_of(entry.build(), images(1, *entry.input_shape), threads=1)
    profile = prepared(network).layers(network.inputs, 4)
    assert profile is not None
    assert_accounts(profile, network, 4)
    assert profile.gone == ()
    found = functions_of(profile, network)
    assert found.count(["Convolution2DFunction", "FixedBatchNormalization", "ReLU"]) == 17
    fused = ["Convolution2DFunction", "FixedBatchNormalization", "Add", "ReLU"]
    assert found.count(fused) == 2
    assert [node.layers for node in profile.nodes if 0 in node.layers] == [(0, 1, 2)]
    assert len(found) == 24


@pytest.mark.parametrize(("number", "gone"), [(0.0, (2, 5)), (0.25, ())])
def test_scalars_that_do_nothing_are_gone(number: float, gone: tuple[int, ...]) -> None:
    # Those beside the network's input and output stay.
    network = network_of(with_scalars(number))
    profile = prepared(network).layers(network.inputs, 1)
    assert profile is not None
    assert_accounts(profile, network, 1)
    assert profile.gone == gone


def test_trials_are_made_in_parts_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(NETWORKS["branches"]())
    monkeypatch.setattr(onnxruntime_engine, "_MOST_EVENTS", 60)
    sizes = []
    profile_part = OnnxRuntimeEngine._profile

    def counting(self: Any, inputs: Any, trials: int, folder: Path) -> Any:
        sizes.append(trials)
        return profile_part(self, inputs, trials, folder)

    monkeypatch.setattr(OnnxRuntimeEngine, "_profile", counting)
    profile = prepared(network).layers(network.inputs, 10)
    assert profile is not None
    assert_accounts(profile, network, 10)
    assert sum(sizes) == 10
    assert len(sizes) > 3


def event(name: str, kind: str, begin: int, duration: int, index: int = 0) -> dict[str, Any]:
    args = {"op_name": kind, "node_index": str(index)}
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "ts": begin,
        "dur": duration,
        "args": args,
    }


def test_events_are_put_in_order() -> None:
    events = [
        {"cat": "Session", "name": "model_run", "ts": 100, "dur": 50, "args": {}},
        {"cat": "Session", "name": "SequentialExecutor::Execute", "ts": 101, "dur": 40, "args": {}},
        event("b", "Relu", 30, 4),
        event("a", "Conv", 12, 7),
        event("ReorderInput_token_7", "ReorderInput", 11, 1),
        event("ReorderInput", "ReorderInput", 20, 2),
        event("Gemm_9", "Gemm", 102, 9, 9),
        {"cat": "Node", "name": "a_fence_before", "ts": 12, "dur": 0, "args": {"op_name": "Conv"}},
        {"cat": "Session", "name": "model_run", "ts": 10, "dur": 40, "args": {}},
    ]
    assert onnxruntime_engine._runs(events) == [
        (
            {
                ("ReorderInput", "ReorderInput", 0): 1,
                ("a", "Conv", 0): 7,
                ("ReorderInput", "ReorderInput", 1): 2,
                ("b", "Relu", 0): 4,
            },
            40,
        ),
        ({("Gemm", "Gemm", 0): 9}, 50),
    ]


# Files.


def test_a_saved_engine_is_the_same(tmp_path: Path) -> None:
    network = network_of(NETWORKS["residual"]())
    engine = prepared(network)
    path = tmp_path / "net.onnx"
    engine.save(path)
    onnx.checker.check_model(str(path))
    loaded = OnnxRuntimeEngine()
    loaded.load(network, path)
    for one, other in zip(loaded.run(network.inputs), engine.run(network.inputs), strict=True):
        assert (one == other).all()
    profile = loaded.layers(network.inputs, 1)
    assert profile is not None
    assert_accounts(profile, network, 1)
    assert_same_intermediates(loaded.intermediates(network.inputs), network)
    assert list(tmp_path.iterdir()) == [path]


def test_the_weights_are_those_of_the_file(tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    engine = prepared(network)
    expected = engine.run(network.inputs)
    engine.save(tmp_path / "net.onnx")
    network.model.a.W.array[...] = 0
    engine.load(network, tmp_path / "net.onnx")
    assert_close(engine.run(network.inputs), expected)


def test_a_model_of_others_has_no_layers(tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    engine = prepared(network)
    model = engine._model
    del model.metadata_props[:]
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    engine.load(network, tmp_path / "net.onnx")
    assert_close(engine.run(network.inputs), outputs_of(network))
    profile = engine.layers(network.inputs, 1)
    assert profile is not None
    assert {node.layers for node in profile.nodes} == {()}
    assert len(profile.gone) == len(network.layers)
    assert engine.intermediates(network.inputs) == {}


def test_a_full_disk(tmp_path: Path) -> None:
    engine = prepared(network_of(NETWORKS["residual"]()))
    with file_size_limit(1000), pytest.raises(Exception, match=r"net\.onnx: cannot be written"):
        engine.save(tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_onnx_runtime_cannot_compile(tmp_path: Path) -> None:
    network = network_of(Net(lambda net, x: F.relu(x)))
    model = prepared(network)._model
    model.graph.node[0].op_type = "NoSuchThing"
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EngineError, match="ONNX Runtime cannot compile it: ") as error:
        OnnxRuntimeEngine().load(network, tmp_path / "net.onnx")
    assert "\n" not in str(error.value)


# What it cannot do.


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"precision": "bf16"}, "no kernels for bfloat16"),
        ({"precision": "fp16"}, "on a CPU it would compute in float32"),
        (
            {"device": "gpu:0"},
            "without its CUDAExecutionProvider: python -m pip install onnxruntime-gpu",
        ),
    ],
)
def test_what_it_cannot_do(
    more: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = lambda: ["CPUExecutionProvider"]  # noqa: E731
    monkeypatch.setattr(onnxruntime, "get_available_providers", cpu)
    network = network_of(NETWORKS["mlp"](), **more)
    for action in ("prepare", "load"):
        engine = OnnxRuntimeEngine()
        arguments = (network,) if action == "prepare" else (network, Path("none.onnx"))
        with pytest.raises(EngineError, match=message) as error:
            getattr(engine, action)(*arguments)
        assert "\n" not in str(error.value)


def test_a_provider_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = prepared(network_of(NETWORKS["mlp"]()))
    engine._network = network_of(NETWORKS["mlp"](), device="gpu:0")
    make = onnxruntime.InferenceSession
    # Without its libraries ONNX Runtime goes on with the next one.
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda model, options, providers: make(model, options, providers=providers[-1:]),
    )
    with pytest.raises(EngineError, match="CUDAExecutionProvider does not start"):
        engine._make_session(engine._model)


def test_half_precision_keeps_the_types_of_inputs_and_outputs() -> None:
    network = network_of(NETWORKS["residual"]())
    engine = prepared(network)
    model, origin = onnxruntime_engine._half(engine._model, engine._origin)
    assert origin is not None
    assert origin.precision == "fp16"
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (y,) = session.run(None, {"input": network.inputs[0]})
    assert_close((y,), outputs_of(network), 1e-2)
    assert onnxruntime_engine._half(model, origin) == (model, origin)


def test_threads_are_those_asked_for() -> None:
    engine = prepared(network_of(NETWORKS["mlp"](), threads=3))
    options = engine._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
