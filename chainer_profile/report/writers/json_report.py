"""Summary -> ``report.json``: settings, environment, totals, layers, links and findings.

docs/files.md describes the keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from chainer_profile.analyse.counted import trial_counters
from chainer_profile.analyse.inside import Parts
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import Statistics
from chainer_profile.basics.units import DIGITS
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, PHASES, link_frame
from chainer_profile.report.tables import to_json

FORMAT = "chainer-profile report"
#: Raised when a key is removed or changes its meaning, but not when a key is added.
VERSION = 3
#: The columns of layers that the totals of a trial have under the same keys.
_STATISTICS = ("mean", "std", "ci95_low", "ci95_high", "min", "p5", "median", "p95", "p99", "max")

#: Results of the memory pass that are columns of the layers, and so not repeated.
_LAYER_MEMORY = ("peak_nbytes", "retained_nbytes")


def render(summary: Summary) -> str:
    """Format the report as ASCII JSON, with one line for each column, finding and object."""
    return _text(content(summary)) + "\n"


def content(summary: Summary) -> dict[str, Any]:
    """The content of :func:`render` as dicts, lists, numbers and strings."""
    run, device = summary.recording, summary.device
    memory = asdict(run.memory) if run.memory else {}
    for key in _LAYER_MEMORY:
        memory.pop(key, None)
    report = {
        "format": FORMAT,
        "version": VERSION,
        "ended": run.ended,
        "settings": run.settings,
        "environment": run.environment,
        "conditions": run.conditions,
        "limits": run.limits,
        "trials": {
            "profiled": run.n_trials,
            "unprofiled": len(run.clean_ns),
            "warmup": len(run.warmup_ns),
            "held": 0 if run.held_ns is None else len(run.held_ns),
            "left_out": 0,  # for programs that read reports of versions before 0.2.0
        },
        "totals": _totals(summary),
        "phases": to_json(PHASES, summary.phases),
        "hotspots": {"rule": summary.hotspots.rule.text, "layers": summary.hotspots.indices},
        "findings": summary.findings,
        "layers": to_json(LAYER_COLUMNS, summary.layers),
        "links": to_json(LINK_COLUMNS, link_frame(summary.links)),
        "memory": memory,
        "counters": trial_counters(run),
        "inside": _inside(summary),
        "device": device
        and {
            **asdict(device),
            "busy_share": device.busy_share,
            "launch_bound": device.launch_bound,
        },
    }
    return {key: _plain(value) for key, value in report.items() if _is_known(value)}


def _totals(summary: Summary) -> dict[str, Any]:
    totals = summary.totals
    return {
        "layers_ms": None if totals.layers_s is None else totals.layers_s * 1e3,
        "framework": _statistics(totals.framework),
        "profiled": _statistics(totals.profiled),
        "unprofiled": _statistics(totals.clean),
        "framework_share": totals.framework_share,
        "overhead": totals.overhead,
        "inputs_per_s": totals.fps,
    }


def _statistics(times: Statistics | None) -> dict[str, Any] | None:
    if times is None:
        return None
    columns = [LAYER_COLUMNS[key] for key in _STATISTICS]
    return {"trials": times.count, **{column.csv: column.json_value(times) for column in columns}}


def _inside(summary: Summary) -> dict[str, Any] | None:
    inside, sampled = summary.inside, summary.recording.inside
    if inside is None or sampled is None:
        return None
    return {
        **{name: getattr(sampled, name) for name in ("method", "samples", "trials", "notes")},
        "functions": list(map(_divided_time, inside.functions)),
        "layers": list(map(_divided_time, inside.layers)),
        "framework": inside.framework and _divided_time(inside.framework),
    }


def _divided_time(time: Parts) -> dict[str, Any]:
    """The fractions into which samples divide the time of a layer, function or the framework."""
    names = ("name", "cause", "share", "low", "high")
    parts = [{name: getattr(part, name) for name in names} for part in time.parts]
    return {"name": time.name, "phase": time.phase, "samples": time.samples, "parts": parts}


def _is_known(value: Any) -> bool:
    """Whether the report has a value: not None, NaN, infinite or empty; 0 and False count."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)


def _plain(value: Any) -> Any:
    """Convert a value to JSON types. Unknown values are omitted from dicts and None in lists."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if _is_known(item)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: float) -> float | None:
    """Round a number to the digits that reports show, but at least to an integer."""
    if not math.isfinite(value):
        return None
    number = round(value) if abs(value) >= 10**DIGITS else float(f"{value:.{DIGITS}g}")
    return int(number) if number == int(number) else number


def _text(value: Any, depth: int = 0) -> str:
    """Format JSON; a list or object that contains others has one line for each item."""
    if not isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False)
    if isinstance(value, dict):
        texts = [f"{json.dumps(key)}: {_text(item, depth + 1)}" for key, item in value.items()]
        ends, separator, items = "{}", ", ", [*value.values()]
    else:
        texts, ends, separator = [_text(item, depth + 1) for item in value], "[]", ","
        items = value
    if not any(isinstance(item, dict | list) for item in items):
        return f"{ends[0]}{separator.join(texts)}{ends[1]}"
    line = "\n" + " " * depth
    return f"{ends[0]}{line} {f',{line} '.join(texts)}{line}{ends[1]}"
