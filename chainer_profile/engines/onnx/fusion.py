"""Finds the nodes of an exported network that each node of an optimised graph computes.

Only the names of nodes and tensors are used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Types of nodes that compute nothing.
_VIEWS = frozenset(
    ["Cast", "Dropout", "Expand", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"]
)
# Operands with which these nodes compute nothing.
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
# ONNX Runtime names a new node after the original one. In its layout for images (NCHWc) it names
# it after the output of the original one. A batch normalisation or a product becomes a convolution.
_NEW_NAME = re.compile(r"(?:fused )?(.+?)(?:_nchwc(?:(?:_token)?_\d+)?|/\w+Fusion/)?")


@dataclass(frozen=True)
class Step:
    """A node of a graph, with the names of its input and output tensors."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: Whether the node computes nothing. An optimiser removes it and does not fuse it.
    is_idle: bool = False
    #: Index of the first step that computes the same; None if this is the first.
    duplicate_of: int | None = None


def steps_of(graph: Any) -> list[Step]:
    """Convert the nodes of an ONNX graph to steps, in order."""
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
        is_idle = node.op_type in _VIEWS or any(
            (name, _NEUTRAL.get(node.op_type)) in neutral for name in inputs
        )
        attributes = sorted(item.SerializeToString(deterministic=True) for item in node.attribute)
        key = (node.op_type, *(same.get(name, name) for name in node.input), *attributes)
        first = firsts.setdefault(key, len(steps))
        duplicate_of = first if first < len(steps) else None
        if duplicate_of is not None:
            same.update(zip(node.output, steps[duplicate_of].outputs, strict=False))
        outputs = tuple(node.output)
        steps.append(Step(node.name, node.op_type, inputs, outputs, is_idle, duplicate_of))
    return steps


def match_steps(
    original: Sequence[Step], optimised: Sequence[Step], constants: Iterable[str] = ()
) -> list[list[int]]:
    """For each optimised step, find the indices of the original steps that it computes.

    An original step belongs to the optimised step that has its output. If no step has this output,
    it belongs to the owner of the step that consumes the output, or else of the step before it.
    """
    outputs_by_name = {step.name: step.outputs for step in original}
    original_outputs = {name for outputs in outputs_by_name.values() for name in outputs}
    producers: dict[str, int | None] = dict.fromkeys(constants)
    for number, step in enumerate(optimised):
        outputs = step.outputs
        if not original_outputs.intersection(outputs):
            outputs = outputs_by_name.get(step.name, ())
        producers |= dict.fromkeys(outputs, number)
    duplicates: dict[int, tuple[str, ...]] = {}
    consumers: dict[str, int] = {}
    for index, step in enumerate(original):
        first = index if step.duplicate_of is None else step.duplicate_of
        duplicates[first] = duplicates.get(first, ()) + step.outputs
        for name in step.inputs:
            consumers.setdefault(name, index)
    owners: dict[int, int | None] = {}
    for index in reversed(range(len(original))):
        step = original[index]
        outputs = duplicates[index if step.duplicate_of is None else step.duplicate_of]
        candidates = [producers[name] for name in (*step.outputs, *outputs) if name in producers]
        candidates += [
            owners[consumers[name]] for name in step.outputs if consumers.get(name) in owners
        ]
        if candidates:
            owners[index] = candidates[0]
    _assign_to_producers(original, owners)
    for index, owner in owners.items():
        step = original[index]
        if step.is_idle and owner is not None and optimised[owner].kind != step.kind:
            owners[index] = None
    return _group_by_owner(owners, len(optimised))


def match_names(original: Sequence[Step], names: Sequence[str]) -> list[list[int]]:
    """For each name of a node that ONNX Runtime ran, find the indices of the original steps.

    Only the names of nodes are known, because tensors may have new names.
    """
    by_step = {step.name: index for index, step in enumerate(original)}
    by_output = {name: index for index, step in enumerate(original) for name in step.outputs}
    indices = by_output | by_step
    owners: dict[int, int | None] = {}
    for number, name in enumerate(names):
        old_names = [name]
        if name not in by_step and (match := _NEW_NAME.fullmatch(name)):
            old_names = [match[1], match[1].removesuffix("_bn"), match[1].removesuffix("_mul")]
        for old_name in old_names:
            if old_name in indices:
                owners.setdefault(indices[old_name], number)
    _assign_to_producers(original, owners)
    return _group_by_owner(owners, len(names))


def _assign_to_producers(original: Sequence[Step], owners: dict[int, int | None]) -> None:
    """Assign a step without an owner to the last owner among the producers of its inputs."""
    producers = {name: index for index, step in enumerate(original) for name in step.outputs}
    for index, step in enumerate(original):
        if index not in owners and not step.is_idle:
            numbers = [owners.get(producers[name]) for name in step.inputs if name in producers]
            owners[index] = max((number for number in numbers if number is not None), default=None)


def _group_by_owner(owners: dict[int, int | None], count: int) -> list[list[int]]:
    """Group the indices of original steps by the number of their owner."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for index, number in sorted(owners.items()):
        if number is not None:
            groups[number].append(index)
    return groups
