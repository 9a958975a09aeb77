"""Summary -> ``report.json``: settings, environment, totals, layers, links and findings, plainly.

docs/files.md says what its keys are.
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
from chainer_profile.record.recording import MemoryUse, Recording
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, PHASES, link_frame
from chainer_profile.report.tables import to_json

FORMAT = "chainer-profile report"
#: Raised when a key changes its meaning or goes. Keys may be added without that.
VERSION = 3
#: The columns of a layer that a trial as a whole has, too, under the same keys.
_STATISTICS = ("mean", "std", "ci95_low", "ci95_high", "min", "p5", "median", "p95", "p99", "max")


def render(summary: Summary) -> str:
    """The report as JSON in ASCII; every column, finding and part has a line of its own."""
    return _text(content(summary)) + "\n"


def content(summary: Summary) -> dict[str, Any]:
    """The content of :func:`render`, as dicts, lists, numbers and texts."""
    run = summary.recording
    report = {
        "format": FORMAT,
        "version": VERSION,
        "ended": run.ended,
        "settings": run.settings,
        "environment": run.environment,
        "conditions": run.conditions,
        "limits": run.limits,
        "trials": _trials(run),
        "totals": _totals(summary),
        "phases": to_json(PHASES, summary.phases),
        "hotspots": {"rule": summary.hotspots.rule.text, "layers": summary.hotspots.indices},
        "findings": summary.findings,
        "layers": to_json(LAYER_COLUMNS, summary.layers),
        "links": to_json(LINK_COLUMNS, link_frame(summary.links)),
        "memory": run.memory and _memory(run.memory),
        "counters": trial_counters(run),
        "inside": _inside(summary),
        "device": summary.device
        and {
            **asdict(summary.device),
            "busy_share": summary.device.busy_share,
            "launch_bound": summary.device.launch_bound,
        },
    }
    return {key: _plain(value) for key, value in report.items() if _is_known(value)}


def _trials(run: Recording) -> dict[str, int]:
    return {
        "profiled": run.n_trials,
        "unprofiled": len(run.clean_ns),
        "warmup": len(run.warmup_ns),
        "held": 0 if run.held_ns is None else len(run.held_ns),
        "left_out": 0,  # of versions before 0.2.0, for their readers
    }


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
    return {"trials": times.count, **{column.csv: column.in_json(times) for column in columns}}


def _memory(use: MemoryUse) -> dict[str, Any]:
    """The results of the memory pass, without the lists that are columns of the layers."""
    of_layers = ("peak_nbytes", "retained_nbytes")
    return {key: value for key, value in asdict(use).items() if key not in of_layers}


def _inside(summary: Summary) -> dict[str, Any] | None:
    inside, sampled = summary.inside, summary.recording.inside
    if inside is None or sampled is None:
        return None
    return {
        **{name: getattr(sampled, name) for name in ("method", "samples", "trials", "notes")},
        "functions": list(map(_parts, inside.functions)),
        "layers": list(map(_parts, inside.layers)),
        "framework": inside.framework and _parts(inside.framework),
    }


def _parts(of: Parts) -> dict[str, Any]:
    """The parts of the time of a layer, a function or the framework, as shares of it."""
    names = ("name", "cause", "share", "low", "high")
    parts = [{name: getattr(part, name) for name in names} for part in of.parts]
    return {"name": of.name, "phase": of.phase, "samples": of.samples, "parts": parts}


def _is_known(value: Any) -> bool:
    """Whether a value is known: 0 and False are, None and "" are not."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)


def _plain(value: Any) -> Any:
    """A value of JSON. One that is not known has no key; in a list it is None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items() if _is_known(part)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: float) -> float | None:
    """A number with as many digits as reports show, and none of them lost before the point."""
    if not math.isfinite(value):
        return None
    number = round(value) if abs(value) >= 10**DIGITS else float(f"{value:.{DIGITS}g}")
    return int(number) if number == int(number) else number


def _text(value: Any, depth: int = 0) -> str:
    """JSON, in which lists and objects that hold others have a line for each part."""
    if not isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False)
    parts = value.values() if isinstance(value, dict) else value
    texts = [_text(part, depth + 1) for part in parts]
    if isinstance(value, dict):
        texts = [f"{json.dumps(key)}: {text}" for key, text in zip(value, texts, strict=True)]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    if not any(isinstance(part, dict | list) for part in parts):
        between = ", " if isinstance(value, dict) else ","
        return f"{opened}{between.join(texts)}{closed}"
    line = "\n" + " " * depth
    return f"{opened}{line} {f',{line} '.join(texts)}{line}{closed}"
