"""What a call's arrays tell of it: shapes, type, bytes; and its work, where there is a formula."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from chainer import _backprop_utils

from chainer_profile.basics.errors import one_line
from chainer_profile.costs.call import dtype_name
from chainer_profile.costs.work import Work
from chainer_profile.record.recording import Shape

#: The row that adds up gradients of a variable that several functions use.
ACCUMULATION = "gradient_accumulation"


def shapes_of(arrays: Sequence[Any]) -> tuple[Shape, ...]:
    """Shapes of the arrays that are there."""
    return tuple(tuple(int(n) for n in array.shape) for array in arrays if array is not None)


def dtype_of(arrays: Sequence[Any]) -> str:
    """Data type of the first array that is there."""
    return next((dtype_name(array.dtype) for array in arrays if array is not None), "")


def nbytes_of(arrays: Sequence[Any]) -> int:
    """Bytes of arrays, of each once."""
    once = {id(array): array for array in arrays if array is not None}
    return sum(int(array.nbytes) for array in once.values())


def work_by(name: str, formula: Callable[[], Work | None]) -> Work | None:
    """What a formula gives; a user's formula that fails is as good as none."""
    try:
        return formula()
    except Exception as error:
        warnings.warn(
            f"the cost formula of {name} fails ({one_line(error)}): it is left out",
            stacklevel=2,
        )
        return None


def accumulates_gradients() -> bool:
    """Whether the running function adds up gradients of a variable that several functions use."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None or frame.f_code is _backprop_utils.backprop_step.__code__:
            return False
        if frame.f_code is _backprop_utils._reduce.__code__:
            return True
        frame = frame.f_back
    return False
