"""Picture files are reproducible, and all labels fit into the figure."""

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Annotation
from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.comparison.compare import Comparison, compare
from chainer_profile.comparison.sides import Side
from chainer_profile.engines.results import EnginesRun
from chainer_profile.record.recording import Recording
from chainer_profile.report.pictures import comparison, engines, layers, roofline, sweep
from chainer_profile.report.pictures.figures import Picture
from tests import ROOT
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings
from tests.report.documents import NAMES, compared
from tests.report.working import training, with_work, working
from tests.sweeping import make_run as make_case

CASES = [make_case(batchsize=n) for n in (1, 2)]
NONE = EnginesRun(engines=(MISSING,), settings=make_run().settings)
DRAWN: dict[str, Callable[[], Any]] = {
    "layers": lambda: layers.figure(summarise(make_recording())),
    "training": lambda: layers.figure(summarise(make_training(data=True))),
    "memory": lambda: layers.memory_figure(training()),
    "roofline": lambda: roofline.figure(working()),
    "comparison": lambda: comparison.figure(compared(NAMES)),
    "engines": lambda: engines.figure(make_run(WRONG), recordings()),
    "no engine": lambda: engines.figure(NONE, {}),
    "sweep": lambda: sweep.latency_figure([make_case(name, name=name) for name in NAMES]),
    "batches": lambda: sweep.batch_figure(CASES),
}


@pytest.mark.parametrize("name", DRAWN)
def test_picture_files_are_reproducible_and_have_no_date(name: str) -> None:
    files, again = ([drawn.png(), drawn.svg()] for drawn in map(Picture, [DRAWN[name]] * 2))
    assert files == again
    for file, begin in zip(files, (b"\x89PNG", b"<?xml"), strict=True):
        assert file.startswith(begin)
        assert b"Date" not in file
        assert b"dc:date" not in file


def test_notebook_shows_the_picture_of_the_report_in_fewer_colours() -> None:
    summary = summarise(make_recording(n_layers=66))
    drawn = summary.plot()
    shown = drawn._repr_png_()
    report = Picture(lambda: layers.figure(summary)).png()
    assert len(shown) < len(report) / 2 < 150_000
    few, many = (np.asarray(Image.open(io.BytesIO(file)).convert("RGB"), int)
                 for file in (shown, report))  # fmt: skip
    assert np.abs(few - many).mean() < 1
    # The figure is a Matplotlib figure, and the notebook shows changes to it.
    drawn.figure.axes[0].set_ylabel("changed")
    assert drawn._repr_png_() != shown


def test_roofline_legend_counts_layers_without_a_dot_too() -> None:
    recording = with_work(make_recording(9))
    unknown = (replace(layer, flops=None) for layer in recording.layers[4:6])
    layers = (*recording.layers[:4], *unknown, *recording.layers[6:])
    # The last layer has no formula either.
    for changed, hidden in ((recording, 1), (replace(recording, layers=layers), 3)):
        summary = summarise(changed, "top:2")
        (axes,) = roofline.figure(summary).axes
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert texts[:2] == ["hot layers (2)", "other layers (7)"]
        message = [text for text in texts if "not shown" in text]
        assert message == [f"{hidden} of them without known operations, not shown"]


def test_pictures_do_not_use_pyplot() -> None:
    for path in (ROOT / "chainer_profile" / "report").rglob("*.py"):
        assert not re.search(r"^ *(import|from) .*pyplot", path.read_text(), re.MULTILINE), path


# -- layout


def recording_of_phases(*phases: str) -> Recording:
    """A recording with one layer in each of the phases."""
    recording = make_recording(len(phases), n_trials=4)
    rows = zip(recording.layers, phases, strict=True)
    return replace(recording, layers=tuple(replace(layer, phase=phase) for layer, phase in rows))


LONG = ["forward"] * 60 + ["backward"] * 60 + ["update"] * 40
#: Numbers of layers, or the phases.
ROOM: dict[str, Any] = {
    **{f"{n} layers": n for n in (1, 6, 66, 200, 500, 3000)},
    "two": ["forward", "backward"],
    "long": LONG,
    "data first": ["data", "data", *LONG],
    "small": [*["forward"] * 3, "backward", *["update"] * 2],
    "huge": [*["forward"] * 200, *["backward"] * 200, "update"],
    "alternating": ["forward", "backward", "update"] * 10,
    "hostile": [*["forward"] * 4, *["$x$"] * 4, *["a\nb"] * 4, "_hidden", ""],
}


@pytest.mark.parametrize("name", ROOM)
def test_labels_are_within_the_figure_and_do_not_overlap(name: str) -> None:
    size = ROOM[name]
    has_phases = not isinstance(size, int)
    figure = layers.figure(
        summarise(recording_of_phases(*size) if has_phases else make_recording(size, 4))
    )
    figure.draw_without_rendering()
    (axes,), whole = figure.axes, figure.bbox
    title: Any = figure.findobj(
        lambda artist: getattr(artist, "get_text", str)() == figure.get_suptitle()
    )[0]
    legend, above = (it.get_window_extent() for it in (axes.get_legend(), title))
    below = {text.get_position()[0]: text for text in axes.texts if not text.get_in_layout()}
    phases = [text for text in axes.texts if isinstance(text, Annotation)]
    for texts in (below.values(), phases):
        boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.x0)
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
        assert all(box.x0 >= 0 and box.y0 >= 0 for box in boxes)
    for at, text in below.items():
        # A notebook shows a picture of 20 inches at less than half of its size.
        assert text.get_fontsize() >= (9 if name == "200 layers" else 6)
        box = text.get_window_extent()
        assert box.x0 < axes.transData.transform((at, 0))[0] < box.x1
    # The names of the phases are above the bars, the legend above the names, and the title at the
    # top.
    assert bool(phases) == has_phases
    for text in phases:
        box = text.get_window_extent()
        assert axes.get_window_extent().y1 <= box.y0 <= box.y1 <= legend.y0
        assert box.x1 <= whole.x1
    assert legend.y1 <= above.y0
    assert max(legend.x1, above.x1) <= whole.x1
    # The bars get most of the width.
    assert axes.get_window_extent().width > 0.8 * whole.width


@pytest.mark.parametrize("slow", [1, 30])
def test_long_whiskers_are_cut_and_nothing_touches_the_frame(slow: int) -> None:
    recording = make_recording(6, 100)
    self_ns = recording.self_ns.copy()
    self_ns[::10] *= slow
    shown = summarise(replace(recording, self_ns=self_ns, trial_ns=None), "0.4ms")
    (ax,) = layers.figure(shown).axes
    cuts = [line for line in ax.lines if line.get_marker() == "^"]
    assert bool(cuts) == (slow > 1)
    whiskers: Any = next(lines for lines in ax.collections if hasattr(lines, "get_segments"))
    ends = [segment[:, 1].max() for segment in whiskers.get_segments()]
    assert shown.layers["median_s"].max() * 1e3 <= max(ends) < 0.97 * ax.get_ylim()[1]


def compare_layers(n_layers: int, factors: dict[int, float]) -> Comparison:
    """Compare two runs. In the second, layer ``n`` takes ``factors[n]`` times as long."""
    before, after = run(1, n_layers, 60), scaled(run(2, n_layers, 60), factors)
    return compare(Side("A", (before,)), Side("B", (after,)))


def test_picture_of_many_layers_shows_the_most_changed_and_the_largest() -> None:
    (ax,) = comparison.figure(compare_layers(300, {298: 1.5, 101: 0.7})).axes
    labels = [text.get_text() for text in ax.texts if not text.get_in_layout()]
    assert len(labels) == comparison.MAX_LAYERS
    # No changed layer is a convolution, although convolutions take most of the time.
    others = [label for label in labels if "Convolution" not in label]
    assert len(others) == 2
    # Factors are inside the axes, below their upper end.
    for factors in ({3: 1.5}, dict.fromkeys(range(0, 66, 5), 40.0)):
        (ax,) = Picture(lambda by=factors: comparison.figure(compare_layers(66, by))).figure.axes  # type: ignore[misc]
        marks = [text for text in ax.texts if text.get_in_layout()]
        assert len(marks) == len(factors)
        assert max(mark.get_window_extent().y1 for mark in marks) < ax.bbox.y1


def test_series_differ_only_in_the_batch_size() -> None:
    batches = [make_case(name, batchsize=n) for name in ("a", "b", "c") for n in (8, 1, 2)]
    assert list(sweep.pictures(batches)) == ["latency-by-network.png", "by-batch-size.png"]
    for other, values in {"phase": ("1", "2"), "seed": (1, 2)}.items():
        several = [make_case(batchsize=n, **{other: values[n - 1]}) for n in (1, 2)]
        assert list(sweep.pictures(several)) == ["latency-by-network.png"]
    assert sweep.pictures([]) == sweep.pictures([make_case(mean_ms=math.nan)]) == {}
