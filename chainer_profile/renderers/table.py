"""Summary -> what is printed on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from chainer_profile.checks import WARNING
from chainer_profile.renderers.text import (
    Row,
    environment_lines,
    gaps,
    printable,
    run_lines,
    totals_rows,
)
from chainer_profile.units import (
    format_bare_percent,
    format_count,
    format_ms,
    format_percent,
    format_shapes,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd
    from rich.console import Console

    from chainer_profile.summary import Summary

#: Orders of the layer table: ``time`` is the mean, ``index`` the order of the calls, ``name`` the
#: function. Times come largest first.
SORT_KEYS = ("time", "median", "p95", "std", "index", "path", "name")

_SORT_COLUMNS = {
    "time": "mean_s",
    "median": "median_s",
    "p95": "p95_s",
    "std": "std_s",
    "path": "path",
    "name": "function",
}
_HOT_MARK = "*"
_HOT_STYLE = "bold red"
_MAX_PATH = 30
_MAX_FUNCTION = 32


@dataclass(frozen=True)
class _Column:
    """One column of the layer table.

    Attributes:
        name: Its heading.
        cell: A layer's row of ``Summary.layers`` -> text.
        folds: Text that may take several lines (at least this wide); None for numbers.
        drop: Where the console is too narrow, columns go in this order; 0 stays.
    """

    name: str
    cell: Callable[[Any], str]
    folds: int | None = None
    drop: int = 0


_COLUMNS = (
    _Column("#", lambda row: format_count(row.Index)),
    _Column("", lambda row: _HOT_MARK if row.hot else ""),
    _Column("path", lambda row: printable(row.path), folds=_MAX_PATH),
    _Column("function", lambda row: printable(row.function), folds=_MAX_FUNCTION),
    _Column("output", lambda row: format_shapes(row.output_shapes), drop=1),
    _Column("mean ms", lambda row: format_ms(row.mean_s)),
    _Column("+/- ms", lambda row: format_ms((row.ci_high_s - row.ci_low_s) / 2), drop=4),
    _Column("median", lambda row: format_ms(row.median_s), drop=2),
    _Column("p95", lambda row: format_ms(row.p95_s), drop=5),
    _Column("%", lambda row: format_bare_percent(row.share)),
    _Column("cum. %", lambda row: format_bare_percent(row.cumulative_share), drop=3),
)
_STD = _Column("std ms", lambda row: format_ms(row.std_s))


def render(summary: Summary, console: Console, *, sort: str, limit: int | None) -> None:
    """Print environment, run, totals, layers, functions and findings.

    On a console too narrow for all columns the layer table leaves some out; numbers are never cut.

    Args:
        summary: The summary of a run.
        console: Where to print; it decides about colour and width.
        sort: One of :data:`SORT_KEYS`.
        limit: Rows of the layer table at most; None for all.
    """
    recording = summary.recording
    for line in environment_lines(recording.environment):
        console.print(Text(line, style="dim"))
    for line in run_lines(recording):
        console.print(Text(line))
    for sentence in gaps(recording):
        console.print(Text(sentence, style="yellow"))
    console.print()
    console.print(_totals_table(totals_rows(summary.totals)))
    console.print()
    _print_layers(summary, console, sort, limit)
    console.print()
    console.print(_function_table(summary))
    for finding in summary.findings:
        style = "bold yellow" if finding.severity == WARNING else "bold"
        said = f"{printable(finding.text)} {printable(finding.advice)}"
        console.print()
        console.print(Text.assemble((f"{finding.severity}: ", style), said))


def _totals_table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _print_layers(summary: Summary, console: Console, sort: str, limit: int | None) -> None:
    layers = _sorted(summary.layers, sort)
    shown = layers if limit is None else layers.head(max(0, limit))
    columns = [_STD if c.name == "+/- ms" and sort == "std" else c for c in _COLUMNS]
    rows = list(shown.itertuples())
    cells = [[column.cell(row) for row in rows] for column in columns]
    kept, gap = _fitting(columns, cells, console.width)
    table = _table(gap)
    for i in kept:
        _add_column(table, columns[i].name, columns[i].folds)
    for at, row in enumerate(rows):
        style = _HOT_STYLE if row.hot else ""
        table.add_row(*(Text(cells[i][at]) for i in kept), style=style)
    console.print(table)
    hidden = layers.iloc[len(shown) :]
    if len(hidden):
        console.print(
            Text(
                f"{plural(len(hidden), 'layer')} not shown: "
                f"{format_percent(hidden['share'].sum())} of the layers' time."
            )
        )
    console.print(Text(f"{_HOT_MARK} hot: {summary.hotspots.rule}."))
    note = "Times are self times in ms"
    if any(columns[i].name == "+/- ms" for i in kept):
        note += "; +/- is half of the 95 % interval of the mean"
    console.print(Text(f"{note}."))


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    column = _SORT_COLUMNS[sort]
    return layers.sort_values(column, ascending=not column.endswith("_s"), kind="stable")


def _fitting(columns: list[_Column], cells: list[list[str]], width: int) -> tuple[list[int], int]:
    """The columns that fit the width, and the gap between them: wide if all of them fit."""
    least = []
    for column, texts in zip(columns, cells, strict=True):
        natural = max(map(len, [column.name, *texts]))
        least.append(natural if column.folds is None else min(natural, column.folds))
    kept = list(range(len(columns)))
    for gap in (2, 1):
        if sum(least) + gap * (len(kept) - 1) <= width:
            return kept, gap
    for i in sorted(kept, key=lambda i: columns[i].drop):
        if columns[i].drop and sum(least[k] + 1 for k in kept) - 1 > width:
            kept.remove(i)
    return kept, 1


def _function_table(summary: Summary) -> Table:
    table = _table(2)
    _add_column(table, "function", _MAX_FUNCTION)
    for name in ("calls", "total ms", "mean ms", "%", "hot layers"):
        _add_column(table, name, None)
    for row in summary.functions.itertuples():
        cells = (
            printable(str(row.Index)),
            format_count(row.calls),
            format_ms(row.total_s),
            format_ms(row.mean_s),
            format_bare_percent(row.share),
            format_count(row.hot),
        )
        table.add_row(*map(Text, cells), style=_HOT_STYLE if row.hot else "")
    return table


def _table(gap: int) -> Table:
    # The box puts one space between two columns.
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False)


def _add_column(table: Table, name: str, folds: int | None) -> None:
    if folds is None:
        mark = not name
        justify: Any = "left" if mark else "right"
        table.add_column(Text(name), justify=justify, no_wrap=True)
    else:
        table.add_column(Text(name), overflow="fold", min_width=4)
