"""Summary -> ``report.json``; the lines of its keys are its schema, too."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import pandas as pd
from msgspec import Meta

from chainer_profile.analyse import counted, device_use, findings
from chainer_profile.analyse import inside as insides
from chainer_profile.analyse import summary as summaries
from chainer_profile.analyse.roofline import COMPUTE, MEMORY
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.verdicts import BELOW, FAULTS
from chainer_profile.basics.paths import above
from chainer_profile.basics.words import GROUPS
from chainer_profile.record import recording as records
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS
from chainer_profile.report.tables import Column, Kind, columns, to_json
from chainer_profile.report.tables import schema as schema_of

FORMAT = "chainer-profile report"
#: Raised when a key changes its meaning or goes. Keys may be added without that.
VERSION = 3
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_COUNT: Any = Annotated[int, Meta(ge=0)]
#: Kinds of values, beside and in place of those of tables.
_KINDS = {
    name: Kind(str, json=kind, plain=asdict if is_dataclass(kind) else None)
    for name, kind in {
        "count": _COUNT,
        "calls": Annotated[float, Meta(ge=0)],
        "counts": list[_COUNT],
        "texts": list[str],
        "by_name": dict[str, float],
        "format": Literal[FORMAT],
        "version": Literal[VERSION],
        "rule": Literal["time", "share", "top", "pareto"],
        "severity": Literal[findings.SEVERITIES],
        "verdict": Literal[(COMPUTE, MEMORY, FAULTS, *insides.CAUSES, BELOW, None)],
        "covers": tuple[int, ...],
        "settings": records.Settings,
        "environment": records.Environment,
        "conditions": records.Conditions,
        "memory": records.MemoryUse,
    }.items()
}


class _Part:
    """An object of the report; its name in small letters is a kind of value, NAME_list one too.

    It has the keys of its lines and columns, and the fields of a dataclass.
    """

    def __init__(
        self,
        name: str,
        lines: str,
        *,
        base: type | None = None,
        keys: Iterable[Column] = (),
        how: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    ) -> None:
        own = columns(lines, _KINDS, **how)
        self._columns = list({one.json: one for one in (*keys, *own.values())}.values())
        hints = get_type_hints(base) if base else {}
        self._fields = [one.name for one in fields(base)] if base else []
        types = {name: (hints[name], "") for name in self._fields} | schema_of(self._columns)
        described = [
            (key, Annotated[kind, Meta(description=text)] if text else kind)
            for key, (kind, text) in types.items()
        ]
        self.type: Any = msgspec.defstruct(name, described, module=__name__)
        listed: Any = list[self.type]  # type: ignore[name-defined]
        _KINDS[name.lower()] = Kind(str, json=self.type, plain=self.of)
        _KINDS[f"{name.lower()}_list"] = Kind(str, json=listed, plain=self.of_each)

    def of(self, source: Any) -> dict[str, Any]:
        (made,) = to_json(self._columns, [source])
        return (asdict(source) if self._fields else {}) | made

    def of_each(self, sources: Any) -> list[dict[str, Any]]:
        return list(map(self.of, sources))


def _meanings(kind: type) -> dict[str, str]:
    """The meanings of a dataclass's fields, in comments before them or beside."""
    fields = r"^((?:    #: .*\n)*)    (\w+): [^#\n]*(?:#: (.*))?$"
    found = re.findall(fields, inspect.getsource(kind), re.MULTILINE)
    return {name: _words(f"{before.replace('#: ', '')}{beside}") for before, name, beside in found}


def _words(text: str) -> str:
    """A meaning on one line, without the marks of docstrings and the full stop."""
    text = re.sub(r":\w+:`[.~]?([^`]*)`", r"\1", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", text.replace("``", "").removesuffix("."))


def _rows(table: pd.DataFrame) -> Iterator[SimpleNamespace]:
    """The rows of a frame, whose columns may have any name; that of the row is ``at``."""
    for at, row in zip(table.index, table.to_dict("records"), strict=True):
        yield SimpleNamespace(at=at, **row)


def _groups(summary: Summary, by: str) -> Iterator[SimpleNamespace]:
    return _rows(summary.functions if by == GROUPS[0] else summary.group(by))


def _by_phase(row: SimpleNamespace) -> dict[str, float]:
    times = {key: value for key, value in vars(row).items() if key.endswith("_s")}
    return {key[:-2]: times[key] for key in times if key not in ("total_s", "mean_s")}


def _link_phases(row: SimpleNamespace) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for key, value in vars(row).items():
        phase, _, kind = key.rpartition("_")[0].rpartition("_")
        if phase and kind in ("inclusive", "exclusive"):
            found.setdefault(phase, {})[f"{kind}_s"] = value
    return found


def _layers(summary: Summary) -> Iterator[SimpleNamespace]:
    rows: Any = summary.layers.itertuples()
    for row, layer in zip(rows, summary.recording.layers, strict=True):
        more = {"parent_index": layer.parent, "covers": layer.covers, "node": layer.node}
        yield SimpleNamespace(**row._asdict(), **more)


_Part(
    "Trials",
    """
profiled n_trials | | count | With the recorder; the layers' times come from these
clean | | count | Without any hook; quote the latency of these
warmup | | count | Before the others
held | | count | On a GPU, those that started after the host had launched everything
""",
    how={
        "clean": lambda run: len(run.clean_ns),
        "warmup": lambda run: len(run.warmup_ns),
        "held": lambda run: 0 if run.held_ns is None else len(run.held_ns),
    },
)
_NAMES = ("mean", "std", "ci95_low", "ci95_high", "min", "p5", "median", "p95", "p99", "max")
_Part(
    "Statistics",
    "trials count | | count | Number of trials\n"
    + "\n".join(
        f"{name} {name.replace('ci95', 'ci')}_s | | ms{'' if LAYER_COLUMNS[name].known else '?'} | "
        + LAYER_COLUMNS[name].meaning.replace("self time", "time")
        for name in _NAMES
    ),
)
_Part(
    "Recorder",
    """
fraction | | number | Added time as a fraction of an unprofiled trial
low | | number? | Lower end of its 95 % interval
high | | number? | Upper end
""",
)
_Part(
    "Totals",
    """
layers layers_s | | ms? | Sum of the layers' mean self times; null if the times of calls contain
  those of the calls within them
clean | | statistics? | Wall time of the unprofiled trials; null if many made other calls
profiled | | statistics? | Wall time of the profiled trials
framework | | statistics? | Time between the functions, in the profiled trials
framework_share | | number? | Its part of a profiled trial
recorder overhead | | recorder? | What the recorder adds to a trial
inputs_per_s fps | | number? | Inputs per second, of unprofiled trials, or of profiled ones if there
  are none
""",
)
_Part(
    "Hotspots",
    """
rule rule.text | | text | The rule, as --hotspots accepts it
kind rule.kind | | rule | The kind of the rule
value rule.value | | number | In seconds, as a fraction, a number of layers, or a fraction
line | | ms? | Median time from which a layer is hot; null if the rule has none
layers indices | | counts | Indices of the hot layers
""",
)
_Part(
    "Phase",
    """
name at | | text | Its name; outside for the framework time of no phase
layers | | count | Number of its layers
time layers_s layers_s layers_s | | number | Their time
framework | | ms? | Time between them
total | | ms | Both together
share | | number | Part of the trial
""",
)
_Part(
    "Group",
    """
name at | | text | Function, path, or function with input shapes
calls | | calls | Calls in a trial; those of the forward pass if there are any
total | | ms | Time in a trial
mean | | ms? | Time a call
share | | number | Part of the layers' time
hot_layers hot | | count | Number of hot layers
phases_s phases | | by_name | Time by phase
""",
    how={"phases": _by_phase},
)
_Part(
    "Groups",
    "\n".join(f"{by} | | group_list | By {by}, slowest first" for by in GROUPS),
    how={by: partial(_groups, by=by) for by in GROUPS},
)
_TIMES = (LINK_COLUMNS["inclusive"], LINK_COLUMNS["exclusive"])
_BY_PHASE: Any = msgspec.defstruct(
    "LinkTimes",
    [(one.json, Annotated[float, Meta(description=one.meaning)]) for one in _TIMES],
    module=__name__,
)
_KINDS["link_times"] = Kind(str, json=dict[str, _BY_PHASE])
_Part(
    "Link",
    f"""
path at | | text | {LINK_COLUMNS["path"].meaning}
parent | | text? | Path of the link above; null at depth 0
name | | text | Last part of the path
kind | | text | {LINK_COLUMNS["kind"].meaning}
depth | | count | {LINK_COLUMNS["depth"].meaning}
calls | | calls? | {LINK_COLUMNS["calls"].meaning}
parameters | | count? | {LINK_COLUMNS["parameters"].meaning}
inclusive | | ms | {LINK_COLUMNS["inclusive"].meaning}
exclusive | | ms | {LINK_COLUMNS["exclusive"].meaning}
share | | number | {LINK_COLUMNS["share"].meaning}
hot_layers hot | | count | {LINK_COLUMNS["hot_layers"].meaning}
phases | | link_times | The same times by phase
""",
    how={"parent": lambda row: above(row.at), "phases": _link_phases},
)
_Part(
    "Layer",
    f"""
flops_per_s | | number? | Operations a second, from the median self time
nbytes_per_s | | number? | Bytes a second, read and written
bound | | ms? | Shortest possible time at this machine's limits
verdict said | | verdict | {LAYER_COLUMNS["verdict"].meaning}; null if unknown
parent_index | | plain? | Index of the call within which this one was made
covers | | covers | In a recording of another engine, indices of Chainer's layers that this row
  computes
node | | text | In such a recording, the engine's own words for the row
""",
    keys=[one for one in LAYER_COLUMNS.values() if one.json],
    how={"said": lambda row: row.verdict or None},
)
_Part("Finding", "severity | | severity", base=findings.Finding)
_Part(
    "MachineLimits",
    "ridge | | number | Operations a byte from which arithmetic and not memory is the bound",
    base=records.MachineLimits,
)
_Part(
    "DeviceUse",
    """
launch_bound | | truth | Whether the host's launching sets the pace instead of the device
between | | ms | Time of the host between the layers' calls, while it launches
busy_share | | number? | Part of the trial in which the device works; at most 1
idle | | ms? | Time of a trial in which the device is idle
""",
    base=device_use.DeviceUse,
)
_Part(
    "TrialCounters",
    "\n".join(f"{field.name} | | number?" for field in fields(counted.TrialCounters))
    + """
system_share | | number? | Part of the CPU time that the kernel used
off_share | | number? | Part of the wall time in which the thread did not run
""",
    base=counted.TrialCounters,
)
_Part(
    "Parts",
    """
causes | | by_name | Fraction of its time by cause, if known
largest_cause | | text | Cause of more than half of its time; empty if there is none
""",
    base=insides.Parts,
)
_Part(
    "Inside",
    """
method recording.inside.method | | text | What sampled the interpreter
samples recording.inside.samples | | count | Number of samples during trials
trials recording.inside.trials | | count | Number of these trials, after the timed ones
notes recording.inside.notes | | texts | What it could not show
functions inside.functions | | parts_list | By function and phase, slowest first
layers inside.layers | | parts_list | By layer, for layers with enough samples
framework inside.framework | | parts? | Time between the layers by kind; null if it was not sampled
  often enough
""",
)
#: The whole.
_REPORT = _Part(
    "Report",
    """
format | | format | What this file is
version | | version | Raised when a key changes its meaning or is removed; new keys do not raise it
ended recording.ended | | text | complete, or why the run ended early
settings recording.settings | | settings | What was asked for
environment recording.environment | | environment | Machine and software
conditions recording.conditions | | conditions | Measurements of the profiler itself
trials recording | | trials | Numbers of trials that were made
totals | | totals | A trial as a whole
left_out recording.left_out | | count | Number of profiled trials that made other calls: in no
  result
hotspots | | hotspots | The rule for hot layers, and what it chose
findings | | finding_list | What the reader should know, warnings first
phases | | phase_list | The phases of a trial and what is outside them, which add up to it
groups | | groups | The layers added up
links | | link_list | The tree of links, every link before those below it
layers | | layer_list | The layers in the order of the calls
memory recording.memory | | memory? | What the memory pass found; null without one
counters | | trialcounters? | Of the calling thread, means of a trial of the counters pass; null
  without one
inside | | inside? | In which parts the time inside the layers goes; null without that pass
limits recording.limits | | machinelimits? | What the machine can do at best; null where it was not
  measured
device | | deviceuse? | How a trial uses the GPU; null for a run on the host
""",
    how={
        "format": lambda _: FORMAT,
        "version": lambda _: VERSION,
        "phases": lambda summary: _rows(summary.phases),
        "groups": lambda summary: summary,
        "links": lambda summary: _rows(summary.links),
        "layers": _layers,
        "counters": lambda summary: counted.trial_counters(summary.recording),
        "inside": lambda summary: summary if summary.recording.inside and summary.inside else None,
    },
)


#: What holds for every key.
_RULES = (
    "Result of a run of chainer-profile. Times are seconds, sizes bytes, shares fractions from 0 "
    "to 1. The end of a key says so: _s, _ns (nanoseconds), _nbytes. Numbers have all their "
    "digits. What is not known is null; there is no NaN and no infinity. All keys are always "
    "there. Later versions may add some, so ignore keys that you do not know. Names are as they "
    "are in the network, without the apostrophes and escapes of layers.csv. The text is ASCII: "
    "other characters are written as \\u and their code. Every layer, link, group and finding is "
    "a line of its own."
)


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what :func:`content` returns."""
    (whole,), parts = msgspec.json.schema_components([_REPORT.type])
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
    """The report as JSON in ASCII, each layer, link and group on a line of its own."""
    return _text(content(summary)) + "\n"


def content(summary: Summary) -> dict[str, Any]:
    """What :func:`render` writes, as dicts, lists, numbers and texts; NaN and infinity as None."""
    plain = msgspec.to_builtins(_REPORT.of(summary), enc_hook=_plain)
    known: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=lambda _: None)
    return known


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, and the <NA> of pandas as None."""
    return None if value is pd.NA else value.item()


def _text(value: Any, depth: int = 0) -> str:
    """JSON, of which the upper levels and every object of a list have lines of their own."""
    if isinstance(value, dict) and (depth == 0 or all(isinstance(v, list) for v in value.values())):
        parts = [f"{json.dumps(key)}: {_text(part, depth + 1)}" for key, part in value.items()]
        opened, closed = "{", "}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        parts = [json.dumps(part, allow_nan=False) for part in value]
        opened, closed = "[", "]"
    else:
        return json.dumps(value, allow_nan=False)
    inner = "\n" + " " * (depth + 1)
    return f"{opened}{inner}{f',{inner}'.join(parts)}\n{' ' * depth}{closed}"
