"""Whether a recording can be that of a run at all: a file may be damaged, or made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from chainer_profile.record.parts import MemoryUse, PhaseMemory

#: Sums of times stay in 64 bits below this.
_MOST = 2.0**62
#: Arrays that hold no durations: readings of clocks, which may be negative, and numbers from 1.
_READINGS = ("start_ns", "clean_start_ns", "arrived_ns", "left_ns")
_COUNTS = ("probe_threads", "iteration")
#: What may be negative: memory that was freed, and what a user chose.
_SIGNED = frozenset(
    field.name for kind in (MemoryUse, PhaseMemory) for field in dataclasses.fields(kind)
) | {"seed", "temperature_c", "clock_offset_ns"}


def check(recording: Any) -> None:
    """Refuse, by ValueError, what nothing can be made of; the arrays have the right shapes."""
    _check_arrays(recording)
    _check_layers(recording)
    _check_parts(recording)


def check_file(recording: Any) -> None:
    """Refuse, by ValueError, what no run has measured; by this goes what is written and read."""
    check(recording)
    _check_framework(recording)
    _check_names(recording)
    for field in dataclasses.fields(recording):
        problem = wrong_number(field.name, getattr(recording, field.name))
        if problem:
            raise ValueError(f"{field.name}: {problem}")
    rank = recording.rank
    if rank is not None and rank.number >= rank.size:
        raise ValueError(f"rank: there is no rank {rank.number} of {rank.size}")
    rates = [value for name, value in _numbers("", recording.limits) if name.endswith("_per_s")]
    if not all(rates):
        raise ValueError("limits: one is 0")


def _check_arrays(recording: Any) -> None:
    for field in dataclasses.fields(recording):
        name, samples = field.name, getattr(recording, field.name)
        if not isinstance(samples, np.ndarray) or not samples.size:
            continue
        if samples.min() < (-_MOST if name in _READINGS else name in _COUNTS):
            raise ValueError(f"{name} contains {samples.min()}")
        durations = name not in _READINGS + _COUNTS
        if (samples.sum(dtype=np.float64) if durations else samples.max()) >= _MOST:
            raise ValueError(f"{name} contains {samples.max()}, which is too large")
    if recording.left_ns is not None and (recording.left_ns < recording.arrived_ns).any():
        raise ValueError("left_ns: a collective was left before it was entered")


def _check_framework(recording: Any) -> None:
    # On a device, and in other engines, layers run beside the host or one another.
    if recording.trial_ns is None or recording.on_device or recording.settings.engine:
        return
    framework = recording.trial_ns - recording.self_ns.sum(axis=1)
    if recording.framework_ns is not None:
        framework = framework - recording.framework_ns.sum(axis=1)
    if framework.size and framework.min() < 0:
        raise ValueError(
            f"trial {framework.argmin()} is {-framework.min()} ns shorter than its layers"
        )


def _check_layers(recording: Any) -> None:
    for place, layer in enumerate(recording.layers):
        for name in ("path", "function", "phase"):
            value = getattr(layer, name)
            if not isinstance(value, str):
                raise ValueError(f"layer {place} has the {name} {value!r}")
        if not layer.calls > 0:
            raise ValueError(f"layer {place} has {layer.calls} calls")


def _check_names(recording: Any) -> None:
    n_layers = len(recording.layers)
    for place, layer in enumerate(recording.layers):
        if layer.index != place:
            raise ValueError(f"layer {place} has the index {layer.index}")
        for name in ("path", "function", "phase"):
            if not getattr(layer, name):
                raise ValueError(f"layer {place} has the {name} ''")
        for name in ("parent", "forward"):
            other = getattr(layer, name)
            if not _is_row(other, n_layers):
                raise ValueError(f"layer {place} has the {name} {other}, of {n_layers} layers")
    if any(not link.path for link in recording.links):
        raise ValueError("a link has no path")
    if len(set(recording.phases)) < len(recording.phases):
        raise ValueError(f"phases are named twice: {', '.join(recording.phases)}")


def _is_row(row: int | None, n_layers: int) -> bool:
    return row is None or 0 <= row < n_layers


def _check_parts(recording: Any) -> None:
    n_layers = len(recording.layers)
    memory, counters = recording.memory, recording.counters
    if memory is not None:
        for of in (len(memory.peak_nbytes), len(memory.retained_nbytes)):
            if of != n_layers:
                raise ValueError(f"memory has {of} layers, not {n_layers}")
        if not _is_row(memory.high_water_layer, n_layers):
            raise ValueError(f"memory is highest in layer {memory.high_water_layer}, of {n_layers}")
    for one in () if counters is None else counters.counted:
        found = len(one.layers), len(one.framework)
        if found not in ((0, 0), (n_layers, len(recording.phases))):
            raise ValueError(f"counters: {one.name} is {found}")
        if len(one.trial) != counters.trials:
            raise ValueError(f"counters: {one.name} has {len(one.trial)} trials")
    inside, functions = recording.inside, {layer.function for layer in recording.layers}
    problem = wrong_number("inside", inside)
    if problem:
        raise ValueError(f"inside: {problem}")
    if inside is not None and inside.repeats < 1:
        raise ValueError(f"inside: repeats is {inside.repeats}")
    for stack in () if inside is None else inside.stacks:
        if not _is_row(stack.row, n_layers):
            raise ValueError(f"a stack is in layer {stack.row}, of {n_layers}")
        if stack.function and stack.function not in functions:
            raise ValueError(f"a stack is in {stack.function}, but no layer is")
        if not stack.places or not 0 <= min(stack.places) <= max(stack.places) < len(inside.places):
            raise ValueError(
                f"a stack passes places {stack.places}, of {len(inside.places)} places"
            )


def wrong_number(name: str, value: Any) -> str:
    """Which number of a part of a recording cannot be; empty where all can."""
    for field, number in _numbers(name, value):
        # NaN is not below anything.
        if not abs(number) < 2**63 or (number < 0 and field not in _SIGNED):
            return f"{field} is {str(number)[:30]}"
    return ""


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """All numbers in a part of a recording, by the names of their fields."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _numbers(field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from _numbers(name, one)
    elif isinstance(value, int | float):
        yield name, value
