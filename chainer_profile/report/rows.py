"""The rows of a run's tables of phases, groups and links; the framework's row; anchors of rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import Statistics
from chainer_profile.basics.paths import above
from chainer_profile.basics.units import plural
from chainer_profile.report.document import HOT
from chainer_profile.report.text import framework_name, printable


def phase_rows(summary: Summary) -> pd.DataFrame:
    """The phases and, last, their sum: the profiled trial, or all layers without timed trials."""
    table = summary.phases
    rest = "outside of the phases" if summary.recording.phases else "framework, phase not known"
    names = [rest if name == OUTSIDE else str(name) for name in table.index]
    whole = "all layers" if summary.totals.profiled is None else "profiled trial"
    total = table.sum(skipna=False).to_frame(whole).T
    return pd.concat([table.set_axis(names), total])


class Part(NamedTuple):
    """A part of a trial."""

    name: str
    seconds: float
    share: float


def framework_time(summary: Summary) -> Part | None:
    """The time of a trial outside all layers; None if it is unknown."""
    framework, share = summary.totals.framework, summary.totals.framework_share
    if framework is None or share is None or summary.recording.settings.inclusive:
        return None
    return Part(framework_name(summary.recording), framework.mean_s, share)


def shares(summary: Summary) -> list[tuple[str, float]]:
    """Names and fractions of the functions and the framework, largest first.

    They are fractions of the mean profiled trial, or of all layers if trials were not timed.
    """
    totals = summary.totals
    whole = float(summary.functions["total_s"].sum())
    parts = []
    if totals.profiled is not None and totals.framework is not None and totals.profiled.mean_s:
        whole = totals.profiled.mean_s
        parts.append((framework_name(summary.recording), totals.framework.mean_s / whole))
    if not whole:
        return []
    parts += [
        (printable(str(name)), float(total_s) / whole)
        for name, total_s in summary.functions["total_s"].items()
    ]
    return sorted(parts, key=lambda part: -part[1])


def other_groups(summary: Summary, groups: pd.DataFrame, listed: pd.DataFrame) -> pd.DataFrame:
    """The rows that complete a table of groups: the groups not listed, the framework, the trial.

    Args:
        summary: The run.
        groups: The result of :func:`.grouping.group`.
        listed: The groups in the table.

    Returns:
        Rows with some columns of ``groups``. The last row is the trial. The shares of ``listed``
        and of the other rows add up to its share. Inclusive times have no such row.
    """
    totals = summary.totals
    phases = [f"{name}_s" for name in summary.phase_names]
    times = ["total_s", "share", *(name for name in phases if name in groups)]
    rows = {}
    if count := len(groups) - len(listed):
        rest = groups.drop(listed.index)
        name = plural(count, f"other {groups.index.name}")
        rows[name] = rest[[*times, "calls", "hot"]].sum().to_dict()
    if framework := framework_time(summary):
        row = {"total_s": framework.seconds, "share": framework.share}
        row |= {f"{name}_s": time_s for name, time_s in summary.phases["framework_s"].items()}
        rows[framework.name] = row
    if not summary.recording.settings.inclusive:
        whole_s, name = whole_time(summary)
        row = {"total_s": whole_s, "share": 1.0 if whole_s else 0.0}
        row |= {f"{name}_s": time_s for name, time_s in summary.phases["total_s"].items()}
        rows[f"whole {name}" if totals.profiled else f"all {name}"] = row
    return pd.DataFrame.from_dict(rows, "index")


def other_layers(
    summary: Summary, listed: pd.DataFrame, name_column: str = "function"
) -> list[Any]:
    """The rows that complete a table of layers: the layers not listed, the framework, the trial.

    Empty for inclusive times, because they do not add up.

    Args:
        summary: The run.
        listed: The layers in the table.
        name_column: The column for the names of these rows: ``function``, ``label`` or ``path``.
    """
    if summary.recording.settings.inclusive:
        return []
    totals, rows = summary.totals, []
    if count := len(summary.layers) - len(listed):
        rest = summary.layers.drop(listed.index)
        sums = {name: float(rest[name].sum()) for name in ("mean_s", "share", "calls")}
        rows.append(_row(summary, plural(count, "other layer"), **sums))
    rows += framework_row(summary)
    whole_s, name = whole_time(summary)
    share = 1.0 if whole_s else 0.0
    if totals.profiled is not None:
        rows.append(_row_of_times(summary, f"whole {name}", share, totals.profiled))
    else:
        rows.append(_row(summary, f"all {name}", share=share, mean_s=whole_s))
    return [row._replace(**{name_column: row.function}) for row in rows]


def framework_row(summary: Summary) -> list[Any]:
    """The framework as a row of the table of layers; an empty list if its time is unknown."""
    framework, times = framework_time(summary), summary.totals.framework
    if framework is None or times is None:
        return []
    return [_row_of_times(summary, framework.name, framework.share, times)]


def _row_of_times(summary: Summary, name: str, share: float, times: Statistics) -> Any:
    statistics = {key: value for key, value in vars(times).items() if key != "count"}
    return _row(summary, name, share=share, trials=times.count, **statistics)


def _row(summary: Summary, name: str, **fields: Any) -> Any:
    """Make a row of the table of layers, such as the framework's; other fields are empty."""
    row_type = type(next(summary.layers.itertuples()))
    texts = dict.fromkeys(("path", "phase", "dtype", "verdict"), "")
    shapes = {"input_shapes": (), "output_shapes": ()}
    nothing = dict.fromkeys(("Index", "hot", "work_is_about", "forward"))
    empty = dict.fromkeys(row_type._fields, math.nan) | texts | shapes | nothing
    return row_type(**{**empty, "function": name, "label": name, **fields})


def hot_marks(rows: pd.DataFrame, column: str = "hot") -> list[str]:
    return [HOT if hot else "" for hot in rows[column]]


def layer_anchor(index: int) -> str:
    return f"layer-{index}"


def link_anchor(summary: Summary, path: str) -> str:
    """The anchor of a link's row; empty if the table has no row for the path."""
    return f"link-{summary.links.index.get_loc(path)}" if path in summary.links.index else ""


def tree_rows(summary: Summary, depth: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The links down to a depth, and the rows that complete them to the whole trial.

    The other rows are the paths outside the network, the framework and the trial. The column
    ``marked`` is true if a link has more hot layers than the rows directly below it together.
    """
    totals, phases, table = summary.totals, summary.phases, summary.links
    fields = {phase: f"{phase}_inclusive_s" for phase in summary.phase_names}
    table = table.assign(**{name: 0.0 for name in fields.values() if name not in table})
    inside = table[[str(path).startswith("/") for path in table.index]]
    listed = inside[inside["depth"] <= depth]
    # Hot layers that are counted in a row further below need no mark.
    hot_below = listed["hot"].groupby([above(str(path)) for path in listed.index]).sum()
    hot_below = hot_below.reindex(listed.index, fill_value=0)
    outside = table.drop(inside.index)
    other_rows = [outside.assign(marked=outside["hot"] > 0)]
    if totals.framework is not None and totals.profiled is not None:
        for name, column, whole_s in (
            ("framework", "framework_s", totals.framework.mean_s),
            ("profiled trial", "total_s", totals.profiled.mean_s),
        ):
            row = {"name": name, "kind": "", "depth": 0, "inclusive_s": whole_s, "marked": False}
            row |= {field: phases[column][phase] for phase, field in fields.items()}
            row["share"] = whole_s / totals.profiled.mean_s if totals.profiled.mean_s else math.nan
            other_rows.append(pd.DataFrame([row], index=[name]))
    return listed.assign(marked=listed["hot"] > hot_below), pd.concat(other_rows)
