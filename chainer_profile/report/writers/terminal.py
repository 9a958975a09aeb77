"""Blocks -> lines for a terminal of some width, with rich's styles or without any."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.report import document as doc
from chainer_profile.report.tables import Column, Table, not_shown
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from rich.console import Console

#: Lines of a first screen, with two for what was written, rows of a table in it, and lines for what
#: it leaves out.
SCREEN, ROWS, _LAST = 38, 20, 3
#: A line and its style, in rich's words.
Line = tuple[str, str]

GAP = "  "
#: No text is folded to less than this.
_LEAST = 8
_STYLES = {
    doc.HOT: "bold red",
    doc.TOTAL: "bold",
    doc.SLOWER: "bold red",
    doc.FASTER: "bold green",
    doc.WRONG: "bold red",
}


def show(blocks: Iterable[doc.Block], console: Console) -> None:
    """Print blocks; a table that is wider than the console is not cut."""
    from rich.text import Text as Styled

    for line, style in lines(blocks, console.width):
        console.print(Styled(line, style=style), soft_wrap=True)


def written(blocks: Iterable[doc.Block], width: int | None = None) -> str:
    """The same as text, without a line break at the end."""
    return "\n".join(line for line, _ in lines(blocks, width))


def lines(blocks: Iterable[doc.Block], width: int | None = None) -> Iterator[Line]:
    """The lines of blocks, each block parted from the one before as is usual."""
    before: doc.Block | None = None
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if before is not None and _parted(before, block):
            yield "", ""
        yield from _lines(block, width)
        before = block


def first_screen(
    blocks: Iterable[doc.Block], width: int | None, hint: str, most: int = SCREEN
) -> list[doc.Block]:
    """The blocks that a first screen has room for, long tables cut, and what is left out."""
    kept: list[doc.Block] = []
    left: list[str] = []
    room = most - _LAST
    for block in blocks:
        if isinstance(block, doc.Figure):
            continue
        if isinstance(block, Table) and block.head and len(block.rows) > ROWS:
            legend = [*not_shown(len(block.rows) - ROWS, hint), *block.legend]
            block = replace(block, rows=block.rows[:ROWS], legend=legend)
        count = _count([*kept[-1:], block], width) - _count(kept[-1:], width)
        if left or count > room:
            name = block.caption if isinstance(block, Table) else ""
            left += [name] if name else []
            left = left or [""]
            continue
        room -= count
        kept.append(block)
    while kept and isinstance(kept[-1], doc.Heading):
        kept.pop()
    if left:
        names = ", ".join(filter(None, left))
        said = f"More: {names} ({hint})." if names else f"There is more ({hint})."
        kept.append(doc.Text((said,), aside=True))
    return kept


def _count(blocks: Iterable[doc.Block], width: int | None) -> int:
    return sum(line.count("\n") + 1 for line, _ in lines(blocks, width))


def _parted(before: doc.Block, block: doc.Block) -> bool:
    """Whether an empty line stands between two blocks: sentences of one kind stand together."""
    if isinstance(before, doc.Heading):
        return False
    if isinstance(before, Table) and isinstance(block, doc.Text):
        return not block.below
    return not (isinstance(before, doc.Text) and isinstance(block, doc.Text) and block.below)


def _lines(block: doc.Block, width: int | None) -> Iterator[Line]:
    if isinstance(block, doc.Heading):
        yield wrapped(printable(block.text), width), "bold"
    elif isinstance(block, doc.Text):
        shown = list(doc.pieces(block.words))
        style = "bold" if all(piece.style == doc.STRONG for piece in shown) else ""
        if block.note:
            style = "bold yellow" if style else "yellow"
        elif block.aside:
            style = "dim"
        yield wrapped(printable(doc.plain(block.led)), width), style
    elif isinstance(block, doc.Points):
        for item in block.items:
            yield wrapped(printable(f"- {doc.plain(item)}"), width, 2), ""
    elif isinstance(block, doc.Lines):
        rows = [(printable(name), printable(value)) for name, value in block.rows]
        for line in pairs(rows, width):
            yield line, ""
    elif isinstance(block, doc.Code):
        for line in block.text.split("\n"):
            yield printable(line), ""
    elif isinstance(block, Table):
        yield from _table(block, width)


def _table(table: Table, width: int | None) -> Iterator[Line]:
    cells = [list(map(printable, row)) for row in table.cells()]
    if not table.head:
        yield from ((line, "") for line in pairs(cells, width))
        return
    names = [printable(column.name) for column in table.columns]
    natural = [max(map(len, texts)) for texts in zip(names, *cells, strict=True)]
    kept = _fitting(table.columns, natural, width)
    folds = [table.columns[at].folds for at in kept]
    widths = _folded([natural[at] for at in kept], folds, width)

    def line(texts: Sequence[str]) -> str:
        """A row; where its texts are folded it holds line breaks."""
        parts = [
            textwrap.wrap(texts[at], most, break_on_hyphens=False)
            if len(texts[at]) > most
            else [texts[at]]
            for at, most in zip(kept, widths, strict=True)
        ]
        lines = []
        for at in range(max(map(len, parts), default=0)):
            placed = (
                "".join(part[at : at + 1]).rjust(most)
                if fold is None
                else "".join(part[at : at + 1]).ljust(most)
                for part, most, fold in zip(parts, widths, folds, strict=True)
            )
            lines.append(GAP.join(placed).rstrip())
        return "\n".join(lines)

    yield line(names), "bold"
    yield GAP.join("-" * most for most in widths), "dim"
    for at, row in enumerate(cells):
        yield line(row), _STYLES.get(table.mark(at), "")
    hidden = [name for at, name in enumerate(names) if at not in kept and name]
    if hidden:
        said = f"Not shown at this width: {', '.join(hidden)}"
        yield wrapped(f"{said} ({table.wider}).", width), "dim"
    if said := table.notes(table.columns[at] for at in kept):
        yield wrapped(printable(said), width), "dim"


def _fitting(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    """The places of the columns that a width has room for, each text folded at most to its own."""
    least = [
        wide if column.folds is None else min(wide, column.folds)
        for column, wide in zip(columns, natural, strict=True)
    ]
    # Marks where nothing is marked take no room.
    kept = [at for at, wide in enumerate(least) if wide]
    for at in sorted(kept, key=lambda at: columns[at].drop):
        needed = sum(least[i] for i in kept) + len(GAP) * (len(kept) - 1)
        if width is not None and columns[at].drop and needed > width:
            kept.remove(at)
    return kept


def _folded(natural: Sequence[int], folds: Sequence[int | None], width: int | None) -> list[int]:
    """Widths of columns that fit, where that can be: the widest texts are folded first."""
    widths = list(natural)
    if width is None:
        return widths
    room = width - len(GAP) * (len(natural) - 1)

    def least(most: Sequence[int | None]) -> list[int]:
        return [
            wide if fold is None else min(wide, fold)
            for wide, fold in zip(natural, most, strict=True)
        ]

    ends = least(folds)
    if sum(ends) > room:
        ends = least([None if fold is None else _LEAST for fold in folds])
    while sum(widths) > room:
        beyond = [at for at, wide in enumerate(widths) if wide > ends[at]]
        if not beyond:  # too narrow for the numbers alone
            break
        widths[max(beyond, key=widths.__getitem__)] -= 1
    return widths


def wrapped(text: str, width: int | None, indent: int = 0) -> str:
    """A sentence on lines that fit a terminal; paths and commands are not broken."""
    if width is None or len(text) <= width:
        return text
    return textwrap.fill(
        text,
        max(width, indent + _LEAST),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def pairs(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Names and values in two columns; long values go on below their beginning."""
    first = max((len(name) for name, _ in rows), default=0)
    indent = first + len(GAP)
    return [wrapped(f"{name:{first}}{GAP}{value}", width, indent) for name, value in rows]
