"""Summary -> ``report.json``: everything that a script may ask for, with all digits.

:mod:`.json_schema` says what is where. Numbers are numbers, in seconds, bytes or fractions, as the
names of their keys say; what is not known is null. Names are data: as they are, without the
apostrophes and escapes that other files need.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from chainer_profile.basics.paths import above
from chainer_profile.basics.words import GROUPS
from chainer_profile.report.layer_columns import json_columns

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.basics.describe import Statistics

FORMAT = "chainer-profile report"
#: Raised when a key changes its meaning or goes. Keys may be added without that.
VERSION = 2

#: Statistics of times by their keys here: what a summary calls them.
STATISTICS = {
    "mean_s": "mean_s",
    "std_s": "std_s",
    "ci95_low_s": "ci_low_s",
    "ci95_high_s": "ci_high_s",
    "min_s": "min_s",
    "p5_s": "p5_s",
    "median_s": "median_s",
    "p95_s": "p95_s",
    "p99_s": "p99_s",
    "max_s": "max_s",
}
#: What a :class:`.DeviceUse` has as a property, not as a field.
_DEVICE_PROPERTIES = ("launch_bound", "between_s", "busy_share", "idle_s")


def render(summary: Summary) -> str:
    """The report as JSON in ASCII, ending in a newline; see :func:`content`.

    Every layer, link and group is a line of its own. The same summary gives the same text.
    """
    return _text(content(summary)) + "\n"


def content(summary: Summary) -> dict[str, Any]:
    """What :func:`render` writes, as dicts, lists, numbers, texts and None.

    It fits :func:`.json_schema.schema`. No number is NaN or infinite: such a one is None.
    """
    recording, totals = summary.recording, summary.totals
    device = summary.device
    report = {
        "format": FORMAT,
        "version": VERSION,
        "ended": recording.ended,
        "settings": asdict(recording.settings),
        "environment": asdict(recording.environment),
        "conditions": asdict(recording.conditions),
        "trials": {
            "profiled": recording.n_trials,
            "clean": len(recording.clean_ns),
            "warmup": len(recording.warmup_ns),
            "held": 0 if recording.held_ns is None else len(recording.held_ns),
        },
        "totals": {
            "layers_s": totals.layers_s,
            "clean": _statistics(totals.clean),
            "profiled": _statistics(totals.profiled),
            "framework": _statistics(totals.framework),
            "framework_share": totals.framework_share,
            "recorder": None if totals.overhead is None else asdict(totals.overhead),
            "inputs_per_s": totals.fps,
        },
        "kind": recording.kind,
        "variants": [asdict(kind) for kind in summary.kinds[1:]],
        "left_out": recording.left_out,
        "hotspots": {
            "rule": summary.hotspots.rule.text,
            "kind": summary.hotspots.rule.kind,
            "value": summary.hotspots.rule.value,
            "line_s": summary.hotspots.line_s,
            "layers": summary.hotspots.indices,
        },
        "findings": [asdict(finding) for finding in summary.findings],
        "phases": _phases(summary),
        "groups": {by: _groups(summary, by) for by in GROUPS},
        "links": _links(summary),
        "layers": _layers(summary),
        "memory": None if recording.memory is None else asdict(recording.memory),
        "limits": None
        if recording.limits is None
        else {**asdict(recording.limits), "ridge": recording.limits.ridge},
        "device": None
        if device is None
        else asdict(device) | {name: getattr(device, name) for name in _DEVICE_PROPERTIES},
    }
    plain: dict[str, Any] = _plain(report)
    return plain


def _statistics(statistics: Statistics | None) -> dict[str, Any] | None:
    if statistics is None:
        return None
    times = {key: getattr(statistics, name) for key, name in STATISTICS.items()}
    return {"trials": statistics.count, **times}


def _layers(summary: Summary) -> list[dict[str, Any]]:
    columns = json_columns()
    return [
        {
            **{described.json: described.value(row) for described in columns},
            "bound_s": row.bound_s,
            "verdict": row.verdict or None,
            "limited_by": row.limited_by or None,
            "parent_index": layer.parent,
            "covers": layer.covers,
            "node": layer.node,
        }
        for layer, row in zip(summary.recording.layers, summary.layers.itertuples(), strict=True)
    ]


def _phases(summary: Summary) -> list[dict[str, Any]]:
    table = summary.phases
    return [
        {"name": name, **row}
        for name, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def _groups(summary: Summary, by: str) -> list[dict[str, Any]]:
    table = summary.functions if by == "function" else summary.group(by)
    phases = list(summary.layers["phase"].unique())
    return [
        {
            "name": name,
            **{key: row[key] for key in ("calls", "total_s", "mean_s", "share")},
            "hot_layers": row["hot"],
            "phases_s": {phase: row[f"{phase}_s"] for phase in phases},
        }
        for name, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def _links(summary: Summary) -> list[dict[str, Any]]:
    table = summary.links
    phases = list(summary.layers["phase"].unique())
    times = ("inclusive_s", "exclusive_s")
    return [
        {
            "path": path,
            "parent": above(path),
            **{key: row[key] for key in ("name", "kind", "depth", "calls", "parameters")},
            **{key: row[key] for key in (*times, "share")},
            "hot_layers": row["hot"],
            "phases": {phase: {key: row[f"{phase}_{key}"] for key in times} for phase in phases},
        }
        for path, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def _plain(value: Any) -> Any:
    """The same in what JSON has: what is not known, and what is no number, is None."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if value is None or value is pd.NA or isinstance(value, (bool, int, str)):
        return None if value is pd.NA else value
    # What is left is a number of Python's or NumPy's.
    number = value.item() if hasattr(value, "item") else value
    return None if isinstance(number, float) and not math.isfinite(number) else number


def _text(value: Any, depth: int = 0) -> str:
    """JSON, of which the upper levels and every object of a list have lines of their own."""
    upper = isinstance(value, dict) and value and (depth == 0 or _holds_rows(value))
    if not (upper or _is_rows(value)):
        return json.dumps(value, allow_nan=False)
    inner = " " * (depth + 1)
    if isinstance(value, dict):
        parts = (f"{json.dumps(key)}: {_text(part, depth + 1)}" for key, part in value.items())
        opened, closed = "{", "}"
    else:
        parts = (json.dumps(part, allow_nan=False) for part in value)
        opened, closed = "[", "]"
    body = ",\n".join(f"{inner}{part}" for part in parts)
    return f"{opened}\n{body}\n{' ' * depth}{closed}"


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _holds_rows(value: dict[str, Any]) -> bool:
    return all(isinstance(part, list) for part in value.values())
