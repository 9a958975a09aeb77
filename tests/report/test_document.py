"""Blocks of a report, and their words."""

from collections.abc import Iterator

import pytest

from chainer_profile.report.document import (
    BRIEF,
    FULL,
    PAGE,
    Block,
    Boxes,
    Heading,
    Section,
    code,
    shown_in,
    text,
    told,
)


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
