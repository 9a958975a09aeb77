"""Blocks -> HTML, for the page and for a notebook. All text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import zip_longest

from chainer_profile.report import document as doc
from chainer_profile.report.tables import SPREAD, Column, Spread, Table, is_missing
from chainer_profile.report.text import printable

#: Cells with more characters may be broken into several lines.
_LONG = 40
_BAR = '<i style="width:{:.1f}%"></i>'


def write(
    blocks: Iterable[doc.Block],
    *,
    level: int = 0,
    figures: Callable[[doc.Figure], str] | None = None,
    max_rows: int | None = None,
) -> str:
    """Format blocks as HTML, without paragraphs that link to other files.

    Args:
        blocks: The blocks.
        level: Added to the levels of headings.
        figures: Formats a figure; None omits figures.
        max_rows: Further rows of a table are hidden at first.
    """
    return "\n".join(filter(None, (_block(block, level, figures, max_rows) for block in blocks)))


def _block(
    block: doc.Block, level: int, figures: Callable[[doc.Figure], str] | None, max_rows: int | None
) -> str:
    if isinstance(block, doc.Heading):
        return f"<h{block.level + level}>{text(block.text)}</h{block.level + level}>"
    if isinstance(block, doc.Text):
        if any(piece.link for piece in doc.pieces(block.content)):
            return ""
        kind = ' class="notice"' if block.note else ' class="aside"' if block.aside else ""
        return f"<p{kind}>{inline(block.with_lead)}</p>"
    if isinstance(block, doc.Points):
        items = "".join(f"<li>{inline(item)}</li>" for item in block.items)
        return f'<ul class="sentences">{items}</ul>'
    if isinstance(block, doc.Code):
        lines = "\n".join(map(text, block.text.split("\n")))
        return f'<pre tabindex="0"><code>{lines}</code></pre>'
    if isinstance(block, Table):
        return _table(block, max_rows)
    if isinstance(block, doc.Boxes):
        return _boxes(block)
    if isinstance(block, doc.Fold):
        kind = ' class="warning"' if block.warning else ""
        inner = write(block.blocks, level=level, figures=figures, max_rows=max_rows)
        return f"<details{kind}><summary>{inline(block.line)}</summary>\n{inner}\n</details>"
    return figures(block) if figures else ""


def _table(table: Table, max_rows: int | None = None) -> str:
    """Format a table; as a list of names and values if it has no headings.

    The plots of the trials follow the first column with bars, after its bars.
    """
    if not table.head:
        pairs = (f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>" for n, v in table.cells())
        return f'<dl class="properties">{"".join(pairs)}</dl>'
    columns = table.columns
    name_at = next((i for i, column in enumerate(columns) if column.fold_width is not None), 0)
    bar_at = next((i for i, column in enumerate(columns) if column.bar or column.unit.bar), None)
    heads = [
        f'<th scope="col"{_css_class(column, i == name_at)}>{text(name)}</th>'
        for i, (column, name) in enumerate(zip(columns, table.head, strict=True))
    ]
    rows = [
        [
            _cell(column, cell, i == name_at, _item(table.row_links, row))
            for i, (column, cell) in enumerate(zip(columns, cells, strict=True))
        ]
        for row, cells in enumerate(table.cells())
    ]
    after_bar, body = (bar_at or 0) + 1, len(rows) - table.foot
    if table.spreads:
        heads.insert(after_bar, '<th scope="col" class="text">trials</th>')
        for cells, spread in zip_longest(rows, table.spreads):
            cells.insert(after_bar, "<td></td>" if spread is None else _spread(spread))
    if bar_at is not None:
        lengths = list(map(columns[bar_at].bar or columns[bar_at].value_of, table.rows))
        known = (length for length in lengths[:body] if length and not is_missing(length))
        longest = max(known, default=0.0)
        lengths[body:] = [None] * table.foot
        heads.insert(after_bar, '<td class="bar"></td>')
        for cells, length in zip(rows, lengths, strict=True):
            has_bar = longest and not is_missing(length)
            bar = _BAR.format(100 * length / longest) if has_bar else ""
            cells.insert(after_bar, f'<td class="bar">{bar}</td>')
    lines = [f"<tr{_row_attributes(table, i)}>{''.join(row)}</tr>" for i, row in enumerate(rows)]
    label = f' aria-label="{text(table.caption)}"' if table.caption else ""
    kind = "scroll tree" if table.depths else "scroll"
    # The tabindex lets the keyboard scroll it sideways.
    scrolls = f'<div class="{kind}" tabindex="0" role="group"{label}>'
    below = f'\n<p class="caption">{text(notes)}</p>' if (notes := table.notes()) else ""
    lines, foot = lines[:body], "\n".join(lines[body:])
    first, more = "\n".join(lines[:max_rows]), "\n".join(lines[max_rows:] if max_rows else ())
    inner = f"<tbody>\n{first}\n</tbody>" + (f"<tbody hidden>\n{more}\n</tbody>" if more else "")
    inner += f"<tfoot>\n{foot}\n</tfoot>" if foot else ""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    return f"{scrolls}<table{label}>{head}\n{inner}</table></div>{below}"


def _item(texts: Sequence[str], row: int) -> str:
    """The text of a row; empty if the sequence is shorter."""
    return texts[row] if row < len(texts) else ""


def _row_attributes(table: Table, at: int) -> str:
    """The attributes of a row: its anchor, its mark and its depth in a tree."""
    name = _item(table.anchors, at)
    anchor = f' id="{escape(name)}"' if name else ""
    mark = f' class="{table.mark(at)}"' if table.mark(at) else ""
    depth = f' style="--depth:{table.depths[at]}"' if table.depths else ""
    return anchor + mark + depth


def _css_class(column: Column, is_name: bool = False, content: str = "") -> str:
    """The class attribute of a cell; none for numbers, which are right-aligned by default."""
    if column.fold_width is None:
        return ""
    kinds = ["text", *(["name"] if is_name else []), *(["long"] if len(content) > _LONG else [])]
    return f' class="{" ".join(kinds)}"'


def _cell(column: Column, cell: str, is_name: bool, anchor: str) -> str:
    content = text(cell)
    if column.fold_width is not None:
        # HTML collapses spaces, which indent names.
        inner = content.lstrip(" ")
        content = "&#160;&#160;" * (len(content) - len(inner)) + inner
    if is_name and anchor:
        content = f'<a href="#{escape(anchor)}">{content}</a>'
    return f"<td{_css_class(column, is_name, content)}>{content}</td>"


def _spread(spread: Spread) -> str:
    """Draw a histogram and, to its right, the course over the trials."""
    bar_width, path, last = 40 / len(spread.counts), f"M0 {SPREAD}", 0
    for count in spread.counts:
        path += (f"v{last - count}" if count != last else "") + f"h{bar_width:g}"
        last = count
    step, course = 56 / max(1, len(spread.course) - 1), f"M44 {SPREAD - spread.course[0]}"
    for before, level in zip(spread.course, spread.course[1:], strict=False):
        course += f"l{step:.2g} {before - level}"
    return (
        f'<td class="text"><svg viewBox="0 -1 100 {SPREAD + 2}" role="img">'
        f"<title>{text(spread.description)}</title>"
        f'<path d="{path}V{SPREAD}"/><path d="{course}"/></svg></td>'
    )


def _boxes(picture: doc.Boxes) -> str:
    rows = 1 + max(box.row for box in picture.boxes)
    label = f'role="img" aria-label="{text(picture.label)}"'
    html = f'<div class="boxes" style="--rows:{rows}" {label}>'
    for box in picture.boxes:
        style = f"left:{100 * box.left:.2f}%;width:{100 * box.width:.2f}%"
        style += f";--row:{box.row}" if box.row else ""
        title = escape(printable(box.tooltip))
        html += f'<i class="{box.kind}" style="{style}" title="{title}">{text(box.name)}</i>'
    html += "</div>"
    if picture.legend:
        legend = (f'<li class="{kind}">{text(name)}</li>' for name, kind in picture.legend)
        html += f'<ul class="legend">{"".join(legend)}</ul>'
    return html + (f'<p class="caption">{text(picture.caption)}</p>' if picture.caption else "")


def inline(content: doc.Inline) -> str:
    """Format text and its styled pieces."""
    # The styles are named like the HTML tags.
    texts = ((piece.style, text(piece.text)) for piece in doc.pieces(content))
    return "".join(f"<{tag}>{inner}</{tag}>" if tag else inner for tag, inner in texts)


def text(name: str) -> str:
    """Escape a text and put it on one line, isolated from the surrounding text direction."""
    escaped = escape(printable(name))
    return escaped if name.isascii() else f"<bdi>{escaped}</bdi>"
