"""Summary -> what is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from chainer_profile.arguments import DEFAULT_DEPTH
from chainer_profile.checks import WARNING
from chainer_profile.renderers.columns import (
    MAX_NAME,
    Column,
    group_columns,
    phase_columns,
    tree_columns,
)
from chainer_profile.renderers.rows import group_rows, phase_rows, phases_of, tree_rows
from chainer_profile.renderers.text import (
    Row,
    environment_lines,
    gaps,
    printable,
    run_lines,
    totals_rows,
)
from chainer_profile.renderers.work_section import (
    has_work,
    limits_sentence,
    work_columns,
    work_rows,
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
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from rich.console import Console

    from chainer_profile.summaries import Summary

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
_MAX_PHASE = 12


_COLUMNS = (
    Column("#", lambda row: format_count(row.Index)),
    Column("", lambda row: _HOT_MARK if row.hot else ""),
    Column("path", lambda row: printable(row.path), folds=_MAX_PATH),
    Column("function", lambda row: printable(row.function), folds=MAX_NAME),
    Column("phase", lambda row: printable(row.phase), folds=_MAX_PHASE, drop=6),
    Column("output", lambda row: format_shapes(row.output_shapes), drop=1),
    Column("mean ms", lambda row: format_ms(row.mean_s)),
    Column("+/- ms", lambda row: format_ms((row.ci_high_s - row.ci_low_s) / 2), drop=4),
    Column("median", lambda row: format_ms(row.median_s), drop=2),
    Column("p95", lambda row: format_ms(row.p95_s), drop=5),
    Column("%", lambda row: format_bare_percent(row.share)),
    Column("cum. %", lambda row: format_bare_percent(row.cumulative_share), drop=3),
)
_STD = Column("std ms", lambda row: format_ms(row.std_s))


def render(
    summary: Summary,
    console: Console,
    *,
    sort: str = "time",
    limit: int | None = None,
    group_by: str = "function",
    tree: bool = False,
    depth: int = DEFAULT_DEPTH,
    macs: bool = False,
) -> None:
    """Print environment, run, totals, phases, layers or tree, groups and findings.

    On a console too narrow for all columns the tables leave some out; numbers are never cut.

    Args:
        summary: The summary of a run.
        console: Where to print; it decides about colour and width.
        sort: One of :data:`~chainer_profile.arguments.SORT_KEYS`, for the layer table: ``time``
            is the mean, ``index`` the order of the calls, ``name`` the function. Times come
            largest first.
        limit: Rows of the layer table and of the groups at most; None for all.
        group_by: One of :data:`~chainer_profile.phases.GROUPS`, for the table of groups.
        tree: Print the tree of links in place of the layers.
        depth: Levels of the tree below the network.
        macs: Show multiply-adds in place of operations.
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
    if len(phases_of(summary)) > 1:
        console.print()
        rows = phase_rows(summary)
        _print_table(console, phase_columns(), rows, bold=[row.whole for row in rows])
    console.print()
    if tree:
        _print_tree(summary, console, depth)
    else:
        _print_layers(summary, console, sort, limit)
    console.print()
    _print_groups(summary, console, group_by, limit)
    if has_work(summary):
        console.print()
        _print_table(console, work_columns(summary, macs), work_rows(summary))
        if sentence := limits_sentence(summary):
            console.print(Text(sentence))
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
    if len(phases_of(summary)) == 1:
        columns = [column for column in columns if column.name != "phase"]
    names = _print_table(console, columns, list(shown.itertuples()), hot=shown["hot"].tolist())
    hidden = layers.iloc[len(shown) :]
    _print_hidden(console, plural(len(hidden), "layer"), hidden["share"].sum())
    _print_hot(summary, console)
    note = "Times are self times in ms"
    if "+/- ms" in names:
        note += "; +/- is half of the 95 % interval of the mean"
    console.print(Text(f"{note}."))


def _print_tree(summary: Summary, console: Console, depth: int) -> None:
    links, beside = tree_rows(summary, depth)
    rows = [*links, *beside]
    columns = [
        Column("", lambda row: _HOT_MARK if row.marked else ""),
        *tree_columns(phases_of(summary), rows, indent=True),
    ]
    marked = [row.marked for row in rows]
    names = _print_table(
        console, columns, rows, hot=marked, bold=[row.share is None for row in rows]
    )
    hidden = int((summary.links["depth"] > depth).sum())
    if hidden:
        console.print(
            Text(
                f"{plural(hidden, 'link')} below {'is' if hidden == 1 else 'are'} not shown "
                "(--depth 99 shows all); their times are in the rows above them."
            )
        )
    _print_hot(summary, console)
    note = "Times are in ms; incl. is a link with all links below it"
    if "excl. ms" in names:
        note += ", excl. the functions that it calls itself"
    console.print(Text(f"{note}."))


def _print_groups(summary: Summary, console: Console, by: str, limit: int | None) -> None:
    groups = group_rows(summary, by)
    shown = groups if limit is None else groups[: max(0, limit)]
    columns = group_columns(by, phases_of(summary))
    names = _print_table(console, columns, shown, hot=[row.hot > 0 for row in shown])
    hidden = groups[len(shown) :]
    _print_hidden(console, plural(len(hidden), by), sum(row.share for row in hidden))
    if "bwd/fwd" in names:
        console.print(Text("Times are in ms; bwd/fwd is backward over forward."))


def _print_hidden(console: Console, rows: str, share: float) -> None:
    if not rows.startswith("0 "):
        console.print(Text(f"{rows} not shown: {format_percent(share)} of the layers' time."))


def _print_hot(summary: Summary, console: Console) -> None:
    console.print(Text(f"{_HOT_MARK} hot: {summary.hotspots.rule}."))


def _print_table(
    console: Console,
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    hot: Sequence[bool] = (),
    bold: Sequence[bool] = (),
) -> list[str]:
    """Print a table of the columns that fit; returns their names."""
    cells = [[column.cell(row) for row in rows] for column in columns]
    kept, gap = _fitting(columns, cells, console.width)
    # The box puts one space between two columns.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False)
    for i in kept:
        _add_column(table, columns[i])
    for at in range(len(rows)):
        style = _HOT_STYLE if any(hot[at : at + 1]) else "bold" if any(bold[at : at + 1]) else ""
        table.add_row(*(Text(cells[i][at]) for i in kept), style=style)
    console.print(table)
    return [columns[i].name for i in kept]


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    column = _SORT_COLUMNS[sort]
    return layers.sort_values(column, ascending=not column.endswith("_s"), kind="stable")


def _fitting(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> tuple[list[int], int]:
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


def _add_column(table: Table, column: Column) -> None:
    if column.folds is None:
        justify: Any = "right" if column.name else "left"
        table.add_column(Text(column.name), justify=justify, no_wrap=True)
    else:
        table.add_column(Text(column.name), overflow="fold", min_width=4)
