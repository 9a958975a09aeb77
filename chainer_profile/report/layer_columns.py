"""The columns of a table of layers, each of them once; see :class:`LayerColumn`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pandas as pd

from chainer_profile.basics.choosing import choose_names
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_about,
    format_bare_percent,
    format_count,
    format_exact,
    format_exact_count,
    format_exact_giga,
    format_exact_ms,
    format_exact_percent,
    format_giga,
    format_mega,
    format_ms,
    format_nbytes,
    format_shapes,
    format_significant,
)
from chainer_profile.report.columns import MAX_NAME
from chainer_profile.report.csv_file import safe, table_text
from chainer_profile.report.document import Column
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from chainer_profile.analyse.summary import Summary

HOT_MARK = "*"
_MAX_PATH = 30
_MAX_PHASE = 12
_MAX_SHAPES = 36

#: JSON Schema of a value, by how it is written.
TEXT, COUNT, NUMBER, TRUTH, SHAPES = "text", "count", "number", "truth", "shapes"


@dataclass(frozen=True)
class LayerColumn:
    """A column of a table of layers; its rows are those of ``Summary.layers``.

    It stands here once: for the terminal and ``--columns``, the report, the page, ``layers.csv``,
    ``report.json`` and their documentation.

    Attributes:
        key: Its name for ``--columns``.
        column: How it is shown.
        meaning: What it says; what is not known is an empty cell of the file, and null in JSON.
        csv: Its name in ``layers.csv``; empty where it is not there.
        exact: A row -> its cell there.
        json: Its name in ``report.json``; empty where it is not there.
        value: A row -> its value there.
        kind: What that is: :data:`TEXT`, :data:`COUNT` and so on.
        known: Whether it is always known.
    """

    key: str
    column: Column
    meaning: str
    csv: str = ""
    exact: Callable[[Any], str] = str
    json: str = ""
    value: Callable[[Any], Any] = str
    kind: str = TEXT
    known: bool = True


def _of(
    key: str,
    name: str,
    field: str,
    meaning: str,
    shown: Callable[[Any], str],
    exact: Callable[[Any], str],
    *,
    csv: str | None = None,
    json: str | None = None,
    kind: str = NUMBER,
    known: bool = True,
    **more: Any,
) -> LayerColumn:
    """A column of one field of a row."""
    value = attrgetter(field)
    return LayerColumn(
        key,
        Column(name, lambda row: shown(value(row)), **more),
        meaning,
        key if csv is None else csv,
        lambda row: exact(value(row)),
        field if json is None else json,
        value,
        kind,
        known,
    )


def _text(key: str, meaning: str, *, name: str = "", **more: Any) -> LayerColumn:
    shown = _printable if more.get("known", True) else _printable_or_not_known
    return _of(key, name or key, key, meaning, shown, safe, kind=TEXT, **more)


def _count(key: str, name: str, meaning: str, *, field: str = "", **more: Any) -> LayerColumn:
    return _of(key, name, field or key, meaning, _known_count, _whole, kind=COUNT, **more)


def _ms(key: str, name: str, meaning: str, *, field: str = "", **more: Any) -> LayerColumn:
    field = field or f"{key}_s"
    named = {"csv": f"{key}_ms", "json": f"{key}_s"} | more
    return _of(key, name, field, meaning, format_ms, format_exact_ms, **named)


def _percent(key: str, name: str, meaning: str, **more: Any) -> LayerColumn:
    named = {"csv": f"{key}_percent"} | more
    return _of(key, name, key, meaning, _number(format_bare_percent), format_exact_percent, **named)


def _mega(key: str, name: str, meaning: str, *, field: str = "", **more: Any) -> LayerColumn:
    shown, field = _number(format_mega), field or key
    return _of(key, name, field, meaning, shown, _whole, csv=field, kind=COUNT, known=False, **more)


def _giga(key: str, name: str, meaning: str, *, field: str, csv: str, **more: Any) -> LayerColumn:
    shown = _number(format_giga)
    return _of(key, name, field, meaning, shown, format_exact_giga, csv=csv, known=False, **more)


def _nbytes(key: str, name: str, meaning: str, *, field: str, **more: Any) -> LayerColumn:
    return _of(key, name, field, meaning, _size, _whole, csv=field, kind=COUNT, known=False, **more)


def _counted(key: str, name: str, meaning: str) -> LayerColumn:
    meaning = f"{meaning}, mean of the counters pass; empty where it is not counted"
    shown = _number(format_significant)
    return _of(key, name, key, meaning, shown, _exact_times, known=False)


def _format_times(value: float) -> str:
    return f"{value:.3f}"


def _exact_times(value: float) -> str:
    return "" if pd.isna(value) else str(value)


def _printable(value: object) -> str:
    return printable(str(value))


def _printable_or_not_known(value: object) -> str:
    return _printable(value) or NOT_KNOWN


def _known_count(value: Any) -> str:
    return "" if pd.isna(value) else format_count(int(value))


def _whole(value: Any) -> str:
    """A whole number that may be None or <NA>."""
    return "" if pd.isna(value) else str(int(value))


def _number(form: Callable[[float], str]) -> Callable[[Any], str]:
    """How a number is shown that may be NaN or <NA>."""
    return lambda value: form(float("nan") if pd.isna(value) else float(value))


def _size(value: Any) -> str:
    return format_nbytes(None if pd.isna(value) else int(value))


def _half_width(row: Any) -> str:
    return format_ms((row.ci_high_s - row.ci_low_s) / 2)


def _interval(row: Any) -> str:
    low = format_ms(row.ci_low_s)
    return low if low == NOT_KNOWN else f"{low} to {format_ms(row.ci_high_s)}"


def _marked(described: LayerColumn) -> LayerColumn:
    """The column, with a mark before figures that are approximate."""
    shown = described.column.cell
    column = replace(described.column, cell=lambda row: format_about(shown(row), row.work_is_about))
    return replace(described, column=column)


def _moved(row: Any) -> str:
    return _number(format_mega)(row.nbytes_read + row.nbytes_written)


#: What a narrow console does without comes in the order of ``drop``; see :class:`.Column`.
_ALL = (
    _of(
        "index",
        "#",
        "Index",
        "Place of the layer in a trial, from 0",
        str,
        str,
        json="index",
        kind=COUNT,
    ),
    _text("label", "Index and function", folds=MAX_NAME),
    _text(
        "path",
        "Path of the link that made the call; / is the network itself, and a path without a slash "
        "is outside of it: loss, cleargrads, optimizer, data",
        folds=_MAX_PATH,
    ),
    _text(
        "function",
        "Chainer's name of the function, or of the optimizer or its hook",
        folds=MAX_NAME,
    ),
    _text(
        "phase",
        "Phase of the trial that the layer belongs to: forward, backward, update or data",
        folds=_MAX_PHASE,
        drop=11,
    ),
    _of(
        "calls",
        "calls",
        "calls",
        "Calls in a trial that count for the layer; the mean of a program's iterations",
        format_count,
        format_exact_count,
        kind=NUMBER,
    ),
    _count(
        "forward_index",
        "goes back through",
        "In backward, index of the call that this goes back through; empty where there is none",
        field="forward",
        json="forward_index",
        known=False,
    ),
    _of(
        "input_shapes",
        "input",
        "input_shapes",
        "Shapes of the input arrays, parameters included, such as 1x3x32x32 16x3x3x3; in backward "
        "of the gradients that come in, in update of the parameters",
        format_shapes,
        format_shapes,
        kind=SHAPES,
        folds=_MAX_SHAPES,
    ),
    _of(
        "output_shapes",
        "output",
        "output_shapes",
        "Shapes of the output arrays; in backward of the gradients that go out",
        format_shapes,
        format_shapes,
        kind=SHAPES,
        drop=5,
    ),
    _text("dtype", "Data type of the first output", folds=_MAX_PHASE),
    _count("trials", "trials", "Number of profiled trials"),
    _ms("mean", "mean", "Mean self time", title="mean [ms]", drop=6),
    _ms("std", "std ms", "Standard deviation of the self time (with trials - 1)", known=False),
    _ms(
        "ci95_low",
        "low ms",
        "Lower end of the 95 % confidence interval of the median; not known of fewer than 30 "
        "trials",
        field="ci_low_s",
        known=False,
    ),
    _ms("ci95_high", "high ms", "Upper end of this interval", field="ci_high_s", known=False),
    _ms("min", "min", "Shortest self time"),
    _ms("p5", "p5", "5th percentile"),
    _ms("median", "median ms", "Median", title="median [ms]"),
    _ms("p95", "p95", "95th percentile", title="95th percentile [ms]", drop=9),
    _ms("p99", "p99", "99th percentile"),
    _ms("max", "max", "Longest self time"),
    _ms(
        "host",
        "host",
        "On a GPU, mean time of the host in the layer's call, mostly launching; empty on a CPU, "
        "where the times above are the host's",
        title="host [ms]",
        drop=12,
        known=False,
    ),
    _ms(
        "gap",
        "gap",
        "On a GPU, mean time on the device between the layer before and this one; empty likewise",
        title="gap [ms]",
        drop=10,
        known=False,
    ),
    _ms(
        "busy",
        "busy",
        "On a GPU, median time on the device when it never waits for the host; empty without held "
        "trials",
        title="busy [ms]",
        drop=13,
        known=False,
    ),
    _percent(
        "share",
        "%",
        "Part that the median has of the sum of all layers' medians",
        title="share [%]",
        bar=attrgetter("share"),
    ),
    _percent(
        "cumulative_share",
        "cum. %",
        "Part that this and all slower layers hold together",
        drop=7,
    ),
    _of(
        "if_twice",
        "if 2x",
        "if_twice",
        "How many times as fast a trial would be if the layer were twice as fast, by Amdahl's law "
        "on the clean trials; empty on a GPU",
        _number(_format_times),
        _exact_times,
        known=False,
    ),
    _of(
        "hot",
        "",
        "hot",
        "Whether the rule for hotspots chose the layer: true or false",
        lambda hot: HOT_MARK if hot else "",
        lambda hot: "true" if hot else "false",
        kind=TRUTH,
    ),
    _mega(
        "flops",
        "MFLOP",
        "Floating-point operations in a trial, a multiply-add being two; empty without a formula",
    ),
    _mega(
        "macs",
        "MMAC",
        "Multiply-adds of convolutions and matrix products in a trial; empty likewise",
    ),
    _mega(
        "read",
        "MB read",
        "Bytes that the layer must read at least; empty likewise",
        field="nbytes_read",
    ),
    _mega(
        "written",
        "MB written",
        "Bytes that it must write at least; empty likewise",
        field="nbytes_written",
    ),
    _of(
        "work_is_about",
        "about",
        "work_is_about",
        "Whether figures of work are approximate, and shown with ~: true or false",
        lambda about: "~" if about else "",
        lambda about: "true" if about else "false",
        kind=TRUTH,
    ),
    _giga(
        "gflops",
        "GFLOP/s",
        "Billions of operations a second, from the median self time",
        field="flops_per_s",
        csv="gflops_per_s",
        drop=1,
    ),
    _giga(
        "gbytes",
        "GB/s",
        "Billions of bytes a second, read and written",
        field="nbytes_per_s",
        csv="gbytes_per_s",
    ),
    _of(
        "intensity",
        "flop/byte",
        "intensity",
        "Operations a byte",
        _number(format_significant),
        format_exact,
        title="operations a byte",
        known=False,
    ),
    _percent(
        "reached",
        "% of limit",
        "Least time at this machine's limits over the median self time; empty where the limits are "
        "not known",
        title="limit reached [%]",
        drop=4,
        known=False,
    ),
    _text(
        "verdict",
        "What takes most of the layer's time: compute or memory where a third of that limit is "
        "reached; else the largest part that is known, if it is a quarter: page faults (each at "
        "the least that one costs on the machine), waiting (the thread gave its processor up), and "
        "by --why copying, matrix product, elementwise arithmetic, allocation, call cost, garbage "
        "collection, where without it copying (of im2col's windows) and call cost are estimates; "
        "or below both limits",
        name="limit",
        title="limited by",
        known=False,
        folds=20,
        drop=14,
    ),
    _nbytes(
        "peak",
        "peak",
        "Most bytes that were allocated in the layer beyond those at its begin; empty without a "
        "memory pass",
        field="peak_nbytes",
        drop=2,
    ),
    _nbytes(
        "retained",
        "left allocated",
        "Bytes that the layer left allocated; negative where it freed more",
        field="retained_nbytes",
    ),
    _nbytes(
        "input_bytes",
        "input size",
        "Bytes of the input arrays that are no parameters, of a forward call; empty where they are "
        "not known",
        field="input_nbytes",
    ),
    _nbytes(
        "parameter_bytes",
        "parameters",
        "Bytes of the parameters among its inputs; empty likewise",
        field="parameter_nbytes",
    ),
    _nbytes(
        "output_bytes", "output size", "Bytes of its outputs; empty likewise", field="output_nbytes"
    ),
    _nbytes(
        "workspace",
        "workspace",
        "The peak of a forward call beyond its outputs, at least 0; empty likewise",
        field="workspace_nbytes",
    ),
    _ms(
        "cpu",
        "cpu ms",
        "Mean CPU time of the thread that calls the layer, in the trials of the counters pass; "
        "empty without one",
        title="CPU [ms]",
        known=False,
    ),
    _counted(
        "page_faults", "page faults", "How often the system handed out a page of memory in a trial"
    ),
    _counted("waits", "waits", "How often the thread gave its processor up in a trial"),
    _counted("preemptions", "preemptions", "How often its processor was taken from it in a trial"),
    # What no file has, since others say it.
    LayerColumn(
        "ci", Column("+/- ms", _half_width, drop=8), "Half of the 95 % interval of the median"
    ),
    LayerColumn(
        "interval",
        Column("95 % interval ms", _interval, "95 % interval [ms]"),
        "The 95 % confidence interval of the median",
    ),
    LayerColumn(
        "moved",
        Column("MB moved", _moved),
        "Bytes that the layer must read and write at least; empty without a formula",
    ),
)
#: Those that are approximate where the work is.
_OF_WORK = frozenset(
    {"flops", "macs", "read", "written", "gflops", "gbytes", "intensity", "reached", "moved"}
)
#: All columns by name.
LAYER_COLUMNS = {
    described.key: _marked(described) if described.key in _OF_WORK else described
    for described in _ALL
}
#: What the mark means.
ABOUT = (
    "~ is about: so many operations for each element of the largest array, and each array read or "
    "written once."
)

#: Those of ``layers.csv`` with their meanings. Times are self times of one layer in the profiled
#: trials.
COLUMNS = {described.csv: described.meaning for described in _ALL if described.csv}

#: Those that only a run on a GPU fills.
DEVICE = ("host", "gap", "busy")
#: Those of the terminal's table, where none were chosen.
USUAL = (
    *("index", "hot", "path", "function", "phase", "output_shapes"),
    *("median", "ci", "mean", "p95", "host", "gap", "busy", "share", "cumulative_share"),
    *("gflops", "reached", "verdict", "peak"),
)
#: Those of the report's two tables by layer.
WHICH = ("index", "path", "function", "phase")
TIMES = ("output_shapes", "median", "interval", "mean", "p95", "host", "gap", "busy", "share")
WORK = (
    *("flops", "moved", "intensity", "gflops", "gbytes", "reached", "verdict"),
    *("peak", "workspace", "retained"),
)


def choose_layer_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns asked for, by the names here or in ``layers.csv``, each of them once.

    Raises:
        UsageError: There is no such column; says the nearest one, and which there are.
    """
    by_csv = {found.csv: found.key for found in LAYER_COLUMNS.values() if found.csv}
    chosen = choose_names(names, LAYER_COLUMNS, "the layer table", by_csv)
    short = (name if name in LAYER_COLUMNS else by_csv[name] for name in chosen)
    return tuple(dict.fromkeys(short))


def columns(keys: Iterable[str], *, several_phases: bool = True) -> list[Column]:
    """The columns of these names; that of the phase only where there are several."""
    shown = (key for key in keys if several_phases or key != "phase")
    return [LAYER_COLUMNS[key].column for key in shown]


def interval_note(layers: pd.DataFrame) -> str:
    """What ``+/-`` is; where no layer has it, why not."""
    if layers["ci_low_s"].notna().any():
        return "+/- is half of the 95 % interval of the median"
    return "these are too few trials for intervals"


def kept(column: Column) -> Column:
    """The column, to be shown on a narrow console too."""
    return replace(column, drop=0)


def with_content(found: Iterable[Column], rows: Sequence[object]) -> list[Column]:
    """The columns that say something about a row."""
    return [
        column for column in found if any(column.cell(row) not in ("", NOT_KNOWN) for row in rows)
    ]


def render_csv(summary: Summary) -> str:
    r"""The layers as CSV, in the order of the calls; see :data:`COLUMNS`.

    Numbers have all their digits; a number that is not known (the deviation of one trial) is an
    empty cell. Texts are made safe for spreadsheets (:func:`.csv_file.safe`); no label and no link
    path needs that. ``report.json`` has all names as they are.
    """
    found = [described for described in LAYER_COLUMNS.values() if described.csv]
    rows = (
        {described.csv: described.exact(row) for described in found}
        for row in summary.layers.itertuples()
    )
    return table_text([described.csv for described in found], rows)


def json_columns() -> list[LayerColumn]:
    """Those of ``report.json``."""
    return [described for described in LAYER_COLUMNS.values() if described.json]
