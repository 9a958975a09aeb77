"""Blocks -> PDF, set on A4 pages by typst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.report import document as doc
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable

#: Width in points between the margins of a page.
_WIDTH = 482.0
#: Width of a letter, a digit and a bold letter in the size of the text; what a column takes beside.
_LETTER, _DIGIT, _BOLD, _INSET = 0.6, 0.66, 0.74, 6.0
#: Sizes of a table's text in points: the largest, the one below which columns are left out, and the
#: least.
_LARGEST, _READABLE, _LEAST = 8.5, 6.2, 5.0
#: A table of no more columns than these keeps them all, unless they say that they may go.
_FEW = 8
#: Tables of so many rows are not parted by the end of a page.
_TOGETHER = 16
#: Widest column of text in characters; longer ones fold.
_WIDEST = 44
#: The date of a file that says when no run began.
_UNKNOWN = datetime(2000, 1, 1, tzinfo=timezone.utc)

_STYLE = """
#set page(paper: "a4", margin: (x: 20mm, y: 20mm), numbering: "1 / 1",
  header: context if counter(page).get().first() > 1 [
    #set text(size: 8pt, fill: luma(90)); #running])
#set text(font: "DejaVu Sans", size: 9.5pt, lang: "en", hyphenate: false)
#set par(justify: false, leading: 0.62em)
#set list(indent: 0.6em)
#show raw: set text(font: "DejaVu Sans Mono", size: 0.92em)
#show raw.where(block: true): block.with(fill: luma(244), inset: 6pt, width: 100%)
#show heading: set block(above: 1.5em, below: 0.8em, sticky: true)
#show heading.where(level: 1): set text(size: 17pt)
#show heading.where(level: 2): set text(size: 13pt)
#show heading.where(level: 3): set text(size: 10.5pt)
#show figure: set block(breakable: true)
#show figure: set align(left)
#show figure.where(kind: table): set figure.caption(position: top)
#show figure.where(kind: image): set block(breakable: false)
#show figure.caption: it => block(width: 100%, sticky: true,
  align(left, text(size: 8.5pt, it.body)))
#set table(stroke: none, inset: (x: 3pt, y: 2.4pt))
#set image(width: 76%)
"""


def require_packages() -> None:
    """See that typst, which sets the pages, is installed."""
    try:
        import typst  # noqa: F401
    except ImportError as error:
        raise ProfileError(
            "a PDF needs the package typst, which the extra pdf brings: python -m pip install typst"
        ) from error


def write(
    blocks: Sequence[doc.Block],
    pictures: Mapping[str, bytes],
    *,
    began: str = "",
    about: Mapping[str, str] | None = None,
) -> bytes:
    """The blocks as a PDF; the same blocks give the same bytes."""
    require_packages()
    import typst

    title = next((block.text for block in blocks if isinstance(block, doc.Heading)), "")
    said = {"title": title, **(about or {})}
    known = "".join(f"{key}: {_string(value)}, " for key, value in said.items() if value)
    body = _in_font(
        "\n\n".join(
            (f"#let running = {_string(title)}", _STYLE, *(p for b in blocks for p in _parts(b)))
        )
    )
    source = f"#set document({known}date: {_date(began)})\n{body}"
    files = {_svg(name): content for name, content in pictures.items()}
    # Its stubs do not know of files in memory.
    compile_: Any = typst.compile
    pdf: bytes = compile_(
        {"main.typ": source.encode(), **files}, font_paths=[_fonts()], ignore_system_fonts=True
    )
    return pdf


def _in_font(source: str) -> str:
    """The source with signs that the font lacks shown by their numbers, which it then says."""
    from matplotlib.ft2font import FT2Font

    known = FT2Font(str(Path(_fonts()) / "DejaVuSans.ttf")).get_charmap()
    # What is no ASCII stands in literals.
    lacking = {sign for sign in source if not sign.isascii() and ord(sign) not in known}
    if not lacking:
        return source
    numbers = {sign: sign.encode("unicode_escape").decode("ascii") for sign in lacking}
    shown = source.translate({ord(sign): f"\\{number}" for sign, number in numbers.items()})
    note = "Characters that this font lacks are shown by number."
    return f"{shown}\n#text(size: 8pt, {_string(note)})"


def _fonts() -> str:
    """The folder of DejaVu's fonts, which come with Matplotlib."""
    import matplotlib as mpl

    return str(Path(mpl.get_data_path()) / "fonts" / "ttf")


def _date(began: str) -> str:
    try:
        date = datetime.fromisoformat(began.replace("Z", "+00:00"))
    except ValueError:
        date = _UNKNOWN
    parts = ("year", "month", "day", "hour", "minute", "second")
    return f"datetime({', '.join(f'{name}: {getattr(date, name)}' for name in parts)})"


def _svg(name: str) -> str:
    return f"{Path(name).stem}.svg"


def _string(text: str) -> str:
    """A literal, in which no sign has a meaning."""
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _parts(block: doc.Block) -> Iterator[str]:
    if isinstance(block, doc.Heading):
        yield f"#heading(level: {block.level}, outlined: true, {_string(block.text)})"
    elif isinstance(block, doc.Text) and block.note:
        frame = "inset: (left: 8pt, y: 4pt), stroke: (left: 2pt + luma(150))"
        yield f"#block({frame})[#strong[{block.lead or 'Note'}:] {_words(block.words)}]"
    elif isinstance(block, doc.Text):
        yield f"#par[{_words(block.words)}]"
    elif isinstance(block, doc.Points):
        yield f"#list({', '.join(f'[{_words(item)}]' for item in block.items)})"
    elif isinstance(block, doc.Lines):
        rows = (f"#strong({_string(name + ':')}) #{_string(value)}" for name, value in block.rows)
        yield f"#par[{' #linebreak() '.join(rows)}]"
    elif isinstance(block, doc.Code):
        lines = ", ".join(map(_string, block.text.split("\n")))
        yield f'#raw(block: true, ({lines},).join("\\n"))'
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, doc.Figure):
        picture = f"image({_string(_svg(block.file))}, alt: {_string(block.alt)})"
        yield _figure(picture, "image", block)


def _figure(body: str, kind: str, block: Table | doc.Figure) -> str:
    label, words = doc.caption_text(block)
    said = f"[#strong({_string(label)}) #{_string(words)}]" if block.number else "none"
    return (
        f"#figure({body}, kind: {kind}, caption: {said}, numbering: none, supplement: none, "
        "outlined: false)"
    )


def _words(words: doc.Words) -> str:
    shown = []
    for piece in doc.pieces(words):
        literal = _string(piece.text)
        if piece.style == doc.CODE or piece.link:
            shown.append(f"#raw({literal})")
        elif piece.style == doc.STRONG:
            shown.append(f"#strong({literal})")
        else:
            shown.append(f"#{literal}")
    return "#{}".join(shown)


def _table(table: Table) -> Iterator[str]:
    """A table with the columns that there is room for; its head is on every page."""
    shown, left_out, size, widths = _fitting(table)
    aligned = ", ".join("right" if one.folds is None else "left" for one in shown.columns)
    parts = [f"columns: ({widths},)", f"align: ({aligned},)"]
    if shown.head:
        names = ", ".join(f"strong({_string(name)})" for name in shown.head)
        parts.append(f"table.header({names}, table.hline(stroke: 0.6pt))")
    for at, row in enumerate(shown.cells()):
        marked = bool(shown.mark(at))
        parts += [
            _cell(cell, marked, column.code)
            for cell, column in zip(row, shown.columns, strict=True)
        ]
    body = f"[#set text(size: {size:.2f}pt); #table({', '.join(parts)})]"
    figure = _figure(body, "table", shown)
    yield f"#block(breakable: false)[{figure}]" if len(shown.rows) <= _TOGETHER else figure
    said = [shown.notes(), f"No room on paper for: {', '.join(left_out)}." if left_out else ""]
    if any(said):
        yield f"#par[#{_string(' '.join(filter(None, said)))}]"


def _fitting(table: Table) -> tuple[Table, list[str], float, str]:
    """What there is room for of a table, the headings of the rest, size of text and widths."""
    columns, left_out = list(table.columns), list[str]()
    if not table.head:
        return table, left_out, _LARGEST, "auto, 1fr"
    size, widths = _fit(table)
    goes = [(one, _READABLE) for one in sorted(columns, key=attrgetter("drop")) if one.drop]
    # Those that nothing says of how much they matter go from behind, where there is no way out.
    goes += [(one, _LEAST) for one in reversed(columns[_FEW:]) if not one.drop]
    for column, enough in goes:
        if size < enough:
            columns.remove(column)
            left_out.append(column.title or column.name)
            table = replace(table, columns=list(columns))
            size, widths = _fit(table)
    return table, left_out, max(_LEAST, size), widths


def _fit(table: Table) -> tuple[float, str]:
    """The size of the text with which a table fits, and the widths of its columns for typst."""
    bold = 1.1 if any(table.marks) else 1.0
    cells, narrow = table.cells(), []
    for at, column in enumerate(table.columns):
        longest = max((len(row[at]) for row in cells), default=0)
        wide = longest * _DIGIT if column.folds is None else min(longest, _WIDEST) * _LETTER
        narrow.append(bold * wide)
    whole = [len(name) for name in table.head]
    # A heading folds between its words, where the table has no room for it on one line.
    words = [max(map(len, name.split()), default=0) for name in table.head]
    for heads in (whole, words):
        ems = [max(em, count * _BOLD) for em, count in zip(narrow, heads, strict=True)]
        size = min(_LARGEST, (_WIDTH - _INSET * len(ems)) / max(1.0, sum(ems)))
        if size == _LARGEST:
            break
    # Columns of text share what the numbers leave.
    widths = (
        f"{em:.2f}em + {_INSET}pt" if column.folds is None else f"{em:.2f}fr"
        for em, column in zip(ems, table.columns, strict=True)
    )
    return size, ", ".join(widths)


def _cell(text: str, marked: bool, code: bool) -> str:
    # Paths have no spaces: they fold behind a slash.
    literal = _string(text).replace("/", r"/\u{200b}")
    if code:
        return f"raw({literal})"
    return f"strong({literal})" if marked else f"[#{literal}]"
