"""A report as data: blocks in their order, which every writer writes in a way of its own.

Texts are plain: nothing in them is a mark of Markdown, HTML or LaTeX.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chainer_profile.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: The files beside a report that it shows or names.
PLOT, ROOFLINE, MEMORY = "layers.png", "roofline.png", "memory.png"
LAYERS, LINKS = "layers.csv", "links.csv"
#: Styles of a piece of text.
STRONG, CODE = "strong", "code"
#: Marks of a table's row: a hot layer, a sum of other rows, a change, outputs that are wrong.
HOT, TOTAL, SLOWER, FASTER, WRONG = "hot", "total", "slower", "faster", "wrong"


@dataclass(frozen=True)
class Piece:
    """Text of one style.

    Attributes:
        text: The text.
        style: :data:`STRONG`, :data:`CODE` or nothing.
        link: The file beside the report that it is the name of, or nothing.
    """

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
    """A paragraph.

    Attributes:
        words: What it says.
        note: Whether the reader has to know it before all else.
        aside: Whether it is of less weight than what stands beside it.
        below: Whether it belongs to what stands above it.
    """

    words: Words
    note: bool = False
    aside: bool = False
    below: bool = False


@dataclass(frozen=True)
class Points:
    """A list."""

    items: tuple[Words, ...]


@dataclass(frozen=True)
class Lines:
    """Names and values, a line each."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Code:
    """Lines as they are."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        file: Its file beside the report.
        alt: What it is, where it cannot be seen.
        caption: What it shows.
        number: Its number; 0 until it has one.
    """

    file: str
    alt: str
    caption: str
    number: int = 0


@dataclass(frozen=True)
class Box:
    """A part of a picture made of boxes: place, width, kind, and what pointing at it says."""

    left: float
    width: float
    kind: str
    said: str
    name: str = ""
    row: int = 0


@dataclass(frozen=True)
class Boxes:
    """A picture made of boxes; only a page shows it.

    Attributes:
        label: What it shows.
        boxes: The boxes.
        legend: Names of kinds, and the kinds.
        caption: What is to be known of it.
    """

    label: str
    boxes: Sequence[Box]
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """A line that opens on a page.

    Attributes:
        line: The line.
        blocks: What is below it.
        warning: Whether the reader has to know it before all else.
    """

    line: Words
    blocks: Sequence[Block]
    warning: bool = False


Block = Heading | Text | Points | Lines | Code | Table | Figure | Boxes | Fold


def text(*words: str | Piece, note: bool = False, aside: bool = False, below: bool = False) -> Text:
    """A paragraph of these words; see :class:`Text`."""
    return Text(words, note, aside, below)


def points(items: Iterable[str | Words]) -> Points:
    """A list of these sentences."""
    return Points(tuple((item,) if isinstance(item, str) else item for item in items))


def code(text: str) -> Piece:
    """A name in a program or on its command line."""
    return Piece(text, CODE)


def strong(text: str) -> Piece:
    """Words that stand out."""
    return Piece(text, STRONG)


def file(name: str) -> Piece:
    """A file beside the report."""
    return Piece(name, link=name)


def joined(parts: Iterable[str | Piece], between: str) -> Words:
    """Texts and pieces with something between each two of them."""
    found: list[str | Piece] = []
    for part in parts:
        found += [between, part] if found else [part]
    return tuple(found)


def plain(words: Words) -> str:
    """The text alone."""
    return "".join(word if isinstance(word, str) else word.text for word in words)


def pieces(words: Words) -> Iterator[Piece]:
    """The words, each text as a piece without a style."""
    for word in words:
        yield Piece(word) if isinstance(word, str) else word


def numbered(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks, tables and figures numbered from 1 in the order of the report."""
    counts = {Table: 0, Figure: 0}
    for block in blocks:
        if isinstance(block, (Table, Figure)):
            counts[type(block)] += 1
            yield replace(block, number=counts[type(block)])
        else:
            yield block


def caption_text(block: Table | Figure) -> tuple[str, str]:
    """The label of a caption and its text: ``("Table 3.", "Self time by function.")``."""
    text = block.caption
    if text and not text.endswith("."):
        text += "."
    return f"{'Table' if isinstance(block, Table) else 'Figure'} {block.number}.", text
