"""The summary of a network without timing: its layers, parameters, work and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chainer
import numpy as np
import pandas as pd

from chainer_profile.basics.checks import text
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.paths import link_of
from chainer_profile.basics.units import format_shape, plural
from chainer_profile.measure.arguments import Arguments, arrays_in, as_network, network_name
from chainer_profile.measure.state import preserved_state
from chainer_profile.measure.step_session import StepError, StepSession
from chainer_profile.measure.steps import ForwardStep, learn_first
from chainer_profile.record.network import COUNTS, LINK_COUNTS, TEXTS, WORK, ModelSummary
from chainer_profile.record.recording import Layer, Shape

_WHOLE = (int, np.integer)


def summary(
    model: Any,
    shape: Any,
    dtype: str | Sequence[str] = "float32",
    *,
    name: str = "",
) -> ModelSummary:
    """Run a network once, in test mode and without timing, and list its layers.

    Args:
        model: The network, a :class:`chainer.Link`, or a function. It runs on its own device.
            Afterwards the network, and every object that is reached from it, has its former state;
            see :func:`.preserved_state`. Only parameters without an array keep the first array that
            they get.
        shape: Shape of the input, including the batch, or a sequence of shapes for several inputs;
            or the input itself, in any form that :func:`~chainer_profile.profile` accepts.
        dtype: Data type of the input, or of each input, if a shape is given. Floats are random.
            Integers are 0, which is a valid index for layers such as EmbedID.
        name: Name of the network. Default: the name of its class.

    Returns:
        ModelSummary: Its layers and totals.

    Raises:
        ProfileError: The network fails with such an input, or the input does not fit into memory.
        UsageError: The shape or data type is invalid.
    """
    text("name", name)
    if arrays_in(shape):
        return summary_of(model, Arguments.from_input(shape), name)
    return summary_of(model, Arguments(tuple(_make_inputs(shape, dtype)), {}), name, sends=True)


def summary_of(
    model: Any, arguments: Arguments, name: str = "", *, sends: bool = False
) -> ModelSummary:
    """The summary of a network with these arguments; see :func:`summary`.

    With ``sends``, the arguments, all by position, are sent to the network's device.
    """
    with preserved_state(model, arguments.args, arguments.kwargs):
        model = as_network(model, arguments.arrays)
        if sends:
            arguments = Arguments(tuple(map(model.device.send, arguments.args)), {})
        inputs = arguments.arrays
        step = ForwardStep(model, arguments.args, keywords=arguments.kwargs)
        with chainer.using_device(model.device), step.configured():
            try:
                session = learn_first(step)
            except StepError as error:
                raise error.with_input(inputs[0].shape) from error
        counts, parameter_nbytes, persistent_nbytes = _count_arrays(model)
        table = _layer_table(session, counts, _calls_with_parameters(session.layers, model))
    return ModelSummary(
        name=name or network_name(model),
        input_shapes=tuple(tuple(map(int, array.shape)) for array in inputs),
        input_dtypes=tuple(str(array.dtype) for array in inputs),
        table=table,
        kinds={link.path: link.kind for link in session.links},
        input_nbytes=sum(map(_nbytes, inputs)),
        parameter_nbytes=parameter_nbytes,
        persistent_nbytes=persistent_nbytes,
    )


def _nbytes(array: Any) -> int:
    return int(array.size) * int(np.dtype(array.dtype).itemsize)


def _make_inputs(shape: Any, dtype: str | Sequence[str]) -> list[Any]:
    """Make an input for the shape, or for each of several shapes, on the CPU.

    Raises:
        UsageError: A shape or data type is invalid.
    """
    try:
        parts = [shape] if all(isinstance(n, _WHOLE) for n in shape) else shape
        shapes = [tuple(part) for part in parts]
    except TypeError:
        shapes = [(-1,)]
    numbers = [n for part in shapes for n in part]
    if not all(isinstance(n, _WHOLE) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise UsageError(
            f"not a shape: {shape!r}; give integers including the batch, such as (1, 3, 32, 32)"
        )
    dtypes = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(shapes)
    if len(dtypes) != len(shapes):
        n_dtypes, n_inputs = plural(len(dtypes), "data type"), plural(len(shapes), "input")
        raise UsageError(f"{n_dtypes} given for {n_inputs}")
    return [_make_input(part, kind) for part, kind in zip(shapes, dtypes, strict=True)]


def _make_input(shape: Shape, dtype: Any) -> Any:
    """Make an array of random floats, or of zeros of another type."""
    try:
        if dtype is None:  # NumPy would use float64
            raise TypeError
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise UsageError(f"unknown data type {dtype!r}: give, say, float32 or int32") from None
    if kind.kind not in "biuf":
        raise UsageError(f"an input cannot be {kind}: give, say, float32 or int32")
    try:
        if kind.kind != "f":
            return np.zeros(shape, kind)
        # Equal values would make networks fail that divide by a standard deviation.
        values = np.random.default_rng(0).standard_normal(shape, np.float32)
        return np.asarray(values, kind)
    except (MemoryError, ValueError) as error:
        raise ProfileError(f"an input of {format_shape(shape)} does not fit into memory") from error


def _count_arrays(model: Any) -> tuple[dict[str, dict[str, int]], int, int]:
    """Count the elements of each link's arrays, without its child links.

    Returns the :data:`LINK_COUNTS` by path, and the bytes of all parameters and of all persistent
    arrays. An array that several paths share counts for the first path.
    """
    counts = {path: dict.fromkeys(LINK_COUNTS, 0) for path, _ in model.namedlinks()}
    parameter_nbytes = persistent_nbytes = 0
    seen: set[int] = set()
    for path, param in model.namedparams(include_uninit=False):
        if id(param) not in seen:
            seen.add(id(param))
            of_link = counts[link_of(path)]
            of_link["parameters"] += int(param.size)
            of_link["trainable"] += int(param.size) if _is_trainable(param) else 0
            parameter_nbytes += _nbytes(param.array)
    for path, link in model.namedlinks():
        for value in (getattr(link, name, None) for name in link._persistent):
            if isinstance(value, chainer.get_array_types()) and id(value) not in seen:
                seen.add(id(value))
                counts[path]["persistent"] += int(value.size)
                persistent_nbytes += _nbytes(value)
    return counts, parameter_nbytes, persistent_nbytes


def _is_trainable(param: Any) -> bool:
    rule = param.update_rule
    return bool(param.requires_grad) and (rule is None or bool(rule.enabled))


def _calls_with_parameters(layers: Sequence[Layer], model: Any) -> dict[str, int]:
    """Index of the call that uses each link's parameters, by path.

    This is the first call with an input in the shape of a parameter, or else the first call.
    """
    shapes: dict[str, set[Shape]] = {}
    for path, param in model.namedparams(include_uninit=False):
        shapes.setdefault(link_of(path), set()).add(tuple(param.shape))
    # The first call may not use parameters: L.Linear may reshape its input before.
    first = {layer.path: layer.index for layer in reversed(layers)}
    return first | {
        layer.path: layer.index
        for layer in reversed(layers)
        if not shapes.get(layer.path, set()).isdisjoint(layer.input_shapes)
    }


def _layer_table(
    session: StepSession, counts_by_path: dict[str, dict[str, int]], users: dict[str, int]
) -> pd.DataFrame:
    """Make a table with a row for each call, and for each link with arrays that was not called.

    ``users`` has the index of the call that shows the counts of its link, by path.
    """
    remaining, none = dict(counts_by_path), dict.fromkeys(LINK_COUNTS, 0)
    rows: list[dict[str, Any]] = [
        {name: getattr(layer, name) for name in (*TEXTS, *WORK)}
        | (remaining.pop(layer.path, none) if users[layer.path] == layer.index else none)
        | {"nbytes_output": new_nbytes, "approximate": int(layer.work_is_about)}
        for layer, new_nbytes in zip(session.layers, session.new_nbytes, strict=True)
    ]
    uncalled: dict[str, Any] = dict.fromkeys(COUNTS, 0) | {"function": "", "dtype": ""}
    uncalled |= {"input_shapes": (), "output_shapes": ()}
    rows += [
        uncalled | {"path": path} | counts
        for path, counts in remaining.items()
        if any(counts.values())
    ]
    # The columns have these types even if there are no rows.
    types = dict.fromkeys(COUNTS, "int64") | dict.fromkeys(WORK, "Int64")
    table = pd.DataFrame(rows, columns=[*TEXTS, *COUNTS], dtype=object).astype(types)
    table.index = pd.RangeIndex(len(rows), name="index")
    return table
