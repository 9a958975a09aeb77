"""Which steps of an exported network a runtime's steps do, by names alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# These move no data, or only for the sake of another step.
_VIEWS = frozenset(
    ["Cast", "Dropout", "Expand", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"]
)
# Numbers with which these do nothing.
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
# ONNX Runtime names a new step after the old one, or in its layout of images (NCHWc) after the
# tensor that the old one would give. A batch normalisation or a product becomes a convolution.
_NEW_NAME = re.compile(r"(?:fused )?(.+?)(?:_nchwc(?:(?:_token)?_\d+)?|/\w+Fusion/)?")


@dataclass(frozen=True)
class Step:
    """A node of a graph, which gives and takes named tensors."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: Whether it does no arithmetic: an optimiser drops it and does not fuse it into another step.
    idle: bool = False
    #: Place of the first step that does the same as this one, if there is an earlier one.
    twin: int | None = None


def steps_of(graph: Any) -> list[Step]:
    """The nodes of an ONNX graph, in order."""
    import onnx.numpy_helper

    neutral = {
        (tensor.name, float(onnx.numpy_helper.to_array(tensor).item()))
        for tensor in graph.initializer
        if math.prod(tensor.dims) == 1
    }
    firsts: dict[tuple[Any, ...], int] = {}
    same: dict[str, str] = {}
    steps: list[Step] = []
    for node in graph.node:
        inputs = tuple(filter(None, node.input))
        idle = node.op_type in _VIEWS or any(
            (name, _NEUTRAL.get(node.op_type)) in neutral for name in inputs
        )
        attributes = sorted(item.SerializeToString(deterministic=True) for item in node.attribute)
        key = (node.op_type, *(same.get(name, name) for name in node.input), *attributes)
        first = firsts.setdefault(key, len(steps))
        twin = first if first < len(steps) else None
        if twin is not None:
            same.update(zip(node.output, steps[twin].outputs, strict=False))
        steps.append(Step(node.name, node.op_type, inputs, tuple(node.output), idle, twin))
    return steps


def done_by(
    original: Sequence[Step], optimised: Sequence[Step], constants: Iterable[str] = ()
) -> list[list[int]]:
    """Places of the original steps that every optimised step does."""
    # The optimised step that gives an original step's output does it. If none gives the output, the
    # original step is a part of the step that takes it or, at the end, of the step before.
    outputs_by_name = {step.name: step.outputs for step in original}
    original_outputs = {name for outputs in outputs_by_name.values() for name in outputs}
    given: dict[str, int | None] = dict.fromkeys(constants)
    for number, step in enumerate(optimised):
        outputs = step.outputs
        if not original_outputs.intersection(outputs):
            outputs = outputs_by_name.get(step.name, ())
        given |= dict.fromkeys(outputs, number)
    alike: dict[int, tuple[str, ...]] = {}
    takers: dict[str, int] = {}
    for place, step in enumerate(original):
        first = place if step.twin is None else step.twin
        alike[first] = alike.get(first, ()) + step.outputs
        for name in step.inputs:
            takers.setdefault(name, place)
    owners: dict[int, int | None] = {}
    for place in reversed(range(len(original))):
        step = original[place]
        twins = alike[place if step.twin is None else step.twin]
        candidates = [given[name] for name in (*step.outputs, *twins) if name in given]
        candidates += [owners[takers[name]] for name in step.outputs if takers.get(name) in owners]
        if candidates:
            owners[place] = candidates[0]
    _add_to_those_before(original, owners)
    for place, owner in owners.items():
        step = original[place]
        if step.idle and owner is not None and optimised[owner].kind != step.kind:
            owners[place] = None
    return _by_owner(owners, len(optimised))


def blocked_by(original: Sequence[Step], names: Sequence[str]) -> list[list[int]]:
    """The same for the steps of these names, which ONNX Runtime ran instead of a graph's."""
    # Tensors may have new names, so that only the names of steps are left.
    by_step = {step.name: place for place, step in enumerate(original)}
    by_output = {name: place for place, step in enumerate(original) for name in step.outputs}
    places = by_output | by_step
    owners: dict[int, int | None] = {}
    for number, name in enumerate(names):
        old_names = [name]
        if name not in by_step and (match := _NEW_NAME.fullmatch(name)):
            old_names = [match[1], match[1].removesuffix("_bn"), match[1].removesuffix("_mul")]
        for old_name in old_names:
            if old_name in places:
                owners.setdefault(places[old_name], number)
    _add_to_those_before(original, owners)
    return _by_owner(owners, len(names))


def _add_to_those_before(original: Sequence[Step], owners: dict[int, int | None]) -> None:
    """Give a step without an owner to the owner of its last input."""
    makers = {name: place for place, step in enumerate(original) for name in step.outputs}
    for place, step in enumerate(original):
        if place not in owners and not step.idle:
            givers = [owners.get(makers[name]) for name in step.inputs if name in makers]
            owners[place] = max((number for number in givers if number is not None), default=None)


def _by_owner(owners: dict[int, int | None], count: int) -> list[list[int]]:
    places: list[list[int]] = [[] for _ in range(count)]
    for place, number in sorted(owners.items()):
        if number is not None:
            places[number].append(place)
    return places
