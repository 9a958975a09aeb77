"""Summary -> ``report.json``: everything that a script may ask for, with all digits.

The tables of keys say what is where; docs/report.schema.json is made from them.
Numbers are numbers, in seconds, bytes or fractions, as the names of their keys say; what is not
known is null. Names are data: as they are, without the apostrophes and escapes of other files.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import msgspec
import pandas as pd
from msgspec import Meta, Struct

from chainer_profile.analyse import counted, device_use, findings
from chainer_profile.analyse import inside as insides
from chainer_profile.analyse import summary as summaries
from chainer_profile.analyse.roofline import COMPUTE, MEMORY
from chainer_profile.analyse.verdicts import BELOW, FAULTS
from chainer_profile.basics.paths import above
from chainer_profile.basics.words import GROUPS
from chainer_profile.record import recording as records
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS
from chainer_profile.report.tables import meanings, to_json
from chainer_profile.report.tables import schema as schema_of

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

FORMAT = "chainer-profile report"
#: Raised when a key changes its meaning or goes. Keys may be added without that.
VERSION = 3
DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: Keys with the types of their values, and what they mean.
Keys = dict[str, tuple[Any, str]]


def _object(name: str, keys: Keys, **more: Any) -> Any:
    """An object of which all these keys are there."""
    found = [
        (key, Annotated[kind, Meta(description=text)] if text else kind)
        for key, (kind, text) in keys.items()
    ]
    return msgspec.defstruct(name, found, module=__name__, **more)


def _of(kind: type, keys: Keys) -> Any:
    """The fields of a dataclass, and more keys; the fields' meanings are those of its docstring."""
    hints = get_type_hints(kind)
    own = {field.name: (hints[field.name], "") for field in fields(kind)}
    return _object(kind.__name__, own | keys)


def _meanings(kind: type) -> dict[str, str]:
    """The meanings in a docstring's list of attributes, in plain words."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: _words(text) for name, text in entries}


def _words(text: str) -> str:
    """A meaning on one line, without the marks of docstrings and the full stop."""
    text = re.sub(r":\w+:`[.~]?([^`]*)`", r"\1", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", text.replace("``", "").removesuffix("."))


def _times() -> Keys:
    """The statistics of times, in the words of layers.csv."""
    names = ("mean", "std", "ci95_low", "ci95_high", "min", "p5", "median", "p95", "p99", "max")
    return {
        f"{name}_s".replace("ci95", "ci"): (
            _NUMBER if name in ("std", "ci95_low", "ci95_high") else float,
            LAYER_COLUMNS[name].meaning.replace("self time", "time"),
        )
        for name in names
    }


_COUNT: Any = Annotated[int, Meta(ge=0)]
#: A number of calls, or the mean of such numbers.
_CALLS: Any = Annotated[float, Meta(ge=0)]
_NUMBER: Any = float | None
_LINK = meanings(LINK_COLUMNS)

_TRIALS = _object(
    "Trials",
    {
        "profiled": (_COUNT, "With the recorder: the layers' times are from these"),
        "clean": (_COUNT, "Without any hook: the latency to quote is from these"),
        "warmup": (_COUNT, "Before the others"),
        "held": (_COUNT, "On a GPU, those that it began when the host had launched all"),
    },
)
_STATISTICS = _object(
    "Statistics",
    {"count": (_COUNT, "Number of trials"), **_times()},
    rename={"count": "trials", "ci_low_s": "ci95_low_s", "ci_high_s": "ci95_high_s"},
)
_RECORDER = _object(
    "Recorder",
    {
        "fraction": (float, "Added time as a fraction of a clean trial"),
        "low": (_NUMBER, "Lower end of its 95 % interval"),
        "high": (_NUMBER, "Upper end"),
    },
)
_TOTALS = _object(
    "Totals",
    {
        "layers_s": (
            _NUMBER,
            "Sum of the layers' mean self times; null where the times of calls hold those of the "
            "calls within them",
        ),
        "clean": (
            _STATISTICS | None,
            "Wall time of the trials without hooks; null where many made other calls",
        ),
        "profiled": (_STATISTICS | None, "Wall time of the profiled trials"),
        "framework": (
            _STATISTICS | None,
            "Time between the functions, in the profiled trials",
        ),
        "framework_share": (_NUMBER, "Its part of a profiled trial"),
        "recorder": (_RECORDER | None, "What the recorder adds to a trial"),
        "inputs_per_s": (_NUMBER, "Inputs a second, of clean trials or else of profiled ones"),
    },
)
_HOTSPOTS = _object(
    "Hotspots",
    {
        "rule": (str, "The rule as --hotspots takes it"),
        "kind": (Literal["time", "share", "top", "pareto"], "What the rule goes by"),
        "value": (float, "In seconds, as a fraction, a number of layers, or a fraction"),
        "line_s": (
            _NUMBER,
            "Median time from which a layer is hot; null where the rule has no such line",
        ),
        "layers": (list[_COUNT], "Indices of the hot layers"),
    },
)
_PHASE: Any = _object(
    "Phase",
    {
        "name": (str, "Its name; outside for the framework time of no phase"),
        "layers": (_COUNT, "Number of its layers"),
        "layers_s": (float, "Their time"),
        "framework_s": (_NUMBER, "Time between them"),
        "total_s": (float, "Both together"),
        "share": (float, "Part of the trial"),
    },
)
_GROUP: Any = _object(
    "Group",
    {
        "name": (str, "Function, path, or function with input shapes"),
        "calls": (_CALLS, "Calls in a trial, of the forward pass where there are any"),
        "total_s": (float, "Time in a trial"),
        "mean_s": (_NUMBER, "Time a call"),
        "share": (float, "Part of the layers' time"),
        "hot_layers": (_COUNT, "Number of hot layers"),
        "phases_s": (dict[str, float], "Time by phase"),
    },
)
_GROUPS = _object("Groups", {by: (list[_GROUP], f"By {by}, slowest first") for by in GROUPS})
_LINK_TIMES: Keys = {
    "inclusive_s": (float, _LINK["inclusive_ms"]),
    "exclusive_s": (float, _LINK["exclusive_ms"]),
}
_BY_PHASE: Any = _object("LinkTimes", _LINK_TIMES)
_LINKS: Any = _object(
    "Link",
    {
        "path": (str, _LINK["path"]),
        "parent": (str | None, "Path of the link above; null at depth 0"),
        "name": (str, "Last part of the path"),
        "kind": (str, _LINK["kind"]),
        "depth": (_COUNT, _LINK["depth"]),
        "calls": (_CALLS | None, _LINK["calls"]),
        "parameters": (_COUNT | None, _LINK["parameters"]),
        **_LINK_TIMES,
        "share": (float, _LINK["share_percent"]),
        "hot_layers": (_COUNT, _LINK["hot_layers"]),
        "phases": (dict[str, _BY_PHASE], "The same times by phase"),
    },
)
_CSV = schema_of(LAYER_COLUMNS)
_LAYER: Any = _object(
    "Layer",
    _CSV
    | {
        "flops_per_s": (_NUMBER, "Operations a second, from the median self time"),
        "nbytes_per_s": (_NUMBER, "Bytes a second, read and written"),
        "bound_s": (_NUMBER, "Least time at this machine's limits"),
        "verdict": (
            Literal[(COMPUTE, MEMORY, FAULTS, *insides.CAUSES, BELOW, None)],
            f"{_CSV['verdict'][1]}; null where that is not known",
        ),
        "parent_index": (int | None, "Index of the call within which this one was made"),
        "covers": (
            tuple[int, ...],
            "In a recording of another engine, indices of Chainer's layers that this row does",
        ),
        "node": (str, "In such a recording, the engine's own words for the row"),
    },
)
_FINDING: Any = _of(findings.Finding, {"severity": (Literal[findings.SEVERITIES], "")})
_LIMITS = _of(
    records.MachineLimits,
    {"ridge": (float, "Operations a byte from which arithmetic and not memory is the bound")},
)
_DEVICE = _of(
    device_use.DeviceUse,
    {
        "launch_bound": (bool, "Whether the host's launching sets the pace, and not the device"),
        "between_s": (float, "Time of the host between the layers' calls, while it launches"),
        "busy_share": (_NUMBER, "Part of the trial in which the device works; at most 1"),
        "idle_s": (_NUMBER, "Time of a trial in which the device has nothing to do"),
    },
)
_COUNTERS = _of(
    counted.TrialCounters,
    {
        **{field.name: (_NUMBER, "") for field in fields(counted.TrialCounters)},
        "system_share": (_NUMBER, "Part of the CPU time that the system takes"),
        "off_share": (_NUMBER, "Part of the wall time in which the thread did not run"),
    },
)
_PARTS: Any = _of(
    insides.Parts,
    {
        "causes": (dict[str, float], "Fraction of its time by cause, where that is known"),
        "largest_cause": (str, "Cause of more than half of its time; empty where none is"),
    },
)
_INSIDE = _object(
    "Inside",
    {
        "method": (str, "What looked where the interpreter was"),
        "samples": (_COUNT, "How often it looked while a trial ran"),
        "trials": (_COUNT, "Number of these trials, after the timed ones"),
        "notes": (list[str], "What it could not tell"),
        "functions": (list[_PARTS], "By function and phase, slowest first"),
        "layers": (list[_PARTS], "By layer, of those that were seen often enough"),
        "framework": (
            _PARTS | None,
            "Time between the layers by kind; null where it was not seen often enough",
        ),
    },
)
#: The whole.
Report: Any = _object(
    "Report",
    {
        "format": (Literal[FORMAT], "What this file is"),
        "version": (
            Literal[VERSION],
            "Raised when a key changes its meaning or goes; keys may be added without that",
        ),
        "ended": (str, "complete, or why the run ended before"),
        "settings": (records.Settings, "What was asked for"),
        "environment": (records.Environment, "Machine and software"),
        "conditions": (records.Conditions, "What was measured about the measuring itself"),
        "trials": (_TRIALS, "Numbers of trials that were made"),
        "totals": (_TOTALS, "A trial as a whole"),
        "left_out": (_COUNT, "Number of profiled trials that made other calls: in no result"),
        "hotspots": (_HOTSPOTS, "The rule for hot layers, and what it chose"),
        "findings": (list[_FINDING], "What the reader should know, warnings first"),
        "phases": (
            list[_PHASE],
            "The phases of a trial, which add up to it, with what is outside of them",
        ),
        "groups": (_GROUPS, "The layers added up"),
        "links": (list[_LINKS], "The tree of links, every link before those below it"),
        "layers": (list[_LAYER], "The layers in the order of the calls"),
        "memory": (records.MemoryUse | None, "What the memory pass found; null without one"),
        "counters": (
            _COUNTERS | None,
            "Of the calling thread, means of a trial of the counters pass; null without one",
        ),
        "inside": (
            _INSIDE | None,
            "In which parts the time inside the layers goes; null without that pass",
        ),
        "limits": (
            _LIMITS | None,
            "What the machine can do at best; null where it was not measured",
        ),
        "device": (_DEVICE | None, "How a trial uses the GPU; null for a run on the host"),
    },
)


#: What holds for every key.
_RULES = (
    "Result of a run of chainer-profile. Times are seconds, sizes bytes, shares fractions from 0 "
    "to 1. The end of a key says so: _s, _ns (nanoseconds), _nbytes. Numbers have all their "
    "digits. What is not known is null; there is no NaN and no infinity. All keys are always "
    "there. Later versions may add some, so pass over keys that you do not know. Names are as they "
    "are in the network, without the apostrophes and escapes of layers.csv. The text is ASCII: "
    "other characters are written as \\u and their code. Every layer, link, group and finding is "
    "a line of its own."
)


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what :func:`content` returns."""
    (whole,), parts = msgspec.json.schema_components([Report])
    described = {
        kind.__name__: _meanings(kind)
        for module in (records, findings, summaries, device_use, counted, insides)
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind)
    }
    for name, part in parts.items():
        # All keys are there, with those of dataclasses that have a default.
        part["required"] = list(part["properties"])
        if "description" in part:
            part["description"] = part["description"].partition("\n")[0]
        for key, found in part["properties"].items():
            found.setdefault("description", described.get(name, {}).get(key, ""))
    return {
        "$schema": DIALECT,
        "title": FORMAT,
        "description": _RULES,
        **whole,
        "$defs": parts,
    }


def render(summary: Summary) -> str:
    """The report as JSON in ASCII, ending in a newline; see :func:`content`.

    Every layer, link and group is a line of its own. The same summary gives the same text.
    """
    return _text(content(summary)) + "\n"


def content(summary: Summary) -> dict[str, Any]:
    """What :func:`render` writes, as dicts, lists, numbers, texts and None; see :data:`Report`.

    No number is NaN or infinite: such a one is None.
    """
    plain = msgspec.to_builtins(_report(summary), enc_hook=_plain)
    known: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=lambda _: None)
    return known


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, and the <NA> of pandas as None."""
    return None if value is pd.NA else value.item()


def _report(summary: Summary) -> Any:
    recording, totals, rule = summary.recording, summary.totals, summary.hotspots.rule
    return Report(
        format=FORMAT,
        version=VERSION,
        ended=recording.ended,
        settings=asdict(recording.settings),
        environment=asdict(recording.environment),
        conditions=asdict(recording.conditions),
        trials=_TRIALS(
            profiled=recording.n_trials,
            clean=len(recording.clean_ns),
            warmup=len(recording.warmup_ns),
            held=0 if recording.held_ns is None else len(recording.held_ns),
        ),
        totals=_TOTALS(
            layers_s=totals.layers_s,
            clean=_from(totals.clean, _STATISTICS),
            profiled=_from(totals.profiled, _STATISTICS),
            framework=_from(totals.framework, _STATISTICS),
            framework_share=totals.framework_share,
            recorder=_from(totals.overhead, _RECORDER),
            inputs_per_s=totals.fps,
        ),
        left_out=recording.left_out,
        hotspots=_HOTSPOTS(
            rule=rule.text,
            kind=rule.kind,
            value=rule.value,
            line_s=summary.hotspots.line_s,
            layers=summary.hotspots.indices,
        ),
        findings=[asdict(finding) for finding in summary.findings],
        phases=[_PHASE(name, **row) for name, row in _rows(summary.phases)],
        groups=_GROUPS(*(_groups(summary, by) for by in GROUPS)),
        links=_links(summary),
        layers=_layers(summary),
        memory=recording.memory and asdict(recording.memory),
        counters=_from(counted.trial_counters(recording), _COUNTERS),
        inside=_inside(summary),
        limits=_from(recording.limits, _LIMITS),
        device=_from(summary.device, _DEVICE),
    )


def _inside(summary: Summary) -> Any:
    seen, found = summary.recording.inside, summary.inside
    if seen is None or found is None:
        return None
    framework = found.framework
    return _INSIDE(
        method=seen.method,
        samples=seen.samples,
        trials=seen.trials,
        notes=list(seen.notes),
        functions=list(map(_parts, found.functions)),
        layers=list(map(_parts, found.layers)),
        framework=framework and _parts(framework),
    )


def _parts(parts: insides.Parts) -> Any:
    more = {"causes": parts.causes, "largest_cause": parts.largest_cause}
    return _PARTS(**(asdict(parts) | more))


def _from(value: Any, kind: type[Struct]) -> Struct | None:
    """The attributes of these names, where there is a value at all."""
    if value is None:
        return None
    return kind(**{name: getattr(value, name) for name in kind.__struct_fields__})


def _rows(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    return zip(table.index, table.to_dict("records"), strict=True)


def _layers(summary: Summary) -> list[dict[str, Any]]:
    rows = to_json(LAYER_COLUMNS, summary.layers)
    more = (
        {"parent_index": layer.parent, "covers": layer.covers, "node": layer.node}
        for layer in summary.recording.layers
    )
    return [
        row | {"bound_s": bound_s, "verdict": row["verdict"] or None} | others
        for row, bound_s, others in zip(rows, summary.layers["bound_s"].tolist(), more, strict=True)
    ]


def _groups(summary: Summary, by: str) -> list[Struct]:
    phases = list(summary.layers["phase"].unique())
    return [
        _GROUP(
            name,
            *(row[key] for key in ("calls", "total_s", "mean_s", "share", "hot")),
            {phase: row[f"{phase}_s"] for phase in phases},
        )
        for name, row in _rows(summary.functions if by == "function" else summary.group(by))
    ]


def _links(summary: Summary) -> list[Struct]:
    phases = list(summary.layers["phase"].unique())
    return [
        _LINKS(
            path=path,
            parent=above(path),
            hot_layers=row["hot"],
            phases={phase: {key: row[f"{phase}_{key}"] for key in _LINK_TIMES} for phase in phases},
            **{key: row[key] for key in ("name", "kind", "depth", "calls", "parameters", "share")},
            **{key: row[key] for key in _LINK_TIMES},
        )
        for path, row in _rows(summary.links)
    ]


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
