"""What a network is, without timing: its layers, parameters, work and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np
import pandas as pd

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.units import format_shape
from chainer_profile.measure.arguments import Arguments, arrays_in, as_network, network_name
from chainer_profile.measure.facts import sums_gradients
from chainer_profile.measure.hooks import WalkHook
from chainer_profile.measure.learner import StructureError
from chainer_profile.measure.steps import ForwardStep, learn_first
from chainer_profile.record.network import COUNTS, OWN, TEXTS, WORK, ModelSummary
from chainer_profile.record.recording import Shape

if TYPE_CHECKING:
    from types import FrameType

    from chainer_profile.record.recording import Layer

_WHOLE = (int, np.integer)


def summary(
    model: Any,
    shape: Any,
    dtype: str | Sequence[str] = "float32",
    *,
    name: str = "",
) -> ModelSummary:
    """Run a network once, in test mode and without timing, and say what it consists of.

    Args:
        model: The network, a :class:`chainer.Link`, or a function. It is run where it is;
            parameters that get their shape at the first call have it afterwards, and so has the
            state of a link such as LSTM.
        shape: Shape of its input, batch included, or of each of several inputs; or the input
            itself, in all forms that :func:`~chainer_profile.profile` takes.
        dtype: Data type of the input, or of each, where a shape is given. Floats are random,
            integers are 0: right for indices, such as of an EmbedID.
        name: Name of the network; by default that of its class.

    Returns:
        ModelSummary: Its layers and totals.

    Raises:
        ProfileError: The network fails with such an input, or this does not fit into memory.
        UsageError: This is no shape or data type.
    """
    as_given = bool(arrays_in(shape))
    given = Arguments.of(shape if as_given else tuple(_inputs(shape, dtype)))
    model = as_network(model, given.arrays)
    if not as_given:
        given = Arguments(tuple(map(model.device.send, given.args)), {})
    inputs = given.arrays
    step = _NotingStep(model, given)
    with chainer.using_device(model.device), step.configured():
        try:
            structure = learn_first(step)
        except StructureError as error:
            raise error.with_input(inputs[0].shape) from error
    links = _own_arrays(model)
    owned = [own.nbytes for own in links.values()]
    return ModelSummary(
        name=name or network_name(model),
        input_shapes=tuple(tuple(map(int, array.shape)) for array in inputs),
        input_dtypes=tuple(str(array.dtype) for array in inputs),
        table=_layer_table(structure.layers, step.outputs, links),
        kinds={link.path: link.kind for link in structure.links},
        input_nbytes=sum(map(_nbytes, inputs)),
        parameter_nbytes=sum(parameters for parameters, _ in owned),
        persistent_nbytes=sum(persistent for _, persistent in owned),
    )


# -- the pass


def _nbytes(array: Any) -> int:
    return int(array.size) * int(np.dtype(array.dtype).itemsize)


class _Outputs:
    """Notes the bytes of every function's outputs, in the order of the rows of the structure pass.

    A view has none of its own. What a backward calls, and what adds up gradients, is not noted.
    """

    def __init__(self) -> None:
        self.outputs: list[list[int]] = []
        # Of what runs, where its outputs are noted; None of a backward.
        self._running: list[list[int] | None] = []
        self.hook = WalkHook(self._begin, self._end)

    def _begin(self, function: Any, in_data: Any, backward: bool, frame: FrameType) -> None:
        noted: list[int] | None = None if backward else []
        if noted is not None and None not in self._running and not sums_gradients(frame):
            self.outputs.append(noted)
        self._running.append(noted)

    def _end(self, function: Any, in_data: tuple[Any, ...], outputs: Any, *_: Any) -> None:
        noted = self._running.pop()
        if noted is not None:
            # What is called within another function is gone, or is that one's output.
            owns = not any(one is not None for one in self._running)
            noted.extend(
                _nbytes(array)
                for array in outputs
                if owns and array is not None and not _is_view(array, in_data)
            )


class _NotingStep(ForwardStep):
    """The forward pass, with all outputs noted."""

    def __init__(self, model: Any, given: Arguments) -> None:
        super().__init__(model, given.args, keywords=given.kwargs)
        self.outputs: list[list[int]] = []

    def __call__(self) -> Any:
        noted = _Outputs()
        self.outputs = noted.outputs
        with noted.hook:
            return super().__call__()


def _is_view(array: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether an array lies in the memory of one of these."""
    may_share: Any = getattr(
        chainer.backend.get_array_module(array), "may_share_memory", np.may_share_memory
    )
    return any(given is not None and may_share(array, given) for given in inputs)


def _inputs(shape: Any, dtype: str | Sequence[str]) -> list[Any]:
    """The inputs, on the CPU."""
    try:
        parts = [shape] if all(isinstance(n, _WHOLE) for n in shape) else shape
        shapes = [tuple(part) for part in parts]
    except TypeError:
        shapes = [(-1,)]
    if not all(isinstance(n, _WHOLE) and n >= 0 for part in shapes for n in part):
        raise UsageError(
            f"not a shape: {shape!r}; give whole numbers, batch included, such as (1, 3, 32, 32)"
        )
    dtypes = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(shapes)
    if len(dtypes) != len(shapes):
        raise UsageError(f"{len(dtypes)} data types are given, for {len(shapes)} inputs")
    return [_input(part, kind) for part, kind in zip(shapes, dtypes, strict=True)]


def _input(shape: Shape, dtype: Any) -> Any:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UsageError(f"unknown data type {dtype!r}: float32 or int32, for example") from None
    if kind.kind not in "biuf":
        raise UsageError(f"a network takes no {kind}: float32 or int32, for example")
    try:
        if kind.kind != "f":
            return np.zeros(shape, kind)
        # Not all the same: a network may divide by a deviation.
        values = np.random.default_rng(0).standard_normal(shape, np.float32)
        return np.asarray(values, kind)
    except (MemoryError, ValueError) as error:
        raise ProfileError(f"an input of {format_shape(shape)} does not fit into memory") from error


# -- what came out


@dataclass(frozen=True)
class _Own:
    """What one link has, without the links below it."""

    counts: dict[str, int]
    nbytes: tuple[int, int]


def _own_arrays(model: Any) -> dict[str, _Own]:
    """By the paths of the links; what several paths share is with the first."""
    found: dict[str, _Own] = {}
    seen: set[int] = set()

    def first(thing: object) -> bool:
        is_new = id(thing) not in seen
        seen.add(id(thing))
        return is_new

    for path, link in model.namedlinks():
        parameters = [
            param
            for name, param in link.namedparams(include_uninit=False)
            if name.count("/") == 1 and first(param)  # a child's are named /child/W
        ]
        values = (getattr(link, name, None) for name in link._persistent)
        persistent = [
            value
            for value in values
            if isinstance(value, chainer.get_array_types()) and first(value)
        ]
        found[path] = _Own(
            {
                "parameters": sum(int(param.size) for param in parameters),
                "trainable": sum(int(param.size) for param in parameters if _is_trainable(param)),
                "persistent": sum(int(value.size) for value in persistent),
            },
            (sum(_nbytes(param.array) for param in parameters), sum(map(_nbytes, persistent))),
        )
    return found


def _is_trainable(param: Any) -> bool:
    rule = param.update_rule
    return bool(param.requires_grad) and (rule is None or bool(rule.enabled))


def _layer_table(
    layers: Sequence[Layer], noted: Sequence[Sequence[int]], links: dict[str, _Own]
) -> pd.DataFrame:
    left = {path: own.counts for path, own in links.items()}
    none = dict.fromkeys(OWN, 0)
    outputs = iter(noted)
    rows: list[dict[str, Any]] = [
        {name: getattr(layer, name) for name in (*TEXTS, *WORK)}
        | left.pop(layer.path, none)
        # Outputs of a backward, which are gradients, are not noted.
        | {"nbytes_output": sum(next(outputs)) if layer.phase == "forward" else 0}
        | {"approximate": int(layer.work_is_about)}
        for layer in layers
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
