"""What is inside the layers, as every output says it."""

from __future__ import annotations

import dataclasses

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.inside import Stack
from chainer_profile.report import page
from chainer_profile.report.content.pass_section import inside, inside_said
from chainer_profile.report.content.profile import report
from chainer_profile.report.pictures import stacks
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


def test_without_the_pass_nothing_is_said(summary: Summary) -> None:
    without = summarise(dataclasses.replace(summary.recording, inside=None))
    assert list(inside(without)) == []
    assert inside_said(without) == []
    assert "Inside the layers" not in markdown.write(report(without))
    assert json_report.content(without)["inside"] is None
    assert 'id="inside-the-layers"' not in page.render(without)


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
