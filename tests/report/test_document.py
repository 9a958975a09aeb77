"""Blocks of a report, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import pytest

from chainer_profile.report.document import (
    BRIEF,
    CODE,
    FULL,
    PAGE,
    STRONG,
    Block,
    Boxes,
    Code,
    Figure,
    Heading,
    Lines,
    Piece,
    Points,
    Section,
    Text,
    Words,
    code,
    file,
    numbered,
    pieces,
    plain,
    shown_in,
    strong,
    text,
    told,
)
from chainer_profile.report.tables import Table
from tests.report.reading import column

NAME = column("name", itemgetter(0), "The name", kind="text 8")
COUNT = column("count", itemgetter(1))
BLOCKS: list[Block] = [
    Heading(2, "Part"),
    Table([NAME], [("a",)], "Names"),
    Text(("words",)),
    Figure("a.png", "A picture", "What it shows."),
    Points((("point",),)),
    Table([NAME, COUNT], []),
    Lines([("name", "value")]),
    Code("code"),
    Figure("b.png", "Another", ""),
]


def test_tables_and_figures_are_numbered_each_by_itself() -> None:
    found = list(numbered(BLOCKS))
    assert [b.number for b in found if isinstance(b, Table)] == [1, 2]
    assert [b.number for b in found if isinstance(b, Figure)] == [1, 2]


def test_numbers_change_nothing_else() -> None:
    found = list(numbered(BLOCKS))
    for before, after in zip(BLOCKS, found, strict=True):
        if isinstance(before, (Table, Figure)):
            assert before.number == 0
            assert {**vars(after), "number": 0} == vars(before)
        else:
            assert after is before
    # What is numbered already is numbered anew, in its own order.
    assert list(numbered(found)) == found
    (one,) = numbered(found[5:6])
    assert isinstance(one, Table)
    assert one.number == 1


def test_words_have_styles_and_links() -> None:
    words: Words = ("see ", code("--gpu"), " in ", file("a b.csv"), strong("!"))
    assert plain(words) == "see --gpu in a b.csv!"
    assert list(pieces(words)) == [
        Piece("see "),
        Piece("--gpu", CODE),
        Piece(" in "),
        Piece("a b.csv", link="a b.csv"),
        Piece("!", STRONG),
    ]
    assert plain(()) == ""


def test_a_form_has_its_sections_under_their_titles() -> None:
    made: list[str] = []

    def blocks(name: str) -> Iterator[Block]:
        made.append(name)
        yield text(name)
        yield Boxes("A bar", [])

    sections = [
        Section("", blocks("answer"), (BRIEF, FULL)),
        Section("Empty", ()),
        Section("All", blocks("all")),
        Section("For a page", blocks("page"), (PAGE,)),
    ]
    assert list(shown_in(BRIEF, sections)) == [text("answer")]
    assert made == ["answer"]  # what no form asks for costs nothing
    assert list(shown_in(FULL, sections[1:])) == [Heading(2, "All"), text("all")]
    assert list(shown_in(PAGE, sections[3:])) == [
        *(Heading(2, "For a page"), text("page"), Boxes("A bar", []))
    ]


def test_sentences_are_told_where_their_facts_are_known() -> None:
    lines = """
| Always.
name | {name} is `code`, and
  goes on.
name -other | Not with both.
-gone | Nothing is gone.
"""
    facts = {"name": "`{x}`", "other": 1, "gone": ""}
    assert list(told(lines, facts)) == [
        ("Always.",),
        ("`{x}` is ", code("code"), ", and goes on."),
        ("Nothing is gone.",),
    ]
    with pytest.raises(KeyError):
        list(told("unknown | x", facts))
