"""Blocks -> HTML, for the page and for a notebook. All texts are data: they are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import zip_longest

from chainer_profile.report import document as doc
from chainer_profile.report.tables import SPREAD, Column, Spread, Table, is_missing
from chainer_profile.report.text import printable

#: Texts of more characters take several lines.
_LONG = 40
_BAR = '<i style="width:{:.1f}%"></i>'


def write(
    blocks: Iterable[doc.Block],
    *,
    level: int = 0,
    figures: Callable[[doc.Figure], str] | None = None,
    most: int | None = None,
) -> str:
    """Blocks as HTML that stands alone, without paragraphs that link to other files."""
    return "\n".join(filter(None, (_block(block, level, figures, most) for block in blocks)))


def _block(
    block: doc.Block, level: int, figures: Callable[[doc.Figure], str] | None, most: int | None
) -> str:
    if isinstance(block, doc.Heading):
        return f"<h{block.level + level}>{text(block.text)}</h{block.level + level}>"
    if isinstance(block, doc.Text):
        if any(piece.link for piece in doc.pieces(block.words)):
            return ""
        kind = ' class="notice"' if block.note else ' class="aside"' if block.aside else ""
        return f"<p{kind}>{words(block.led)}</p>"
    if isinstance(block, doc.Points):
        items = "".join(f"<li>{words(item)}</li>" for item in block.items)
        return f'<ul class="sentences">{items}</ul>'
    if isinstance(block, doc.Code):
        lines = "\n".join(map(text, block.text.split("\n")))
        return f'<pre tabindex="0"><code>{lines}</code></pre>'
    if isinstance(block, Table):
        return _table(block, most)
    if isinstance(block, doc.Boxes):
        return _boxes(block)
    if isinstance(block, doc.Fold):
        kind = ' class="warning"' if block.warning else ""
        inner = write(block.blocks, level=level, figures=figures, most=most)
        return f"<details{kind}><summary>{words(block.line)}</summary>\n{inner}\n</details>"
    return figures(block) if figures else ""


def _table(table: Table, most: int | None = None) -> str:
    """A table, which scrolls where it is too wide; names and values where it has no head.

    Behind a column of parts stand their bars, and behind these how the times are spread.
    """
    if not table.head:
        pairs = (f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>" for n, v in table.cells())
        return f'<dl class="properties">{"".join(pairs)}</dl>'
    columns = table.columns
    named = next((at for at, column in enumerate(columns) if column.folds is not None), 0)
    drawn = next((at for at, column in enumerate(columns) if column.bar or column.unit.bar), None)
    heads = [
        f'<th scope="col"{_kind(column, at == named)}>{text(name)}</th>'
        for at, (column, name) in enumerate(zip(columns, table.head, strict=True))
    ]
    rows = [
        [
            _cell(column, cell, at == named, _at(table.leads, row))
            for at, (column, cell) in enumerate(zip(columns, cells, strict=True))
        ]
        for row, cells in enumerate(table.cells())
    ]
    place, body = (drawn or 0) + 1, len(rows) - table.foot
    if table.spreads:
        heads.insert(place, '<th scope="col" class="text">trials</th>')
        for cells, spread in zip_longest(rows, table.spreads):
            cells.insert(place, "<td></td>" if spread is None else _spread(spread))
    if drawn is not None:
        parts = list(map(columns[drawn].bar or columns[drawn].of, table.rows))
        known = (part for part in parts[:body] if part and not is_missing(part))
        longest = max(known, default=0.0)
        parts[body:] = [None] * table.foot
        heads.insert(place, '<td class="bar"></td>')
        for cells, part in zip(rows, parts, strict=True):
            # As long as the part is to the longest bar.
            bar = "" if is_missing(part) or not longest else _BAR.format(100 * part / longest)
            cells.insert(place, f'<td class="bar">{bar}</td>')
    lines = [f"<tr{_marks(table, at)}>{''.join(cells)}</tr>" for at, cells in enumerate(rows)]
    label = f' aria-label="{text(table.caption)}"' if table.caption else ""
    kind = "scroll tree" if table.depths else "scroll"
    # Who has no pointer moves it sideways, too.
    scrolls = f'<div class="{kind}" tabindex="0" role="group"{label}>'
    below = f'\n<p class="caption">{text(notes)}</p>' if (notes := table.notes()) else ""
    lines, foot = lines[:body], "\n".join(lines[body:])
    shown, more = "\n".join(lines[:most]), "\n".join(lines[most:] if most else ())
    inner = f"<tbody>\n{shown}\n</tbody>" + (f"<tbody hidden>\n{more}\n</tbody>" if more else "")
    inner += f"<tfoot>\n{foot}\n</tfoot>" if foot else ""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    return f"{scrolls}<table{label}>{head}\n{inner}</table></div>{below}"


def _at(names: Sequence[str], row: int) -> str:
    """The name of a row; empty where there is none."""
    return names[row] if row < len(names) else ""


def _marks(table: Table, at: int) -> str:
    """The attributes of a row: its anchor, its mark, and how deep it stands."""
    name = _at(table.anchors, at)
    anchor = f' id="{escape(name)}"' if name else ""
    mark = f' class="{table.mark(at)}"' if table.mark(at) else ""
    depth = f' style="--depth:{table.depths[at]}"' if table.depths else ""
    return anchor + mark + depth


def _kind(column: Column, named: bool = False, content: str = "") -> str:
    """Numbers stand at the right, which needs no word; the first text names its row."""
    if column.folds is None:
        return ""
    kinds = ["text", *(["name"] if named else []), *(["long"] if len(content) > _LONG else [])]
    return f' class="{" ".join(kinds)}"'


def _cell(column: Column, cell: str, named: bool, lead: str) -> str:
    content = text(cell)
    if column.folds is not None:
        # HTML would fold the spaces that set a name in.
        inner = content.lstrip(" ")
        content = "&#160;&#160;" * (len(content) - len(inner)) + inner
    if named and lead:
        content = f'<a href="#{escape(lead)}">{content}</a>'
    return f"<td{_kind(column, named, content)}>{content}</td>"


def _spread(spread: Spread) -> str:
    """A histogram, and the course over the trials beside it."""
    wide, path, last = 40 / len(spread.counts), f"M0 {SPREAD}", 0
    for count in spread.counts:
        path += (f"v{last - count}" if count != last else "") + f"h{wide:g}"
        last = count
    step, course = 56 / max(1, len(spread.course) - 1), f"M44 {SPREAD - spread.course[0]}"
    for before, level in zip(spread.course, spread.course[1:], strict=False):
        course += f"l{step:.2g} {before - level}"
    return (
        f'<td class="text"><svg viewBox="0 -1 100 {SPREAD + 2}" role="img">'
        f"<title>{text(spread.words)}</title>"
        f'<path d="{path}V{SPREAD}"/><path d="{course}"/></svg></td>'
    )


def _boxes(picture: doc.Boxes) -> str:
    rows = 1 + max(box.row for box in picture.boxes)
    label = f'role="img" aria-label="{text(picture.label)}"'
    shown = f'<div class="boxes" style="--rows:{rows}" {label}>'
    for box in picture.boxes:
        place = f"left:{100 * box.left:.2f}%;width:{100 * box.width:.2f}%"
        place += f";--row:{box.row}" if box.row else ""
        title = escape(printable(box.words))
        shown += f'<i class="{box.kind}" style="{place}" title="{title}">{text(box.name)}</i>'
    shown += "</div>"
    if picture.legend:
        legend = (f'<li class="{kind}">{text(name)}</li>' for name, kind in picture.legend)
        shown += f'<ul class="legend">{"".join(legend)}</ul>'
    return shown + (f'<p class="caption">{text(picture.caption)}</p>' if picture.caption else "")


def words(parts: doc.Words) -> str:
    """Pieces of text in their styles."""
    # The names of styles are those of tags.
    texts = ((piece.style, text(piece.text)) for piece in doc.pieces(parts))
    return "".join(f"<{tag}>{shown}</{tag}>" if tag else shown for tag, shown in texts)


def text(name: str) -> str:
    """A text that is shown just as it is, on one line; its direction of writing is its own."""
    shown = escape(printable(name))
    return shown if name.isascii() else f"<bdi>{shown}</bdi>"
