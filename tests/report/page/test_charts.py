import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.report.page import charts, comparing
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.page.roofline_chart import roofline_chart
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
from tests.report import working
from tests.report.page.reading import sources


def drawn(chart):
    return sources(as_json(chart, "chart"))


def test_bars_are_the_layers():
    summary = summarise(make_training())
    (bars,) = drawn(charts.layer_chart(summary))
    np.testing.assert_allclose(bars["median"], summary.layers["median_s"] * 1e6, rtol=1e-5)
    assert [kind == "hot" for kind in bars["kind"]] == summary.layers["hot"].tolist()
    assert (np.array(bars["low"]) <= np.array(bars["high"])).all()


def test_a_long_whisker_is_cut():
    recording = make_recording(n_trials=100)
    recording.self_ns[::10, 0] *= 50
    summary = summarise(recording)
    first, *rest = drawn(charts.layer_chart(summary))
    highest = max(first["median"])
    assert max(first["high"]) == pytest.approx(1.4 * 1.04 * highest, rel=1e-5)
    assert len(rest[0]["x"]) == 1


def test_many_layers_have_a_strip_of_all():
    assert type(charts.layer_chart(summarise(make_recording(200, 2)))).__name__ == "figure"
    chart = charts.layer_chart(summarise(make_recording(300, 2)))
    above, below = chart.children
    shown = above.x_range.end - above.x_range.start
    assert shown == pytest.approx(charts.MAX_AT_ONCE, abs=1)
    assert below.x_range.end - below.x_range.start == 301


@pytest.mark.parametrize("by", ["function", "block", "phase"])
def test_groups_hold_all_time(by):
    summary = summarise(make_training())
    (bars,) = drawn(charts.group_chart(summary, by))
    assert sum(bars["whole"]) == pytest.approx(3000e-3, rel=1e-4)  # in ms
    hot_s = summary.layers.loc[summary.layers["hot"], "mean_s"].sum()
    assert sum(bars["hot"]) == pytest.approx(hot_s * 1e3, rel=1e-4)
    between = sum(bars["with"]) - sum(bars["whole"])
    assert between == pytest.approx(0.65 if by == "phase" else 0.0, rel=1e-4)


def test_many_groups_end_in_others():
    layers = make_recording(100, 2).layers
    names = tuple(type(layer)(layer.index, layer.path, f"F{layer.index}") for layer in layers)
    summary = summarise(make_recording(100, 2, layers=names))
    (bars,) = drawn(charts.group_chart(summary, "function"))
    assert len(bars["name"]) == charts.MAX_GROUPS
    assert bars["name"][-1] == f"{100 - charts.MAX_GROUPS + 1} others"
    assert sum(bars["whole"]) == pytest.approx(summary.totals.layers_s * 1e3, rel=1e-4)


def test_roofline_has_the_drawable_layers():
    summary = working.working()
    dots = next(s for s in drawn(roofline_chart(summary)) if "row" in s)
    assert len(dots["x"]) == len(summary.layers) - 1
    # The hot ones come last, and so lie above the others.
    assert dots["kind"] == sorted(dots["kind"], reverse=True)


def test_memory_of_layers_and_phases():
    summary = working.training()
    found = drawn(charts.memory_chart(summary))
    bars = next(s for s in found if "peak" in s)
    use = summary.recording.memory
    np.testing.assert_allclose(bars["peak"], np.array(use.peak_nbytes) / 2**20, rtol=1e-5)
    lines = next(s for s in found if "x0" in s)
    assert len(lines["x0"]) == len(use.phases)


def test_the_same_chart_gives_the_same_json():
    summary = working.training()
    first, second = (as_json(charts.layer_chart(summary), "layers") for _ in range(2))
    assert first == second
    assert first["root_id"].startswith("layers-")


def test_comparison_shows_what_changed():
    before = run(0)
    assert comparing.comparison_chart(compare(before, before)) is None
    chart = comparing.comparison_chart(compare(before, scaled(run(1), {3: 1.5, 7: 0.6})))
    assert chart is not None
    (dots,) = drawn(chart)
    assert dots["kind"] == ["slower", "faster"]
    assert dots["ratio"] == pytest.approx([1.5, 0.6], rel=0.02)


def test_ticks_of_large_factors():
    chart = comparing.comparison_chart(compare(run(0), scaled(run(1), {3: 0.011, 7: 12.0})))
    (axis,) = chart.xaxis
    assert axis.ticker.ticks == [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
    assert chart.x_range.start < 0.011 < 12 < chart.x_range.end
