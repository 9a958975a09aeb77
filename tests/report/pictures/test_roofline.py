from __future__ import annotations

from chainer_profile.analyse.roofline import drawable
from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.pictures import roofline
from tests.conftest import make_recording
from tests.report.working import training, with_work, working


def dots(summary):
    return roofline.figure(summary).axes[0].collections[0]


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


def test_all_dots_lie_within_the_axes():
    for summary in (working(), training()):
        axes = roofline.figure(summary).axes[0]
        for (low, high), values in zip(
            (axes.get_xlim(), axes.get_ylim()), dots(summary).get_offsets().T, strict=True
        ):
            assert low < values.min()
            assert values.max() < high
