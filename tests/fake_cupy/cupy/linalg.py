"""NumPy's linear algebra on arrays of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupy._array import compute


def __getattr__(name: str) -> Callable[..., Any]:
    func: Callable[..., Any] = getattr(np.linalg, name)
    if name.startswith("_") or isinstance(func, type):
        raise AttributeError(name)
    return lambda *args, **kwargs: compute(name, func, args, kwargs)
