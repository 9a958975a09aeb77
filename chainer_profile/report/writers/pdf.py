"""Blocks -> PDF, set on A4 pages by typst."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.report.document import (
    CODE,
    STRONG,
    Code,
    Figure,
    Heading,
    Lines,
    Points,
    Text,
    caption_text,
    pieces,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chainer_profile.report.document import Block, Words

#: Width in points between the margins of a page.
_WIDTH = 482.0
#: Width of a letter, a digit and a bold letter in the size of the text, and what a column takes
#: beside.
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
    """See that typst, which sets the pages, is installed.

    Raises:
        ProfileError: It is not.
    """
    try:
        import typst  # noqa: F401
    except ImportError as error:
        raise ProfileError(
            "a PDF needs the package typst, which the extra pdf brings: python -m pip install typst"
        ) from error


def write(
    blocks: Sequence[Block],
    pictures: Mapping[str, bytes],
    *,
    began: str = "",
    about: Mapping[str, str] | None = None,
) -> bytes:
    """The blocks as a PDF; the same blocks give the same bytes.

    Raises:
        ProfileError: typst is not installed.
    """
    require_packages()
    import typst

    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    missing = _Missing()
    body = "\n\n".join(part for block in blocks for part in _parts(block, missing))
    said = {"title": title, **(about or {})}
    known = "".join(f"{key}: {_string(value)}, " for key, value in said.items() if value)
    source = "\n".join(
        (
            f"#set document({known}date: {_date(began)})",
            f"#let running = {_string(missing.shown(title))}",
            _STYLE,
            body,
            missing.note(),
        )
    )
    files = {_svg(name): content for name, content in pictures.items()}
    # Its stubs do not know of files in memory.
    compile_: Any = typst.compile
    pdf: bytes = compile_(
        {"main.typ": source.encode(), **files}, font_paths=[_fonts()], ignore_system_fonts=True
    )
    return pdf


class _Missing:
    """Shows what the font has no sign for by its number, and says so."""

    def __init__(self) -> None:
        self._found = False

    def shown(self, text: str) -> str:
        """A text of which the font has every sign."""
        known = _known()
        parts = []
        for sign in printable(text):
            if ord(sign) not in known:
                self._found = True
                sign = sign.encode("unicode_escape").decode("ascii")
            parts.append(sign)
        return "".join(parts)

    def note(self) -> str:
        if not self._found:
            return ""
        return f"#text(size: 8pt, {_string('Signs that this font lacks are shown by number.')})"


@cache
def _fonts() -> str:
    """The folder of DejaVu's fonts, which come with Matplotlib."""
    import matplotlib as mpl

    return str(Path(mpl.get_data_path()) / "fonts" / "ttf")


@cache
def _known() -> frozenset[int]:
    """The signs that the font has."""
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(str(Path(_fonts()) / "DejaVuSans.ttf")).get_charmap())


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


def _parts(block: Block, missing: _Missing) -> Iterator[str]:
    if isinstance(block, Heading):
        said = _string(missing.shown(block.text))
        yield f"#heading(level: {block.level}, outlined: true, {said})"
    elif isinstance(block, Text):
        words = _words(block.words, missing)
        yield (
            f"#block(inset: (left: 8pt, y: 4pt), stroke: (left: 2pt + luma(150)))"
            f"[#strong[Note:] {words}]"
            if block.note
            else f"#par[{words}]"
        )
    elif isinstance(block, Points):
        items = ", ".join(f"[{_words(item, missing)}]" for item in block.items)
        yield f"#list({items})"
    elif isinstance(block, Lines):
        rows = (
            f"#strong({_string(name + ':')}) #{_string(missing.shown(value))}"
            for name, value in block.rows
        )
        yield f"#par[{' #linebreak() '.join(rows)}]"
    elif isinstance(block, Code):
        lines = ", ".join(_string(missing.shown(line)) for line in block.text.split("\n"))
        yield f'#raw(block: true, ({lines},).join("\\n"))'
    elif isinstance(block, Table):
        yield from _table(_Layout(block), missing)
    elif isinstance(block, Figure):
        yield _figure(
            f"image({_string(_svg(block.file))}, alt: {_string(block.alt)})",
            "image",
            block,
            missing,
        )


def _figure(body: str, kind: str, block: Table | Figure, missing: _Missing) -> str:
    label, words = caption_text(block)
    said = f"[#strong({_string(label)}) #{_string(missing.shown(words))}]"
    if not block.number:
        said = "none"
    return (
        f"#figure({body}, kind: {kind}, caption: {said}, numbering: none, supplement: none, "
        "outlined: false)"
    )


def _words(words: Words, missing: _Missing) -> str:
    shown = []
    for piece in pieces(words):
        literal = _string(missing.shown(piece.text))
        if piece.style == CODE or piece.link:
            shown.append(f"#raw({literal})")
        elif piece.style == STRONG:
            shown.append(f"#strong({literal})")
        else:
            shown.append(f"#{literal}")
    return "#{}".join(shown)


class _Layout:
    """How a table stands on a page.

    Attributes:
        table: The table, without the columns that there is no room for.
        left_out: The headings of those.
        cells: Its rows as texts.
        texts: For each column whether it is one of text.
        size: Its text's, in points.
        widths: Its columns', in typst's words.
    """

    def __init__(self, table: Table) -> None:
        columns = list(table.columns)
        self.left_out: list[str] = []
        self.size = _LARGEST
        self._fit(table)
        wanted = sorted((one for one in columns if one.drop), key=lambda one: one.drop)
        # Those that nothing says of how much they matter go from behind, where there is no way out.
        goes = [(one, _READABLE) for one in wanted]
        goes += [(one, _LEAST) for one in reversed(columns[_FEW:]) if not one.drop]
        for column, enough in goes if table.head else ():
            if self.size < enough:
                columns.remove(column)
                self.left_out.append(column.title or column.name)
                self._fit(replace(table, columns=columns))
        self.size = max(_LEAST, self.size)

    def _fit(self, table: Table) -> None:
        """Choose the size of the text and the widths."""
        head, cells = table.head, table.cells()
        texts = [column.folds is not None for column in table.columns]
        self.table, self.cells, self.texts = table, cells, texts
        bold = 1.1 if any(table.marks) else 1.0
        longest = [max((len(row[at]) for row in cells), default=0) for at in range(len(texts))]
        narrow = [
            bold * (min(most, _WIDEST) * _LETTER if is_text else most * _DIGIT)
            for most, is_text in zip(longest, texts, strict=True)
        ]
        whole = [len(name) for name in head] or [0] * len(texts)
        # A heading folds between its words, where the table has no room for it on one line.
        words = [max(map(len, name.split()), default=0) for name in head] or whole
        ems = [max(em, n * _BOLD) for em, n in zip(narrow, whole, strict=True)]
        self.size = _size(ems)
        if self.size < _LARGEST:
            ems = [max(em, n * _BOLD) for em, n in zip(narrow, words, strict=True)]
            self.size = _size(ems)
        # Columns of text share what the numbers leave.
        widths = (
            f"{em:.2f}fr" if is_text else f"{em:.2f}em + {_INSET}pt"
            for em, is_text in zip(ems, texts, strict=True)
        )
        self.widths = ", ".join(widths) if head else "auto, 1fr"
        self.size = self.size if head else _LARGEST


def _size(ems: Sequence[float]) -> float:
    """The size of text in which columns of these widths fit."""
    return min(_LARGEST, (_WIDTH - _INSET * len(ems)) / max(1.0, sum(ems)))


def _table(layout: _Layout, missing: _Missing) -> Iterator[str]:
    """A table; its head is on every page."""
    table = layout.table
    aligned = ", ".join("left" if is_text else "right" for is_text in layout.texts)
    parts = [f"columns: ({layout.widths},)", f"align: ({aligned},)"]
    if table.head:
        names = ", ".join(f"strong({_string(missing.shown(name))})" for name in table.head)
        parts.append(f"table.header({names}, table.hline(stroke: 0.6pt))")
    codes = [column.code for column in table.columns]
    for at, row in enumerate(layout.cells):
        parts += [
            _cell(missing.shown(cell), bool(table.mark(at)), code)
            for cell, code in zip(row, codes, strict=True)
        ]
    body = f"[#set text(size: {layout.size:.2f}pt); #table({', '.join(parts)})]"
    figure = _figure(body, "table", table, missing)
    yield f"#block(breakable: false)[{figure}]" if len(layout.cells) <= _TOGETHER else figure
    notes = [table.notes(), _left_out(layout.left_out)]
    if said := " ".join(filter(None, notes)):
        yield f"#par[#{_string(missing.shown(said))}]"


def _left_out(headings: Sequence[str]) -> str:
    return f"No room on paper for: {', '.join(headings)}." if headings else ""


def _cell(text: str, marked: bool, code: bool) -> str:
    # Paths have no spaces: they fold behind a slash.
    literal = _string(text).replace("/", "/\u200b")
    if code:
        return f"raw({literal})"
    return f"strong({literal})" if marked else f"[#{literal}]"
