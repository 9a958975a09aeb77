"""Which nodes of a graph are done by which nodes of the same graph after a runtime's optimiser.

Needs no runtime: graphs are given as :class:`Step` s.
"""

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
#: Steps of ONNX Runtime between its layout of images (NCHWc) and the usual one.
_REORDERS = frozenset(("ReorderInput", "ReorderOutput"))
# Such a step is named after the tensor that the usual one would give; a batch normalisation or a
# product becomes a convolution.
_BLOCKED = re.compile(r"(.+)_nchwc(?:(?:_token)?_\d+)?")


@dataclass(frozen=True)
class Step:
    """One node of a graph.

    Attributes:
        name: Its name.
        kind: Its operator.
        inputs: Names of the tensors that it takes.
        outputs: Names of those that it gives.
        idle: Whether it does no arithmetic: an optimiser that drops it has not made it a part of
            another node.
        twin: Place of the first step that does just the same, if it is not this one.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    idle: bool = False
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
    """Which original steps every optimised one does.

    A step does what lies between its own tensors: from its outputs back to its inputs, or to what
    other steps give. What comes after, but is in no step's way, belongs to the step that gives its
    last input.

    Args:
        original: The graph as it was, in an order in which it can run.
        optimised: What the optimiser made of it; tensors that are still there have their names.
        constants: Names of tensors that have become constants.

    Returns:
        list: For each optimised step indices of original ones, ascending; each once at most.
        Missing are steps that are gone: computed beforehand, or without any work.
    """
    producers = {name: place for place, step in enumerate(original) for name in step.outputs}
    named = {step.name: place for place, step in enumerate(original)}
    known = {name for step in optimised for name in step.outputs} | set(constants)
    twins = _computed_once(original, known)
    same = {
        name: other
        for at, twin in twins.items()
        for name, other in zip(original[at].outputs, original[twin].outputs, strict=False)
    }
    owners: dict[int, int] = {}
    for number, step in enumerate(optimised):
        if step.kind in _REORDERS:
            continue
        waiting = [name for name in step.outputs if name in producers]
        if not waiting and step.name in named:
            waiting = [name for name in original[named[step.name]].outputs if name not in known]
        ends = known.union(step.inputs).difference(waiting)
        while waiting:
            name = waiting.pop()
            name = same.get(name, name)
            place = producers.get(name)
            if place is None or place in owners or name in ends:
                continue
            if not original[place].idle or step.kind == original[place].kind:
                owners[place] = number
            ends.add(name)
            waiting += original[place].inputs
    _add_epilogues(original, owners, producers)
    owners.update((at, owners[twin]) for at, twin in twins.items() if twin in owners)
    return _by_owner(owners, len(optimised))


def blocked_by(original: Sequence[Step], optimised: Sequence[Step]) -> list[list[int]]:
    """The same for the step from a graph to the same one with ONNX Runtime's layout of images.

    The tensors of that have new names; its steps are named after the old ones.
    """
    producers = {name: place for place, step in enumerate(original) for name in step.outputs}
    named = {step.name: step for step in original}
    owners: dict[int, int] = {}
    for number, step in enumerate(optimised):
        if step.kind in _REORDERS:
            continue
        match = _BLOCKED.fullmatch(step.name)
        said = (
            [match[1], match[1].removesuffix("_bn"), match[1].removesuffix("_mul")] if match else []
        )
        if step.name in named and named[step.name].kind == step.kind:
            said += named[step.name].outputs
        for name in (*step.outputs, *said):
            if name in producers:
                owners.setdefault(producers[name], number)
    _add_epilogues(original, owners, producers)
    return _by_owner(owners, len(optimised))


def _computed_once(original: Sequence[Step], known: set[str]) -> dict[int, int]:
    """Steps that the optimiser has not kept because another does just the same, with that one."""
    alike: dict[int, list[int]] = {}
    for place, step in enumerate(original):
        alike.setdefault(place if step.twin is None else step.twin, []).append(place)
    found: dict[int, int] = {}
    for places in alike.values():
        kept = [at for at in places if not known.isdisjoint(original[at].outputs)]
        found |= {at: (kept or places)[0] for at in places if at not in (kept or places[:1])}
    return found


def _add_epilogues(
    original: Sequence[Step], owners: dict[int, int], producers: dict[str, int]
) -> None:
    """Give what has no owner to the one that gives its last input."""
    for place, step in enumerate(original):
        if place in owners or step.idle:
            continue
        givers = [owners[producers[n]] for n in step.inputs if producers.get(n) in owners]
        if givers:
            owners[place] = max(givers)


def _by_owner(owners: dict[int, int], count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for place, number in sorted(owners.items()):
        found[number].append(place)
    return found
