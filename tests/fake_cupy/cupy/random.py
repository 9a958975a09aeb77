"""NumPy's global generator, which draws on the host; the values are moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupy._array import array

seed = np.random.seed


def __getattr__(name: str) -> Callable[..., Any]:
    draw: Callable[..., Any] = getattr(np.random, name)
    if name.startswith("_") or isinstance(draw, type):
        raise AttributeError(name)

    def moved(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return array(draw(*args, **kwargs), dtype)

    return moved
