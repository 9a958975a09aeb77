"""What ``report.json`` holds: its JSON Schema (draft 2020-12), which docs/json.md is made from."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from chainer_profile.analyse.device_use import DeviceUse
from chainer_profile.analyse.kinds import Kind
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, OVERHEAD
from chainer_profile.analyse.summary import NOTE, WARNING, Finding
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.recording import (
    Conditions,
    Environment,
    MachineLimits,
    MemoryUse,
    Settings,
)
from chainer_profile.report import layer_columns, links_csv
from chainer_profile.report.writers.json_report import FORMAT, STATISTICS, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_TRUTH: Schema = {"type": "boolean"}
_SHAPES: Schema = {"type": "array", "items": {"type": "array", "items": _COUNT}}
_OPEN_NUMBERS: Schema = {"type": "object", "additionalProperties": _NUMBER}
_PLAIN: dict[type, Schema] = {str: _TEXT, int: _WHOLE, float: _NUMBER, bool: _TRUTH}

#: Meanings of fields that have none beside their names in the code.
_FIELDS = {
    "started": "Begin of the run (UTC)",
    "system": "Operating system and architecture",
    "processor": "Name of the processor",
    "physical_cores": "Its cores",
    "usable_cores": "Logical cores that the process may use",
    "memory_nbytes": "Main memory",
    "python": "Python and its version",
    "chainer": "Version of Chainer",
    "numpy": "Version of NumPy",
    "cupy": "Version of CuPy; empty without one",
    "profiler": "Version of chainer-profile",
    "commit": "Commit of chainer-profile's sources, where they are a git repository",
    "blas": "The BLAS libraries in the process",
    "gpu": "The GPU of the run",
    "name": "Name of the library",
    "version": "Its version",
    "threads": "Its number of threads",
    "kernels": "Architecture whose kernels it runs; empty where that is not known",
    "variables": "Variables that make BLAS or NumPy use other instructions, with their values",
}


def schema() -> Schema:
    """The JSON Schema of what :func:`.json_report.content` returns.

    All keys are always there. A reader should pass over keys that it does not know: later versions
    of the program may add some without a new ``version``.
    """
    return {
        "$schema": DIALECT,
        "title": FORMAT,
        "description": "Result of a run of chainer-profile. Times are seconds, sizes bytes, shares "
        "fractions; null is what is not known.",
        **_object(
            {
                "format": ({"const": FORMAT}, "What this file is"),
                "version": (
                    {"const": VERSION},
                    "Raised when a key changes its meaning or goes; keys may be added without that",
                ),
                "ended": (_TEXT, "complete, or why the run ended before"),
                "settings": (_part(Settings), "What was asked for"),
                "environment": (_part(Environment), "Machine and software"),
                "conditions": (_part(Conditions), "What was measured about the measuring itself"),
                "trials": (_trials(), "Numbers of trials that were made"),
                "totals": (_totals(), "A trial as a whole"),
                "kind": (
                    {"type": "integer", "minimum": 1},
                    "Number of the kind of trials that this is of; 1 is the commonest of a run",
                ),
                "variants": (
                    _rows(_part(Kind)),
                    "The run's other kinds of trials, most trials first; empty where trials are of "
                    "one kind",
                ),
                "left_out": (_COUNT, "Number of profiled trials whose kind is not known"),
                "hotspots": (_hotspots(), "The rule for hot layers, and what it chose"),
                "findings": (_rows(_findings()), "What the reader should know, warnings first"),
                "phases": (
                    _rows(_phases()),
                    "The phases of a trial, which add up to it, with what is outside of them",
                ),
                "groups": (
                    _object({by: (_rows(_group()), f"By {by}, slowest first") for by in GROUPS}),
                    "The layers added up",
                ),
                "links": (_rows(_links()), "The tree of links, every link before those below it"),
                "layers": (_rows(_layers()), "The layers in the order of the calls"),
                "memory": (
                    _nullable(_part(MemoryUse)),
                    "What the memory pass found; null without one",
                ),
                "limits": (
                    _nullable(
                        _part(
                            MachineLimits,
                            ridge=(
                                _NUMBER,
                                "Operations a byte from which "
                                "arithmetic and not memory is the bound",
                            ),
                        )
                    ),
                    "What the machine can do at best; null where it was not measured",
                ),
                "device": (
                    _nullable(_device()),
                    "How a trial uses the GPU; null for a run on the host",
                ),
            }
        ),
    }


def _trials() -> Schema:
    return _object(
        {
            "profiled": (_COUNT, "With the recorder: the layers' times are from these"),
            "clean": (_COUNT, "Without any hook: the latency to quote is from these"),
            "warmup": (_COUNT, "Before the others"),
            "held": (_COUNT, "On a GPU, those that it began when the host had launched all"),
        }
    )


def _statistics() -> dict[str, tuple[Schema, str]]:
    """The statistics of a layer's self time, with the words of layers.csv."""
    unknown = ("std_s", "ci95_low_s", "ci95_high_s")
    return {
        key: (
            _nullable(_NUMBER) if key in unknown else _NUMBER,
            layer_columns.COLUMNS[key.removesuffix("_s") + "_ms"],
        )
        for key in STATISTICS
    }


def _totals() -> Schema:
    of_times = {
        key: (part, text.replace("self time", "time"))
        for key, (part, text) in _statistics().items()
    }
    statistics = _nullable(_object({"trials": (_COUNT, "Number of trials"), **of_times}))
    recorder = _object(
        {
            "fraction": (_NUMBER, "Added time as a fraction of a clean trial"),
            "low": (_nullable(_NUMBER), "Lower end of its 95 % interval"),
            "high": (_nullable(_NUMBER), "Upper end"),
        }
    )
    return _object(
        {
            "layers_s": (
                _nullable(_NUMBER),
                "Sum of the layers' mean self times; null where the times of calls hold those of "
                "the calls within them",
            ),
            "clean": (
                statistics,
                "Wall time of the trials without hooks; null where they are of several kinds",
            ),
            "profiled": (statistics, "Wall time of the profiled trials"),
            "framework": (statistics, "Time between the functions, in the profiled trials"),
            "framework_share": (_nullable(_NUMBER), "Its part of a profiled trial"),
            "recorder": (_nullable(recorder), "What the recorder adds to a trial"),
            "inputs_per_s": (
                _nullable(_NUMBER),
                "Inputs a second, of clean trials or else of profiled ones",
            ),
        }
    )


def _hotspots() -> Schema:
    return _object(
        {
            "rule": (_TEXT, "The rule as --hotspots takes it"),
            "kind": (
                {"enum": ["time", "share", "top", "pareto"]},
                "What the rule goes by",
            ),
            "value": (_NUMBER, "In seconds, as a fraction, a number of layers, or a fraction"),
            "line_s": (
                _nullable(_NUMBER),
                "Median time from which a layer is hot; null where the rule has no such line",
            ),
            "layers": ({"type": "array", "items": _COUNT}, "Indices of the hot layers"),
        }
    )


def _findings() -> Schema:
    found = _part(Finding)
    found["properties"]["severity"] = {
        **found["properties"]["severity"],
        "enum": [WARNING, NOTE],
    }
    return found


def _phases() -> Schema:
    return _object(
        {
            "name": (_TEXT, "Its name; outside for the framework time of no phase"),
            "layers": (_COUNT, "Number of its layers"),
            "layers_s": (_NUMBER, "Their time"),
            "framework_s": (_nullable(_NUMBER), "Time between them"),
            "total_s": (_NUMBER, "Both together"),
            "share": (_NUMBER, "Part of the trial"),
        }
    )


def _group() -> Schema:
    return _object(
        {
            "name": (_TEXT, "Function, path, or function with input shapes"),
            "calls": (_COUNT, "Calls in a trial, of the forward pass where there are any"),
            "total_s": (_NUMBER, "Time in a trial"),
            "mean_s": (_nullable(_NUMBER), "Time a call"),
            "share": (_NUMBER, "Part of the layers' time"),
            "hot_layers": (_COUNT, "Number of hot layers"),
            "phases_s": (_OPEN_NUMBERS, "Time by phase"),
        }
    )


def _links() -> Schema:
    times = {
        "inclusive_s": (_NUMBER, links_csv.COLUMNS["inclusive_ms"]),
        "exclusive_s": (_NUMBER, links_csv.COLUMNS["exclusive_ms"]),
    }
    words = links_csv.COLUMNS
    return _object(
        {
            "path": (_TEXT, words["path"]),
            "parent": (_nullable(_TEXT), "Path of the link above; null at depth 0"),
            "name": (_TEXT, "Last part of the path"),
            "kind": (_TEXT, words["kind"]),
            "depth": (_COUNT, words["depth"]),
            "calls": (_nullable(_COUNT), words["calls"]),
            "parameters": (_nullable(_COUNT), words["parameters"]),
            **times,
            "share": (_NUMBER, words["share_percent"]),
            "hot_layers": (_COUNT, words["hot_layers"]),
            "phases": (
                {"type": "object", "additionalProperties": _object(times)},
                "The same times by phase",
            ),
        }
    )


_KINDS: dict[str, Schema] = {
    layer_columns.TEXT: _TEXT,
    layer_columns.COUNT: _WHOLE,
    layer_columns.NUMBER: _NUMBER,
    layer_columns.TRUTH: _TRUTH,
    layer_columns.SHAPES: _SHAPES,
}


def _layers() -> Schema:
    number = _nullable(_NUMBER)
    found = {
        column.json: (
            _KINDS[column.kind] if column.known else _nullable(_KINDS[column.kind]),
            _known(column.meaning),
        )
        for column in layer_columns.json_columns()
    }
    verdict = {"enum": [COMPUTE, MEMORY, OVERHEAD, None]}
    return _object(
        found
        | {
            "flops_per_s": (number, "Operations a second, from the median self time"),
            "nbytes_per_s": (number, "Bytes a second, read and written"),
            "bound_s": (number, "Least time at this machine's limits"),
            "verdict": (verdict, f"{found['verdict'][1]}; null where that is not known"),
            "parent_index": (
                _nullable(_WHOLE),
                "Index of the call within which this one was made",
            ),
            "covers": (
                {"type": "array", "items": _COUNT},
                "In a recording of another engine, indices of Chainer's layers that this row does",
            ),
            "node": (_TEXT, "In such a recording, the engine's own words for the row"),
        }
    )


def _device() -> Schema:
    return _part(
        DeviceUse,
        launch_bound=(_TRUTH, "Whether the host's launching sets the pace, and not the device"),
        between_s=(_NUMBER, "Time of the host between the layers' calls, while it launches"),
        busy_share=(_nullable(_NUMBER), "Part of the trial in which the device works; at most 1"),
        idle_s=(_nullable(_NUMBER), "Time of a trial in which the device has nothing to do"),
    )


def _known(text: str) -> str:
    """The words of a CSV file, where a cell that is not known is empty."""
    return text.replace("empty", "null")


def _object(properties: Mapping[str, tuple[Schema, str]]) -> Schema:
    """An object of which all these keys are there: their schemas and meanings."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": {
            key: {**part, "description": text} if text else part
            for key, (part, text) in properties.items()
        },
    }


def _rows(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _nullable(part: Schema) -> Schema:
    """The same, or null."""
    if part.get("type") in ("string", "integer", "number", "boolean", "object", "array"):
        return {**part, "type": [part["type"], "null"]}
    return part


def _part(kind: type, **more: tuple[Schema, str]) -> Schema:
    """The fields of a dataclass, with the meanings that its docstring gives them."""
    hints = get_type_hints(kind)
    meanings = _FIELDS | _attributes(kind)
    properties = {
        field.name: (_type(hints[field.name]), meanings.get(field.name, ""))
        for field in fields(kind)
    }
    return _object(properties | more)


def _type(hint: Any) -> Schema:
    """The schema of a field's type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return _nullable(_type(inner))
    if origin is tuple:
        return {"type": "array", "items": _type(args[0])}
    return _part(hint) if isinstance(hint, type) and is_dataclass(hint) else _PLAIN[hint]


def _attributes(kind: type) -> dict[str, str]:
    """The meanings in a docstring's list of attributes, in plain words."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: _words(text) for name, text in entries}


def _words(text: str) -> str:
    """A meaning on one line, without the marks of docstrings and the full stop."""
    text = re.sub(r":\w+:`[.~]?([^`]*)`", r"\1", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", text.replace("``", "").removesuffix("."))
