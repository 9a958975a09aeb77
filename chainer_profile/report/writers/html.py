"""Blocks -> HTML, for the page and for a notebook. All texts are data: they are escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from chainer_profile.report.document import (
    CODE,
    STRONG,
    Code,
    Figure,
    Heading,
    Lines,
    Points,
    Text,
    pieces,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from chainer_profile.report.document import Block, Words
    from chainer_profile.report.tables import Column

#: Texts of more characters take several lines.
_LONG = 40


def write(
    blocks: Iterable[Block], *, level: int = 0, figures: Callable[[Figure], str] | None = None
) -> str:
    """Blocks as HTML that stands alone: what points to other files is left out.

    Args:
        blocks: The blocks.
        level: What is added to the level of a heading.
        figures: Makes what stands in a figure's place; None for nothing.
    """
    found = []
    for block in blocks:
        if isinstance(block, Figure):
            found.append(figures(block) if figures else "")
        else:
            found += _parts(block, level)
    return "\n".join(filter(None, found))


def _parts(block: Block, level: int) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"<h{block.level + level}>{text(block.text)}</h{block.level + level}>"
    elif isinstance(block, Text):
        if any(piece.link for piece in pieces(block.words)):
            return
        kind = ' class="notice"' if block.note else ' class="aside"' if block.aside else ""
        yield f"<p{kind}>{words(block.words)}</p>"
    elif isinstance(block, Points):
        items = "".join(f"<li>{words(item)}</li>" for item in block.items)
        yield f'<ul class="sentences">{items}</ul>'
    elif isinstance(block, Lines):
        yield _pairs(block.rows)
    elif isinstance(block, Code):
        lines = "\n".join(map(text, block.text.split("\n")))
        yield f'<pre tabindex="0"><code>{lines}</code></pre>'
    elif isinstance(block, Table):
        yield table(block)


def table(found: Table) -> str:
    """A table, which scrolls where it is too wide; names and values where it has no head."""
    if not found.head:
        return _pairs(found.cells())
    bars = next((column.bar for column in found.columns if column.bar is not None), None)
    shares = [] if bars is None else [bars(row) for row in found.rows]
    most = max((share for share in shares if share is not None), default=0.0)
    head = "".join(
        _cell("th", column, text(name), ' scope="col"')
        for column, name in zip(found.columns, found.head, strict=True)
    )
    if shares:
        head += "<td></td>"
    lines = []
    for at, row in enumerate(found.cells()):
        mark = found.mark(at)
        cells = [
            _cell("td", column, text(cell)) for column, cell in zip(found.columns, row, strict=True)
        ]
        if shares:
            cells.append(_bar(shares[at], most))
        lines.append(f"<tr{f' class={mark!r}' if mark else ''}>{''.join(cells)}</tr>")
    label = f' aria-label="{text(found.caption)}"' if found.caption else ""
    # Who has no pointer moves it sideways, too.
    scrolls = f'<div class="scroll" tabindex="0" role="group"{label}>'
    below = f'\n<p class="caption">{text(notes)}</p>' if (notes := found.notes()) else ""
    body = "\n".join(lines)
    return (
        f"{scrolls}<table{label}><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>{below}"
    )


def _pairs(rows: Iterable[Sequence[str]]) -> str:
    found = "".join(f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>" for n, v in rows)
    return f'<dl class="properties">{found}</dl>'


def _cell(tag: str, column: Column, content: str, more: str = "") -> str:
    if column.folds is None:
        return f'<{tag}{more} class="number">{content}</{tag}>'
    # HTML would fold the spaces that set a name in.
    inner = content.lstrip(" ")
    content = "&#160;&#160;" * (len(content) - len(inner)) + inner
    kind = ' class="long"' if tag == "td" and len(content) > _LONG else ""
    return f"<{tag}{more}{kind}>{content}</{tag}>"


def _bar(share: float | None, most: float) -> str:
    """A bar as long as the share is to the largest one."""
    if share is None or not most > 0:
        return '<td class="bar"></td>'
    return f'<td class="bar"><i style="width:{100 * share / most:.1f}%"></i></td>'


def words(parts: Words) -> str:
    """Pieces of text in their styles."""
    tags = {CODE: "code", STRONG: "strong"}
    found = []
    for piece in pieces(parts):
        tag = tags.get(piece.style)
        shown = text(piece.text)
        found.append(f"<{tag}>{shown}</{tag}>" if tag else shown)
    return "".join(found)


def text(name: str) -> str:
    """A text that is shown just as it is, on one line; its direction of writing is its own."""
    shown = escape(printable(name))
    return shown if name.isascii() else f"<bdi>{shown}</bdi>"
