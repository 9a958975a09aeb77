"""What a network is, without timing: its layers, parameters, work and memory."""

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
from chainer_profile.record.network import COUNTS, OWN, TEXTS, WORK, ModelSummary
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
            Its state is restored afterwards, and so is all else that is reached from it; see
            :func:`.preserved_state`. Only parameters without an array keep the first that they get.
        shape: Shape of the input, batch included, or of each of several inputs; or the input
            itself, in all forms that :func:`~chainer_profile.profile` takes.
        dtype: Data type of the input, or of each input, if a shape is given. Floats are random and
            integers are 0, which suits indices, such as those of an EmbedID.
        name: Name of the network. Default: the name of its class.

    Returns:
        ModelSummary: Its layers and totals.

    Raises:
        ProfileError: The network fails with such an input, or the input does not fit into memory.
        UsageError: The shape or data type is invalid.
    """
    text("name", name)
    as_given = bool(arrays_in(shape))
    given = Arguments.of(shape if as_given else tuple(_inputs(shape, dtype)))
    with preserved_state(model, given.args, given.kwargs):
        model = as_network(model, given.arrays)
        if not as_given:
            given = Arguments(tuple(map(model.device.send, given.args)), {})
        inputs = given.arrays
        step = ForwardStep(model, given.args, keywords=given.kwargs)
        with chainer.using_device(model.device), step.configured():
            try:
                session = learn_first(step)
            except StepError as error:
                raise error.with_input(inputs[0].shape) from error
        counts, parameter_nbytes, persistent_nbytes = _own_arrays(model)
        table = _layer_table(session, counts, _users(session.layers, model))
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


def _inputs(shape: Any, dtype: str | Sequence[str]) -> list[Any]:
    """The inputs, on the CPU."""
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
        given, inputs = plural(len(dtypes), "data type"), plural(len(shapes), "input")
        raise UsageError(f"{given} given for {inputs}")
    return [_input(part, kind) for part, kind in zip(shapes, dtypes, strict=True)]


def _input(shape: Shape, dtype: Any) -> Any:
    try:
        if dtype is None:  # which NumPy takes for float64
            raise TypeError
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise UsageError(f"unknown data type {dtype!r}: give, say, float32 or int32") from None
    if kind.kind not in "biuf":
        raise UsageError(f"an input cannot be {kind}: give, say, float32 or int32")
    try:
        if kind.kind != "f":
            return np.zeros(shape, kind)
        # Not all the same: a network may divide by a deviation.
        values = np.random.default_rng(0).standard_normal(shape, np.float32)
        return np.asarray(values, kind)
    except (MemoryError, ValueError) as error:
        raise ProfileError(f"an input of {format_shape(shape)} does not fit into memory") from error


def _own_arrays(model: Any) -> tuple[dict[str, dict[str, int]], int, int]:
    """What links have, without those below them, by path; and bytes of all that all of them have.

    What several paths share is with the first.
    """
    counts = {path: dict.fromkeys(OWN, 0) for path, _ in model.namedlinks()}
    parameter_nbytes = persistent_nbytes = 0
    seen: set[int] = set()
    for path, param in model.namedparams(include_uninit=False):
        if id(param) not in seen:
            seen.add(id(param))
            own = counts[link_of(path)]
            own["parameters"] += int(param.size)
            own["trainable"] += int(param.size) if _is_trainable(param) else 0
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


def _users(layers: Sequence[Layer], model: Any) -> dict[str, int]:
    """Of every link's calls the first with one of its parameters, by path; without, the first."""
    shapes: dict[str, set[Shape]] = {}
    for path, param in model.namedparams(include_uninit=False):
        shapes.setdefault(link_of(path), set()).add(tuple(param.shape))
    # L.Linear may reshape its input before it uses its weights.
    first = {layer.path: layer.index for layer in reversed(layers)}
    return first | {
        layer.path: layer.index
        for layer in reversed(layers)
        if not shapes.get(layer.path, set()).isdisjoint(layer.input_shapes)
    }


def _layer_table(
    session: StepSession, own: dict[str, dict[str, int]], users: dict[str, int]
) -> pd.DataFrame:
    left, none = dict(own), dict.fromkeys(OWN, 0)
    rows: list[dict[str, Any]] = [
        {name: getattr(layer, name) for name in (*TEXTS, *WORK)}
        | (left.pop(layer.path, none) if users[layer.path] == layer.index else none)
        | {"nbytes_output": new_nbytes, "approximate": int(layer.work_is_about)}
        for layer, new_nbytes in zip(session.layers, session.new_nbytes, strict=True)
    ]
    uncalled: dict[str, Any] = dict.fromkeys(COUNTS, 0) | {"function": "", "dtype": ""}
    uncalled |= {"input_shapes": (), "output_shapes": ()}
    rows += [
        uncalled | {"path": path} | counts for path, counts in left.items() if any(counts.values())
    ]
    # The same types with any number of rows.
    types = dict.fromkeys(COUNTS, "int64") | dict.fromkeys(WORK, "Int64")
    table = pd.DataFrame(rows, columns=[*TEXTS, *COUNTS], dtype=object).astype(types)
    table.index = pd.RangeIndex(len(rows), name="index")
    return table
