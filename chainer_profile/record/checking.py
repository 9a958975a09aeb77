"""Checks that a recording can be from a run: a file may be damaged, or written by hand."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from chainer_profile.record.parts import MemoryUse, PhaseMemory

#: Sums of times stay in 64 bits below this.
_MAX_NS = 2**62
#: Arrays without durations: readings of a clock, which may be negative, and counts from 1.
_READINGS = ("start_ns", "clean_start_ns", "arrived_ns", "left_ns")
_COUNTS = ("probe_threads", "iteration")
#: Fields that may be negative: differences of memory, seeds and temperatures.
_SIGNED = frozenset(
    field.name for kind in (MemoryUse, PhaseMemory) for field in dataclasses.fields(kind)
) | {"seed", "temperature_c"}
#: Yields the problems of a recording, as text.
Problems = Callable[[Any], Iterator[str]]


def check(recording: Any) -> None:
    """Raise ValueError for a recording that cannot be analysed."""
    _refuse(recording, _array_problems, _call_problems, _part_problems, _inside_problems)


def check_file(recording: Any) -> None:
    """Raise ValueError for a recording that no run can have measured.

    Call it before a recording is written and after it was read.
    """
    check(recording)
    _refuse(recording, _trial_problems, _number_problems, _layer_problems)


def check_numbers(part: Any) -> None:
    """Raise ValueError if a dataclass contains an impossible number."""
    _refuse(part, _number_problems)


def check_folder_name(name: str) -> None:
    """Raise ValueError for ``..`` and for names with separators, which lead to other folders."""
    if "\0" in name or os.path.basename(name) != name or name == "..":
        raise ValueError(f"{name!r} is not the name of a folder in this one")


def _refuse(recording: Any, *checks: Problems) -> None:
    """Raise ValueError with the first problem."""
    for problems in checks:
        for problem in problems(recording):
            raise ValueError(problem)


def _array_problems(recording: Any) -> Iterator[str]:
    for field in dataclasses.fields(recording):
        name, samples = field.name, getattr(recording, field.name)
        if not isinstance(samples, np.ndarray) or not samples.size:
            continue
        smallest, largest = samples.min(), samples.max()
        min_allowed = -_MAX_NS if name in _READINGS else int(name in _COUNTS)
        if smallest < min_allowed:
            yield f"{name} contains {smallest}, but must be {min_allowed} or more"
        is_duration = name not in _READINGS + _COUNTS
        if is_duration and samples.sum(dtype=np.float64) >= _MAX_NS:
            yield f"{name} contains {largest}, but all its times must be below 2**62 ns"
        if largest >= _MAX_NS:
            yield f"{name} contains {largest}, but must be below 2**62"
    if recording.left_ns is not None and (recording.left_ns < recording.arrived_ns).any():
        yield "left_ns: a collective was left before it was entered, as arrived_ns says"


def _trial_problems(recording: Any) -> Iterator[str]:
    # On a device, and in other engines, layers run in parallel to the host or to each other.
    if recording.trial_ns is None or recording.on_device or recording.settings.engine:
        return
    framework = recording.trial_ns - recording.self_ns.sum(axis=1)
    if recording.framework_ns is not None:
        framework = framework - recording.framework_ns.sum(axis=1)
    if framework.size and framework.min() < 0:
        yield f"trial {framework.argmin()} is {-framework.min()} ns shorter than its layers"


def _number_problems(recording: Any) -> Iterator[str]:
    for field in dataclasses.fields(recording):
        for name, number in _numbers(field.name, getattr(recording, field.name)):
            begin = f"{field.name}: {name} is {str(number)[:30]}"
            if not abs(number) < 2**63:  # true for NaN too
                yield f"{begin}, but must be a number below 2**63"
            if number < 0 and name not in _SIGNED:
                yield f"{begin}, but must be 0 or more"
            if field.name == "limits" and name.endswith("_per_s") and not number:
                yield f"{begin}, but must be above 0"


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield all numbers in a part of a recording, with the names of their fields."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _numbers(field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(name, item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(key, item)
    elif isinstance(value, int | float):
        yield name, value


def _call_problems(recording: Any) -> Iterator[str]:
    for index, layer in enumerate(recording.layers):
        for name in ("path", "function", "phase"):
            value = getattr(layer, name)
            if not isinstance(value, str):
                yield f"layer {index} has the {name} {value!r}, which is not text"
        if not layer.calls > 0:
            yield f"layer {index} has {layer.calls} calls, but must have more than 0"


def _layer_problems(recording: Any) -> Iterator[str]:
    n_layers = len(recording.layers)
    for index, layer in enumerate(recording.layers):
        if layer.index != index:
            yield f"layer {index} has the index {layer.index}, but must have {index}"
        for name in ("path", "function", "phase"):
            if not getattr(layer, name):
                yield f"layer {index} has an empty {name}"
        for name in ("parent", "forward"):
            row = getattr(layer, name)
            if not _is_row(row, n_layers):
                yield f"layer {index} has the {name} {row}, but there are {n_layers} layers"
    if any(not link.path for link in recording.links):
        yield "a link has no path"
    if len(set(recording.phases)) < len(recording.phases):
        yield f"phases appear twice: {', '.join(recording.phases)}"


def _is_row(row: int | None, n_layers: int) -> bool:
    return row is None or 0 <= row < n_layers


def _part_problems(recording: Any) -> Iterator[str]:
    n_layers, n_phases, rank = len(recording.layers), len(recording.phases), recording.rank
    memory, counters = recording.memory, recording.counters
    if rank is not None and rank.number >= rank.size:
        yield f"rank: the number is {rank.number}, but there are {rank.size} ranks"
    if memory is not None:
        for n_sizes in (len(memory.peak_nbytes), len(memory.retained_nbytes)):
            if n_sizes != n_layers:
                yield f"memory has {n_sizes} layers, not {n_layers}"
        if not _is_row(memory.high_water_layer, n_layers):
            yield (
                f"memory: the peak is in layer {memory.high_water_layer}, but there are "
                f"{n_layers} layers"
            )
    for counted in () if counters is None else counters.counted:
        sizes, begin = (
            (len(counted.layers), len(counted.framework)),
            f"counters: {counted.name} has",
        )
        if sizes not in ((0, 0), (n_layers, n_phases)):
            yield f"{begin} {sizes[0]} layers and {sizes[1]} phases, not {n_layers} and {n_phases}"
        if len(counted.trial) != counters.trials:
            yield f"{begin} {len(counted.trial)} trials, not {counters.trials}"


def _inside_problems(recording: Any) -> Iterator[str]:
    inside = recording.inside
    if inside is None:
        return
    n_layers, n_frames = len(recording.layers), len(inside.places)
    functions = {layer.function for layer in recording.layers}
    if inside.repeats < 1:
        yield f"inside: repeats is {inside.repeats}, but must be 1 or more"
    for stack in inside.stacks:
        if not stack.seconds >= 0:
            yield f"inside: a stack has {stack.seconds} s, but must have 0 or more"
        if not _is_row(stack.row, n_layers):
            yield f"inside: a stack is in layer {stack.row}, but there are {n_layers} layers"
        if stack.function and stack.function not in functions:
            yield f"inside: a stack is in {stack.function}, but no layer has this function"
        if not stack.places or not 0 <= min(stack.places) <= max(stack.places) < n_frames:
            yield f"inside: a stack has the frames {stack.places}, but there are {n_frames} frames"
