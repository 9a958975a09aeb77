"""What holds for every picture: its files, and what a notebook shows."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.pictures import comparison, engines, layers, roofline, sweep
from chainer_profile.report.pictures.figures import Picture
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings
from tests.report.documents import NAMES, compared
from tests.report.working import training, working
from tests.sweeping import make_run as make_case

CASES = [make_case(batchsize=n) for n in (1, 2)]
DRAWN: dict[str, Callable[[], Picture]] = {
    "layers": lambda: Picture(lambda: layers.figure(summarise(make_recording()))),
    "training": lambda: Picture(lambda: layers.figure(summarise(make_training(data=True)))),
    "memory": lambda: Picture(lambda: layers.memory_figure(training())),
    "roofline": lambda: Picture(lambda: roofline.figure(working())),
    "comparison": lambda: Picture(partial(comparison.figure, compared(NAMES))),
    "engines": lambda: Picture(lambda: engines.figure(make_run(WRONG), recordings())),
    "no engine": lambda: Picture(
        lambda: engines.figure(EnginesRun(engines=(MISSING,), settings=make_run().settings), {})
    ),
    **{
        name: lambda name=name: sweep.pictures(CASES)[name]  # type: ignore[misc]
        for name in ("latency-by-network", "by-batch-size")
    },
}


@pytest.mark.parametrize("name", DRAWN)
def test_files_are_the_same_each_time_and_have_no_date(name: str) -> None:
    picture, again = DRAWN[name](), DRAWN[name]()
    assert picture.png().startswith(b"\x89PNG")
    assert picture.svg().startswith(b"<?xml")
    for file in (picture.png, picture.svg):
        assert file() == getattr(again, file.__name__)()
        assert b"Date" not in file()
        assert b"dc:date" not in file()


def test_another_recording_has_another_picture() -> None:
    other = Picture(lambda: layers.figure(summarise(make_recording(seed=1))))
    assert (other.png(), other.svg()) != (DRAWN["layers"]().png(), DRAWN["layers"]().svg())


def test_a_notebook_shows_the_picture_of_the_report_in_fewer_colours() -> None:
    summary = summarise(make_recording(n_layers=12))
    shown = summary.plot()._repr_png_()
    report = Picture(lambda: layers.figure(summary)).png()
    assert len(shown) < len(report) / 2
    with Image.open(io.BytesIO(shown)) as few, Image.open(io.BytesIO(report)) as all_:
        assert few.size == all_.size
        apart = np.asarray(few.convert("RGB"), int) - np.asarray(all_.convert("RGB"), int)
    assert np.abs(apart).mean() < 1


def test_the_figure_is_matplotlibs_and_changes_are_shown() -> None:
    drawn = summarise(make_recording(n_layers=3)).plot()
    before = drawn._repr_png_()
    assert drawn._repr_png_() == before
    drawn.figure.axes[0].set_ylabel("changed")
    assert drawn._repr_png_() != before
    assert repr(drawn).startswith("<LayerPlot of <Summary of chain")
    assert "\n" not in repr(drawn)
