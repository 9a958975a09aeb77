"""comparison.png: the layers' times in both runs."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import numpy as np
from PIL import Image

from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.report.pictures import comparison as plot
from chainer_profile.report.pictures.figures import Picture
from tests.comparing import run, scaled
from tests.report.documents import NAMES, compared


def of_layers(n_layers: int, factors: dict[int, float], n_trials: int = 200) -> Comparison:
    after = scaled(run(2, n_layers, n_trials), factors)
    return compare(Side("A", (run(1, n_layers),)), Side("B", (after,)))


def test_of_many_layers_the_most_changed_ones_and_the_largest_are_shown() -> None:
    comparison = of_layers(300, {298: 1.5, 101: 0.7}, n_trials=60)
    ax = plot.figure(comparison).axes[0]
    labels = [text.get_text() for text in ax.texts if not text.get_in_layout()]
    assert len(labels) == plot.MAX_LAYERS
    names = {at: plot._name(row) for at, row in enumerate(comparison.layers.itertuples())}
    assert {names[298], names[101]} <= set(labels)
    order = list(names.values())
    assert [order.index(label) for label in labels] == sorted(map(order.index, labels))
    others = set(labels) - {names[298], names[101]}
    assert {label.rpartition(" ")[2] for label in others} == {"Convolution"}


def test_the_picture_is_of_readable_size() -> None:
    zero = replace(run(1, 3), self_ns=np.zeros((200, 3), np.int64))
    for one in (of_layers(66, {3: 1.5}), of_layers(1, {}), compared(NAMES), compare(zero, zero)):
        image = Image.open(io.BytesIO(Picture(partial(plot.figure, one)).png()))
        assert image.format == "PNG"
        assert 1000 <= image.width <= 2600
        assert image.height == 900
