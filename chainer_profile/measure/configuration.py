"""Chainer's configuration of a run: data type, kernels and cuDNN, as the settings ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np
from chainer.backends import cuda

from chainer_profile.basics.errors import ProfileError
from chainer_profile.kernels.accelerate import accelerate, kernels_now
from chainer_profile.kernels.memory import is_kept, keeping_memory

if TYPE_CHECKING:
    from chainer_profile.record.recording import Settings

NEVER, AUTOTUNE = "never", "autotune"
MIXED16 = "mixed16"


@contextmanager
def configured(settings: Settings) -> Iterator[None]:
    """Within this, networks are built and run as the settings ask for.

    Args:
        settings: Data type, kernels, use of cuDNN and its workspace are taken from here.
    """
    dtype: Any = chainer.mixed16 if settings.dtype == MIXED16 else np.dtype(settings.dtype)
    with ExitStack() as stack:
        stack.enter_context(chainer.using_config("dtype", dtype))
        if settings.fast:
            stack.enter_context(accelerate(settings.fast, threads=settings.threads))
        elif settings.keep_memory:
            stack.enter_context(keeping_memory())
        if settings.cudnn == NEVER:
            stack.enter_context(chainer.using_config("use_cudnn", "never"))
        if settings.cudnn == AUTOTUNE:
            stack.enter_context(chainer.using_config("autotune", True))
        if settings.workspace_nbytes is not None:
            stack.callback(cuda.set_max_workspace_size, cuda.get_max_workspace_size())
            cuda.set_max_workspace_size(settings.workspace_nbytes)
        yield


def dtype_name() -> str:
    """Name of the data type that Chainer is set to now."""
    mixed = chainer.config.dtype is chainer.mixed16
    return MIXED16 if mixed else str(np.dtype(chainer.config.dtype))


def as_now() -> dict[str, Any]:
    """What of the present state is in a run's settings: data type, kernels, memory kept or not."""
    return {"dtype": dtype_name(), "fast": kernels_now(), "keep_memory": is_kept()}


def input_dtype() -> np.dtype[Any]:
    """Data type of inputs that goes with it: ``float16`` for ``mixed16``."""
    dtype: np.dtype[Any] = np.dtype(chainer.get_dtype(map_mixed16=np.float16))
    return dtype


def allow_tf32() -> None:
    """Let CuPy round inputs of float32 matrix products to TF32; it looks once, when imported."""
    os.environ["CUPY_TF32"] = "1"


def require_cudnn(options: list[str]) -> None:
    """Raise unless there is a cuDNN that these options are for.

    Raises:
        ProfileError: Chainer has none here.
    """
    if options and not cuda.cudnn_enabled:
        version = getattr(cuda.cupy, "__version__", "") if cuda.available else ""
        raise ProfileError(
            f"{' and '.join(options)}: CuPy {version} has no cuDNN here, so there is nothing to "
            "set: leave it out, or take CuPy 13.6 with cuDNN 8.9 (see docs/gpu.md)"
        )
