"""Chainer's data type, the accelerated kernels and kept memory, as a run's settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import chainer
import numpy as np

from chainer_profile.kernels.accelerate import accelerate, kernels_now
from chainer_profile.kernels.memory import is_kept, keeping_memory
from chainer_profile.record.recording import Settings

MIXED16 = "mixed16"


@contextmanager
def configured(settings: Settings) -> Iterator[None]:
    """Apply the settings to all networks that are built or run within the context."""
    dtype: Any = chainer.mixed16 if settings.dtype == MIXED16 else np.dtype(settings.dtype)
    with ExitStack() as stack:
        stack.enter_context(chainer.using_config("dtype", dtype))
        if settings.fast:
            stack.enter_context(accelerate(settings.fast, threads=settings.threads))
        elif settings.keep_memory:
            stack.enter_context(keeping_memory())
        yield


def dtype_name() -> str:
    """Name of Chainer's current data type: ``float32``, ``mixed16`` or another."""
    mixed = chainer.config.dtype is chainer.mixed16
    return MIXED16 if mixed else str(np.dtype(chainer.config.dtype))


def current_configuration() -> dict[str, Any]:
    """Current configuration as fields of :class:`Settings`."""
    return {"dtype": dtype_name(), "fast": kernels_now(), "keep_memory": is_kept()}


def input_dtype() -> np.dtype[Any]:
    """Data type of inputs for Chainer's current data type: ``float16`` for ``mixed16``."""
    dtype: np.dtype[Any] = np.dtype(chainer.get_dtype(map_mixed16=np.float16))
    return dtype
