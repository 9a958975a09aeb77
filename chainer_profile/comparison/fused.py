"""Recordings of one network under several engines -> the same rows in all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import format_count
from chainer_profile.basics.words import FORWARD, JOIN
from chainer_profile.record.recording import Layer, Recording

#: What the recordings of Chainer itself are called.
CHAINER = "chainer"

#: Numbers that are added up; not known where one of them is not.
_SUMS = (
    *("flops", "macs", "nbytes_read", "nbytes_written"),
    *("input_nbytes", "parameter_nbytes", "output_nbytes"),
)
#: Arrays with a column a layer.
_BY_LAYER = ("self_ns", "host_ns", "gap_ns", "held_ns")


@dataclass(frozen=True)
class Fusion:
    """What was put together so that two sides could be compared."""

    before: str  #: The engine of the first side.
    after: str
    before_rows: int  #: How many rows it has as it was recorded.
    after_rows: int
    groups: int  #: And both together.

    @property
    def merged(self) -> bool:
        """Whether a side has fewer rows in common with the other than it had."""
        return self.groups < max(self.before_rows, self.after_rows)


def engine_name(recording: Recording) -> str:
    """The engine of a recording, with its version; ``chainer`` for Chainer itself."""
    return recording.settings.engine or CHAINER


def short_name(function: str) -> str:
    """A row's function, short where it names several: ``Convolution2D + 2 fused``."""
    first, *others = function.split(JOIN)
    if not others:
        return function
    return f"{first.removesuffix('Function')}{JOIN}{format_count(len(others))} fused"


def place(index: int | str, covers: Sequence[int]) -> str:
    """A row's place in a table: its index, or Chainer's layers that it stands for (``3-5, 9``)."""
    if not covers:
        return str(index)
    runs: list[list[int]] = []
    for cover in covers:
        if runs and runs[-1][-1] == cover - 1:
            runs[-1][1:] = [cover]
        else:
            runs.append([cover])
    return ", ".join("-".join(map(str, run)) for run in runs)


# What can be compared are the smallest groups of layers that no engine splits: the finest partition
# of Chainer's layers of which every node of every recording is within one part.


def merged(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings with rows that can be compared one by one.

    Rows that are of one group become one row, whose times are the sums of theirs: what a trial
    takes, and what of it is no row's, stays as it was. Its ``covers`` are Chainer's layers of the
    group, also in recordings of Chainer. Rows of an engine's own and of other phases than forward
    stay as they are, and so do Chainer's layers that an engine has no row for.
    """
    recordings = [_covering(recording) for recording in recordings]
    rows = [(engine_name(one), row) for one in recordings for row in one.layers if row.covers]
    names = _names(rows)
    groups = _groups(row.covers for _, row in rows)
    paths = _main_paths([row for _, row in rows], groups)
    return [_merge(recording, groups, names, paths) for recording in recordings]


Covers = tuple[int, ...]


def _covering(recording: Recording) -> Recording:
    """A recording whose forward rows of Chainer's own stand for a layer each."""
    layers, number = [], 0
    for layer in recording.layers:
        # Rows that are no links' calls, such as the loss, have paths without a slash.
        own = layer.phase == FORWARD and layer.path.startswith("/")
        if own and not (layer.covers or recording.settings.engine):
            layer = replace(layer, covers=(number,))
        layers.append(layer)
        number += own
    return replace(recording, layers=tuple(layers))


def _names(rows: Iterable[tuple[str, Layer]]) -> dict[int, str]:
    """Names of Chainer's layers by their indices, in which all rows of all engines must agree."""
    known: dict[int, tuple[str, str]] = {}
    for engine, row in rows:
        names = row.function.split(JOIN)
        if len(names) != len(row.covers):
            raise ProfileError(
                f"row {row.index} of the recording of {engine} names {len(names)} layers and "
                f"covers {len(row.covers)}: it is damaged"
            )
        for index, name in zip(row.covers, names, strict=True):
            before, under = known.setdefault(index, (name, engine))
            if before != name:
                raise ProfileError(
                    f"layer {index} is {before} under {under}, and {name} under {engine}: the "
                    "recordings are not of the same network in test mode"
                )
    return {index: name for index, (name, _) in known.items()}


def _groups(covers: Iterable[Covers]) -> dict[int, Covers]:
    """The group of every layer: those are together that are covered together, directly or not."""
    groups: dict[int, set[int]] = {}
    for cover in covers:
        together = set[int]().union(*(groups.get(index, {index}) for index in cover))
        groups.update(dict.fromkeys(together, together))
    return {index: tuple(sorted(group)) for index, group in groups.items()}


def _main_paths(rows: Iterable[Layer], groups: Mapping[int, Covers]) -> dict[Covers, str]:
    """Path of the main layer of every group."""
    candidates: dict[Covers, list[Layer]] = {}
    for row in rows:
        candidates.setdefault(groups[row.covers[0]], []).append(row)
    paths = {}
    for group, found in candidates.items():
        single = [row for row in found if len(row.covers) == 1]
        # A row of several layers has the operations of all of them, and the path of one.
        if {row.covers[0] for row in single} == set(group):
            found = single
        paths[group] = min(found, key=lambda row: (-(row.flops or 0), row.covers, row.path)).path
    return paths


def _merge(
    recording: Recording,
    groups: Mapping[int, Covers],
    names: Mapping[int, str],
    paths: Mapping[Covers, str],
) -> Recording:
    """A recording with a row a group, in the order in which the groups begin."""
    rows: dict[Covers | int, list[Layer]] = {}
    for layer in recording.layers:
        key = groups[layer.covers[0]] if layer.covers else layer.index
        rows.setdefault(key, []).append(layer)
    new_index = {row.index: new for new, members in enumerate(rows.values()) for row in members}
    layers = []
    for new, (key, members) in enumerate(rows.items()):
        layer = _one(members, new, new_index)
        if isinstance(key, tuple):
            function = JOIN.join(names[index] for index in key)
            layer = replace(layer, covers=key, function=function, path=paths[key])
        layers.append(layer)
    arrays: dict[str, Any] = {}
    for name in _BY_LAYER:
        if (samples := getattr(recording, name)) is not None:
            arrays[name] = np.zeros((len(samples), len(rows)), np.int64)
            for at, new in new_index.items():
                arrays[name][:, new] += samples[:, at]
    # Bytes that layers allocate do not add up.
    return replace(recording, layers=tuple(layers), memory=None, **arrays)


def _one(rows: Sequence[Layer], index: int, new_index: Mapping[int, int]) -> Layer:
    """Rows as one; path, function and covers are the first one's."""
    first, last = rows[0], rows[-1]
    sums: dict[str, Any] = {}
    for name in _SUMS:
        values = [getattr(row, name) for row in rows]
        sums[name] = None if None in values else sum(values)

    def other(name: str) -> int | None:
        """The one other row that all of them refer to, if there is just one."""
        found = {None if (at := getattr(row, name)) is None else new_index[at] for row in rows}
        found.discard(index)
        return found.pop() if len(found) == 1 else None

    return replace(
        first,
        index=index,
        output_shapes=last.output_shapes,
        dtype=last.dtype,
        parent=other("parent"),
        forward=other("forward"),
        calls=sum(row.calls for row in rows),
        work_is_about=any(row.work_is_about for row in rows),
        node=JOIN.join(Counter(row.node for row in rows if row.node)),
        **sums,
    )
