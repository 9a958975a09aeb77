"""What a reader sees of blocks in each form that they are written in, as items in their order:
``(kind, text, ...)``. :func:`told` says what there has to be.
"""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from chainer_profile.report.document import (
    FASTER,
    HOT,
    SLOWER,
    TOTAL,
    WRONG,
    Block,
    Code,
    Figure,
    Heading,
    Points,
    Text,
    caption_text,
    pieces,
    plain,
)
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html, markdown, terminal

Item = tuple[Any, ...]
#: Markdown, a page, and terminals of some widths.
WRITERS = ("markdown", "html", 80, 200)


def written(writer: str | int, blocks: Sequence[Block]) -> str:
    if isinstance(writer, int):
        return terminal.written(blocks, writer)
    return markdown.write(blocks) if writer == "markdown" else html.write(blocks, level=3)


def seen(writer: str | int, blocks: Sequence[Block]) -> list[Item]:
    if isinstance(writer, int):
        return list(_on_terminal(blocks, writer))
    text = written(writer, blocks)
    if writer == "markdown":
        text = MarkdownIt("commonmark", {"html": True}).enable(_MORE).render(text)
        text = text.replace("\n</code></pre>", "</code></pre>")
    return _blocks_alone(writer, Page(text)).items


def told(writer: str | int, blocks: Sequence[Block]) -> list[Item]:
    return [item for block in blocks for item in _told(writer, block)]


def tidy(writer: str | int, text: str) -> str:
    """A text that can be compared: a terminal breaks lines anywhere, others between words."""
    return ("" if isinstance(writer, int) else " ").join(text.split())


def _told(writer: str | int, block: Block) -> Iterator[Item]:
    def said(text: str) -> str:
        return tidy(writer, printable(text))

    if isinstance(block, Heading):
        yield "heading", said(block.text)
    elif isinstance(block, Text):
        links = any(piece.link for piece in pieces(block.words))
        if not (links and writer == "html"):
            yield "note" if block.note else "text", said(plain(block.led))
    elif isinstance(block, Points):
        for item in block.items:
            yield "point", said(plain(item))
    elif isinstance(block, Code):
        lines = [printable(line) for line in block.text.split("\n")]
        # Nobody sees spaces at the end of a line on a terminal.
        ends = [line.rstrip() if isinstance(writer, int) else line for line in lines]
        yield "code", "\n".join(ends)
    elif isinstance(block, Figure):
        if writer == "markdown":
            yield "image", block.file, said(block.alt)
            if block.caption:
                yield "text", said(caption_text(block))
    else:
        if block.head:
            yield from _told_table(writer, block)
        else:
            for name, value in block.cells():
                yield "pair", said(name), said(value)


def _told_table(writer: str | int, table: Table) -> Iterator[Item]:
    def said(text: str) -> str:
        return tidy(writer, printable(text))

    names = [column.heading for column in table.columns] if isinstance(writer, int) else table.head
    kept = _kept(table, writer) if isinstance(writer, int) else list(range(len(names)))
    cells = [[said(row[at]) for at in kept] for row in table.cells()]
    marks = [table.mark(at) for at in range(len(table.rows))]
    if writer != "html":  # In Markdown all marks are bold.
        marks = [mark and ("bold" if writer == "markdown" else _STYLES[mark]) for mark in marks]
    yield "table", [said(names[at]) for at in kept], cells, marks
    lost = [name for at, name in enumerate(names) if at not in kept and name]
    if lost:
        yield "text", said(f"Not shown at this width: {', '.join(lost)} ({table.wider}).")
    shown = {table.columns[at].heading for at in kept}
    legend = " ".join(note for name, note in table.legend if not name or name in shown)
    if legend:
        yield "text", said(legend)


def _kept(table: Table, width: int) -> list[int]:
    """The columns that stand on a terminal."""
    rows = [[column.heading for column in table.columns], *table.cells()]
    shown = [[Styled(printable(text)) for text in row] for row in rows]
    return terminal._fitting(table.columns, shown, width)


# -- HTML, and Markdown as HTML


@dataclass
class Page(HTMLParser):
    """HTML read as a browser does: elements with their attributes, scripts, words, and items.

    It fails where elements are not nested. Of Markdown, marked rows are bold, and tables without
    words in their heads are pairs.
    """

    html: str
    items: list[Item] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, str]] = []
        self._text = ""
        self._rows: list[list[str]] = []
        self._marks: list[str] = []
        self._bold: list[list[bool]] = []
        self.feed(self.html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "img":
            self.items.append(("image", unquote(given["src"] or ""), tidy("", given["alt"] or "")))
        if tag in _VOID:
            return
        self._open.append((tag, given.get("class") or ""))
        if tag == "table":
            self._rows, self._marks, self._bold = [], [], []
        elif tag == "tr":
            self._rows.append([])
            self._marks.append(given.get("class") or "")
            self._bold.append([])
        elif tag in ("td", "th"):
            self._bold[-1].append(False)
        elif tag == "strong" and ("tr", "") in self._open:
            self._bold[-1][-1] = True
        if tag not in _WITHIN:
            self._text = ""

    def handle_data(self, data: str) -> None:
        self._text += data
        if not {"script", "style"} & {tag for tag, _ in self._open}:
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        opened, kind = self._open.pop()
        assert opened == tag
        text = tidy("html", self._text)
        if tag in ("td", "th") and kind != "bar":
            self._rows[-1].append(text)
        elif tag == "table":
            head, *rows = self._rows
            for at, row in enumerate(rows, 1):
                if any(self._bold[at]) and any(head):
                    assert self._bold[at] == [bool(text) for text in row]
                    self._marks[at] = "bold"
            pairs = [("pair", *row) for row in rows]
            self.items += [("table", head, rows, self._marks[1:])] if any(head) else pairs
        elif tag == "p" and ("blockquote", "") in self._open:
            self.items.append(("note", text.removeprefix("Note: ")))
        elif tag == "p" and ("li", "") in self._open:  # of two lists behind each other
            self.items.append(("point", text))
            self._text = ""
        elif tag == "p" and text:
            self.items.append(("note" if kind == "notice" else "text", text))
        elif tag == "script":
            self.scripts.append(self._text)
        elif tag in _ITEMS and (text or tag != "li"):
            self.items.append((_ITEMS[tag], self._text if tag == "pre" else text))
        if tag == "dd":
            (_, value), (_, name) = self.items.pop(), self.items.pop()
            self.items.append(("pair", name, value))

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def pictures(self) -> list[str | None]:
        """What the drawn pictures are, in their order."""
        return [a["aria-label"] for tag, a in self.tags if tag == "svg" and "aria-label" in a]


def _blocks_alone(writer: str, page: Page) -> Page:
    """The same, which has no elements and attributes but those of blocks."""
    more, names = _OF_MARKDOWN if writer == "markdown" else (set(), _ATTRIBUTES)
    assert {tag for tag, _ in page.tags} <= _TAGS | more
    assert {name for _, attributes in page.tags for name in attributes} <= names
    for _, attributes in page.tags:  # to other files of the report alone
        assert re.fullmatch(r"[\w./%~-]+", attributes.get("href") or "-")
    return page


_MORE = ["table", "strikethrough"]
_VOID = {"meta", "link", "input", "br", "hr", "img"}
_WITHIN = {"bdi", "strong", "code", "i", "em", "a"}
_ITEMS = {"li": "point", "pre": "code", "dt": "name", "dd": "value"}
_ITEMS |= {f"h{level}": "heading" for level in range(1, 7)}
_TAGS = {
    *("p", "ul", "dl", "div", "code", "strong", "bdi", "i"),
    *("table", "thead", "tbody", "tr", "th", "td", *_ITEMS),
}
_ATTRIBUTES = {"id", "class", "style", "scope", "tabindex", "role", "aria-label"}
_OF_MARKDOWN = {"blockquote", "em", "a", "img", "br"}, {"style", "href", "src", "alt"}


# -- a terminal


_STYLES = dict.fromkeys((HOT, SLOWER, WRONG), "bold red")
_STYLES |= {TOTAL: "bold", FASTER: "bold green"}
#: Codes of a terminal, as rich calls them.
_CODES = {"": "", "1": "bold", "2": "dim", "33": "yellow", "1;33": "bold yellow"}
_CODES |= {"1;31": "bold red", "1;32": "bold green"}
#: Behind a sign that takes two places.
_SECOND = "\0"


def _lines(block: Block, width: int) -> list[tuple[str, str]]:
    """The lines of a block, each with the style in which it begins."""
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=True, color_system="standard", _environ={}
    )
    terminal.show([block], console)
    found = []
    for line in file.getvalue().split("\n")[:-1]:
        style = re.match(r"\x1b\[([\d;]+)m", line)
        found.append((re.sub(r"\x1b\[[\d;]*m", "", line).rstrip(), style[1] if style else ""))
    assert "\n".join(line for line, _ in found) == written(width, [block])
    return [(line, _CODES[style]) for line, style in found]


def _on_terminal(blocks: Sequence[Block], width: int) -> Iterator[Item]:
    for block in blocks:
        if isinstance(block, Figure):
            assert written(width, [block]) == ""
            continue
        lines = _lines(block, width)
        text = "\n".join(line for line, _ in lines)
        if not isinstance(block, Code):
            assert all(cell_len(line) <= width for line, _ in lines)
        if isinstance(block, Heading):
            yield "heading", tidy(width, text)
        elif isinstance(block, Text):
            noted = "yellow" in lines[0][1]
            yield "note" if noted else "text", tidy(width, text)
        elif isinstance(block, Points):
            for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:]:
                assert all(line.startswith("  ") for line in item.split("\n")[1:] if line)
                yield "point", tidy(width, item)
        elif isinstance(block, Code):
            yield "code", text
        elif not block.head:
            rows = [tuple(row) for row in block.cells()]
            begin = min(max(cell_len(printable(name)) for name, _ in rows), width // 2)
            spans = [(0, begin), (begin + 2, width)]
            for found, _ in _rows(rows, lines, spans, width):
                yield "pair", *found
        else:
            yield from _terminal_table(block, lines, width)


def _terminal_table(table: Table, lines: list[tuple[str, str]], width: int) -> Iterator[Item]:
    kept = _kept(table, width)
    columns = [table.columns[at] for at in kept]
    rule = next(at for at, (line, _) in enumerate(lines) if re.fullmatch("[- ]+", line))
    # Between two columns are two spaces, over one of which the rule goes.
    spans = [found.span() for found in re.finditer("-+", lines[rule][0])]
    spans = [(start, end - 1) for start, end in spans[:-1]] + spans[-1:]
    ((head, _),) = _rows([[column.heading for column in columns]], lines[:rule], spans, width)
    cells = [[row[at] for at in kept] for row in table.cells()]
    rest = lines[rule + 1 :]
    rows = list(_rows(cells, rest, spans, width, columns))
    yield "table", head, [row for row, _ in rows], [style for _, style in rows]
    below = tidy(width, "".join(line for line, _ in rest))
    if below.startswith("Notshownatthiswidth:"):
        end = below.index(tidy(width, f"({table.wider}).")) + len(tidy(width, f"({table.wider})."))
        yield "text", below[:end]
        below = below[end:]
    if below:
        yield "text", below


def _rows(
    wanted: Sequence[Sequence[str]],
    lines: list[tuple[str, str]],
    spans: Sequence[tuple[int, int]],
    width: int,
    columns: Sequence[Column] = (),
) -> Iterator[tuple[list[str], str]]:
    """The rows on these lines, which go with them; a row ends where all of it was seen."""
    for row in wanted:
        ends = [tidy(width, printable(text)) for text in row]
        seen, styles = [""] * len(spans), set()
        while lines and (seen != ends or not styles):
            line, style = lines.pop(0)
            parts = _cells(line, spans)
            for text, column, cell in zip(parts, columns, row, strict=False):
                if column.folds is None:  # A number stands on one line, to the right.
                    assert text == text.strip().rjust(len(text))
                elif not cell.startswith(" "):
                    assert text[:1] != " " or not text.strip()
            seen = [before + tidy(width, text) for before, text in zip(seen, parts, strict=True)]
            styles.add(style)
        (how,) = styles
        yield seen, how


def _cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The parts of a line within the columns; nothing stands between them."""
    places = "".join(sign + _SECOND * (cell_len(sign) - 1) for sign in line).ljust(spans[-1][1])
    assert len(places) == spans[-1][1]
    for (_, end), (start, _) in pairwise(spans):
        assert places[end:start].strip() == ""
    return [places[start:end].replace(_SECOND, "") for start, end in spans]
