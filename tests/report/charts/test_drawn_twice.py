"""A chart is described once: Matplotlib and Bokeh draw the same numbers, ends and words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.charts.layers import layer_chart
from chainer_profile.report.charts.roofline import roofline
from chainer_profile.report.page import charts
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.page.roofline_chart import roofline_chart
from chainer_profile.report.pictures import layers as layers_picture
from chainer_profile.report.pictures import roofline as roofline_picture
from tests.conftest import make_recording, make_training
from tests.report.page.reading import sources
from tests.report.working import training, working


def cut() -> Summary:
    recording = make_recording(n_trials=100)
    recording.self_ns[::10, 0] *= 50
    return summarise(recording)


SUMMARIES: dict[str, Callable[[], Summary]] = {
    "forward": lambda: summarise(make_recording()),
    "training": lambda: summarise(make_training()),
    "a cut whisker": cut,
    "a line of the rule": lambda: summarise(make_training(), "0.1ms"),
    "a line far above": lambda: summarise(make_training(), "10s"),
}


def words(chart: Any) -> tuple[str, str]:
    return chart.xaxis[0].axis_label, chart.yaxis[0].axis_label


@pytest.mark.parametrize("name", SUMMARIES)
def test_bars_of_layers(name: str) -> None:
    summary = SUMMARIES[name]()
    said = layer_chart(summary)
    axes = layers_picture.figure(summary).axes[0]
    chart = charts.layer_chart(summary)
    drawn = next(s for s in sources(as_json(chart, "chart")) if "median" in s)
    count = len(summary.layers)
    heights = [patch.get_height() for patch in axes.patches[:count]]
    np.testing.assert_array_equal(heights, said.typical)
    for key, values in (("median", said.typical), ("low", said.low), ("high", said.high)):
        np.testing.assert_allclose(drawn[key], values, rtol=1e-5)
    assert axes.get_ylim()[1] == chart.y_range.end == said.end
    assert (axes.get_xlabel(), axes.get_ylabel()) == words(chart) == (said.x_label, said.y_label)
    # Nothing lies beyond the axis, and what is cut says so.
    assert max(said.typical.max(), said.high.max(), said.line or 0) <= said.end
    assert bool(said.cut_label) == said.cut.any() == (name == "a cut whisker")
    assert bool(said.line_label) == (name == "a line of the rule")
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {said.hot_label, *filter(None, (said.cut_label, said.line_label))} <= set(legend)


@pytest.mark.parametrize("make", [working, training])
def test_dots_under_the_roofs(make: Callable[[], Summary]) -> None:
    summary = make()
    said = roofline(summary)
    axes = roofline_picture.figure(summary).axes[0]
    chart = roofline_chart(summary)
    found = sources(as_json(chart, "chart"))
    drawn = next(s for s in found if "row" in s)
    (dots,) = axes.collections
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([said.x, said.y]))
    np.testing.assert_allclose(drawn["x"], said.x, rtol=1e-5)
    np.testing.assert_allclose(drawn["y"], said.y, rtol=1e-5)
    assert axes.get_xlim() == (chart.x_range.start, chart.x_range.end) == said.x_range
    assert axes.get_ylim() == (chart.y_range.start, chart.y_range.end) == said.y_range
    assert (axes.get_xlabel(), axes.get_ylabel()) == words(chart)
    legend = {text.get_text() for text in axes.get_legend().get_texts()}
    shown = {item.label.value for item in chart.legend[0].items}
    assert shown == {roof.label for roof in said.roofs} | {said.area_label}
    assert shown <= legend
    lines = [np.array([s["x"], s["y"]]) for s in found if set(s) == {"x", "y"}]
    for roof, line in zip(said.roofs, lines, strict=True):
        np.testing.assert_allclose(line, [roof.x, roof.y])
