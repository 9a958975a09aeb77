"""Recordings of one network under several engines -> the same rows in all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import format_count
from chainer_profile.basics.words import FORWARD, JOIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    covers = [_covers(recording) for recording in recordings]
    names = _names(recordings, covers)
    groups = _groups(cover for found in covers for cover in found)
    paths = _main_paths(recordings, covers, groups)
    return [
        _merge(recording, found, groups, names, paths)
        for recording, found in zip(recordings, covers, strict=True)
    ]


Covers = tuple[int, ...]


def _covers(recording: Recording) -> list[Covers]:
    """Chainer's layers that each row stands for; a forward row of Chainer's own is a layer."""
    found, number = [], 0
    for layer in recording.layers:
        # Rows that are no links' calls, such as the loss, have paths without a slash.
        own = layer.phase == FORWARD and layer.path.startswith("/")
        if layer.covers or recording.settings.engine or not own:
            found.append(layer.covers)
        else:
            found.append((number,))
        number += own
    return found


def _names(
    recordings: Sequence[Recording], covers: Sequence[Sequence[Covers]]
) -> dict[int, tuple[str, Recording]]:
    """Names of Chainer's layers by their indices, and a recording that says so."""
    known: dict[int, tuple[str, Recording]] = {}
    for recording, found in zip(recordings, covers, strict=True):
        for layer, cover in zip(recording.layers, found, strict=True):
            names = layer.function.split(JOIN)
            if cover and len(names) != len(cover):
                raise ProfileError(
                    f"row {layer.index} of the recording of {engine_name(recording)} names "
                    f"{len(names)} layers and covers {len(cover)}: it is damaged"
                )
            for index, name in zip(cover, names, strict=False):
                before, where = known.setdefault(index, (name, recording))
                if before != name:
                    raise ProfileError(
                        f"layer {index} is {before} under {engine_name(where)}, and {name} under "
                        f"{engine_name(recording)}: the recordings are not of the same network in "
                        "test mode"
                    )
    return known


def _groups(covers: Iterable[Covers]) -> dict[int, Covers]:
    """The group of every layer: those are together that are covered together, directly or not."""
    parent: dict[int, int] = {}

    def root(index: int) -> int:
        while parent.setdefault(index, index) != index:
            parent[index] = index = parent[parent[index]]
        return index

    for cover in covers:
        for index in cover:
            parent[root(index)] = root(cover[0])
    members: dict[int, list[int]] = {}
    for index in sorted(parent):
        members.setdefault(root(index), []).append(index)
    return {index: tuple(group) for group in members.values() for index in group}


def _main_paths(
    recordings: Sequence[Recording],
    covers: Sequence[Sequence[Covers]],
    groups: Mapping[int, Covers],
) -> dict[Covers, str]:
    """Path of the main layer of every group."""
    rows: dict[Covers, list[tuple[Covers, Layer]]] = {}
    for recording, found in zip(recordings, covers, strict=True):
        for layer, cover in zip(recording.layers, found, strict=True):
            if cover:
                rows.setdefault(groups[cover[0]], []).append((cover, layer))
    paths = {}
    for group, candidates in rows.items():
        single = [(cover, layer) for cover, layer in candidates if len(cover) == 1]
        # A row of several layers has the operations of all of them, and the path of one.
        exact = {cover[0] for cover, _ in single} == set(group)
        best = min(
            single if exact else candidates,
            key=lambda row: (-(row[1].flops or 0), row[0], row[1].path),
        )
        paths[group] = best[1].path
    return paths


def _merge(
    recording: Recording,
    covers: Sequence[Covers],
    groups: Mapping[int, Covers],
    names: Mapping[int, tuple[str, Recording]],
    paths: Mapping[Covers, str],
) -> Recording:
    """A recording with a row a group, in the order in which the groups begin."""
    rows: dict[Covers | int, list[int]] = {}
    for at, cover in enumerate(covers):
        rows.setdefault(groups[cover[0]] if cover else at, []).append(at)
    new_index = {at: new for new, members in enumerate(rows.values()) for at in members}
    layers = []
    for new, (key, members) in enumerate(rows.items()):
        layer = _one([recording.layers[at] for at in members], new, new_index)
        if isinstance(key, tuple):
            function = JOIN.join(names[index][0] for index in key)
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
