"""The page of a program that was run: its whole time comes first."""

from __future__ import annotations

import pytest

from chainer_profile import summarise
from chainer_profile.report.content.profile import Beside
from chainer_profile.report.page import boxes, render
from tests.conftest import make_training
from tests.report.content.test_budget import BUDGET
from tests.report.documents import NAMES, program
from tests.report.page.reading import Read
from tests.report.page.test_boxes import boxes_of


def test_the_programs_time_is_the_first_picture() -> None:
    page = render(summarise(make_training()), beside=Beside(budget=BUDGET))
    read = Read(page)
    sections = [str(attributes.get("id")) for tag, attributes in read.tags if tag == "section"]
    assert sections[:2] == ["program", "summary"]
    first = next(a for _, a in read.tags if a.get("role") == "img")
    assert str(first["aria-label"]).startswith("Where the time of the program went: iterations: 60")
    assert ("a", {"href": "#program"}) in read.tags
    assert "train.py (" in page.partition("</title>")[0]
    assert "took 10.00 s (plus 1.000 s of profiling)" in read.text
    assert "numpy" in read.text


def test_without_a_program_there_is_none_of_it() -> None:
    read = Read(render(summarise(make_training()), beside=Beside()))
    assert "program" not in read.ids
    assert ("a", {"href": "#program"}) not in read.tags


def test_the_bar_is_the_whole_program() -> None:
    found = [box for box in boxes_of(boxes.budget(BUDGET)) if box.said]
    assert [box.said for box in found] == [
        "iterations: 60.0 %",
        "evaluation: 15.0 %",
        "imports: 10.0 %",
        "extensions: 9.0 %",
        "snapshots: 2.5 %",
        "train.py's own code: 2.5 %",
        "start of Python: 1.0 %",
    ]
    assert sum(box.width for box in found) == pytest.approx(100, abs=0.1)
    left = 0.0
    for box in found:
        assert box.left == pytest.approx(left, abs=0.01)
        left += box.width


def test_names_are_data() -> None:
    page = render(summarise(make_training()), beside=Beside(budget=program(NAMES)))
    assert "<script>alert(1)" not in page
    Read(page)
