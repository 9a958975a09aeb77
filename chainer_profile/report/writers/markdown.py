"""Blocks -> GitHub's Markdown. All text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from chainer_profile.report import document as doc
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import printable


def write(blocks: Iterable[doc.Block]) -> str:
    """Format blocks as the text of a Markdown file."""
    return "\n\n".join(text for block in blocks for text in _paragraphs(block)) + "\n"


def _paragraphs(block: doc.Block) -> Iterator[str]:
    if isinstance(block, doc.Heading):
        yield f"{'#' * block.level} {text(block.text)}"
    elif isinstance(block, doc.Text):
        note = f"> **{block.lead or 'Note'}:** " if block.note else ""
        yield note + inline(block.content)
    elif isinstance(block, doc.Points):
        yield "\n".join(f"- {inline(item)}" for item in block.items)
    elif isinstance(block, doc.Code):
        lines = "\n".join(map(printable, block.text.split("\n")))
        fence = _fence(lines, min_length=3)
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
    """Format a table with its marked rows in bold."""
    rules = ("---:" if column.fold_width is None else "---" for column in table.columns)
    head = [cell(name) for name in table.head] or ["" for _ in table.columns]
    lines = [head, list(rules)]
    for index, row in enumerate(table.cells()):
        texts = map(_cell, table.columns, row)
        bold = "**" if table.mark(index) else ""
        lines.append([f"{bold}{text}{bold}" if text else text for text in texts])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(column: Column, name: str) -> str:
    if column.unit.code:
        return _piece(doc.Piece(name, doc.CODE)).replace("|", r"\|")
    # Markdown removes leading spaces.
    inner = name.lstrip(" ")
    return "&emsp;" * ((len(name) - len(inner)) // 2) + cell(inner)


def _fence(code: str, min_length: int = 1) -> str:
    """A fence with more backticks than the longest sequence in the code."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    return "`" * max(min_length, longest + 1)


def inline(content: doc.Inline) -> str:
    """Format text and its styled pieces."""
    return _escape_line("".join(map(_piece, doc.pieces(content))).strip())


def _piece(piece: doc.Piece) -> str:
    if piece.link:
        return f"[{_escaped(piece.text)}]({address(piece.link)})"
    if piece.style == doc.CODE:
        # Backslashes do not escape in code, so a longer fence surrounds backticks.
        code = printable(piece.text)
        fence = _fence(code)
        # Markdown removes one space from each end.
        spaced = "`" in code or (code.startswith(" ") and code.endswith(" "))
        return f"{fence} {code} {fence}" if spaced else f"`{code}`"
    if piece.style == doc.STRONG:
        return f"**{_escaped(piece.text).strip()}**"
    return _escaped(piece.text)


def address(path: str) -> str:
    """Quote a file's name as the address of a link."""
    return quote(path, safe="/.-_~", errors="replace")


def text(name: object) -> str:
    """Escape a text and put it on one line."""
    return _escape_line(cell(str(name)))


def cell(name: str) -> str:
    """Escape a text for a cell of a table."""
    return _escaped(name, r"(?![(:\[])").strip()


def _escaped(name: str, after_unit: str = r"(?![(:\[]|$)") -> str:
    """Escape the characters that Markdown interprets anywhere in a line.

    A unit in brackets, such as ``[ms]``, is kept if the pattern ``after_unit`` matches after it.
    """
    escaped = printable(name)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace(" -&gt; ", " -> ")
    escaped = re.sub(r"([\\`*|~$])", r"\\\1", escaped)
    # A unit in brackets does not become a link, because the file has no link definitions.
    escaped = re.sub(
        r"\[[\w%/ ]{1,12}\]" + after_unit + r"|[\[\]]",
        lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}",
        escaped,
    )
    # Markdown does not interpret an underscore between letters.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


def _escape_line(line: str) -> str:
    """Escape the characters that make a line a heading or the item of a list."""
    # Markdown also removes # at the end of a heading.
    line = re.sub(r"^(#{1,6})(?=\s|$)|(?<=\s)(#+)$", r"\\\1\2", line)
    return re.sub(r"^(\d*)([-+.)])(?=\s|[-\s]*$)", r"\1\\\2", line)
