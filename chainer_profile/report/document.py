"""The blocks of a report, in order: what Markdown and PDF are both made from.

Text within a block is Markdown of one paragraph or list, in which names are escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the report's title, 2 a part, 3 a section of it."""

    level: int
    markdown: str


@dataclass(frozen=True)
class Text:
    """A paragraph, a list, or a note (which begins with ``>``)."""

    markdown: str


@dataclass(frozen=True)
class Code:
    """Lines as they are, between fences."""

    markdown: str


@dataclass(frozen=True)
class Table:
    """A table with a caption; 0 until it is numbered."""

    markdown: str
    caption: str
    number: int = 0


@dataclass(frozen=True)
class Figure:
    """A picture with a caption; 0 until it is numbered.

    Attributes:
        markdown: The picture, as Markdown.
        caption: What it shows.
        number: Its number.
    """

    markdown: str
    caption: str = ""
    number: int = 0


Block = Heading | Text | Code | Table | Figure


def read_blocks(markdown: Iterable[str], captions: Mapping[tuple[str, str], str]) -> list[Block]:
    """The blocks of sections that are written in Markdown.

    Args:
        markdown: One block each. A paragraph in italics right behind a picture is its caption.
        captions: The captions of tables, by the heading above a table and the head of its first
            column; a table that is not among them has the heading as its caption.
    """
    return list(_blocks(markdown, captions))


def _blocks(markdown: Iterable[str], captions: Mapping[tuple[str, str], str]) -> Iterator[Block]:
    heading, figure = "", None
    for block in markdown:
        if figure is not None:
            italics = re.fullmatch(r"\*(?!\*)(.*)\*", block, re.DOTALL)
            yield replace(figure, caption=italics[1] if italics else "")
            figure = None
            if italics:
                continue
        if found := re.match(r"(#{1,6}) (.*)", block):
            heading = found[2]
            yield Heading(len(found[1]), heading)
        elif block.startswith("| "):
            column = block.partition("\n")[0].split("|")[1].strip()
            yield Table(block, captions.get((heading, column), heading))
        elif block.startswith("!["):
            figure = Figure(block)
        elif block.startswith("```"):
            yield Code(block)
        else:
            yield Text(block)
    if figure is not None:
        yield figure


def sections(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    """The blocks of a part by its sections, headings left out; what comes first is under ``""``."""
    found: dict[str, list[Block]] = {"": []}
    under = found[""]
    for block in blocks:
        if isinstance(block, Heading):
            under = found.setdefault(block.markdown, [])
        else:
            under.append(block)
    return found


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
