"""The engines that come with the profiler, and how to get those that are not installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainer_profile.engines.protocol import Engine

#: The one that all others are compared with.
BASELINE = "chainer"


@dataclass(frozen=True)
class EngineEntry:
    """One engine.

    Attributes:
        name: What a user types.
        description: One line for lists.
        factory: Its class, as ``module:Class``.
        needs: Modules without which it cannot run.
        install: The command that installs them.
        gpu: Whether it runs on a GPU only.
    """

    name: str
    description: str
    factory: str
    needs: tuple[str, ...] = ()
    install: str = ""
    gpu: bool = False

    def missing(self) -> tuple[str, ...]:
        """Those of the modules that are not installed."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)

    def make(self) -> Engine:
        """The engine, not yet prepared."""
        module, _, name = self.factory.partition(":")
        engine: Engine = getattr(importlib.import_module(module), name)()
        return engine


_HERE = "chainer_profile.engines"
_ENTRIES = (
    EngineEntry(
        BASELINE,
        "Chainer as it is: what the others are compared with",
        f"{_HERE}.chainer_engine:ChainerEngine",
    ),
    EngineEntry(
        "folded",
        "Chainer and NumPy alone: normalisations folded into convolutions, memory used again",
        f"{_HERE}.folded_engine:FoldedEngine",
    ),
    EngineEntry(
        "onnxruntime",
        "ONNX Runtime; on a GPU its CUDA provider",
        f"{_HERE}.onnxruntime_engine:OnnxRuntimeEngine",
        ("onnx", "onnxruntime"),
        "python -m pip install onnx onnxruntime",
    ),
    EngineEntry(
        "openvino",
        "OpenVINO, on Intel's and other CPUs",
        f"{_HERE}.openvino_engine:OpenVinoEngine",
        ("onnx", "openvino"),
        "python -m pip install onnx openvino",
    ),
    EngineEntry(
        "cuda-graph",
        "Chainer's own kernels, captured once as a CUDA graph and replayed",
        f"{_HERE}.cuda_graph_engine:CudaGraphEngine",
        ("cupy",),
        "python -m pip install -r requirements-gpu.txt",
        gpu=True,
    ),
    EngineEntry(
        "tensorrt",
        "TensorRT, through ONNX Runtime's provider",
        f"{_HERE}.tensorrt_engine:TensorRtEngine",
        ("onnx", "onnxruntime", "tensorrt"),
        "python -m pip install onnx onnxruntime-gpu tensorrt-cu12",
        gpu=True,
    ),
)

#: Every engine by its name, read-only, in the order of tables.
ENGINES: Mapping[str, EngineEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
