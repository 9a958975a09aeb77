"""What is inside the layers, as every output says it."""

from __future__ import annotations

import dataclasses

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.inside import Stack
from chainer_profile.report import page
from chainer_profile.report.content.inside_section import how_it_looked, inside, said
from chainer_profile.report.content.overview import overview
from chainer_profile.report.content.profile import report
from chainer_profile.report.pictures import stacks
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import json_report, markdown
from tests.analyse.test_inside import recording


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(
        recording(
            Stack((2, 0), 0.006, 600, row=0),
            Stack((2, 1), 0.002, 200, row=0),
            Stack((3,), 0.001, 200),
            notes=("lines are not told",),
        )
    )


def test_the_slowest_functions_are_said_in_a_sentence(summary: Summary) -> None:
    assert said(summary) == [
        "75 % of Convolution2DFunction is a copy within numpy.tensordot, 25 % the matrix product."
    ]


def test_a_line_is_called_one() -> None:
    (sentence,) = said(summarise(recording(Stack((2,), 0.006, 600, row=0))))
    assert sentence == "100 % of Convolution2DFunction is the line y = f(x) in forward_cpu."


def test_how_it_looked_is_said(summary: Summary) -> None:
    assert how_it_looked(summary) == (
        "Seen by py-spy 0.4.3, 1,000 samples of 100 trials after the timed ones. Other threads "
        "than the main one are not seen. Note: lines are not told."
    )


def test_a_busy_machine_is_said() -> None:
    found = summarise(recording(Stack((2, 0), 0.006, 600, row=0), repeats=4))
    assert "100 trials after the timed ones. The machine was busy: they tell as much as 250 " in (
        how_it_looked(found)
    )


def test_tables_have_every_part(summary: Summary) -> None:
    functions, framework, layers = (one for one in inside(summary) if isinstance(one, Table))
    copy = ["a copy within numpy.tensordot", "75.0", "6.0"]
    assert functions.cells()[0][:4] == ["Convolution2DFunction", *copy]
    assert functions.cells()[1][:2] == ["", "the matrix product"]
    assert framework.cells() == [["apply and graph", "100.0", "2.4", "2.0000"]]
    assert layers.cells()[0][0] == "0_Convolution2DFunction"


def test_without_the_pass_nothing_is_said(summary: Summary) -> None:
    without = summarise(dataclasses.replace(summary.recording, inside=None))
    assert list(inside(without)) == []
    assert said(without) == []
    assert "Inside the layers" not in markdown.write(report(without))
    assert json_report.content(without)["inside"] is None
    assert 'id="inside-the-layers"' not in page.render(without)


def test_report_terminal_and_page_have_it(summary: Summary) -> None:
    assert "### Inside the layers" in markdown.write(report(summary))
    assert 'id="inside-the-layers"' in page.render(summary)
    captions = [one.caption for one in overview(summary) if isinstance(one, Table)]
    assert "Inside the functions: the parts of their time" in captions


def test_json_has_all_digits(summary: Summary) -> None:
    found = json_report.content(summary)["inside"]
    assert found["method"] == "py-spy 0.4.3"
    assert found["layers"][0]["parts"][0]["share"] == 0.75
    assert found["layers"][0]["largest_cause"] == "copying"
    assert found["functions"][0]["causes"] == {"copying": 0.75, "matrix product": 0.25}
    assert found["framework"]["parts"][0]["name"] == "apply and graph"


def test_stacks_go_on_below_a_layer(summary: Summary) -> None:
    lines = stacks.render_folded(summary).splitlines()
    above = "network;a;Convolution2DFunction;C.forward_cpu_"
    file = "(chainer/functions/connection/convolution_2d.py:9)"
    assert lines[:3] == [
        f"{above}{file};tensordot_(numpy/_core/numeric.py:1) 2250000",
        f"{above}{file};tensordot_(numpy/_core/numeric.py:2) 750000",
        "network;b;Convolution2DFunction 1000000",
    ]
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 6_000_000
