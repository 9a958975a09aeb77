from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from chainer_profile.analyse.roofline import drawable
from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.pictures import roofline
from chainer_profile.report.pictures.figures import HOT_COLOUR, OTHER_COLOUR, Picture
from tests.conftest import make_recording
from tests.report.working import LIMITS, training, with_work, working


def dots(summary):
    return roofline.figure(summary).axes[0].collections[0]


def test_one_dot_a_layer_with_work():
    summary = working()
    layers = drawable(summary.layers)
    assert len(layers) == len(summary.layers) - 1
    places = sorted(map(tuple, dots(summary).get_offsets().tolist()))
    expected = sorted(zip(layers["intensity"], layers["flops_per_s"] / 1e9, strict=True))
    assert places == pytest.approx(np.array(expected))


def test_hot_layers_are_red_and_drawn_last():
    summary = working()
    colours = [to_hex(colour[:3]) for colour in dots(summary).get_facecolor()]
    hot = int(drawable(summary.layers)["hot"].sum())
    assert 0 < hot < len(colours)
    assert colours == [OTHER_COLOUR] * (len(colours) - hot) + [HOT_COLOUR] * hot


def test_areas_follow_the_time():
    summary = working()
    areas = np.sort(dots(summary).get_sizes())
    times = np.sort(drawable(summary.layers)["median_s"].to_numpy())
    assert areas / areas[-1] == pytest.approx(times / times[-1])


def test_of_very_many_layers_the_slowest_lead_to_their_rows():
    summary = summarise(with_work(make_recording(301, 5)))
    axes = roofline.figure(summary).axes[0]
    layers = drawable(summary.layers)
    (led,) = axes.collections
    slowest = layers["median_s"].nlargest(200).index
    assert set(led.get_urls()) == {f"#layer-{at}" for at in slowest}
    # All others are there too, in few shapes.
    others = [line for line in axes.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in others) == len(layers) - 200 == 100
    assert len(others) < 10


def test_the_roof_meets_both_limits_at_the_ridge():
    axes = roofline.figure(working()).axes[0]
    x, y = axes.lines[0].get_data()
    assert y[1] == y[2] == LIMITS.flops_per_s / 1e9
    assert x[1] * LIMITS.copy_nbytes_per_s == pytest.approx(LIMITS.flops_per_s)
    assert y[0] == pytest.approx(x[0] * LIMITS.copy_nbytes_per_s / 1e9)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_all_dots_lie_within_the_axes():
    for summary in (working(), training()):
        axes = roofline.figure(summary).axes[0]
        for (low, high), values in zip(
            (axes.get_xlim(), axes.get_ylim()), dots(summary).get_offsets().T, strict=True
        ):
            assert low < values.min()
            assert values.max() < high


def test_functions_are_named():
    words = [text.get_text() for text in roofline.figure(working()).axes[0].texts]
    assert "Convolution2DFunction" in words


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_summary_gives_the_same_bytes(form, begin):
    first, again = (Picture(lambda: roofline.figure(working())) for _ in range(2))
    assert getattr(first, form)().startswith(begin)
    assert getattr(again, form)() == getattr(first, form)()
