"""TensorRT as ONNX Runtime gives it: options and refusals, on machines without a GPU."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.protocol import EngineError, Network

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from chainer_profile.engines.tensorrt_engine import CUDA, TENSORRT, TensorRtEngine  # noqa: E402

NETWORK = Network("net", None, (), (), "gpu:1")


class Session:
    """Stands for ONNX Runtime's, which starts without a provider that it cannot load."""

    loaded = (TENSORRT, CUDA, "CPUExecutionProvider")

    def __init__(self, model, options, providers):
        self.tf32 = os.environ.get("NVIDIA_TF32_OVERRIDE")
        self.providers = providers

    def get_providers(self):
        return list(self.loaded)


class Model:
    def SerializeToString(self):  # noqa: N802
        return b""


@pytest.fixture
def installed(monkeypatch):
    """ONNX Runtime and TensorRT as they are on a machine with a GPU."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: list(Session.loaded))
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="10.9.0"))
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)


def session(network=NETWORK):
    engine = TensorRtEngine()
    engine._check(network)
    engine._network = network
    return engine._make_session(Model())


@pytest.mark.parametrize("start", ["prepare", "load"])
def test_without_a_gpu_it_says_what_to_give(start, tmp_path):
    engine = TensorRtEngine()
    words = (tmp_path / "a.onnx",) if start == "load" else ()
    with pytest.raises(EngineError, match=r"^it needs a GPU: give --gpu 0$"):
        getattr(engine, start)(replace(NETWORK, device="cpu"), *words)


def test_without_the_provider_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineError) as error:
        TensorRtEngine().prepare(NETWORK)
    assert str(error.value) == (
        f"ONNX Runtime is installed without its {TENSORRT}: {ENGINES['tensorrt'].install}"
    )


def test_without_tensorrt_itself_it_says_what_to_install(installed, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(EngineError, match=r"TensorRT is .*: python -m pip install"):
        TensorRtEngine().prepare(NETWORK)


def test_a_session_that_goes_on_without_tensorrt_is_refused(installed, monkeypatch):
    monkeypatch.setattr(Session, "loaded", (TENSORRT, CUDA, "CPUExecutionProvider")[1:])
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA])
    with pytest.raises(EngineError, match=f"{TENSORRT} does not start"):
        session()


@pytest.mark.parametrize(
    ("precision", "option", "tf32"),
    [
        ("fp32", {}, "0"),
        ("fp16", {"trt_fp16_enable": "True"}, None),
        ("bf16", {"trt_bf16_enable": "True"}, None),
    ],
)
def test_the_precision_is_tensorrts_option(installed, precision, option, tf32):
    found = session(replace(NETWORK, precision=precision))
    assert found.providers == [
        (TENSORRT, {"device_id": "1"} | option),
        (CUDA, {"device_id": "1", "use_tf32": "0"}),
        "CPUExecutionProvider",
    ]
    assert found.tf32 == tf32
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


def test_what_the_environment_says_of_tf32_is_put_back(installed, monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert session().tf32 == "0"
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "1"


def test_it_is_what_the_catalogue_makes(installed):
    engine = ENGINES["tensorrt"].make()
    assert type(engine) is TensorRtEngine
    assert (engine.name, engine.version) == ("tensorrt", "10.9.0")
    assert not engine.converts_to_half(replace(NETWORK, precision="fp16"))
