"""Summary -> rows of the tables by phase, group and link that the terminal and the report share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.basics.paths import above
from chainer_profile.basics.units import format_count
from chainer_profile.basics.words import GROUPS
from chainer_profile.report.document import HOT
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary


@dataclass(frozen=True)
class PhaseRow:
    """A phase of a trial, or the whole of it; times are means in seconds a trial."""

    name: str
    layers: int
    layers_s: float
    framework_s: float
    total_s: float
    share: float
    whole: bool = False


@dataclass(frozen=True)
class GroupRow:
    """Layers added up, by phase and in all; times in seconds a trial."""

    name: str
    calls: float
    phases_s: tuple[float, ...]
    total_s: float
    mean_s: float
    share: float
    hot: int


@dataclass(frozen=True)
class LinkRow:
    """A link of the tree, or what is outside of all; what is not known is None; seconds a trial."""

    path: str
    name: str
    depth: int
    phases_s: tuple[float, ...]
    inclusive_s: float
    kind: str = ""
    calls: float | None = None
    parameters: int | None = None
    exclusive_s: float | None = None
    share: float | None = None
    hot: int | None = None
    #: Whether there are hot layers that no row below it shows.
    marked: bool = False


def phase_rows(summary: Summary) -> list[PhaseRow]:
    """The phases and their sum, which is the profiled trial where trials were timed."""
    table = summary.phases
    known = bool(summary.recording.phases)
    rest = "outside of the phases" if known else "framework, phase not known"
    rows = [
        PhaseRow(
            rest if row.Index == OUTSIDE else printable(str(row.Index)),
            int(row.layers),
            row.layers_s,
            row.framework_s,
            row.total_s,
            row.share,
        )
        for row in table.itertuples()
    ]
    whole = PhaseRow(
        "all layers" if summary.totals.profiled is None else "profiled trial",
        int(table["layers"].sum()),
        float(table["layers_s"].sum()),
        float(table["framework_s"].sum(skipna=False)),
        float(table["total_s"].sum()),
        float(table["share"].sum()),
        whole=True,
    )
    return [*rows, whole]


def shares(summary: Summary) -> list[tuple[str, float]]:
    """The functions' parts of a trial, and what is between them, largest first.

    Where whole trials were not timed they are parts of the layers' time.
    """
    totals = summary.totals
    whole = float(summary.functions["total_s"].sum())
    found = []
    if totals.profiled is not None and totals.framework is not None and totals.profiled.mean_s:
        whole = totals.profiled.mean_s
        between = "beside the layers" if summary.recording.on_device else "between the functions"
        if summary.recording.settings.engine:
            between = "between the nodes"
        found.append((between, totals.framework.mean_s / whole))
    if not whole:
        return []
    found += [
        (printable(str(name)), float(total_s) / whole)
        for name, total_s in summary.functions["total_s"].items()
    ]
    return sorted(found, key=lambda part: -part[1])


def group_rows(summary: Summary, by: str) -> list[GroupRow]:
    """The layers added up by one of :data:`~chainer_profile.basics.words.GROUPS`, slowest first."""
    phases = summary.phase_names
    table = summary.functions if by == GROUPS[0] else summary.group(by)
    return [
        GroupRow(
            printable(str(name)),
            float(row["calls"]),
            tuple(float(row.get(f"{phase}_s", 0.0)) for phase in phases),
            float(row["total_s"]),
            float(row["mean_s"]),
            float(row["share"]),
            int(row["hot"]),
        )
        for name, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def shortened(rows: list[GroupRow], most: int) -> list[GroupRow]:
    """The first groups, and the sum of all others as the last one."""
    rest = rows[most:]
    if len(rest) < 2:
        return rows
    calls = sum(row.calls for row in rest)
    total_s = math.fsum(row.total_s for row in rest)
    others = GroupRow(
        f"{format_count(len(rest))} others",
        calls,
        tuple(map(math.fsum, zip(*(row.phases_s for row in rest), strict=True))),
        total_s,
        total_s / calls,
        math.fsum(row.share for row in rest),
        sum(row.hot for row in rest),
    )
    return [*rows[:most], others]


def hot_marks(layers: pd.DataFrame) -> list[str]:
    """The marks of these layers' rows."""
    return [HOT if hot else "" for hot in layers["hot"]]


def layer_anchor(index: int) -> str:
    """What leads to a layer's row."""
    return f"layer-{index}"


def link_anchor(summary: Summary, path: str) -> str:
    """What leads to a link's row; empty where there is none."""
    return f"link-{summary.links.index.get_loc(path)}" if path in summary.links.index else ""


def has_blocks(summary: Summary) -> bool:
    """Whether adding up by block says something that adding up by link does not."""
    blocks = [name for name in summary.group("block").index if str(name).startswith("/")]
    links = {path for path in summary.layers["path"] if path.startswith("/")}
    return 1 < len(blocks) < len(links)


def tree_rows(
    summary: Summary, depth: int, most: int | None = None
) -> tuple[list[LinkRow], list[LinkRow]]:
    """The tree of links down to a level, and what comes beside it, which adds up to the trial."""
    table = summary.links
    inside = table[[str(path).startswith("/") for path in table.index]]
    shown = inside[inside["depth"] <= depth]
    if most is not None and len(shown) > most:
        # Never a link without those above it: they take at least as long, and come first.
        slowest = shown.sort_values("inclusive_s", ascending=False, kind="stable").head(most)
        shown = shown[shown.index.isin(slowest.index)]
    # Hot layers that are counted in a row further below need no mark.
    seen_below: dict[str, int] = {}
    for path, hot in shown["hot"].items():
        holder = above(str(path))
        if holder is not None:
            seen_below[holder] = seen_below.get(holder, 0) + int(hot)
    links = [_link_row(summary, path, seen_below.get(str(path), 0)) for path in shown.index]
    outside = table.index.difference(inside.index, sort=False)
    beside = [_link_row(summary, path, 0) for path in outside]
    totals, phases = summary.totals, summary.phases
    columns = summary.phase_names
    if totals.framework is not None and totals.profiled is not None:
        for name, column, whole_s in (
            ("framework", "framework_s", totals.framework.mean_s),
            ("profiled trial", "total_s", totals.profiled.mean_s),
        ):
            by_phase = tuple(float(phases[column][phase]) for phase in columns)
            beside.append(LinkRow(name, name, 0, by_phase, whole_s))
    return links, beside


def _link_row(summary: Summary, path: str, seen_below: int) -> LinkRow:
    row = summary.links.loc[path]
    phases = summary.phase_names
    return LinkRow(
        path=printable(path),
        name=printable(str(row["name"])),
        depth=int(row["depth"]),
        phases_s=tuple(float(row.get(f"{phase}_inclusive_s", 0.0)) for phase in phases),
        inclusive_s=float(row["inclusive_s"]),
        kind=printable(str(row["kind"])),
        calls=None if pd.isna(row["calls"]) else float(row["calls"]),
        parameters=None if pd.isna(row["parameters"]) else int(row["parameters"]),
        exclusive_s=float(row["exclusive_s"]),
        share=float(row["share"]),
        hot=int(row["hot"]),
        marked=bool(row["hot"] > seen_below),
    )
