"""The network under TensorRT, which ONNX Runtime hands as much of it to as TensorRT takes."""

from __future__ import annotations

import importlib
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.engines.protocol import EngineError, Network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TENSORRT, CUDA = "TensorrtExecutionProvider", "CUDAExecutionProvider"
_NO_TF32 = "NVIDIA_TF32_OVERRIDE"
#: Options by which TensorRT may compute in less than float32.
_PRECISIONS = {"fp16": "trt_fp16_enable", "bf16": "trt_bf16_enable"}


class TensorRtEngine(OnnxRuntimeEngine):
    """TensorRT through ONNX Runtime; what it does not take, the CUDA provider does.

    In float32 neither rounds the inputs of products to TF32, which they would do by themselves. In
    another precision the model stays as it is, and TensorRT chooses where to compute in it.
    """

    name = "tensorrt"
    gpu_providers = (TENSORRT, CUDA)
    gpu_install = ENGINES["tensorrt"].install

    @property
    def version(self) -> str:
        """Version of TensorRT."""
        return str(_tensorrt().__version__)

    def prepare(self, network: Network) -> None:
        """Export the network and compile it, which takes a minute for a large one.

        Raises:
            EngineError: It is not on a GPU, it cannot be exported, or TensorRT is not there.
        """
        _check_gpu(network)
        super().prepare(network)

    def load(self, network: Network, path: Path) -> None:
        """Make the engine ready from an ONNX file, which is compiled anew.

        Raises:
            EngineError: The network is not on a GPU, or the file is not for it.
        """
        _check_gpu(network)
        super().load(network, path)

    def converts_to_half(self, network: Network) -> bool:
        """TensorRT chooses where to compute in float16."""
        return False

    def provider_options(self, provider: str, network: Network) -> dict[str, str]:
        """Options of one of the two providers."""
        options = super().provider_options(provider, network)
        if provider != CUDA and network.precision in _PRECISIONS:
            options[_PRECISIONS[network.precision]] = "True"
        return options

    def _check(self, network: Network) -> None:
        # What ONNX Runtime's own kernels do not compute in is no matter.
        super()._check(replace(network, precision="fp32"))
        # Its libraries are found once they are in the process.
        _tensorrt()

    def _make_session(self, model: Any, options: Any = None) -> Any:
        with _without_tf32() if self._known.precision == "fp32" else nullcontext():
            return super()._make_session(model, options)


def _check_gpu(network: Network) -> None:
    if not network.gpu:
        raise EngineError("it needs a GPU: give --gpu 0")


def _tensorrt() -> Any:
    """The module; importing it loads TensorRT's libraries.

    Raises:
        EngineError: It is not installed, or broken.
    """
    try:
        return importlib.import_module("tensorrt")
    except ImportError as error:
        problem = "is not installed" if isinstance(error, ModuleNotFoundError) else "is broken"
        raise EngineError(
            f"TensorRT {problem} ({one_line(error)}): {TensorRtEngine.gpu_install}"
        ) from error


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Within this, what is compiled keeps float32: ONNX Runtime has no option for it."""
    before = os.environ.get(_NO_TF32)
    os.environ[_NO_TF32] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_TF32]
        else:
            os.environ[_NO_TF32] = before
