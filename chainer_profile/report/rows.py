"""Summary -> frames of the tables by phase, group and link, and what leads to rows."""

from __future__ import annotations

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


def phase_rows(summary: Summary) -> pd.DataFrame:
    """The phases, and last their sum, which is the profiled trial where trials were timed."""
    table = summary.phases
    rest = "outside of the phases" if summary.recording.phases else "framework, phase not known"
    names = [rest if name == OUTSIDE else str(name) for name in table.index]
    whole = "all layers" if summary.totals.profiled is None else "profiled trial"
    total = table.sum(skipna=False).to_frame(whole).T
    return pd.concat([table.set_axis(names), total])


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


def group_rows(summary: Summary, by: str, most: int | None = None) -> pd.DataFrame:
    """The layers added up by one of :data:`~.words.GROUPS`, slowest first.

    Behind the first ones all others are one row, where there are several.
    """
    table = summary.functions if by == GROUPS[0] else summary.group(by)
    rest = table.iloc[len(table) if most is None else most :]
    if len(rest) < 2:
        return table
    others = rest.sum()
    others["mean_s"] = others["total_s"] / others["calls"]
    return pd.concat([table.iloc[:most], others.to_frame(f"{format_count(len(rest))} others").T])


def hot_marks(rows: pd.DataFrame, column: str = "hot") -> list[str]:
    """The marks of these rows."""
    return [HOT if hot else "" for hot in rows[column]]


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
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tree of links down to a level, and what comes beside it, which adds up to the trial.

    ``marked`` are links with hot layers that no row below them shows.
    """
    totals, phases, table = summary.totals, summary.phases, summary.links
    fields = {phase: f"{phase}_inclusive_s" for phase in summary.phase_names}
    table = table.assign(**{name: 0.0 for name in fields.values() if name not in table})
    inside = table[[str(path).startswith("/") for path in table.index]]
    shown = inside[inside["depth"] <= depth]
    if most is not None and len(shown) > most:
        # Never a link without those above it: they take at least as long, and come first.
        slowest = shown.sort_values("inclusive_s", ascending=False, kind="stable").head(most)
        shown = shown[shown.index.isin(slowest.index)]
    # Hot layers that are counted in a row further below need no mark.
    seen_below = shown["hot"].groupby([above(str(path)) for path in shown.index]).sum()
    seen = seen_below.reindex(shown.index, fill_value=0)
    outside = table.drop(inside.index)
    beside = [outside.assign(marked=outside["hot"] > 0)]
    if totals.framework is not None and totals.profiled is not None:
        for name, column, whole_s in (
            ("framework", "framework_s", totals.framework.mean_s),
            ("profiled trial", "total_s", totals.profiled.mean_s),
        ):
            row = {"name": name, "kind": "", "depth": 0, "inclusive_s": whole_s, "marked": False}
            row |= {field: phases[column][phase] for phase, field in fields.items()}
            beside.append(pd.DataFrame([row], index=[name]))
    return shown.assign(marked=shown["hot"] > seen), pd.concat(beside)
