"""The page of a run of several engines, and its chart."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.content.engine_nodes import BETWEEN, node_rows
from chainer_profile.report.content.engines import PLOT, verdict
from chainer_profile.report.page import render_engines
from chainer_profile.report.page.comparing import MAX_FUNCTIONS, engines_chart
from chainer_profile.report.page.drawing import as_json
from tests.conftest import make_layers, make_recording
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result
from tests.report.page.reading import Read, sources


def drawn(run: EnginesRun, made: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The bars of the engines, and those of their functions."""
    trials, *parts = sources(as_json(engines_chart(run, made), "engines"))
    return trials, parts


def test_every_engine_that_made_trials_has_a_bar() -> None:
    run = make_run(WRONG, MISSING)
    trials, _ = drawn(run, recordings())
    assert trials["name"] == ["chainer fp32", "fast fp32", "hasty fp32"]
    assert trials["time"] == pytest.approx([1.0, 0.1, 0.05])
    assert trials["speed"] == ["", "10.00x", "wrong outputs"]


def test_functions_add_up_to_the_median_trial() -> None:
    trials, parts = drawn(make_run(), recordings())
    assert parts[0]["left"] == [0, 0]
    for before, after in pairwise(parts):
        assert after["left"] == before["right"]
    assert parts[-1]["right"] == pytest.approx(trials["time"], rel=1e-5)


def test_of_many_functions_the_last_are_others() -> None:
    layers = [replace(layer, function=f"F{layer.index}") for layer in make_layers(10)]
    made = {"chainer": make_recording(10, layers=tuple(layers))}
    names = [item.label.value for item in engines_chart(make_run(), made).legend[0].items]
    assert len(names) == MAX_FUNCTIONS + 1
    assert names[-1] == "others"
    trials, parts = drawn(make_run(), made)
    assert parts[-1]["right"] == pytest.approx([trials["time"][0], 0], rel=1e-5)


def test_without_recordings_and_without_chainer() -> None:
    run = make_run()
    trials, parts = drawn(run, {})
    assert parts == []
    assert trials["y"] == [0, 1]
    alone, _ = drawn(replace(run, engines=run.engines[1:]), {})
    assert alone["speed"] == [""]
    one = [replace(e, clean_ns=e.clean_ns[:1], round=e.round[:1]) for e in run.engines]
    assert drawn(replace(run, engines=tuple(one)), {})[0]["speed"][1] == "10.00x"


def test_the_page_says_what_the_report_says() -> None:
    run, made = make_run(WRONG, MISSING, result("third", 77)), recordings()
    read = Read(render_engines(run, made))
    assert list(read.charts) == [PLOT]
    assert read.ids >= {"verdict", "engines", "outputs", "what-to-do-next", "environment"}
    for part in (
        verdict(run),
        "10.00x to 10.00x",
        "Take third",
        "Do not use hasty",
        "wrong outputs",
        BETWEEN,
        "became",
        "openvino: not installed: pip install openvino",
    ):
        assert part in f"{read.text} {read.charts}"
    for row in node_rows(run, made["fast"], made["chainer"]):
        assert row.node in read.text
        assert row.layers in read.text
    # What points to files beside it is not there.
    assert "engines.csv" not in read.text
    assert render_engines(run, made) == read.html


def test_a_run_without_trials_has_a_page_without_charts() -> None:
    read = Read(render_engines(EnginesRun(engines=(MISSING,), settings=make_run().settings), {}))
    assert "openvino: not installed: pip install openvino" in read.text
    assert read.charts == {}
    (bokeh,) = [script for script in read.scripts if script.attributes.get("id") == "bokeh"]
    assert bokeh.text == ""
