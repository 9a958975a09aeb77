"""Which steps of an exported network are done by which steps of a runtime, by their names alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# These move no data, or only where somebody needs it moved.
_VIEWS = frozenset(
    ["Cast", "Dropout", "Expand", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"]
)
# These do nothing with one such number.
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
# ONNX Runtime names what it makes of a step after it; in its layout of images (NCHWc) after the
# tensor that the usual one would give. A batch normalisation or a product becomes a convolution.
_MADE_OF = re.compile(r"(?:fused )?(.+?)(?:_nchwc(?:(?:_token)?_\d+)?|/\w+Fusion/)?")


@dataclass(frozen=True)
class Step:
    """One node of a graph, which gives and takes named tensors."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: Whether it does no arithmetic: an optimiser that drops it has not made it a part of another.
    idle: bool = False
    #: Place of the first step that does just the same, if it is not this one.
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
        attributes = sorted(one.SerializeToString(deterministic=True) for one in node.attribute)
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
    """Which original steps every optimised one does."""
    # A step is done by the one that gives its output. Where none does, it is a part of the one that
    # takes its output, or, with nothing behind it, of the one before.
    named = {step.name: step.outputs for step in original}
    known = {name for outputs in named.values() for name in outputs}
    given: dict[str, int | None] = dict.fromkeys(constants)
    for number, step in enumerate(optimised):
        outputs = step.outputs if known.intersection(step.outputs) else named.get(step.name, ())
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
        found = [given[name] for name in (*step.outputs, *twins) if name in given]
        found += [owners[takers[name]] for name in step.outputs if takers.get(name) in owners]
        if found:
            owners[place] = found[0]
    _add_to_those_before(original, owners)
    for place, owner in owners.items():
        step = original[place]
        if step.idle and owner is not None and optimised[owner].kind != step.kind:
            owners[place] = None
    return _by_owner(owners, len(optimised))


def blocked_by(original: Sequence[Step], names: Sequence[str]) -> list[list[int]]:
    """The same for the step from a graph to the one that ONNX Runtime ran of it."""
    # The tensors of that may have new names; its steps are named after the old ones.
    named = {step.name: place for place, step in enumerate(original)}
    gives = {name: place for place, step in enumerate(original) for name in step.outputs}
    places = gives | named
    owners: dict[int, int | None] = {}
    for number, name in enumerate(names):
        said = [name]
        if name not in named and (match := _MADE_OF.fullmatch(name)):
            said = [match[1], match[1].removesuffix("_bn"), match[1].removesuffix("_mul")]
        for known in said:
            if known in places:
                owners.setdefault(places[known], number)
    _add_to_those_before(original, owners)
    return _by_owner(owners, len(names))


def _add_to_those_before(original: Sequence[Step], owners: dict[int, int | None]) -> None:
    """Give what has no owner to the one that gives its last input."""
    makers = {name: place for place, step in enumerate(original) for name in step.outputs}
    for place, step in enumerate(original):
        if place not in owners and not step.idle:
            givers = [owners.get(makers[name]) for name in step.inputs if name in makers]
            owners[place] = max((number for number in givers if number is not None), default=None)


def _by_owner(owners: dict[int, int | None], count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for place, number in sorted(owners.items()):
        if number is not None:
            found[number].append(place)
    return found
