"""The columns of a table of layers, by name: for the terminal, where they can be chosen, and the
report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from chainer_profile.basics.choosing import choose_names
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_bare_percent,
    format_count,
    format_giga,
    format_mega,
    format_ms,
    format_nbytes,
    format_shapes,
    format_significant,
)
from chainer_profile.report import csv_file as csv
from chainer_profile.report.columns import MAX_NAME, Column
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HOT_MARK = "*"
_MAX_PATH = 30
_MAX_PHASE = 12
_MAX_SHAPES = 36


@dataclass(frozen=True)
class LayerColumn:
    """A column of a table of layers; its rows are those of ``Summary.layers``.

    Attributes:
        key: Its name for ``--columns``.
        column: How it is shown.
        csv: Its name in ``layers.csv``; empty where it is not there.
        meaning: What it says.
    """

    key: str
    column: Column
    csv: str
    meaning: str


def _described(
    key: str,
    name: str,
    cell: Callable[[Any], str],
    meaning: str = "",
    *,
    in_csv: str | None = None,
    title: str = "",
    folds: int | None = None,
    drop: int = 0,
) -> LayerColumn:
    in_csv = key if in_csv is None else in_csv
    column = Column(name, cell, title, folds, drop)
    return LayerColumn(key, column, in_csv, meaning or csv.COLUMNS[in_csv])


def _text(
    key: str, name: str = "", *, folds: int, drop: int = 0, in_csv: str | None = None
) -> LayerColumn:
    def cell(row: Any) -> str:
        return printable(str(getattr(row, key)))

    return _described(key, name or key, cell, folds=folds, drop=drop, in_csv=in_csv)


def _count(key: str, name: str, attribute: str = "") -> LayerColumn:
    def cell(row: Any) -> str:
        value = getattr(row, attribute or key)
        return "" if value is None else format_count(int(value))

    return _described(key, name, cell)


def _ms(key: str, name: str, attribute: str = "", *, title: str = "", drop: int = 0) -> LayerColumn:
    attribute = attribute or f"{key}_s"

    def cell(row: Any) -> str:
        return format_ms(getattr(row, attribute))

    return _described(key, name, cell, in_csv=f"{key}_ms", title=title, drop=drop)


def _rate(
    key: str,
    name: str,
    form: Callable[[float], str],
    attribute: str,
    in_csv: str,
    *,
    title: str = "",
    drop: int = 0,
) -> LayerColumn:
    """A number that may be NaN or <NA>."""

    def cell(row: Any) -> str:
        return form(_number(getattr(row, attribute)))

    return _described(key, name, cell, in_csv=in_csv, title=title, drop=drop)


def _nbytes(key: str, name: str, attribute: str, *, drop: int = 0) -> LayerColumn:
    def cell(row: Any) -> str:
        value = getattr(row, attribute)
        return format_nbytes(None if pd.isna(value) else int(value))

    return _described(key, name, cell, in_csv=attribute, drop=drop)


def _number(value: Any) -> float:
    return float("nan") if pd.isna(value) else float(value)


def _half_width(row: Any) -> str:
    return format_ms((row.ci_high_s - row.ci_low_s) / 2)


def _interval(row: Any) -> str:
    low = format_ms(row.ci_low_s)
    return low if low == NOT_KNOWN else f"{low} to {format_ms(row.ci_high_s)}"


def _moved(row: Any) -> str:
    return format_mega(_number(row.nbytes_read + row.nbytes_written))


#: What a narrow console does without comes in the order of ``drop``; see :class:`.Column`.
_ALL = (
    _described("index", "#", lambda row: str(row.Index)),
    _described(
        "hot",
        "",
        lambda row: HOT_MARK if row.hot else "",
        f"{HOT_MARK} where the rule for hotspots chose the layer",
    ),
    _text("label", folds=MAX_NAME),
    _text("path", folds=_MAX_PATH),
    _text("function", folds=MAX_NAME),
    _text("phase", folds=_MAX_PHASE, drop=11),
    _count("calls", "calls"),
    _count("forward_index", "goes back through", "forward"),
    _described(
        "input_shapes", "input", lambda row: format_shapes(row.input_shapes), folds=_MAX_SHAPES
    ),
    _described("output_shapes", "output", lambda row: format_shapes(row.output_shapes), drop=5),
    _text("dtype", folds=_MAX_PHASE),
    _count("trials", "trials"),
    _ms("median", "median ms", title="median [ms]"),
    _described(
        "ci", "+/- ms", _half_width, "Half of the 95 % interval of the median", in_csv="", drop=8
    ),
    _described(
        "interval",
        "95 % interval ms",
        _interval,
        "The 95 % confidence interval of the median",
        in_csv="",
        title="95 % interval [ms]",
    ),
    _ms("ci95_low", "low ms", "ci_low_s"),
    _ms("ci95_high", "high ms", "ci_high_s"),
    _ms("mean", "mean", title="mean [ms]", drop=6),
    _ms("std", "std ms"),
    _ms("min", "min"),
    _ms("p5", "p5"),
    _ms("p95", "p95", title="95th percentile [ms]", drop=9),
    _ms("p99", "p99"),
    _ms("max", "max"),
    _ms("host", "host", title="host [ms]", drop=12),
    _ms("gap", "gap", title="gap [ms]", drop=10),
    _ms("busy", "busy", title="busy [ms]", drop=13),
    _rate("share", "%", format_bare_percent, "share", "share_percent", title="share [%]"),
    _rate(
        "cumulative_share",
        "cum. %",
        format_bare_percent,
        "cumulative_share",
        "cumulative_share_percent",
        drop=7,
    ),
    _rate("flops", "MFLOP", format_mega, "flops", "flops"),
    _rate("macs", "MMAC", format_mega, "macs", "macs"),
    _rate("read", "MB read", format_mega, "nbytes_read", "nbytes_read"),
    _rate("written", "MB written", format_mega, "nbytes_written", "nbytes_written"),
    _described(
        "moved",
        "MB moved",
        _moved,
        "Bytes that the layer must read and write at least; empty without a formula",
        in_csv="",
    ),
    _rate(
        "intensity",
        "flop/byte",
        format_significant,
        "intensity",
        "intensity",
        title="operations a byte",
    ),
    _rate("gflops", "GFLOP/s", format_giga, "flops_per_s", "gflops_per_s", drop=1),
    _rate("gbytes", "GB/s", format_giga, "nbytes_per_s", "gbytes_per_s"),
    _rate(
        "reached",
        "% of limit",
        format_bare_percent,
        "reached",
        "reached_percent",
        title="limit reached [%]",
        drop=4,
    ),
    _described(
        "verdict",
        "verdict",
        lambda row: row.verdict.removesuffix(" bound") or NOT_KNOWN,
        "What bounds the layer: compute, memory, or overhead (less than a third of the limit is "
        "reached)",
        folds=MAX_NAME,
        drop=3,
    ),
    _nbytes("peak", "peak", "peak_nbytes", drop=2),
    _nbytes("retained", "left allocated", "retained_nbytes"),
    _nbytes("input_bytes", "input size", "input_nbytes"),
    _nbytes("parameter_bytes", "parameters", "parameter_nbytes"),
    _nbytes("output_bytes", "output size", "output_nbytes"),
    _nbytes("workspace", "workspace", "workspace_nbytes"),
)
#: All columns by name.
LAYER_COLUMNS = {described.key: described for described in _ALL}
_BY_CSV = {described.csv: described.key for described in _ALL if described.csv}

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
    chosen = choose_names(names, LAYER_COLUMNS, "the layer table", _BY_CSV)
    short = (name if name in LAYER_COLUMNS else _BY_CSV[name] for name in chosen)
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
