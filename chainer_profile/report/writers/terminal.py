"""Blocks -> coloured lines on a terminal, or plain text for a file, a pipe or a prompt."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.box import Box
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from chainer_profile.basics.units import plural
from chainer_profile.report import document as doc
from chainer_profile.report.tables import Column, Table, not_shown
from chainer_profile.report.text import printable

#: Lines of a first screen, with two for the names of files; rows of a table in it.
SCREEN, ROWS = 38, 20
#: Lines of the first screen that list the omitted blocks.
_OMITTED_LINES = 3
#: Characters of a line in a file or a pipe, for which rich would use 80; and without a limit.
_FILE_WIDTH, _NO_LIMIT = 160, 10_000
#: Characters between columns, and the smallest width of a folded text.
_GAP, _MIN_FOLD = 2, 8
#: Draws a line below the headings of a table, and no other lines.
_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
_STYLES = {
    doc.HOT: "bold red",
    doc.TOTAL: "bold",
    doc.SLOWER: "bold red",
    doc.FASTER: "bold green",
    doc.WRONG: "bold red",
}


def standard_output() -> Console:
    """The console of standard output; a file or a pipe is wide enough for all columns."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if has_width else _FILE_WIDTH)


def show(blocks: Iterable[doc.Block], console: Console) -> None:
    """Print blocks; a file or a pipe gets no colour and no spaces at the ends of lines."""
    if console.is_terminal:
        _print(blocks, console)
    elif lines := written(blocks, console.width):
        print(lines, file=console.file)


def written(blocks: Iterable[doc.Block], width: int | None = None) -> str:
    """Format blocks as plain text, without a line break at the end."""
    file = io.StringIO()
    # The result does not depend on environment variables or on a notebook.
    console = Console(
        file=file, width=width or _NO_LIMIT, force_terminal=False, force_jupyter=False, _environ={}
    )
    _print(blocks, console)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n")[:-1])


def fit_on_screen(
    blocks: Iterable[doc.Block], width: int | None, hint: str, height: int = SCREEN
) -> list[doc.Block]:
    """Select the blocks that fit on a first screen, and list the captions of the others.

    Tables are cut to :data:`ROWS` rows; ``hint`` says how to see the rest.
    """
    fitting: list[doc.Block] = []
    omitted: list[str] = []
    lines_left = height - _OMITTED_LINES
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if isinstance(block, Table) and block.head and len(block.rows) > ROWS:
            legend = [*not_shown(len(block.rows) - ROWS, hint), *block.legend]
            block = replace(block, rows=block.rows[:ROWS], foot=0, legend=legend)
        count = count_of_lines([*fitting[-1:], block], width) - count_of_lines(fitting[-1:], width)
        if omitted or count > lines_left:
            name = block.caption if isinstance(block, Table) else ""
            omitted += [] if isinstance(block, doc.Heading) else [name]
            continue
        lines_left -= count
        fitting.append(block)
    while omitted and fitting and _introduces(fitting[-1]):
        fitting.pop()
    if omitted:
        unnamed = plural(omitted.count(""), "paragraph")
        names = [*filter(None, omitted), *([unnamed] if "" in omitted else [])]
        fitting.append(doc.Text((f"Not shown: {', '.join(names)} ({hint}).",), aside=True))
    return fitting


def _introduces(block: doc.Block) -> bool:
    """Whether a block only introduces the next one: a heading, or text that ends with a colon."""
    if not isinstance(block, doc.Text):
        return isinstance(block, doc.Heading)
    last = block.content[-1] if block.content else ""
    return isinstance(last, str) and last.endswith(":")


def count_of_lines(blocks: Sequence[doc.Block], width: int | None) -> int:
    return written(blocks, width).count("\n") + 1 if blocks else 0


def _print(blocks: Iterable[doc.Block], console: Console) -> None:
    """Print blocks, with empty lines between them as :func:`_separated` decides."""
    before: doc.Block | None = None
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if before is not None and _separated(before, block):
            console.print()
        for item in _block(block, console.width):
            console.print(item, soft_wrap=isinstance(item, Text) and bool(item.no_wrap))
        before = block


def _separated(before: doc.Block, block: doc.Block) -> bool:
    """Whether to print an empty line between two blocks."""
    if isinstance(before, doc.Heading):
        return False
    if isinstance(before, Table) and isinstance(block, doc.Text):
        return not block.below
    if isinstance(block, doc.Code):
        return not isinstance(before, doc.Text)
    return not (isinstance(before, doc.Text) and isinstance(block, doc.Text) and block.below)


def _block(block: doc.Block, width: int) -> Iterator[RenderableType]:
    if isinstance(block, doc.Heading):
        yield Text(printable(block.text), "bold")
    elif isinstance(block, doc.Text):
        pieces = list(doc.pieces(block.content))
        style = "bold" if all(piece.style == doc.STRONG for piece in pieces) else ""
        if block.note:
            style = "bold yellow" if style else "yellow"
        elif block.aside:
            style = "dim"
        yield Text(printable(doc.plain(block.with_lead)), style)
    elif isinstance(block, doc.Points):
        yield _pairs([("-", doc.plain(item)) for item in block.items], width, gap=1)
    elif isinstance(block, doc.Code):
        # Lines are not wrapped, so that they can be copied.
        lines = "\n".join(map(printable, block.text.split("\n")))
        yield Text(lines, no_wrap=True)
    elif isinstance(block, Table) and block.head:
        yield from _table(block, width)
    elif isinstance(block, Table):
        yield _pairs(block.cells(), width)


def _pairs(rows: Iterable[Sequence[str]], width: int, gap: int = _GAP) -> Grid:
    """Make a grid of names and values in two columns, in which long values are folded."""
    texts = [(_text(name), _text(value)) for name, value in rows]
    longest = max((name.cell_len for name, _ in texts), default=0)
    grid = Grid.grid(padding=(0, gap, 0, 0))
    grid.add_column(width=min(longest, width // 2), overflow="fold")
    grid.add_column(overflow="fold")
    for name, value in texts:
        grid.add_row(name, value)
    return grid


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    cells = [[_text(cell) for cell in row] for row in table.cells()]
    names = [_text(column.heading) for column in table.columns]
    fitting = _fitting(table.columns, [names, *cells], width)
    edges: Any = {"show_edge": False, "pad_edge": False, "padding": (0, _GAP - 1, 0, 0)}
    grid = Grid(box=_RULE if table.ruled else None, border_style="dim", **edges)
    for at in fitting:
        is_number = table.columns[at].fold_width is None
        style: Any = {"justify": "right", "no_wrap": True} if is_number else {"overflow": "fold"}
        grid.add_column(names[at], **style)
    for row, texts in enumerate(cells):
        if not any(texts[at] for at in fitting):
            continue  # the row has cells in omitted columns only
        grid.add_row(*(texts[at] for at in fitting), style=_STYLES.get(table.mark(row), ""))
    yield grid
    hidden = [name.plain for at, name in enumerate(names) if at not in fitting and name.plain]
    if hidden:
        yield Text(f"Not shown at this width: {', '.join(hidden)} ({table.wider}).", "dim")
    if notes := table.notes(table.columns[at] for at in fitting):
        yield Text(printable(notes), "dim")


def _text(text: str) -> Text:
    """Convert to rich's text, without interpreting brackets as markup."""
    return Text(printable(text))


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """The indices of the columns that fit into a width if their texts are folded.

    Columns are omitted in the order of ``Column.drop``, then from the right, except the first.
    """
    widths: list[int] = [max(text.cell_len for text in texts) for texts in zip(*rows, strict=True)]
    # Omit columns of marks if no row is marked.
    fitting = [at for at, column_width in enumerate(widths) if column_width]

    def total_width(folds: Sequence[int | None]) -> int:
        """The width of the columns in ``fitting`` if each is folded to its width in ``folds``."""
        folded = (min(widths[at], folds[at] or widths[at]) for at in fitting)
        return sum(folded) + _GAP * (len(fitting) - 1)

    folds = [column.fold_width for column in columns]
    for at in sorted(fitting, key=lambda at: columns[at].drop):
        if columns[at].drop and total_width(folds) > width:
            fitting.remove(at)
    narrowest = [None if fold is None else _MIN_FOLD for fold in folds]
    while len(fitting) > 1 and total_width(narrowest) > width:
        fitting.pop()
    return fitting
