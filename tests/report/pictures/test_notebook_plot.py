import io

import numpy as np
from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.pictures import layers as plot
from chainer_profile.report.pictures.figures import Picture
from tests.conftest import make_recording


def test_a_notebook_shows_the_picture_of_the_report_in_fewer_colours():
    summary = summarise(make_recording(n_layers=12))
    shown = summary.plot()._repr_png_()
    report = Picture(lambda: plot.figure(summary)).png()
    assert len(shown) < len(report) / 2
    with Image.open(io.BytesIO(shown)) as few, Image.open(io.BytesIO(report)) as all_:
        assert few.size == all_.size
        apart = np.asarray(few.convert("RGB"), int) - np.asarray(all_.convert("RGB"), int)
    assert np.abs(apart).mean() < 1


def test_the_figure_is_matplotlibs_and_changes_are_shown():
    drawn = summarise(make_recording(n_layers=3)).plot()
    before = drawn._repr_png_()
    assert drawn._repr_png_() == before
    drawn.figure.axes[0].set_ylabel("changed")
    assert drawn._repr_png_() != before
    assert repr(drawn).startswith("<LayerPlot of <Summary of chain")
    assert "\n" not in repr(drawn)
