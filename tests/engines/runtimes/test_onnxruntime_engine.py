"""ONNX Runtime: what it has besides the contract of all engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chainer.functions as F
import pytest

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes import onnxruntime_engine
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests.engines.exporting import (
    NETWORKS,
    Net,
    assert_accounts,
    functions_of,
    network_of,
    prepared,
    with_scalars,
)


def test_a_residual_block_is_two_or_three_nodes() -> None:
    network = network_of(NETWORKS["residual"]())
    profile = prepared(OnnxRuntimeEngine, network).layers(network.inputs, 1)
    assert profile is not None
    found = functions_of(profile, network)
    both = ["Convolution2DFunction", "FixedBatchNormalization"]
    assert [*both, "ReLU"] in found
    assert both in found
    # The sum and its activation belong to the convolution that runs last.
    assert [*both, "Add", "ReLU"] in found
    assert len(found) == 3
    assert profile.gone == ()


@pytest.mark.parametrize(("number", "gone"), [(0.0, (2, 5)), (0.25, ())])
def test_scalars_that_do_nothing_are_gone(number: float, gone: tuple[int, ...]) -> None:
    # Those beside the network's input and output stay.
    network = network_of(with_scalars(number))
    profile = prepared(OnnxRuntimeEngine, network).layers(network.inputs, 1)
    assert profile is not None
    assert_accounts(profile, network, 1)
    assert profile.gone == gone


def test_trials_are_made_in_parts_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(NETWORKS["branches"]())
    monkeypatch.setattr(onnxruntime_engine, "_MOST_EVENTS", 60)
    sizes = []
    profile_part = OnnxRuntimeEngine._timed_runs

    def counting(self: Any, inputs: Any, trials: int, folder: Path) -> Any:
        sizes.append(trials)
        return profile_part(self, inputs, trials, folder)

    monkeypatch.setattr(OnnxRuntimeEngine, "_timed_runs", counting)
    profile = prepared(OnnxRuntimeEngine, network).layers(network.inputs, 10)
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


def test_a_file_that_onnx_runtime_cannot_compile(tmp_path: Path) -> None:
    network = network_of(Net(lambda net, x: F.relu(x)))
    model = prepared(OnnxRuntimeEngine, network).model
    model.graph.node[0].op_type = "NoSuchThing"
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EngineError, match="ONNX Runtime cannot compile it: ") as error:
        OnnxRuntimeEngine().load(network, tmp_path / "net.onnx")
    assert "\n" not in str(error.value)


def test_threads_are_those_asked_for() -> None:
    engine = prepared(OnnxRuntimeEngine, network_of(NETWORKS["mlp"](), threads=3))
    options = engine._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
