"""Markdown as GitHub reads it: tables, lists, code, and texts that are shown just as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from chainer_profile.report.text import Row, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chainer_profile.report.columns import Column


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: int | Sequence[bool] = 0,
    bold: Sequence[bool] = (),
) -> str:
    """A table with some rows in bold. Cells are Markdown.

    Args:
        head: The headings.
        rows: The cells of every row.
        numbers: How many of the last columns are numbers, or of every column whether it is one.
        bold: For each row whether it is bold; those behind the last one are not.
    """
    if isinstance(numbers, int):
        numbers = [False] * (len(head) - numbers) + [True] * numbers
    lines = [tuple(head), tuple("---:" if number else "---" for number in numbers)]
    for at, row in enumerate(rows):
        cells = tuple(row)
        if at < len(bold) and bold[at]:
            cells = tuple(f"**{cell}**" if cell else cell for cell in cells)
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def columns_table(
    columns: Sequence[Column], rows: Sequence[object], *, bold: Sequence[bool] = ()
) -> str:
    """A table of columns; those that do not fold are numbers."""
    numbers = [column.folds is None for column in columns]
    cells = [
        [column.cell(row) if column.folds is None else text(column.cell(row)) for column in columns]
        for row in rows
    ]
    return table(
        [column.title or column.name for column in columns], cells, numbers=numbers, bold=bold
    )


def properties(rows: Iterable[Row]) -> str:
    """A table of names and values without a head."""
    return table(("", ""), [(text(name), text(value)) for name, value in rows])


def bullets(points: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {point}" for point in points)


def code(lines: str) -> str:
    """Lines as they are."""
    longest = max((len(run) for run in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{lines}\n{fence}"


def link(path: str) -> str:
    """A link to a file by its name."""
    return f"[{text(path)}]({address(path)})"


def address(path: str) -> str:
    """A file's name as the address of a link."""
    return quote(path, safe="/:.-_~")


def text(name: object) -> str:
    """A name or a sentence as Markdown that is shown just as it is, on one line."""
    shown = printable(str(name)).strip()
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = shown.replace(" -&gt; ", " -> ")
    shown = re.sub(r"([\\`*\[\]|~$#])", r"\\\1", shown)
    # Between letters an underscore means nothing to Markdown.
    shown = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", shown)
    # What would begin a list.
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", shown)
