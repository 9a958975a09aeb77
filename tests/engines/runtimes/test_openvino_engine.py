"""OpenVINO: what it has besides the contract of all engines."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes import openvino_engine
from chainer_profile.engines.runtimes.openvino_engine import OpenVinoEngine
from tests.engines.exporting import (
    NETWORKS,
    assert_accounts,
    assert_close,
    network_of,
    outputs_of,
    prepared,
)


def test_trials_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(NETWORKS["branches"](), threads=1)
    monkeypatch.setattr(openvino_engine, "_LEAST_BLOCK", 4)
    sizes = []
    block = OpenVinoEngine._block

    def counting(self: Any, inputs: Any, trials: int) -> Any:
        sizes.append(trials)
        return block(self, inputs, trials)

    monkeypatch.setattr(OpenVinoEngine, "_block", counting)
    profile = prepared(OpenVinoEngine, network).layers(network.inputs, 11)
    assert profile is not None
    assert sizes == [6, 5]
    assert_accounts(profile, network, 2)


# Precision.


def test_precision_is_always_stated() -> None:
    network = network_of(NETWORKS["mlp"](), threads=2)
    compiled = prepared(OpenVinoEngine, network)._request.get_compiled_model()
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 2


class FakeCore:
    """OpenVINO on a CPU that can do less."""

    def get_property(self, device: str, name: str) -> list[str]:
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return ["FP32", "INT8"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_that_the_cpu_does_not_have(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_engine, "shared_core", FakeCore)
    network = network_of(NETWORKS["mlp"](), precision=precision)
    with pytest.raises(EngineError, match=f"^it has no {precision} on this CPU: choose fp32$"):
        OpenVinoEngine().prepare(network)


def test_bfloat16_where_the_cpu_has_it() -> None:
    if "BF16" not in openvino_engine.shared_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this CPU has no bfloat16")
    network = network_of(NETWORKS["residual"](), precision="bf16")
    got, expected = prepared(OpenVinoEngine, network).run(network.inputs), outputs_of(network)
    assert_close(got, expected, 5e-2)
    assert np.abs(got[0] - expected[0]).max() > 1e-5 * np.abs(expected[0]).max()


# Files.


def test_damaged_files(tmp_path: Path) -> None:
    network = network_of(NETWORKS["mlp"]())
    path, weights = tmp_path / "net.xml", tmp_path / "net.bin"
    engine = prepared(OpenVinoEngine, network)
    engine.save(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"&quot;layers&quot;", b"&quot;lairs&quot;"))
    with pytest.raises(EngineError, match="what the file says of Chainer's layers is damaged"):
        engine.load(network, path)
    path.write_bytes(content)
    weights.write_bytes(weights.read_bytes()[:9])
    with pytest.raises(EngineError, match=r"net\.xml is damaged, or no model of OpenVINO"):
        engine.load(network, path)


def test_signals_still_arrive_when_engines_are_gone() -> None:
    """OpenVINO takes the stack of signal handlers away with its cores."""
    network = network_of(NETWORKS["mlp"]())
    for _ in range(2):
        engines = [prepared(OpenVinoEngine, network), prepared(OpenVinoEngine, network)]
        engines[0].layers(network.inputs, 1)
        engines[1].intermediates(network.inputs)
        # The first made is the first to go.
        del engines[0]
        gc.collect()
        engines.clear()
        gc.collect()
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
