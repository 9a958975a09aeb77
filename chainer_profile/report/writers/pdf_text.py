"""The Markdown of a block -> pieces of text with their style, for the PDF."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token


@dataclass(frozen=True)
class Piece:
    """Text of one style."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False


@dataclass(frozen=True)
class Passage:
    """A paragraph, or a point of a list, or a note."""

    kind: Literal["paragraph", "point", "note"]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Cells:
    """A table: its head (empty where it has none), its rows, and which columns are numbers."""

    head: tuple[Piece, ...]
    rows: tuple[tuple[Piece, ...], ...]
    numbers: tuple[bool, ...]


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def passages(markdown: str) -> Iterator[Passage]:
    """The paragraphs and points of a text."""
    kind: Literal["paragraph", "point", "note"] = "paragraph"
    for token in _parser().parse(markdown):
        if token.type == "list_item_open":
            kind = "point"
        elif token.type == "blockquote_open":
            kind = "note"
        elif token.type == "inline":
            yield Passage(kind, tuple(_pieces(token)))


def pieces(markdown: str) -> tuple[Piece, ...]:
    """The text of one paragraph."""
    return tuple(piece for passage in passages(markdown) for piece in passage.pieces)


def plain(markdown: str) -> str:
    """The text of one paragraph, without its styles."""
    return "".join(piece.text for piece in pieces(markdown))


def code_lines(markdown: str) -> str:
    """What is between the fences."""
    return "".join(t.content for t in _parser().parse(markdown) if t.type == "fence").rstrip("\n")


@lru_cache(maxsize=64)
def cells(markdown: str) -> Cells:
    """The cells of a table; each has one style."""
    rows: list[list[Piece]] = []
    numbers: list[bool] = []
    for token in _parser().parse(markdown):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            numbers.append("right" in str(token.attrs.get("style", "")))
        elif token.type == "inline":
            rows[-1].append(_one(tuple(_pieces(token))))
    head, *body = (tuple(row) for row in rows)
    named = any(piece.text for piece in head)
    return Cells(head if named else (), tuple(body), tuple(numbers))


def _one(found: Sequence[Piece]) -> Piece:
    """Pieces as one, in the style of the first that says something."""
    style = next((piece for piece in found if piece.text), Piece(""))
    return replace(style, text="".join(piece.text for piece in found))


def _pieces(inline: Token) -> Iterator[Piece]:
    bold = italic = False
    for token in inline.children or []:
        if token.type in ("strong_open", "strong_close"):
            bold = token.type == "strong_open"
        elif token.type in ("em_open", "em_close"):
            italic = token.type == "em_open"
        elif token.type == "softbreak":
            yield Piece(" ", bold, italic)
        elif token.content:
            yield Piece(token.content, bold, italic, token.type == "code_inline")
