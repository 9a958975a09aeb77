"""The rows of a run's tables of phases, groups and links; the framework's; and rows' anchors."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.paths import above
from chainer_profile.report.document import HOT
from chainer_profile.report.text import between, printable


def phase_rows(summary: Summary) -> pd.DataFrame:
    """The phases, and last their sum, which is the profiled trial where trials were timed."""
    table = summary.phases
    rest = "outside of the phases" if summary.recording.phases else "framework, phase not known"
    names = [rest if name == OUTSIDE else str(name) for name in table.index]
    whole = "all layers" if summary.totals.profiled is None else "profiled trial"
    total = table.sum(skipna=False).to_frame(whole).T
    return pd.concat([table.set_axis(names), total])


def shares(summary: Summary) -> list[tuple[str, float]]:
    """The parts of a trial that functions and the framework take, largest first.

    Where whole trials were not timed they are parts of the layers' time.
    """
    totals = summary.totals
    whole = float(summary.functions["total_s"].sum())
    parts = []
    if totals.profiled is not None and totals.framework is not None and totals.profiled.mean_s:
        whole = totals.profiled.mean_s
        parts.append((between(summary.recording), totals.framework.mean_s / whole))
    if not whole:
        return []
    parts += [
        (printable(str(name)), float(total_s) / whole)
        for name, total_s in summary.functions["total_s"].items()
    ]
    return sorted(parts, key=lambda part: -part[1])


def framework_of_groups(summary: Summary) -> pd.DataFrame:
    """The framework as a row behind the groups; none where it is not known."""
    totals = summary.totals
    if totals.framework is None or summary.recording.settings.inclusive:
        return pd.DataFrame()
    row = {"total_s": totals.framework.mean_s, "share": totals.framework_share}
    row |= {f"{name}_s": time_s for name, time_s in summary.phases["framework_s"].items()}
    return pd.DataFrame([row], index=[between(summary.recording)])


def framework_of_layers(summary: Summary) -> list[Any]:
    """The same behind the layers."""
    totals, first = summary.totals, next(summary.layers.itertuples())
    if totals.framework is None or summary.recording.settings.inclusive:
        return []
    row = dict.fromkeys(first._fields, math.nan) | vars(totals.framework)
    del row["count"]
    row |= dict.fromkeys(("Index", "path", "phase", "verdict"), "") | {"hot": False}
    row |= {"function": between(summary.recording), "share": totals.framework_share}
    return [type(first)(**row)]


def hot_marks(rows: pd.DataFrame, column: str = "hot") -> list[str]:
    return [HOT if hot else "" for hot in rows[column]]


def layer_anchor(index: int) -> str:
    return f"layer-{index}"


def link_anchor(summary: Summary, path: str) -> str:
    """The anchor of a link's row; empty where there is none."""
    return f"link-{summary.links.index.get_loc(path)}" if path in summary.links.index else ""


def tree_rows(summary: Summary, depth: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tree of links down to a level, and the rows beside it: together they are the trial.

    ``marked`` are links with hot layers that no row below them shows.
    """
    totals, phases, table = summary.totals, summary.phases, summary.links
    fields = {phase: f"{phase}_inclusive_s" for phase in summary.phase_names}
    table = table.assign(**{name: 0.0 for name in fields.values() if name not in table})
    inside = table[[str(path).startswith("/") for path in table.index]]
    shown = inside[inside["depth"] <= depth]
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
            row["share"] = whole_s / totals.profiled.mean_s if totals.profiled.mean_s else math.nan
            beside.append(pd.DataFrame([row], index=[name]))
    return shown.assign(marked=shown["hot"] > seen), pd.concat(beside)
