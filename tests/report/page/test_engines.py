"""The page of a run of several engines, and its chart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.charts.engines import MAX_FUNCTIONS, PLAIN, REST
from chainer_profile.report.charts.engines import engines_chart as chart_of
from chainer_profile.report.content.engine_nodes import BETWEEN
from chainer_profile.report.content.engines import PLOT, verdict
from chainer_profile.report.page import render_engines
from chainer_profile.report.page.comparing import engines_chart
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.pictures.engines import figure as picture
from tests.conftest import make_layers, make_recording
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result
from tests.report.page.reading import Read, sources


def drawn(run: EnginesRun, made: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The parts of the bars, and what is said beside each bar."""
    *parts, said = sources(as_json(engines_chart(run, made), "engines"))
    return parts, said["said"]


def test_every_engine_that_made_trials_has_a_bar() -> None:
    parts, said = drawn(make_run(WRONG, MISSING), recordings())
    assert said == ["1.000 ms", "100.0 us, 10.00x", "50.00 us, wrong outputs"]
    assert parts[0]["engine"] == ["chainer fp32", "fast fp32"]
    assert parts[-1]["engine"] == ["hasty fp32"]
    assert parts[-1]["right"] == pytest.approx([0.05])
    assert (parts[0]["hatch"], parts[-1]["hatch"]) == ([" ", " "], ["/"])


def test_the_bars_are_those_of_the_picture() -> None:
    run, made = make_run(WRONG), recordings()
    said = chart_of(run, made)
    parts, _ = drawn(run, made)
    axes = picture(run, made).axes[0]
    ends = np.zeros(3)
    for part in parts:
        for at, left, right in zip(part["y"], part["left"], part["right"], strict=True):
            assert left == pytest.approx(ends[at])
            ends[at] = right
    assert ends == pytest.approx(said.lengths)
    begins = sorted((patch.get_x(), patch.get_width()) for patch in axes.patches)
    ends = [pair for s in parts for pair in zip(s["left"], s["right"], strict=True)]
    widths = [(left, right - left) for left, right in ends]
    assert np.array(begins) == pytest.approx(np.array(sorted(widths)), abs=1e-5)
    names = [item.label.value for item in engines_chart(run, made).legend[0].items]
    assert names == said.parts == [text.get_text() for text in axes.figure.legends[0].get_texts()]


def test_of_many_functions_the_last_are_others() -> None:
    layers = [replace(layer, function=f"F{layer.index}") for layer in make_layers(10)]
    made = {"chainer": make_recording(10, layers=tuple(layers))}
    found = chart_of(make_run(), made)
    assert len(found.functions) == MAX_FUNCTIONS
    assert found.parts[len(found.functions) :] == [REST, BETWEEN, PLAIN]
    assert sum(found.bars[0].parts.values()) == pytest.approx(1)


def test_without_recordings_and_without_chainer() -> None:
    run = make_run()
    parts, _ = drawn(run, {})
    assert [(part["y"], part["engine"]) for part in parts] == [
        ([0, 1], ["chainer fp32", "fast fp32"])
    ]
    assert drawn(replace(run, engines=run.engines[1:]), {})[1] == ["100.0 us"]
    one = [replace(e, clean_ns=e.clean_ns[:1]) for e in run.engines]
    assert drawn(replace(run, engines=tuple(one)), {})[1][1] == "97.00 us, 10.00x"


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
    # What points to files beside it is not there.
    assert "engines.csv" not in read.text
    assert render_engines(run, made) == read.html


def test_a_run_without_trials_has_a_page_without_charts() -> None:
    read = Read(render_engines(EnginesRun(engines=(MISSING,), settings=make_run().settings), {}))
    assert "openvino: not installed: pip install openvino" in read.text
    assert read.charts == {}
    (bokeh,) = [script for script in read.scripts if script.attributes.get("id") == "bokeh"]
    assert bokeh.text == ""
