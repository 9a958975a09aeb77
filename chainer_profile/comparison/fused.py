"""Convert recordings of a network under several engines to recordings with the same rows."""

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

#: The engine of Chainer's own recordings.
CHAINER = "chainer"

#: Fields that are summed over merged rows; None if one of them is None.
_SUMS = (
    *("flops", "macs", "nbytes_read", "nbytes_written"),
    *("input_nbytes", "parameter_nbytes", "output_nbytes"),
)
#: Arrays of a recording with a column for each layer.
_BY_LAYER = ("self_ns", "host_ns", "gap_ns", "held_ns")


@dataclass(frozen=True)
class Fusion:
    """The engines of a comparison, and the numbers of rows before and after rows were merged."""

    before: str  #: Engine of the first side.
    after: str
    before_rows: int  #: Rows of the first side's recording.
    after_rows: int
    groups: int  #: Rows of the merged recordings.

    @property
    def merged(self) -> bool:
        """Whether rows of a side were merged."""
        return self.groups < max(self.before_rows, self.after_rows)


def engine_name(recording: Recording) -> str:
    """The engine of a recording, with its version; ``chainer`` for Chainer itself."""
    return recording.settings.engine or CHAINER


def short_name(function: str) -> str:
    """Shorten the functions of a merged row: ``Convolution2DFunction + 2``."""
    first, *others = function.split(JOIN)
    if not others:
        return function
    return f"{first}{JOIN}{format_count(len(others))}"


def row_number(index: int | str, covers: Sequence[int]) -> str:
    """Format the number of a row: its index, or the indices of its layers (``3-5, 9``)."""
    if not covers:
        return str(index)
    runs: list[list[int]] = []
    for cover in covers:
        if runs and runs[-1][-1] == cover - 1:
            runs[-1][1:] = [cover]
        else:
            runs.append([cover])
    return ", ".join("-".join(map(str, run)) for run in runs)


# The rows of the result are groups of Chainer's layers. They are as small as possible, but each
# node of each recording lies within one group.


def merged(recordings: Sequence[Recording]) -> list[Recording]:
    """Merge rows so that the recordings have comparable rows.

    The rows of a group become one row with the sum of their times. So the times of trials and of
    the framework do not change. ``covers`` of the row are Chainer's layers of the group, also in
    recordings of Chainer. These rows do not change: an engine's own steps, other phases than
    forward, and layers for which an engine has no row.
    """
    recordings = [_covering(recording) for recording in recordings]
    rows = [
        (engine_name(recording), row)
        for recording in recordings
        for row in recording.layers
        if row.covers
    ]
    names = _names(rows)
    groups = _groups(row.covers for _, row in rows)
    paths = _main_paths([row for _, row in rows], groups)
    return [_merge(recording, groups, names, paths) for recording in recordings]


Covers = tuple[int, ...]


def _covering(recording: Recording) -> Recording:
    """Set ``covers`` of each forward row of Chainer to its own layer."""
    layers, number = [], 0
    for layer in recording.layers:
        # Rows outside the network, such as the loss, have paths without a slash.
        in_network = layer.phase == FORWARD and layer.path.startswith("/")
        if in_network and not (layer.covers or recording.settings.engine):
            layer = replace(layer, covers=(number,))
        layers.append(layer)
        number += in_network
    return replace(recording, layers=tuple(layers))


def _names(rows: Iterable[tuple[str, Layer]]) -> dict[int, str]:
    """Map indices of Chainer's layers to names.

    Raises ProfileError if rows disagree, because then they are of different networks.
    """
    named: dict[int, tuple[str, str]] = {}
    for engine, row in rows:
        names = row.function.split(JOIN)
        if len(names) != len(row.covers):
            raise ProfileError(
                f"row {row.index} of the recording of {engine} names {len(names)} layers and "
                f"covers {len(row.covers)}: it is damaged"
            )
        for index, name in zip(row.covers, names, strict=True):
            first_name, first_engine = named.setdefault(index, (name, engine))
            if first_name != name:
                raise ProfileError(
                    f"layer {index} is {first_name} under {first_engine}, and {name} under "
                    f"{engine}: the recordings are not of the same network in test mode"
                )
    return {index: name for index, (name, _) in named.items()}


def _groups(covers: Iterable[Covers]) -> dict[int, Covers]:
    """Map each layer to its group, so that all layers covered by a row are in one group."""
    groups: dict[int, set[int]] = {}
    for cover in covers:
        together = set[int]().union(*(groups.get(index, {index}) for index in cover))
        groups.update(dict.fromkeys(together, together))
    return {index: tuple(sorted(group)) for index, group in groups.items()}


def _main_paths(rows: Iterable[Layer], groups: Mapping[int, Covers]) -> dict[Covers, str]:
    """Map each group to the path of its layer with the most operations."""
    candidates: dict[Covers, list[Layer]] = {}
    for row in rows:
        candidates.setdefault(groups[row.covers[0]], []).append(row)
    paths = {}
    for group, group_rows in candidates.items():
        single = [row for row in group_rows if len(row.covers) == 1]
        # A row of several layers has the operations of all, but the path of only one.
        complete = {row.covers[0] for row in single} == set(group)
        group_rows = single if complete else group_rows
        main = min(group_rows, key=lambda row: (-(row.flops or 0), row.covers, row.path))
        paths[group] = main.path
    return paths


def _merge(
    recording: Recording,
    groups: Mapping[int, Covers],
    names: Mapping[int, str],
    paths: Mapping[Covers, str],
) -> Recording:
    """Merge the rows of each group of a recording, in the order of their first rows."""
    rows: dict[Covers | int, list[Layer]] = {}
    for layer in recording.layers:
        key = groups[layer.covers[0]] if layer.covers else layer.index
        rows.setdefault(key, []).append(layer)
    new_index = {row.index: new for new, members in enumerate(rows.values()) for row in members}
    layers = []
    for new, (key, members) in enumerate(rows.items()):
        layer = _combined(members, new, new_index)
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
    # Allocated bytes cannot be summed, because a layer may free what another one allocated.
    return replace(recording, layers=tuple(layers), memory=None, **arrays)


def _combined(rows: Sequence[Layer], index: int, new_index: Mapping[int, int]) -> Layer:
    """Merge rows into one; path, function and covers are from the first row."""
    first, last = rows[0], rows[-1]
    sums: dict[str, Any] = {}
    for name in _SUMS:
        values = [getattr(row, name) for row in rows]
        sums[name] = None if None in values else sum(values)

    def common_reference(name: str) -> int | None:
        """The row outside the group to which all rows refer; None if there are several or none."""
        referred = {None if (at := getattr(row, name)) is None else new_index[at] for row in rows}
        referred.discard(index)
        return referred.pop() if len(referred) == 1 else None

    return replace(
        first,
        index=index,
        output_shapes=last.output_shapes,
        dtype=last.dtype,
        parent=common_reference("parent"),
        forward=common_reference("forward"),
        calls=sum(row.calls for row in rows),
        work_is_about=any(row.work_is_about for row in rows),
        node=JOIN.join(Counter(row.node for row in rows if row.node)),
        **sums,
    )
