"""The text of blocks as a reader sees it in each output format."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote

from markdown_it import MarkdownIt
from rich.cells import cell_len

from chainer_profile.report import document as doc
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html, markdown, terminal

#: Markdown, a page, a narrow terminal, and a terminal wide enough for all columns.
WRITERS = ("markdown", "html", 80, 10_000)
#: Elements that a reader sees as one text, and elements without content.
_WHOLE = {"p", "li", "td", "th", "dt", "dd", "pre", *(f"h{level}" for level in range(1, 7))}
_VOID = {"meta", "link", "input", "br", "hr", "img"}
#: Elements that blocks may contain.
_INLINE = {"code", "strong", "em", "bdi", "i", "a", "img", "br"}
_TAGS = {
    *_WHOLE,
    *_INLINE,
    "ul",
    "dl",
    "div",
    "blockquote",
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
}
_ATTRIBUTES = {"id", "class", "style", "scope", "tabindex", "role", "aria-label"}
_ATTRIBUTES |= {"href", "src", "alt"}


def written(writer: str | int, blocks: Sequence[doc.Block]) -> str:
    if isinstance(writer, int):
        return terminal.written(blocks, writer)
    return markdown.write(blocks) if writer == "markdown" else html.write(blocks, level=3)


def check(writer: str | int, blocks: Sequence[doc.Block]) -> None:
    """Check that the reader sees exactly the texts of the blocks."""
    shown = written(writer, blocks)
    assert all(line.isprintable() for line in shown.split("\n"))
    if not isinstance(writer, int):
        # A diff of two whole reports would take minutes.
        for text, other in zip(seen(writer, shown), expected(writer, blocks), strict=True):
            assert text == other
    elif writer > 80:
        assert signs(shown) == signs("".join(expected(writer, blocks)))
    else:
        for block in blocks:
            lines = written(writer, [block]).split("\n")
            assert isinstance(block, doc.Code) or max(map(cell_len, lines)) <= writer


def seen(writer: str, text: str) -> list[str]:
    """Return the texts of Markdown or HTML, and refuse elements and attributes of no block."""
    if writer == "markdown":
        text = (
            MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
        )
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= _TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= _ATTRIBUTES
    for _, attributes in page.tags:  # Links go only to other files of the report.
        assert re.fullmatch(r"[\w./%~-]+", attributes.get("href") or "-")
    return page.texts


def tidy(text: str) -> str:
    """Normalise line breaks, so that texts can be compared."""
    return " ".join(text.split())


def signs(text: str) -> Counter[str]:
    """Count the characters of a text, without spaces and the dashes of rules and lists."""
    return Counter(re.sub(r"[\s-]", "", text))


def expected(writer: str | int, blocks: Sequence[doc.Block]) -> list[str]:
    return [tidy(printable(text)) for block in blocks for text in _texts(writer, block)]


def _texts(writer: str | int, block: doc.Block) -> Iterator[str]:
    """Yield the texts of a block. Only Markdown has pictures and links to files."""
    in_markdown = writer == "markdown"
    if isinstance(block, doc.Heading):
        yield block.text
    elif isinstance(block, doc.Text):
        if writer != "html" or not any(piece.link for piece in doc.pieces(block.content)):
            lead = "Note: " if in_markdown and block.note and not block.lead else ""
            yield lead + doc.plain(block.with_lead)
    elif isinstance(block, doc.Points):
        yield from map(doc.plain, block.items)
    elif isinstance(block, doc.Code):
        yield " ".join(map(printable, block.text.split("\n")))
    elif isinstance(block, Table):
        heads = block.head if isinstance(writer, str) else [c.heading for c in block.columns]
        yield from filter(None, heads)
        for row in block.cells():
            yield from row
        if block.head and block.notes():
            yield block.notes()
    elif isinstance(block, doc.Figure) and in_markdown:
        caption = block.caption and f"{block.caption.removesuffix('.')}."
        yield from filter(None, (block.file, block.alt, caption))


@dataclass
class Page(HTMLParser):
    """Parse HTML like a browser; fail if elements are not nested."""

    html: str
    #: Elements with their attributes, in document order.
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    #: Texts of headings, paragraphs, items and cells; rows of cells; all words; the scripts.
    texts: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._text = ""
        self.feed(self.html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "img":
            self.texts += [unquote(attributes["src"] or ""), tidy(attributes["alt"] or "")]
        if tag not in _VOID:
            self._open.append((tag, attributes))
        if tag in ("script", *_WHOLE):
            self._text = ""
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        self._text += data
        if not {"script", "style"} & {tag for tag, _ in self._open}:
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        opened, attributes = self._open.pop()
        assert opened == tag
        text = tidy(self._text)
        if tag == "script":
            self.scripts.append(self._text)
        elif attributes.get("class") == "bar":
            return
        elif tag in ("td", "dt", "dd") or (tag in _WHOLE and text):
            self.texts.append(text)
            self._text = ""
        if tag in ("td", "th"):
            self.rows[-1].append(text)
