"""What a call's arrays tell of it: shapes, type, bytes; and its work, where there is a formula."""

from __future__ import annotations

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


def sums_gradients(frame: FrameType) -> bool:
    """Whether a call adds up gradients of a variable that several functions use.

    Args:
        frame: What runs the call: Chainer adds by a function that is called for that.
    """
    caller = frame.f_back and frame.f_back.f_back
    return caller is not None and caller.f_code is _backprop_utils._reduce.__code__
