"""Summary -> what is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from chainer_profile.analyse.summary import WARNING
from chainer_profile.basics.units import format_percent, plural
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.report import layer_columns
from chainer_profile.report.columns import (
    Column,
    group_columns,
    kind_columns,
    phase_columns,
    tree_columns,
)
from chainer_profile.report.content.device_section import device_rows, explained, pace
from chainer_profile.report.content.engine_words import engine_text, totals
from chainer_profile.report.content.gpu_text import gpu_lines, on_gpu
from chainer_profile.report.content.memory_section import (
    memory_sentences,
    peak_columns,
    peak_rows,
    peaks_sentence,
    phase_memory,
    phase_memory_columns,
)
from chainer_profile.report.content.work_section import (
    has_work,
    limits_sentence,
    work_columns,
    work_rows,
)
from chainer_profile.report.rows import group_rows, phase_rows, phases_of, tree_rows
from chainer_profile.report.text import Row, environment_lines, gaps, printable, run_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from rich.console import Console

    from chainer_profile.analyse.summary import Summary

_SORT_COLUMNS = {
    "time": "median_s",
    "median": "median_s",
    "mean": "mean_s",
    "p95": "p95_s",
    "std": "std_s",
    "path": "path",
    "name": "function",
    "flops": "flops",
    "memory": "peak_nbytes",
    "reached": "reached",
}
_ASCENDING = ("path", "function")
_HOT_STYLE = "bold red"
_MAX_PEAKS = 5
#: Columns that an order needs to be seen, beside the usual ones or in place of one of them.
_SHOWN_FOR = {"flops": "flops", "memory": "peak", "reached": "reached"}
_IN_PLACE_FOR = {"std": ("ci", "std")}
#: Columns that there are only where there is something in them.
_WHERE_KNOWN = frozenset({"gflops", "reached", "verdict", "peak", *layer_columns.DEVICE})


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
    columns: Sequence[str] | None = None,
) -> None:
    """Print environment, run, totals, phases, kinds, layers or tree, groups, work, and so on.

    On a console too narrow for all columns the tables leave some out; numbers are never cut.

    Args:
        summary: The summary of a run.
        console: Where to print; it decides about colour and width.
        sort: One of :data:`~.shown.SORT_KEYS`, for the layer table: ``time``
            is the median, ``index`` the order of the calls, ``name`` the function, ``memory`` the
            peak. Numbers come largest first, and what is not known last.
        limit: Rows of the layer table and of the groups at most; None for all.
        group_by: One of :data:`~chainer_profile.basics.words.GROUPS`, for the table of groups.
        tree: Print the tree of links in place of the layers.
        depth: Levels of the tree below the network.
        macs: Show multiply-adds in place of operations.
        columns: Names of the columns of the layer table (see :mod:`.layer_columns`), which are
            all shown, on a narrow console too; None for the usual ones.
    """
    recording = summary.recording
    for line in (*environment_lines(recording.environment), *gpu_lines(recording)):
        console.print(Text(line, style="dim"))
    for line in run_lines(recording):
        console.print(Text(line))
    if recording.settings.engine:
        said = f"engine: {engine_text(recording.settings)}; a row is a node of it"
        console.print(Text(said, style="bold"))
    for sentence in gaps(recording):
        console.print(Text(sentence, style="yellow"))
    console.print()
    console.print(_totals_table([*totals(summary), *device_rows(summary)]))
    if summary.device is not None and summary.device.launch_bound:
        console.print()
        console.print(Text.assemble(("launch bound: ", "bold yellow"), pace(summary.device)))
    if len(phases_of(summary)) > 1:
        console.print()
        rows = phase_rows(summary)
        _print_table(console, phase_columns(), rows, bold=[row.whole for row in rows])
    if summary.kinds:
        console.print()
        _print_table(console, kind_columns(), summary.kinds)
    console.print()
    if tree:
        _print_tree(summary, console, depth)
    else:
        _print_layers(summary, console, sort, limit, columns)
    console.print()
    _print_groups(summary, console, group_by, limit)
    if has_work(summary):
        console.print()
        _print_table(console, work_columns(summary, macs), work_rows(summary))
        if sentence := limits_sentence(summary):
            console.print(Text(sentence))
    _print_memory(summary, console, limit)
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


def _print_layers(
    summary: Summary,
    console: Console,
    sort: str,
    limit: int | None,
    chosen: Sequence[str] | None,
) -> None:
    layers = _sorted(summary.layers, sort)
    shown = layers if limit is None else layers.head(max(0, limit))
    if chosen is None:
        columns = _usual_columns(summary, sort)
    else:
        columns = list(map(layer_columns.kept, layer_columns.columns(chosen)))
    names = _print_table(
        console,
        columns,
        list(shown.itertuples()),
        hot=shown["hot"].tolist(),
        wide=chosen is not None,
    )
    hidden = layers.iloc[len(shown) :]
    _print_hidden(console, plural(len(hidden), "layer"), hidden["share"].sum())
    _print_hot(summary, console)
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    note = f"Times are {kind}{on_gpu(summary)} in ms"
    if "+/- ms" in names:
        note += f"; {layer_columns.interval_note(layers)}"
    if "% of limit" in names:
        note += "; % of limit is the least time at this machine's limits over the median"
    if said := explained(names):
        note += f". {said}".removesuffix(".")
    console.print(Text(f"{note}."))


def _usual_columns(summary: Summary, sort: str) -> list[Column]:
    """The columns where none were chosen: with that of the order, without what is not known."""
    instead, other = _IN_PLACE_FOR.get(sort, ("", ""))
    keys = [other if key == instead else key for key in layer_columns.USUAL]
    wanted = _SHOWN_FOR.get(sort)
    if wanted is not None and wanted not in keys:
        keys.append(wanted)
    columns = layer_columns.columns(keys, several_phases=len(phases_of(summary)) > 1)
    unsure = [layer_columns.LAYER_COLUMNS[key].column for key in keys if key in _WHERE_KNOWN]
    known = layer_columns.with_content(unsure, list(summary.layers.itertuples()))
    always = layer_columns.LAYER_COLUMNS[wanted].column if wanted is not None else None
    return [
        layer_columns.kept(column) if column is always else column
        for column in columns
        if column not in unsure or column in known or column is always
    ]


def _print_memory(summary: Summary, console: Console, limit: int | None) -> None:
    sentences = memory_sentences(summary)
    if not sentences:
        return
    console.print()
    for sentence in sentences:
        console.print(Text(sentence))
    if phases := phase_memory(summary):
        console.print()
        _print_table(console, phase_memory_columns(), phases)
    peaks = peak_rows(summary, _MAX_PEAKS if limit is None else min(limit, _MAX_PEAKS))
    if peaks:
        console.print()
        console.print(Text(peaks_sentence(peaks)))
        _print_table(console, peak_columns(summary), peaks)


def _print_tree(summary: Summary, console: Console, depth: int) -> None:
    links, beside = tree_rows(summary, depth)
    rows = [*links, *beside]
    columns = [
        Column("", lambda row: layer_columns.HOT_MARK if row.marked else ""),
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
    console.print(Text(f"{layer_columns.HOT_MARK} hot: {summary.hotspots.rule}."))


def _print_table(
    console: Console,
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    hot: Sequence[bool] = (),
    bold: Sequence[bool] = (),
    wide: bool = False,
) -> list[str]:
    """Print a table of the columns that fit, or wider than the console; returns their names."""
    cells = [[column.cell(row) for row in rows] for column in columns]
    kept, gap, width = _fitting(columns, cells, console.width)
    wide = wide and width > console.width
    # The box puts one space between two columns.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False)
    if wide:
        table.width = width
    for i in kept:
        _add_column(table, columns[i])
    for at in range(len(rows)):
        style = _HOT_STYLE if any(hot[at : at + 1]) else "bold" if any(bold[at : at + 1]) else ""
        table.add_row(*(Text(cells[i][at]) for i in kept), style=style)
    console.print(table, crop=not wide)
    return [columns[i].name for i in kept]


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    column = _SORT_COLUMNS[sort]
    return layers.sort_values(column, ascending=column in _ASCENDING, kind="stable")


def _fitting(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> tuple[list[int], int, int]:
    """The columns that fit the width, the gap between them, and the width that they need.

    The gap is wide if there is a place for it.
    """
    least = []
    for column, texts in zip(columns, cells, strict=True):
        natural = max(map(len, [column.name, *texts]))
        least.append(natural if column.folds is None else min(natural, column.folds))
    kept = list(range(len(columns)))

    def needed(gap: int) -> int:
        return sum(least[i] for i in kept) + gap * (len(kept) - 1)

    for i in sorted(kept, key=lambda i: columns[i].drop):
        if columns[i].drop and needed(1) > width:
            kept.remove(i)
    gap = 2 if needed(2) <= width else 1
    return kept, gap, needed(gap)


def _add_column(table: Table, column: Column) -> None:
    if column.folds is None:
        justify: Any = "right" if column.name else "left"
        table.add_column(Text(column.name), justify=justify, no_wrap=True)
    else:
        table.add_column(Text(column.name), overflow="fold", min_width=4)
