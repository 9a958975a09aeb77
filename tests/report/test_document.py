"""Blocks of a report, and their words."""

from collections.abc import Iterator
from operator import itemgetter

import pytest

from chainer_profile.report.document import (
    BRIEF,
    FULL,
    PAGE,
    Block,
    Boxes,
    Code,
    Figure,
    Heading,
    Lines,
    Points,
    Section,
    Text,
    code,
    numbered,
    shown_in,
    text,
    told,
)
from chainer_profile.report.tables import Table
from tests.report.reading import column

NAME = column("name", itemgetter(0), "The name", kind="text 8")
COUNT = column("count", itemgetter(1))
BLOCKS: list[Block] = [
    *(Heading(2, "Part"), Table([NAME], [("a",)], "Names"), Text(("words",))),
    *(Figure("a.png", "A picture", "What it shows."), Points((("point",),))),
    *(Table([NAME, COUNT], []), Lines([("name", "value")]), Code("code")),
    Figure("b.png", "Another", ""),
]


def test_tables_and_figures_are_numbered_each_by_itself_and_nothing_else_changes() -> None:
    found = list(numbered(BLOCKS))
    for kind in (Table, Figure):
        assert [block.number for block in found if isinstance(block, kind)] == [1, 2]
    for before, after in zip(BLOCKS, found, strict=True):
        if isinstance(before, (Table, Figure)):
            assert before.number == 0
            assert {**vars(after), "number": 0} == vars(before)
        else:
            assert after is before
    # What is numbered already is numbered anew, in its own order.
    assert list(numbered(found)) == found


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
    assert list(shown_in(PAGE, sections[2:])) == [
        *(Heading(2, "All"), text("all"), Boxes("A bar", [])),
        *(Heading(2, "For a page"), text("page"), Boxes("A bar", [])),
    ]
    assert made == ["answer", "all", "page"]  # once for all forms


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
