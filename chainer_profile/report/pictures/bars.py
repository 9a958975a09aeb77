"""Summary -> the bars of its layers; by block where they are many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.grouping import group_names
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_count, plural
from chainer_profile.report.rows import layer_anchor, link_anchor
from chainer_profile.report.text import printable, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: Bars of a picture; and layers by themselves where blocks are more.
MOST, SLOWEST = 200, 30


@dataclass(frozen=True)
class Bars:
    """Bars in the order of the calls. Times are seconds a trial.

    Attributes:
        names: What each is, the link's path first.
        phases: The phase of each.
        typical_s: Medians.
        low_s: 5th percentiles.
        high_s: 95th percentiles.
        hot_s: The part of each median that is of hot layers.
        anchors: The row of a table that each stands for: a layer's, or a block's link.
        kind: What a bar is: ``layer``, or ``block`` where there are too many layers.
        note: What else is to be known of them; empty for nothing.
    """

    names: Sequence[str]
    phases: Sequence[str]
    typical_s: NDArray[np.float64]
    low_s: NDArray[np.float64]
    high_s: NDArray[np.float64]
    hot_s: NDArray[np.float64]
    anchors: Sequence[str]
    kind: str = "layer"
    note: str = ""

    def __len__(self) -> int:
        return len(self.names)

    def regions(self) -> list[tuple[str, int, int]]:
        """Successive bars of one phase: its name, the first one, and the one behind the last."""
        return regions_of(self.phases)


def regions_of(phases: Iterable[str]) -> list[tuple[str, int, int]]:
    """Successive places of one phase: its name, the first one, and the one behind the last."""
    found, at = [], 0
    for phase, group in groupby(phases):
        count = len(list(group))
        found.append((phase, at, at + count))
        at += count
    return found


def layer_bars(summary: Summary, most: int = MOST) -> Bars:
    """A bar for every layer; of more than so many one for every block, or the slowest alone."""
    layers = summary.layers
    if len(layers) <= most:
        return _by_layer(summary, list(range(len(layers))))
    blocks = group_names(summary.recording.layers, "block")
    # A block is a group by itself in every phase.
    keys = list(zip(layers["phase"].tolist(), map(str, blocks), strict=True))
    groups: dict[tuple[str, str], list[int]] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    if len(groups) <= most:
        return _by_block(summary, groups)
    slowest = np.argsort(-layers["typical_s"].to_numpy(), kind="stable")[:SLOWEST]
    share = float(layers["share"].to_numpy()[slowest].sum())
    found = _by_layer(summary, sorted(map(int, slowest)))
    note = (
        f"the {SLOWEST} slowest of {plural(len(layers), 'layer')}, which hold {share:.0%} of the "
        "layers' time"
    )
    return replace(found, note=note)


def _by_layer(summary: Summary, rows: Sequence[int]) -> Bars:
    layers, names = summary.layers.iloc[rows], names_of(summary)
    typical_s = layers["typical_s"].to_numpy()
    return Bars(
        [names[at] for at in rows],
        layers["phase"].tolist(),
        typical_s,
        layers["p5_s"].to_numpy(),
        layers["p95_s"].to_numpy(),
        np.where(layers["hot"].to_numpy(), typical_s, 0.0),
        [layer_anchor(at) for at in rows],
    )


def _by_block(summary: Summary, groups: dict[tuple[str, str], list[int]]) -> Bars:
    layers, self_ns = summary.layers, summary.recording.self_ns
    medians = layers["median_s"].to_numpy()
    hot = np.where(layers["hot"].to_numpy(), medians, 0.0)
    quantiles = np.array(
        [np.quantile(self_ns[:, rows].sum(axis=1), (0.05, 0.5, 0.95)) for rows in groups.values()]
    )
    low_s, typical_s, high_s = (quantiles * NS).T
    # Parts of a median that do not add up to it exactly.
    parts = np.array([hot[rows].sum() / (medians[rows].sum() or 1.0) for rows in groups.values()])
    return Bars(
        [printable(block) for _, block in groups],
        [phase for phase, _ in groups],
        typical_s,
        low_s,
        high_s,
        typical_s * parts,
        [
            link_anchor(summary, str(block)) or layer_anchor(rows[0])
            for (_, block), rows in groups.items()
        ],
        "block",
        f"{format_count(len(layers))} layers by block",
    )


def names_of(summary: Summary) -> list[str]:
    """Names of layers, the link's path first; with the function where a path has several layers."""
    layers = summary.layers
    paths = [printable(str(path)) for path in layers["path"]]
    keys = list(zip(paths, layers["phase"], strict=True))
    counts = Counter(keys)
    return [
        path if counts[key] == 1 else f"{path} {short(printable(str(function)))}"
        for path, key, function in zip(paths, keys, layers["function"], strict=True)
    ]
