"""comparison.png: the layers' times in both runs."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.colors import to_hex
from PIL import Image

from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.report.pictures import comparison as plot
from chainer_profile.report.pictures.figures import Picture
from tests.comparing import run, scaled
from tests.fusing import chainer_run, engine_run, in_threes
from tests.report.documents import NAMES, compared


def of_layers(n_layers: int, factors: dict[int, float], n_trials: int = 200) -> Comparison:
    after = scaled(run(2, n_layers, n_trials), factors)
    return compare(Side("A", (run(1, n_layers),)), Side("B", (after,)))


def test_bars_are_the_times_and_changed_layers_are_marked() -> None:
    comparison = of_layers(24, {3: 1.5, 7: 0.6})
    figure = plot.figure(comparison)
    ax = figure.axes[0]
    before, after = (container.patches for container in ax.containers[:2])
    assert ax.get_ylabel() == "median self time [us]"
    for bars, name in ((before, "before_s"), (after, "after_s")):
        heights = [bar.get_height() for bar in bars]
        np.testing.assert_allclose(heights, comparison.layers[name] * 1e6)
    colours = [to_hex(bar.get_facecolor()) for bar in after]
    marked = {at: colour for at, colour in enumerate(colours) if colour != colours[0]}
    assert marked == {3: plot.HOT_COLOUR, 7: plot.FASTER_COLOUR}
    slower, faster = (text.get_text() for text in ax.texts)
    assert slower.endswith("x slower")
    assert faster.endswith("x faster")
    title = figure.get_suptitle()
    verdict, names = title.splitlines()
    assert verdict.startswith("No change of the clean trial can be told: 3.580 ms, now 3.597 ms")
    assert names == "B compared with A"


def test_of_many_layers_the_most_changed_ones_and_the_largest_are_shown() -> None:
    comparison = of_layers(300, {298: 1.5, 101: 0.7}, n_trials=60)
    ax = plot.figure(comparison).axes[0]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert len(labels) == plot.MAX_LAYERS
    names = {at: plot._name(row) for at, row in enumerate(comparison.layers.itertuples())}
    assert {names[298], names[101]} <= set(labels)
    order = list(names.values())
    assert [order.index(label) for label in labels] == sorted(map(order.index, labels))
    others = set(labels) - {names[298], names[101]}
    assert {label.rpartition(" ")[2] for label in others} == {"Convolution"}


def test_the_picture_is_the_same_each_time_and_of_readable_size() -> None:
    whole = of_layers(66, {3: 1.5, 7: 0.6})
    zero = replace(run(1, 3), self_ns=np.zeros((200, 3), np.int64))
    shown = (whole, whole, of_layers(1, {}), compared(NAMES), compare(zero, zero))
    first, *pictures = (Picture(partial(plot.figure, one)).png() for one in shown)
    assert pictures[0] == first
    for picture in pictures:
        image = Image.open(io.BytesIO(picture))
        assert image.format == "PNG"
        assert 1000 <= image.width <= 2600
        assert image.height == 900


def test_groups_of_layers_have_short_names() -> None:
    nodes = [(), *in_threes()[:-1], (21, 22)]
    engine = engine_run(chainer_run(2), nodes)
    figure = plot.figure(compare(Side("A", (chainer_run(),)), Side("B", (engine,))))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels[0].endswith(" Convolution2D + 2 fused")
    line = "24 layers of chainer became 9 nodes of onnxruntime 1.31.1; compared as 8 groups"
    assert line in figure.get_suptitle()
