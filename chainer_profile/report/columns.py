"""Columns and rows of a run's tables: layers, links, phases, groups; and what leads to rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import pandas as pd

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.paths import above
from chainer_profile.basics.units import NOT_KNOWN, format_ms
from chainer_profile.basics.words import BACKWARD, FORWARD, GROUPS
from chainer_profile.report.document import HOT
from chainer_profile.report.tables import Column, Table, columns, headed, kept, rows_of
from chainer_profile.report.text import Row, between, printable


def _interval(row: Any) -> str:
    low = format_ms(row.ci_low_s)
    return low if low == NOT_KNOWN else f"{low} to {format_ms(row.ci_high_s)}"


#: The columns of ``Summary.layers``; all but the last three are those of ``layers.csv``. Times are
#: self times of one layer in the profiled trials.
LAYER_COLUMNS = columns(
    """
index Index | # | plain | Place of the layer in a trial, from 0
label | | text | Index and function
path | | text 30 | Path of the calling link; / is the network, and without a slash it is outside the
  network: loss, cleargrads, optimizer, data
function | | text | Chainer's name of the function, optimizer or hook
phase | !11 | text 12 | Phase of the trial: data, forward, backward, communication or update
calls | | calls | Calls in a trial; of a program, the mean over its iterations
forward_index forward | goes back through | count_? | In backward, index of the forward call; empty
  if there is none
input_shapes | input | shapes 36 | Shapes of the input arrays and parameters, such as
  1x3x32x32 16x3x3x3; in backward of the incoming gradients, in update of the parameters
output_shapes | output !5 | shapes_beside | Shapes of the output arrays; in backward of the
  outgoing gradients
dtype | | text 12 | Data type of the first output
trials | | count | Number of profiled trials
mean | mean = mean [ms] !6 | ms | Mean self time
std | std ms | ms? | Standard deviation (with trials - 1)
ci95_low ci_low_s | low ms | ms? | Lower end of the 95 % confidence interval of the median; empty
  below 30 trials
ci95_high ci_high_s | high ms | ms? | Its upper end
min | | ms | Shortest self time
p5 | p5 = 5th percentile [ms] | ms | 5th percentile
median | median ms | ms | Median
p95 | p95 = 95th percentile [ms] !9 | ms | 95th percentile
p99 | | ms | 99th percentile
max | | ms | Longest self time
host | host = host [ms] !12 | ms? | On a GPU, mean time of the host in the call, mostly
  launching; empty on a CPU
gap | gap = gap [ms] !10 | ms? | On a GPU, mean time on the device since the previous layer; empty
  on a CPU
busy | busy = busy [ms] !13 | ms? | On a GPU, median time on the device if it never waits for the
  host; empty without held trials
share | % = share [%] | bar | Part of the trial: that of all layers, divided by their medians; of a
  program, or where trials differ, by their means
cumulative_share | cum. % !7 | percent | Share of this and all slower layers
if_twice | if 2x | times? | How many times as fast a trial would be with the layer twice as fast, by
  Amdahl's law on the unprofiled trials; empty on a GPU
hot | "" | hot | true if the layer is hot by the rule, otherwise false
flops | MFLOP | ~mega? | Floating-point operations in a trial (two for a multiply-add); empty
  without a formula
macs | MMAC | ~mega? | Multiply-adds of convolutions and matrix products in a trial; likewise
read nbytes_read nbytes_read | MB read | ~mega? | Bytes that it must read at least; likewise
written nbytes_written nbytes_written | MB written | ~mega? | Bytes that it must write at least;
  likewise
work_is_about | about | about | true if the figures of work are estimates, shown with ~; otherwise
  false
gflops flops_per_s gflops_per_s | GFLOP/s !1 | ~giga? | Billions of operations a second, from
  the median
gbytes nbytes_per_s gbytes_per_s | GB/s | ~giga? | Billions of bytes read and written a
  second
intensity | flop/byte = operations a byte | ~number? | Operations a byte
reached | % of limit = limit reached [%] !4 | ~percent? | Shortest time at this machine's limits
  divided by the median; empty if the limits are unknown
verdict | limit = limited by !14 | text? 20 | What takes most of the time: compute or memory if the
  layer reaches a third of that limit; otherwise the largest known part, if it is a quarter: page
  faults (at their minimum cost), waiting (the thread gave up its processor), copying or call cost
  (without --why both are estimates, the first of im2col's windows alone), with --why also matrix
  product, elementwise arithmetic, allocation, garbage collection; otherwise below both limits
peak | !2 | bytes? | Peak of the bytes allocated in the layer, without those from before it; empty
  without a memory pass
retained | left allocated | bytes? | Bytes that it left allocated; negative if it freed more
input_bytes input_nbytes input_nbytes | input size | bytes? | Bytes of a forward call's
  inputs, without parameters; empty if unknown
parameter_bytes parameter_nbytes parameter_nbytes | parameters | bytes? | Bytes of its
  parameters; likewise
output_bytes output_nbytes output_nbytes | output size | bytes? | Bytes of its outputs; likewise
workspace | | bytes? | Peak of a forward call minus its outputs, at least 0; empty if
  unknown
cpu | cpu ms = CPU [ms] | ms? | Mean CPU time of the calling thread in the counters pass; empty
  without one
page_faults | page faults | number? | Page faults in a trial, mean of that pass; empty if not
  counted
waits | | number? | How often the thread gave up its processor in a trial; likewise
preemptions | | number? | How often it was preempted in a trial; likewise
ci half - | +/- ms !8 | ms | Half of the 95 % confidence interval of the median
interval interval - | 95 % interval ms | figure | 95 % confidence interval of the median
moved moved - | MB moved | ~mega | Bytes that it must read and write at least; empty without a
  formula
""",
    half=lambda row: (row.ci_high_s - row.ci_low_s) / 2,
    interval=_interval,
    moved=lambda row: row.nbytes_read + row.nbytes_written,
)
#: What the mark of approximate figures means.
ABOUT = (
    "~ marks estimates: a number of operations for each element of the largest array, and "
    "each array read or written once."
)
#: Those of the terminal's table, where none were chosen.
USUAL = (
    *("index", "hot", "path", "function", "phase", "output_shapes"),
    *("median", "ci", "mean", "p95", "host", "gap", "busy", "share", "cumulative_share"),
    *("gflops", "reached", "verdict", "peak"),
)
#: Those that say which layer a row is.
WHICH = ("index", "path", "function", "phase")

#: The columns of ``links.csv``, of :func:`link_frame`. Times are means over the profiled trials.
_PHASE_LINES = "\n".join(
    f"{phase}_{kind} | | ms? | {kind.capitalize()} time in this phase; empty without it"
    for phase in ("data", FORWARD, BACKWARD, "update")
    for kind in ("inclusive", "exclusive")
)
LINK_COLUMNS = columns(f"""
path Index | link | text | Path of the link; / is the network, and without a slash it is outside the
  network: loss, cleargrads, optimizer, data
kind | !1 | text 20 | Its class; empty if unknown
depth | | plain | Levels below the network
calls | !2 | calls_? | Its calls in a trial; 0 if its functions or parameters are used without
  calling it
parameters | params = parameters !3 | count_? | Number of its parameters and those below; shared
  ones count for the first link only
inclusive | incl. ms = inclusive [ms] | ms | Time of the functions of the link and of all below it
exclusive | excl. ms = exclusive [ms] !4 | ms_ | Time of the functions that it calls itself
{_PHASE_LINES}
share | % = share [%] | bar_ | Inclusive time as part of the trial
hot_layers hot | hot = hot layers !5 | count_ | Number of hot layers of the link and of all below it
""")


def layer_columns(keys: Sequence[str], summary: Summary | None = None) -> list[Column]:
    """The columns of these names, or what a run's rows show: a phase only where there are several.

    Rows that show means have these in place of medians, and medians where their intervals are.
    """
    if summary is None:
        return [LAYER_COLUMNS[key] for key in keys]
    if summary.recording.by_means:
        first = ("mean", "median") if {"ci", "interval"} & set(keys) else ("mean",)
        keys = [
            one for key in keys if key != "mean" for one in (first if key == "median" else (key,))
        ]
    found = [LAYER_COLUMNS[key] for key in keys if summary.several_phases or key != "phase"]
    return [kept(one) if one.key == "mean" and summary.recording.by_means else one for one in found]


def link_frame(links: pd.DataFrame) -> pd.DataFrame:
    """The tree of links with columns for all phases, so that files of runs can be compared."""
    fields = [f"{key}_s" for key, one in LINK_COLUMNS.items() if not one.known and "_" in key]
    return links.reindex(columns=[*links, *(name for name in fields if name not in links)])


_PROPERTIES = columns(
    """
name | "" | text
value | "" | text
""",
    name=itemgetter(0),
    value=itemgetter(1),
)


def properties(rows: Iterable[Row], caption: str = "") -> Table:
    """Names and their values: a table without a head."""
    return Table(_PROPERTIES, list(rows), caption)


#: The columns of :func:`phase_rows`.
PHASES = columns(
    """
name Index | phase | text
layers number | !1 | count_
layers_time layers_s | layers ms !2 | ms
framework | framework ms !3 | ms
total | total ms | ms
share | % = share of the trial [%] | percent
""",
    number=lambda row: row.layers or None,
)
#: The columns of :func:`group_rows`; the last one is that of a phase.
_GROUPS = columns(
    """
name Index | | text
calls | | calls_
self total_s | self ms | ms
share | % = share [%] | bar
total inclusive_s | total ms !4 | ms_
phase | | ms_
each each_s | ms a call !3 | ms_
hot | hot = hot layers !1 | count_
""",
    each_s=lambda row: row.inclusive_s / row.calls,
)


def group_columns(by: str, phases: Sequence[str]) -> list[Column]:
    """The columns of a table of groups: by phase for more than one."""
    name, calls, own, share, total, _, each, hot = _GROUPS.values()
    of_phases = _phase_times(phases, "s") if len(phases) > 1 else ()
    return [headed(name, by), calls, own, share, total, *of_phases, each, hot]


def _phase_times(phases: Sequence[str], field: str) -> Iterator[Column]:
    """A column a phase; empty where a row has no part in it."""
    for phase in phases:
        column = headed(_GROUPS["phase"], phase, f"{phase} [ms]")
        drop = 5 if phase in (FORWARD, BACKWARD) else 2
        yield replace(column, value=partial(_or_none, field=f"{phase}_{field}"), drop=drop)


def _or_none(row: Any, field: str) -> float | None:
    return getattr(row, field, None) or None


def tree_columns(phases: Sequence[str], rows: pd.DataFrame, *, indent: bool) -> list[Column]:
    """The columns of the tree; what no row knows has none; a link's name may be indented."""

    def indented(row: Any) -> str:
        return f"{'  ' * row.depth}{row.name}"

    path = LINK_COLUMNS["path"]
    every = rows_of(rows)
    unsure = [LINK_COLUMNS[key] for key in ("kind", "calls", "parameters")]
    return [
        replace(path, value=indented) if indent else path,
        *(column for column in unsure if any(map(column.cell, every))),
        *(_phase_times(phases, "inclusive_s") if len(phases) > 1 else ()),
        *(LINK_COLUMNS[key] for key in ("inclusive", "exclusive", "share", "hot_layers")),
    ]


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
        found.append((between(summary.recording), totals.framework.mean_s / whole))
    if not whole:
        return []
    found += [
        (printable(str(name)), float(total_s) / whole)
        for name, total_s in summary.functions["total_s"].items()
    ]
    return sorted(found, key=lambda part: -part[1])


def group_rows(summary: Summary, by: str) -> pd.DataFrame:
    """The layers added up by one of :data:`~.words.GROUPS`, slowest first."""
    return summary.functions if by == GROUPS[0] else summary.group(by)


def framework_of_groups(summary: Summary) -> pd.DataFrame:
    """The time between the functions as a row behind the groups; none where it is not known."""
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
    """What leads to a link's row; empty where there is none."""
    return f"link-{summary.links.index.get_loc(path)}" if path in summary.links.index else ""


def tree_rows(summary: Summary, depth: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tree of links down to a level, and what comes beside it, which adds up to the trial.

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
