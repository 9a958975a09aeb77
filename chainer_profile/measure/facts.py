"""What a call's arrays tell of it: shapes, type, bytes; and its work, where there is a formula."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any

import chainer
import numpy as np
from chainer import _backprop_utils

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.warning import warn_user
from chainer_profile.costs.call import dtype_name
from chainer_profile.costs.work import Work
from chainer_profile.measure.windows import Mark
from chainer_profile.record.recording import Shape

#: Frames between the one that runs a sum of gradients and the one that asks for it, at most.
_MOST_BETWEEN = 6
#: The row that adds up gradients of a variable that several functions use.
ACCUMULATION = "gradient_accumulation"


def shapes_of(arrays: Sequence[Any]) -> tuple[Shape, ...]:
    return tuple(tuple(int(n) for n in array.shape) for array in arrays if array is not None)


def dtype_of(arrays: Sequence[Any]) -> str:
    return next((dtype_name(array.dtype) for array in arrays if array is not None), "")


def nbytes_of(arrays: Sequence[Any]) -> int:
    """Bytes of arrays, of each once."""
    once = {id(array): array for array in arrays if array is not None}
    return sum(int(array.nbytes) for array in once.values())


def facts_of_inputs(in_data: Sequence[Any], weights: Collection[int] | None) -> dict[str, Any]:
    """What a call's inputs tell; ``weights`` are a forward call's arrays of parameters, by id."""
    facts: dict[str, Any] = {"input_shapes": shapes_of(in_data)}
    if weights is not None:
        own = [array for array in in_data if id(array) not in weights]
        taken = [array for array in in_data if id(array) in weights]
        facts |= {"input_nbytes": nbytes_of(own), "parameter_nbytes": nbytes_of(taken)}
    return facts


def facts_of_outputs(outputs: Sequence[Any], is_forward: bool) -> dict[str, Any]:
    """What a call's outputs tell."""
    facts: dict[str, Any] = {"output_shapes": shapes_of(outputs), "dtype": dtype_of(outputs)}
    return facts | ({"output_nbytes": nbytes_of(outputs)} if is_forward else {})


def made_nbytes_of(in_data: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Bytes of the outputs that are no views of inputs."""
    return nbytes_of([y for y in outputs if y is not None and not _is_view(y, in_data)])


def _is_view(array: Any, inputs: Sequence[Any]) -> bool:
    """Whether an array lies in the memory of one of these."""
    may_share: Any = getattr(
        chainer.backend.get_array_module(array), "may_share_memory", np.may_share_memory
    )
    return any(given is not None and may_share(array, given) for given in inputs)


def facts_of_gradients(function: Any, out_grad: Sequence[Any]) -> dict[str, Any]:
    """What the gradients tell that a function's backward gets, and those that it is to compute."""
    needed = tuple(node for node in function.inputs if node.requires_grad)
    return {
        "input_shapes": shapes_of(out_grad),
        "output_shapes": shapes_of(needed),
        "dtype": dtype_of(needed),
    }


def facts_of_mark(mark: Mark, params: Sequence[Any]) -> dict[str, Any]:
    """What is known of the arrays of a window that is no function's."""
    if mark.moved is not None:
        return {
            "input_shapes": (mark.moved.shape,),
            "output_shapes": (mark.moved.shape,),
            "dtype": mark.moved.dtype,
            "input_nbytes": mark.moved.nbytes,
        }
    shapes = shapes_of(params)
    return {"input_shapes": shapes, "output_shapes": shapes, "dtype": dtype_of(params)}


def work_by(name: str, formula: Callable[[], Work | None]) -> Work | None:
    """What a formula gives; a user's formula that fails is as good as none."""
    try:
        return formula()
    except Exception as error:
        warn_user(f"the cost formula of {name} failed ({one_line(error)}); it is left out")
        return None


def sums_gradients(frame: FrameType) -> bool:
    """Whether a call, which this frame runs, adds up gradients that several functions give."""
    # Between them are F.add, and whoever stands at the functions' entry.
    caller = frame.f_back
    for _ in range(_MOST_BETWEEN):
        caller = caller and caller.f_back
        if caller is not None and caller.f_code is _backprop_utils._reduce.__code__:
            return True
    return False
