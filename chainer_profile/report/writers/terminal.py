"""Blocks -> a terminal, by rich; or text of the same lines, for a file, a pipe or a prompt."""

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

#: Lines of a first screen, with two for the names of files; rows of a table in it; and lines that
#: name what it leaves out.
SCREEN, ROWS, _LAST = 38, 20, 3
#: Characters of a line in a file or a pipe, where rich would take 80; and of one without an end.
_WIDE, _ENDLESS = 160, 10_000
#: Characters between columns, and the least to which a text is folded.
_GAP, _LEAST = 2, 8
#: A rule below the headings of a table, and no other lines.
_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
_STYLES = {
    doc.HOT: "bold red",
    doc.TOTAL: "bold",
    doc.SLOWER: "bold red",
    doc.FASTER: "bold green",
    doc.WRONG: "bold red",
}


def standard_output() -> Console:
    """Where users look; a file or a pipe has room for all columns of tables."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if has_width else _WIDE)


def show(blocks: Iterable[doc.Block], console: Console) -> None:
    """Print blocks; without colour and spaces at the ends of lines where nobody looks."""
    if console.is_terminal:
        _print(blocks, console)
    elif lines := written(blocks, console.width):
        print(lines, file=console.file)


def written(blocks: Iterable[doc.Block], width: int | None = None) -> str:
    """The same as text, without a line break at the end."""
    file = io.StringIO()
    # Neither variables nor a notebook change the console.
    console = Console(
        file=file, width=width or _ENDLESS, force_terminal=False, force_jupyter=False, _environ={}
    )
    _print(blocks, console)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n")[:-1])


def first_screen(
    blocks: Iterable[doc.Block], width: int | None, hint: str, most: int = SCREEN
) -> list[doc.Block]:
    """The blocks that a first screen has room for, long tables cut, and the names of the others."""
    kept: list[doc.Block] = []
    left: list[str] = []
    room = most - _LAST
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if isinstance(block, Table) and block.head and len(block.rows) > ROWS:
            legend = [*not_shown(len(block.rows) - ROWS, hint), *block.legend]
            block = replace(block, rows=block.rows[:ROWS], legend=legend)
        count = count_of_lines([*kept[-1:], block], width) - count_of_lines(kept[-1:], width)
        if left or count > room:
            name = block.caption if isinstance(block, Table) else ""
            left += [] if isinstance(block, doc.Heading) else [name]
            continue
        room -= count
        kept.append(block)
    while left and kept and _leads(kept[-1]):
        kept.pop()
    if left:
        unnamed = plural(left.count(""), "paragraph")
        names = [*filter(None, left), *([unnamed] if "" in left else [])]
        kept.append(doc.Text((f"Not shown: {', '.join(names)} ({hint}).",), aside=True))
    return kept


def _leads(block: doc.Block) -> bool:
    """Whether a block says nothing without the next one."""
    if not isinstance(block, doc.Text):
        return isinstance(block, doc.Heading)
    last = block.words[-1] if block.words else ""
    return isinstance(last, str) and last.endswith(":")


def count_of_lines(blocks: Sequence[doc.Block], width: int | None) -> int:
    return written(blocks, width).count("\n") + 1 if blocks else 0


def _print(blocks: Iterable[doc.Block], console: Console) -> None:
    """Print blocks, with empty lines between those of other kinds."""
    before: doc.Block | None = None
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if before is not None and _parted(before, block):
            console.print()
        for part in _block(block, console.width):
            console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
        before = block


def _parted(before: doc.Block, block: doc.Block) -> bool:
    """Whether an empty line stands between two blocks: sentences of one kind stand together."""
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
        shown = list(doc.pieces(block.words))
        style = "bold" if all(piece.style == doc.STRONG for piece in shown) else ""
        if block.note:
            style = "bold yellow" if style else "yellow"
        elif block.aside:
            style = "dim"
        yield Text(printable(doc.plain(block.led)), style)
    elif isinstance(block, doc.Points):
        yield _pairs([("-", doc.plain(item)) for item in block.items], width, gap=1)
    elif isinstance(block, doc.Code):
        # They stay whole for who copies them.
        lines = "\n".join(map(printable, block.text.split("\n")))
        yield Text(lines, no_wrap=True)
    elif isinstance(block, Table) and block.head:
        yield from _table(block, width)
    elif isinstance(block, Table):
        yield _pairs(block.cells(), width)


def _pairs(rows: Iterable[Sequence[str]], width: int, gap: int = _GAP) -> Grid:
    """Names and values in two columns; long values go on below their beginning."""
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
    kept = _fitting(table.columns, [names, *cells], width)
    edges: Any = {"show_edge": False, "pad_edge": False, "padding": (0, _GAP - 1, 0, 0)}
    grid = Grid(box=_RULE if table.ruled else None, border_style="dim", **edges)
    for at in kept:
        is_number = table.columns[at].folds is None
        style: Any = {"justify": "right", "no_wrap": True} if is_number else {"overflow": "fold"}
        grid.add_column(names[at], **style)
    for row, texts in enumerate(cells):
        if not any(texts[at] for at in kept):
            continue  # all that it has is in columns that are left out
        grid.add_row(*(texts[at] for at in kept), style=_STYLES.get(table.mark(row), ""))
    yield grid
    hidden = [name.plain for at, name in enumerate(names) if at not in kept and name.plain]
    if hidden:
        yield Text(f"Not shown at this width: {', '.join(hidden)} ({table.wider}).", "dim")
    if notes := table.notes(table.columns[at] for at in kept):
        yield Text(printable(notes), "dim")


def _text(words: str) -> Text:
    """Words as they are: rich would read those in brackets as markup."""
    return Text(printable(words))


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """The places of the columns that a width has room for, with texts folded to their least.

    Columns go in the order that they say. Where that is not enough, the last ones go, but not the
    first.
    """
    widest: list[int] = [max(text.cell_len for text in texts) for texts in zip(*rows, strict=True)]
    # Marks where nothing is marked take no room.
    kept = [at for at, wide in enumerate(widest) if wide]

    def room(folds: Sequence[int | None]) -> int:
        """The width of the columns that are kept."""
        least = (min(widest[at], folds[at] or widest[at]) for at in kept)
        return sum(least) + _GAP * (len(kept) - 1)

    folds = [column.folds for column in columns]
    for at in sorted(kept, key=lambda at: columns[at].drop):
        if columns[at].drop and room(folds) > width:
            kept.remove(at)
    shortest = [None if fold is None else _LEAST for fold in folds]
    while len(kept) > 1 and room(shortest) > width:
        kept.pop()
    return kept
