"""Markdown as GitHub reads it: blocks and texts that are shown just as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from chainer_profile.report import document as doc
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import printable


def write(blocks: Iterable[doc.Block]) -> str:
    """Blocks as a file."""
    return "\n\n".join(part for block in blocks for part in _parts(block)) + "\n"


def _parts(block: doc.Block) -> Iterator[str]:
    if isinstance(block, doc.Heading):
        yield f"{'#' * block.level} {text(block.text)}"
    elif isinstance(block, doc.Text):
        note = f"> **{block.lead or 'Note'}:** " if block.note else ""
        yield note + words(block.words)
    elif isinstance(block, doc.Points):
        yield "\n".join(f"- {words(item)}" for item in block.items)
    elif isinstance(block, doc.Code):
        lines = "\n".join(map(printable, block.text.split("\n")))
        fence = _fence(lines, least=3)
        yield f"{fence}\n{lines}\n{fence}"
    elif isinstance(block, Table):
        yield _table(block)
        if notes := block.notes():
            yield text(notes)
    elif isinstance(block, doc.Figure):
        yield f"![{text(block.alt)}]({address(block.file)})"
        if block.caption:
            yield f"*{text(block.caption)}*"


def _table(table: Table) -> str:
    """A table, its marked rows in bold."""
    rules = ("---:" if column.folds is None else "---" for column in table.columns)
    head = [cell(name) for name in table.head] or ["" for _ in table.columns]
    lines = [head, list(rules)]
    for at, row in enumerate(table.cells()):
        shown = map(_cell, table.columns, row)
        bold = "**" if table.mark(at) else ""
        lines.append([f"{bold}{part}{bold}" if part else part for part in shown])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(column: Column, name: str) -> str:
    if column.unit.code:
        return _piece(doc.Piece(name, doc.CODE)).replace("|", r"\|")
    # Markdown takes leading spaces away.
    inner = name.lstrip(" ")
    return "&emsp;" * ((len(name) - len(inner)) // 2) + cell(inner)


def _fence(code: str, least: int = 1) -> str:
    """More backticks than stand side by side in the code."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    return "`" * max(least, longest + 1)


def words(parts: doc.Words) -> str:
    """Pieces of text in their styles."""
    # Signs of a list mean nothing but at the begin of a line.
    return _no_list("".join(map(_piece, doc.pieces(parts))).strip())


def _piece(piece: doc.Piece) -> str:
    if piece.link:
        return f"[{_escaped(piece.text)}]({address(piece.link)})"
    if piece.style == doc.CODE:
        # A backslash is no escape in code.
        shown = printable(piece.text)
        fence = _fence(shown)
        # Markdown takes a space away at each end.
        spaced = "`" in shown or (shown.startswith(" ") and shown.endswith(" "))
        return f"{fence} {shown} {fence}" if spaced else f"`{shown}`"
    if piece.style == doc.STRONG:
        return f"**{_escaped(piece.text).strip()}**"
    return _escaped(piece.text)


def address(path: str) -> str:
    """A file's name as the address of a link."""
    return quote(path, safe="/.-_~", errors="replace")


def text(name: object) -> str:
    """A name or a sentence as Markdown that is shown just as it is, on one line."""
    return _no_list(cell(str(name)))


def cell(name: str) -> str:
    """The same within a table."""
    return _escaped(name, r"(?![(:\[])").strip()


def _escaped(name: str, behind: str = r"(?![(:\[]|$)") -> str:
    """A text whose signs mean nothing; ``behind`` is a pattern behind a unit in brackets."""
    shown = printable(name)
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = shown.replace(" -&gt; ", " -> ")
    shown = re.sub(r"([\\`*|~$])", r"\\\1", shown)
    # A unit in brackets is no link: there are no definitions.
    shown = re.sub(
        r"\[[\w%/ ]{1,12}\]" + behind + r"|[\[\]]",
        lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}",
        shown,
    )
    # Between letters an underscore means nothing to Markdown.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", shown)


def _no_list(shown: str) -> str:
    # Behind a heading signs of numbers mean nothing, too.
    shown = re.sub(r"^(#{1,6})(?=\s|$)|(?<=\s)(#+)$", r"\\\1\2", shown)
    return re.sub(r"^(\d*)([-+.)])(?=\s|[-\s]*$)", r"\1\\\2", shown)
