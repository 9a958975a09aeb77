"""A report as a list of blocks, which each writer renders in its format.

Texts are plain: writers escape the characters that Markdown or HTML would interpret.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chainer_profile.report.tables import TOTAL as TOTAL
from chainer_profile.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

#: Files in the report's folder that the report shows or links.
PLOT, ROOFLINE, MEMORY = "layers.png", "roofline.png", "memory.png"
LAYERS, LINKS = "layers.csv", "links.csv"
#: Styles of a piece of text.
STRONG, CODE = "strong", "code"
#: The forms of a report: the first screen, the whole report on a terminal, Markdown, a page.
BRIEF, FULL, REPORT, PAGE = "brief", "full", "report", "page"
_DEFAULT_FORMS = (FULL, REPORT, PAGE)
#: Further marks of a table's row: a hot layer, a change, wrong outputs.
HOT, SLOWER, FASTER, WRONG = "hot", "slower", "faster", "wrong"


@dataclass(frozen=True)
class Piece:
    """Text of one style: :data:`STRONG`, :data:`CODE` or none; ``link`` is a file to link to."""

    text: str
    style: str = ""
    link: str = ""


#: Text in which some pieces have a style or a link.
Inline = tuple["str | Piece", ...]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the report's title, 2 a section, 3 a subsection."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    content: Inline
    note: bool = False  #: Whether to emphasise it.
    aside: bool = False  #: Whether to show it in a pale colour.
    below: bool = False  #: Whether no empty line separates it from the block above.
    lead: str = ""  #: The kind of a note, such as ``Warning``.

    @property
    def with_lead(self) -> Inline:
        """The text after its lead: ``Warning: ...``."""
        return (f"{self.lead}: ", *self.content) if self.lead else self.content


@dataclass(frozen=True)
class Points:
    """A bulleted list."""

    items: tuple[Inline, ...]


@dataclass(frozen=True)
class Code:
    """Preformatted lines, such as a command."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A picture: its file in the report's folder, its alternative text and its caption."""

    file: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Box:
    """A box of a :class:`Boxes` picture; ``left`` and ``width`` are fractions of its width."""

    left: float
    width: float
    kind: str  #: Its CSS class, which gives the colour.
    tooltip: str
    name: str = ""  #: Text in the box.
    row: int = 0  #: Number of the row, from the top.


@dataclass(frozen=True)
class Boxes:
    """A picture made of boxes, such as a stacked bar; only a page shows it."""

    label: str  #: Alternative text.
    boxes: Sequence[Box]
    legend: Sequence[tuple[str, str]] = ()  #: Pairs of a text and a kind of box.
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """A line of a page that opens to show blocks; a warning has another colour."""

    line: Inline
    blocks: Sequence[Block]
    warning: bool = False


Block = Heading | Text | Points | Code | Table | Figure | Boxes | Fold


@dataclass(frozen=True)
class Section:
    """A section of a report, and the forms that contain it.

    ``block_source`` may be a generator; it is consumed when ``blocks`` is read first.
    """

    title: str
    block_source: Iterable[Block]
    forms: Collection[str] = _DEFAULT_FORMS

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of all forms."""
        return list(self.block_source)

    def in_form(self, form: str) -> list[Block]:
        """The blocks that a form contains; only a page contains :class:`Boxes`."""
        if form not in self.forms:
            return []
        return [block for block in self.blocks if form == PAGE or not isinstance(block, Boxes)]


def blocks_in_form(form: str, sections: Iterable[Section]) -> Iterator[Block]:
    """Yield the blocks of a form of a report, with headings except in the brief form."""
    for section in sections:
        blocks = section.in_form(form)
        if blocks and section.title and form != BRIEF:
            yield Heading(2, section.title)
        yield from blocks


def text(
    *content: str | Piece,
    note: bool = False,
    aside: bool = False,
    below: bool = False,
    lead: str = "",
) -> Text:
    """Make a paragraph; see :class:`Text`."""
    return Text(content, note, aside, below, lead)


def points(items: Iterable[str | Inline]) -> Points:
    """Make a bulleted list."""
    return Points(tuple((item,) if isinstance(item, str) else item for item in items))


def listing(items: Iterable[str | Inline]) -> Iterator[Points]:
    """Yield a bulleted list, or nothing if there are no items."""
    if (block := points(items)).items:
        yield block


def below(sentences: Iterable[str], *, note: bool = False) -> Iterator[Text]:
    """Yield a paragraph for each sentence, without an empty line before it."""
    for sentence in sentences:
        yield text(sentence, note=note, below=True)


def with_code(sentence: str) -> Inline:
    """Split a sentence into text and the code between its backticks."""
    parts = enumerate(sentence.split("`"))
    return tuple(code(part) if at % 2 else part for at, part in parts if part)


def code(text: str) -> Piece:
    """Text in the style of code, such as a name or a command."""
    return Piece(text, CODE)


def strong(text: str) -> Piece:
    return Piece(text, STRONG)


def file(name: str) -> Piece:
    """A link to a file in the report's folder."""
    return Piece(name, link=name)


def plain(content: Inline) -> str:
    """The text without styles."""
    return "".join(item if isinstance(item, str) else item.text for item in content)


def pieces(content: Inline) -> Iterator[Piece]:
    """Yield pieces; plain text becomes a piece without a style."""
    for item in content:
        yield Piece(item) if isinstance(item, str) else item
