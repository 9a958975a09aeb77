"""What a reader sees of blocks in each form that they are written in.

:func:`seen` has items of Markdown and a page in their order, ``(kind, text, ...)``, and
:func:`wanted` says what there has to be. Of a terminal :func:`check_terminal` counts signs, as it
breaks lines anywhere.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from rich.cells import cell_len

from chainer_profile.report.document import (
    Block,
    Code,
    Figure,
    Heading,
    Points,
    Text,
    pieces,
    plain,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html, markdown, terminal

Item = tuple[Any, ...]
#: Markdown, a page, and terminals of some widths.
WRITERS = ("markdown", "html", 80, 200)


def written(writer: str | int, blocks: Sequence[Block]) -> str:
    if isinstance(writer, int):
        return terminal.written(blocks, writer)
    return markdown.write(blocks) if writer == "markdown" else html.write(blocks, level=3)


def check(writer: str | int, blocks: Sequence[Block]) -> None:
    """All that the blocks say is there to be read, and nothing else."""
    assert all(line.isprintable() for line in written(writer, blocks).split("\n"))
    if isinstance(writer, int):
        for block in blocks:
            check_terminal(block, writer)
        return
    items, expected = seen(writer, blocks), list(wanted(writer, blocks))
    # A diff of two whole reports takes minutes.
    for item, other in zip(items, expected, strict=False):
        assert item == other
    assert len(items) == len(expected)


def seen(writer: str, blocks: Sequence[Block]) -> list[Item]:
    text = written(writer, blocks)
    if writer == "markdown":
        text = MarkdownIt("commonmark", {"html": True}).enable(_MORE).render(text)
        text = text.replace("\n</code></pre>", "</code></pre>")
    return _blocks_alone(writer, Page(text)).items


def tidy(text: str) -> str:
    """A text that can be compared, whatever its line breaks."""
    return " ".join(text.split())


def _shown(text: str) -> str:
    return tidy(printable(text))


def wanted(writer: str, blocks: Sequence[Block]) -> Iterator[Item]:
    for block in blocks:
        if isinstance(block, Heading):
            yield "heading", _shown(block.text)
        elif isinstance(block, Text):
            links = any(piece.link for piece in pieces(block.words))
            if not (links and writer == "html"):
                yield "note" if block.note else "text", _shown(plain(block.led))
        elif isinstance(block, Points):
            yield from (("point", _shown(plain(item))) for item in block.items)
        elif isinstance(block, Code):
            yield "code", "\n".join(map(printable, block.text.split("\n")))
        elif isinstance(block, Figure):
            if writer == "markdown":
                yield "image", block.file, _shown(block.alt)
                if block.caption:
                    yield "text", _shown(block.caption)
        elif block.head:
            marks = [block.mark(at) for at in range(len(block.rows))]
            if writer == "markdown":  # All marks are bold.
                marks = [mark and "bold" for mark in marks]
            cells = [list(map(_shown, row)) for row in block.cells()]
            yield "table", list(map(_shown, block.head)), cells, marks
            if block.notes():
                yield "text", _shown(block.notes())
        else:
            yield from (("pair", _shown(name), _shown(value)) for name, value in block.cells())


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
            self.items.append(("image", unquote(given["src"] or ""), tidy(given["alt"] or "")))
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
        text = tidy(self._text)
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


def check_terminal(block: Block, width: int) -> None:
    """All signs of a block are there, and no others; a number stands on one line."""
    text = written(width, [block])
    if not isinstance(block, Code):
        assert all(cell_len(line) <= width for line in text.split("\n"))
    assert _signs(text) in [_signs(printable(words)) for words in _on_terminal(block)]
    if isinstance(block, Table) and block.head and "Not shown" not in text:
        numbers = [at for at, column in enumerate(block.columns) if column.folds is None]
        assert all(printable(row[at]) in text for row in block.cells() for at in numbers)


def _signs(text: str) -> Counter[str]:
    """The signs, but for spaces and the dashes of rules and lists."""
    return Counter(re.sub(r"[\s-]", "", text))


def _on_terminal(block: Block) -> Iterator[str]:
    """What there has to be; of a table with ever fewer columns."""
    if isinstance(block, Table):
        cells, names = block.cells(), [column.heading for column in block.columns]
        drops = [column.drop for column in block.columns]
        # Columns go in the order that they say, then the last ones.
        going = sorted((at for at, drop in enumerate(drops) if drop), key=lambda at: drops[at])
        going += [at for at, drop in reversed(list(enumerate(drops))) if not drop]
        for count in range(len(going)):
            lost = sorted(going[:count])
            shown = [at for at in range(len(names)) if at not in lost]
            rows = [[row[at] for at in shown] for row in (names, *cells)]
            legend = block.notes([block.columns[at] for at in shown])
            hint = ", ".join(filter(None, (names[at] for at in lost)))
            hint = f"Not shown at this width: {hint} ({block.wider})." if hint else ""
            yield "".join(("".join(map("".join, rows)), hint, legend))
    elif isinstance(block, Points):
        yield "".join(map(plain, block.items))
    elif isinstance(block, Text):
        yield plain(block.led)
    elif isinstance(block, Code):
        yield block.text.replace("\n", "")
    else:
        yield "" if isinstance(block, Figure) else block.text
