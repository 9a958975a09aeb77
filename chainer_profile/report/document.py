"""A report as data: blocks in their order, which every writer writes in a way of its own.

Texts are plain: nothing in them is a mark of Markdown or HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chainer_profile.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

#: The files beside a report that it shows or names.
PLOT, ROOFLINE, MEMORY = "layers.png", "roofline.png", "memory.png"
LAYERS, LINKS = "layers.csv", "links.csv"
#: Styles of a piece of text.
STRONG, CODE = "strong", "code"
#: The forms of a report: a first screen, all that a terminal shows, Markdown, a page.
BRIEF, FULL, REPORT, PAGE = "brief", "full", "report", "page"
WHOLE = (FULL, REPORT, PAGE)
#: Marks of a table's row: a hot layer, a sum of other rows, a change, outputs that are wrong.
HOT, TOTAL, SLOWER, FASTER, WRONG = "hot", "total", "slower", "faster", "wrong"


@dataclass(frozen=True)
class Piece:
    """Text of one style: :data:`STRONG`, :data:`CODE` or none; ``link`` is the file it names."""

    text: str
    style: str = ""
    link: str = ""


#: A sentence or more: texts, and pieces of another style.
Words = tuple["str | Piece", ...]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the report's title, 2 a part, 3 a section of it."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    words: Words
    #: Whether the reader has to know it before all else, or it is of less weight than all else.
    note: bool = False
    aside: bool = False
    #: Whether it belongs to the block above it.
    below: bool = False
    #: The kind of a note that is more, such as ``Warning``.
    lead: str = ""

    @property
    def led(self) -> Words:
        """The words behind the kind of a note."""
        return (f"{self.lead}: ", *self.words) if self.lead else self.words


@dataclass(frozen=True)
class Points:
    """A list."""

    items: tuple[Words, ...]


@dataclass(frozen=True)
class Code:
    """Lines as they are."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A picture: its file beside the report, and words for who cannot see it."""

    file: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Box:
    """A part of a picture made of boxes: place, width, kind, and the words for who points at it."""

    left: float
    width: float
    kind: str
    words: str
    name: str = ""
    row: int = 0


@dataclass(frozen=True)
class Boxes:
    """A picture made of boxes; only a page shows it."""

    label: str
    boxes: Sequence[Box]
    #: Names of kinds, and the kinds.
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """A line that opens on a page; a warning is to be known before all else."""

    line: Words
    blocks: Sequence[Block]
    warning: bool = False


Block = Heading | Text | Points | Code | Table | Figure | Boxes | Fold


@dataclass(frozen=True)
class Section:
    """A part of a report, and the forms that have it; its blocks may be made when they are read."""

    title: str
    made_of: Iterable[Block]
    forms: Collection[str] = WHOLE

    @cached_property
    def blocks(self) -> list[Block]:
        """Its blocks, which are made once for all forms."""
        return list(self.made_of)

    def in_form(self, form: str) -> list[Block]:
        """Its blocks in a form that has it; boxes are for a page."""
        if form not in self.forms:
            return []
        return [block for block in self.blocks if form == PAGE or not isinstance(block, Boxes)]


def shown_in(form: str, sections: Iterable[Section]) -> Iterator[Block]:
    """The blocks of a form of a report; the brief form is without titles."""
    for section in sections:
        blocks = section.in_form(form)
        if blocks and section.title and form != BRIEF:
            yield Heading(2, section.title)
        yield from blocks


def text(
    *words: str | Piece,
    note: bool = False,
    aside: bool = False,
    below: bool = False,
    lead: str = "",
) -> Text:
    """A paragraph of these words; see :class:`Text`."""
    return Text(words, note, aside, below, lead)


def points(items: Iterable[str | Words]) -> Points:
    """A list of these sentences."""
    return Points(tuple((item,) if isinstance(item, str) else item for item in items))


def listing(items: Iterable[str | Words]) -> Iterator[Points]:
    """The same list, if there is something in it."""
    if (block := points(items)).items:
        yield block


def below(sentences: Iterable[str], *, note: bool = False) -> Iterator[Text]:
    """A paragraph each, which belongs to the block above it."""
    for sentence in sentences:
        yield text(sentence, note=note, below=True)


def with_code(sentence: str) -> Words:
    """A sentence with names in a program between backticks."""
    parts = enumerate(sentence.split("`"))
    return tuple(code(part) if at % 2 else part for at, part in parts if part)


def code(text: str) -> Piece:
    """A name in a program or on its command line."""
    return Piece(text, CODE)


def strong(text: str) -> Piece:
    return Piece(text, STRONG)


def file(name: str) -> Piece:
    """A file beside the report."""
    return Piece(name, link=name)


def plain(words: Words) -> str:
    return "".join(word if isinstance(word, str) else word.text for word in words)


def pieces(words: Words) -> Iterator[Piece]:
    """The words, each text as a piece without a style."""
    for word in words:
        yield Piece(word) if isinstance(word, str) else word
