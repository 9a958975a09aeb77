"""The columns of a run's tables of layers, links, phases and groups; the selection of each form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pandas as pd

from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import NOT_KNOWN, format_interval, format_ms
from chainer_profile.basics.words import BACKWARD, DATA, FORWARD, UPDATE
from chainer_profile.report import unit
from chainer_profile.report.tables import Column, Table, by_key, mark_about, with_content
from chainer_profile.report.text import Row

# fmt: off
#: The columns of ``Summary.layers``. ``layers.csv`` has all except the last three. Times are self
#: times of one layer in the profiled trials.
LAYER_COLUMNS = by_key(
    Column("index", "#", unit.PLAIN, "Place of the layer in a trial, from 0", field="Index"),
    Column("label", "label", unit.TEXT, "Index and function"),
    Column("path", "path", unit.TEXT, fold=30,
           meaning="Path of the calling link; / is the network, and without a slash it is "
                   "outside the network: loss, cleargrads, optimizer, data"),
    Column("function", "function", unit.TEXT, "Chainer's name of the function, optimizer or hook"),
    Column("phase", "phase", unit.TEXT, fold=12, drop=11,
           meaning="Phase of the trial: data, forward, backward, communication or update"),
    Column("calls", "calls", unit.CALLS,
           meaning="Calls in a trial; of a program, the mean over its iterations"),
    Column("forward_index", "goes back through", unit.COUNT, field="forward", unknown="",
           meaning="In backward, index of the forward call; empty if there is none"),
    Column("input_shapes", "input", unit.SHAPES, fold=36,
           meaning="Shapes of the input arrays and parameters, such as 1x3x32x32 16x3x3x3; in "
                   "backward of the incoming gradients, in update of the parameters"),
    Column("output_shapes", "output", unit.SHAPES_ON_ONE_LINE, drop=5,
           meaning="Shapes of the output arrays; in backward of the outgoing gradients"),
    Column("dtype", "dtype", unit.TEXT, "Data type of the first output", fold=12),
    Column("trials", "trials", unit.COUNT, "Number of profiled trials"),
    Column("mean", "ms", unit.MS, "Mean self time", full="mean [ms]"),
    Column("std", "std ms", unit.MS, "Standard deviation (with trials - 1)"),
    Column("ci95_low", "low ms", unit.MS, field="ci_low_s",
           meaning="Lower end of the 95 % confidence interval of the median; empty below 30 "
                   "trials"),
    Column("ci95_high", "high ms", unit.MS, "Its upper end", field="ci_high_s"),
    Column("min", "min", unit.MS, "Shortest self time"),
    Column("p5", "p5", unit.MS, "5th percentile", full="5th percentile [ms]"),
    Column("median", "median", unit.MS, "Median", drop=6),
    Column("p95", "p95", unit.MS, "95th percentile", full="95th percentile [ms]", drop=9),
    Column("p99", "p99", unit.MS, "99th percentile"),
    Column("max", "max", unit.MS, "Longest self time"),
    Column("host", "host", unit.MS, drop=12,
           meaning="On a GPU, mean time of the host in the call, mostly launching; empty on a "
                   "CPU"),
    Column("gap", "gap", unit.MS, drop=10,
           meaning="On a GPU, mean time on the device since the previous layer; empty on a CPU"),
    Column("busy", "busy", unit.MS, drop=13,
           meaning="On a GPU, median time on the device if it never waits for the host; empty "
                   "without held trials"),
    Column("share", "%", unit.SHARE, full="share [%]",
           meaning="Mean self time as a fraction of the mean trial"),
    Column("cumulative_share", "cum. %", unit.PERCENT, drop=7,
           meaning="Share of this and all slower layers"),
    Column("hot", "", unit.HOT_FLAG, "true if the layer is hot by the rule, otherwise false"),
    Column("flops", "MFLOP", unit.MEGA, mark=mark_about,
           meaning="Floating-point operations in a trial (two for a multiply-add); empty without "
                   "a formula"),
    Column("macs", "MMAC", unit.MEGA, mark=mark_about,
           meaning="Multiply-adds of convolutions and matrix products in a trial; likewise"),
    Column("read", "MB read", unit.MEGA, field="nbytes_read", file="nbytes_read", mark=mark_about,
           meaning="Bytes that it must read at least; likewise"),
    Column("written", "MB written", unit.MEGA, field="nbytes_written", file="nbytes_written",
           mark=mark_about,
           meaning="Bytes that it must write at least; likewise"),
    Column("work_is_about", "about", unit.ABOUT_FLAG,
           meaning="true if the figures of work are estimates, shown with ~; otherwise false"),
    Column("gflops", "GFLOP/s", unit.GIGA, field="flops_per_s", file="gflops_per_s",
           mark=mark_about, drop=1,
           meaning="Billions of operations a second, from the median"),
    Column("gbytes", "GB/s", unit.GIGA, field="nbytes_per_s", file="gbytes_per_s", mark=mark_about,
           meaning="Billions of bytes read and written a second"),
    Column("intensity", "flop/byte", unit.NUMBER, full="operations a byte", mark=mark_about,
           meaning="Operations a byte"),
    Column("reached", "% of limit", unit.PERCENT, full="limit reached [%]", mark=mark_about, drop=4,
           meaning="Shortest time at this machine's limits divided by the median; empty if the "
                   "limits are unknown"),
    Column("verdict", "limit", unit.TEXT, full="limited by", unknown=NOT_KNOWN, fold=20, drop=14,
           meaning="What takes most of the time: compute or memory if the layer reaches a third "
                   "of that limit; otherwise the largest known part, if it is a quarter: page "
                   "faults (at their minimum cost), waiting (the thread gave up its processor), "
                   "copying or call overhead (without --why both are estimates, the first of "
                   "im2col's windows alone), with --why also matrix product, elementwise "
                   "arithmetic, allocation, garbage collection; or denormal numbers; otherwise "
                   "unknown"),
    Column("peak", "peak", unit.BYTES, drop=2,
           meaning="Peak of the bytes allocated in the layer, without those from before it; "
                   "empty without a memory pass"),
    Column("retained", "left allocated", unit.BYTES,
           meaning="Bytes that it left allocated; negative if it freed more"),
    Column("input_bytes", "input size", unit.BYTES, field="input_nbytes", file="input_nbytes",
           meaning="Bytes of a forward call's inputs, without parameters; empty if unknown"),
    Column("parameter_bytes", "parameters", unit.BYTES, field="parameter_nbytes",
           file="parameter_nbytes",
           meaning="Bytes of its parameters; likewise"),
    Column("output_bytes", "output size", unit.BYTES, field="output_nbytes", file="output_nbytes",
           meaning="Bytes of its outputs; likewise"),
    Column("workspace", "workspace", unit.BYTES,
           meaning="Peak of a forward call minus its outputs, at least 0; empty if unknown"),
    Column("cpu", "cpu ms", unit.MS,
           meaning="Mean CPU time of the calling thread in the counters pass; empty without one"),
    Column("page_faults", "page faults", unit.CALLS,
           meaning="Page faults in a trial, mean of that pass; empty if not counted"),
    Column("waits", "waits", unit.CALLS,
           meaning="How often the thread gave up its processor in a trial; likewise"),
    Column("preemptions", "preemptions", unit.CALLS,
           meaning="How often it was preempted in a trial; likewise"),
    Column("ci", "+/- ms", unit.MS, value=lambda row: (row.ci_high_s - row.ci_low_s) / 2, file="",
           drop=8,
           meaning="Half of the 95 % confidence interval of the median"),
    Column("interval", "95 % interval ms", unit.FIGURE,
           value=lambda row: format_interval(row.ci_low_s, row.ci_high_s, format_ms), file="",
           meaning="95 % confidence interval of the median"),
    Column("moved", "MB moved", unit.MEGA, value=lambda row: row.nbytes_read + row.nbytes_written,
           file="", mark=mark_about,
           meaning="Bytes that it must read and write at least; empty without a formula"),
)
# fmt: on
#: The meaning of the mark of approximate figures.
ABOUT = (
    "~ marks estimates: a number of operations for each element of the largest array, and "
    "each array read or written once."
)
#: The columns that identify a layer.
_IDENTITY = ("index", "path", "function", "phase")
#: The columns of layers in each table; empty ones are omitted. ``--columns`` replaces the
#: terminal's.
TABLE_COLUMNS = {
    "terminal": (
        *("index", "hot", "path", "function", "phase", "output_shapes"),
        *("mean", "share", "median", "ci", "p95", "host", "gap", "busy", "cumulative_share"),
        *("gflops", "reached", "verdict", "peak"),
    ),
    "page": (
        *(*_IDENTITY, "mean", "share", "median", "interval", "verdict"),
        *("p5", "p95", "std", "calls", "output_shapes", "host", "gap", "busy"),
        *("flops", "moved", "intensity", "gflops", "gbytes", "reached"),
        *("peak", "workspace", "retained"),
    ),
    "hottest layers of a page": ("path", "mean", "share", "function", "phase"),
    "hot layers": (*_IDENTITY, "mean", "share", "cumulative_share", "median", "interval"),
    "appendix": ("label", "path", "phase", "mean", "share"),
}


def layer_columns(
    summary: Summary, keys: Sequence[str], rows: pd.DataFrame | None = None
) -> list[Column]:
    """The columns of ``keys`` that have a value in at least one row.

    Omits the phase if there is only one. ``rows`` defaults to all layers.
    """
    columns = [LAYER_COLUMNS[key] for key in keys if summary.several_phases or key != "phase"]
    return with_content(columns, summary.layers if rows is None else rows)


def _link_phase_columns() -> Iterator[Column]:
    """Yield two columns for each phase: the inclusive and the exclusive time of a link."""
    for phase in (DATA, FORWARD, BACKWARD, UPDATE):
        for kind in ("inclusive", "exclusive"):
            meaning = f"{kind.capitalize()} time in this phase; empty without it"
            yield Column(f"{phase}_{kind}", f"{phase} {kind}", unit.MS, meaning)


# fmt: off
#: The columns of ``links.csv``, from :func:`link_frame`. Times are means over the profiled trials.
LINK_COLUMNS = by_key(
    Column("path", "link", unit.TEXT, field="Index",
           meaning="Path of the link; / is the network, and without a slash it is outside the "
                   "network: loss, cleargrads, optimizer, data"),
    Column("kind", "kind", unit.TEXT, "Its class; empty if unknown", fold=20, drop=1),
    Column("depth", "depth", unit.PLAIN, "Levels below the network"),
    Column("calls", "calls", unit.CALLS, unknown="", drop=2,
           meaning="Its calls in a trial; 0 if its functions or parameters are used without "
                   "calling it"),
    Column("parameters", "params", unit.COUNT, full="parameters", unknown="", drop=3,
           meaning="Number of its parameters and those below; shared ones count for the first "
                   "link only"),
    Column("inclusive", "incl. ms", unit.MS, full="inclusive [ms]",
           meaning="Time of the functions of the link and of all below it"),
    Column("exclusive", "excl. ms", unit.MS, full="exclusive [ms]", unknown="", drop=4,
           meaning="Time of the functions that it calls itself"),
    *_link_phase_columns(),
    Column("share", "%", unit.SHARE, full="share [%]", unknown="",
           meaning="Inclusive time as part of the trial"),
    Column("hot_layers", "hot", unit.COUNT, full="hot layers", field="hot", unknown="", drop=5,
           meaning="Number of hot layers of the link and of all below it"),
)
# fmt: on


def link_frame(links: pd.DataFrame) -> pd.DataFrame:
    """Add empty columns for missing phases, so that files of different runs have equal columns."""
    fields = [column.key + column.unit.field for column in _link_phase_columns()]
    return links.reindex(columns=[*links, *(name for name in fields if name not in links)])


_PROPERTIES = by_key(
    Column("name", "", unit.TEXT, value=itemgetter(0)),
    Column("value", "", unit.TEXT, value=itemgetter(1)),
)


def properties(rows: Iterable[Row], caption: str = "") -> Table:
    """A table of names and values, without headings."""
    return Table(_PROPERTIES, list(rows), caption)


# fmt: off
#: The columns of :func:`.rows.phase_rows`.
PHASES = by_key(
    Column("name", "phase", unit.TEXT, field="Index"),
    Column("layers", "layers", unit.COUNT, unknown="", drop=1,
           value=lambda row: row.layers or None),
    Column("layers_time", "layers ms", unit.MS, field="layers_s", drop=2),
    Column("framework", "framework ms", unit.MS, drop=3),
    Column("total", "total ms", unit.MS),
    Column("share", "%", unit.PERCENT, full="share of the trial [%]"),
)
#: The columns of a table of groups; ``phase`` is the template of a column for each phase.
_GROUPS = by_key(
    Column("name", "name", unit.TEXT, field="Index"),
    Column("calls", "calls", unit.CALLS, unknown=""),
    Column("self", "self ms", unit.MS, field="total_s"),
    Column("share", "%", unit.SHARE, full="share [%]"),
    Column("total", "total ms", unit.MS, field="inclusive_s", unknown="", drop=4),
    Column("phase", "phase", unit.MS, unknown=""),
    Column("each", "ms a call", unit.MS, full="ms a call", unknown="", drop=3,
           value=lambda row: row.inclusive_s / row.calls),
    Column("hot", "hot", unit.COUNT, full="hot layers", unknown="", drop=1),
)
# fmt: on


def group_columns(by: str, phases: Sequence[str]) -> list[Column]:
    """The columns of a table of groups, with one for each phase if there are several."""
    name, calls, self_time, share, total, _, each, hot = _GROUPS.values()
    phase_columns = _phase_columns(phases, "s") if len(phases) > 1 else ()
    return [name.headed(by), calls, self_time, share, total, *phase_columns, each, hot]


def _phase_columns(phases: Sequence[str], suffix: str) -> Iterator[Column]:
    """Yield a column for each phase, which shows the field ``PHASE_suffix`` of a row.

    A cell is empty if the row has no time in the phase.
    """
    for phase in phases:
        column = _GROUPS["phase"].headed(phase, f"{phase} [ms]")
        drop = 5 if phase in (FORWARD, BACKWARD) else 2

        def value(row: Any, field: str = f"{phase}_{suffix}") -> float | None:
            return getattr(row, field, None) or None

        yield replace(column, value=value, drop=drop)


def tree_columns(phases: Sequence[str], rows: pd.DataFrame, *, indent: bool) -> list[Column]:
    """The columns of the tree of links, without empty ones; ``indent`` indents the names."""

    def indented(row: Any) -> str:
        return f"{'  ' * row.depth}{row.name}"

    path = LINK_COLUMNS["path"]
    return [
        replace(path, value=indented) if indent else path,
        *with_content((LINK_COLUMNS[key] for key in ("kind", "calls", "parameters")), rows),
        *(_phase_columns(phases, "inclusive_s") if len(phases) > 1 else ()),
        *(LINK_COLUMNS[key] for key in ("inclusive", "exclusive", "share", "hot_layers")),
    ]
