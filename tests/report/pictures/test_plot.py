from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Annotation, Text
from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_duration
from chainer_profile.record.recording import Layer, Recording
from chainer_profile.report.pictures import layers as plot
from chainer_profile.report.pictures.figures import Picture
from chainer_profile.report.pictures.layers import SLOWEST, layer_bars, names_of, regions_of
from chainer_profile.report.text import printable, short
from tests.conftest import make_recording, make_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SVG = "{http://www.w3.org/2000/svg}"


def drawn(summary: Summary, kind: str) -> bytes:
    picture = Picture(lambda: plot.figure(summary))
    return picture.png() if kind == "png" else picture.svg()


def below(figure: Figure) -> dict[int, Text]:
    """The names below the bars, by the place of their layer."""
    texts = figure.axes[0].texts
    return {round(text.get_position()[0]): text for text in texts if not text.get_in_layout()}


def labels(figure: Figure) -> dict[int, str]:
    return {at: text.get_text() for at, text in below(figure).items()}


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def renamed(recording: Recording, name: str) -> Recording:
    layers = tuple(
        replace(layer, path=f"/{layer.index}/{name}", function=name) for layer in recording.layers
    )
    settings = replace(recording.settings, model=name, input=name)
    return replace(recording, layers=layers, settings=settings)


def heights(figure: Figure, colour: str) -> np.ndarray:
    """Heights of the bars of a colour."""
    (drawn,) = (
        shape
        for shape in figure.axes[0].collections
        if isinstance(shape, PolyCollection)
        and [to_hex(one) for one in shape.get_facecolor()] == [colour]
    )
    return np.array([path.vertices[:, 1].max() for path in drawn.get_paths()])


def test_a_line_above_all_bars_is_inside_the_axis() -> None:
    figure = plot.figure(summarise(make_recording(), "0.4ms"))
    assert figure.axes[0].get_ylim()[1] > 400


def whiskers(figure: Figure) -> np.ndarray:
    """Lower and upper ends, (layers, 2), as drawn."""
    (drawn,) = (one for one in figure.axes[0].collections if isinstance(one, LineCollection))
    return np.array([path.vertices[:, 1] for path in drawn.get_paths()])


def test_a_long_whisker_does_not_flatten_the_bars() -> None:
    recording = make_recording(6)
    self_ns = recording.self_ns.copy()
    self_ns[:10, 2] *= 100
    summary = summarise(replace(recording, self_ns=self_ns, trial_ns=self_ns.sum(axis=1)))
    figure = plot.figure(summary)
    top = figure.axes[0].get_ylim()[1]
    highest = summary.layers["mean_s"].max() * 1e6
    assert summary.layers["p95_s"][2] * 1e6 > 2 * highest
    assert highest < top < 1.5 * highest
    assert whiskers(figure)[2, 1] == pytest.approx(top)
    (cut,) = [line for line in figure.axes[0].lines if line.get_marker() == "^"]
    assert list(cut.get_xdata()) == [2]  # type: ignore[arg-type]
    longest = format_duration(summary.layers["p95_s"].max())
    assert f"cut (up to {longest})" in legend(figure)


@pytest.mark.parametrize("n_layers", [1, 6, 66])
def test_few_layers_are_all_labelled(n_layers: int) -> None:
    summary = summarise(make_recording(n_layers))
    assert labels(plot.figure(summary)) == dict(enumerate(names_of(summary)))


def test_of_many_layers_the_hot_ones_are_labelled_first() -> None:
    summary = summarise(make_recording(180, n_trials=20), "top:10")
    shown = labels(plot.figure(summary, widest=9))
    assert shown.items() <= dict(enumerate(names_of(summary))).items()
    assert len(shown) > 40
    # A layer goes without a label only where a slower one close by has one.
    time = summary.layers["median_s"]
    for i in set(time.index) - set(shown):
        assert any(time[j] >= time[i] for j in shown if abs(i - j) <= 3)
    assert sum(i in shown for i in summary.hotspots.indices) >= 8


@pytest.mark.parametrize("n_layers", [1, 6, 66, 200, 500, 3000])
def test_labels_lie_within_the_figure_and_do_not_overlap(n_layers: int) -> None:
    figure = plot.figure(summarise(make_recording(n_layers, n_trials=5)))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    boxes = [label.get_window_extent() for label in below(figure).values()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    whole = figure.bbox
    assert min(box.y0 for box in boxes) >= 0
    for at, box in zip(below(figure), boxes, strict=True):
        centre = axes.transData.transform((at, 0))[0]
        assert box.x0 < centre < box.x1
    found = axes.get_legend()
    assert found is not None
    assert found.get_window_extent().x1 <= whole.x1
    title = figure.findobj(
        lambda artist: getattr(artist, "get_text", str)() == figure.get_suptitle()
    )
    assert title[0].get_window_extent().x1 <= whole.x1
    # The bars get most of the width.
    assert axes.get_window_extent().width > 0.8 * whole.width


def test_png_is_a_picture_of_the_figure() -> None:
    summary = summarise(make_recording(66))
    data = drawn(summary, "png")
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "PNG"
        wanted = plot.figure(summary).get_size_inches() * 150
        np.testing.assert_allclose(picture.size, wanted, atol=1)
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    red = (pixels == [0xCC, 0x33, 0x11]).all(axis=1)
    assert red.sum() > 1000
    assert len(data) < 300_000


def test_svg_holds_the_names_as_text() -> None:
    summary = summarise(make_recording(6))
    tree = ElementTree.fromstring(drawn(summary, "svg"))
    texts = {"".join(text.itertext()) for text in tree.iter(f"{SVG}text")}
    assert set(names_of(summary)) <= texts
    assert "median self time [us]" in texts
    styles = {str(text.get("style")) for text in tree.iter(f"{SVG}text")}
    assert all("sans-serif" in style for style in styles)


@pytest.mark.parametrize(
    "name",
    ["$x^2$", "$", "[red]", "<script>&amp;", "a\nb\x1b[31m", "\ud800", "網路", "_hidden", ""],
)
def test_hostile_names_are_shown_as_they_are(name: str) -> None:
    summary = summarise(renamed(make_recording(3), name))
    tree = ElementTree.fromstring(drawn(summary, "svg"))
    texts = {"".join(text.itertext()) for text in tree.iter(f"{SVG}text")}
    assert printable(f"/0/{name}") in texts
    assert (printable(name) or "unnamed network") in texts
    assert drawn(summary, "png")


def test_a_long_name_leaves_room_for_the_bars() -> None:
    figure = plot.figure(summarise(renamed(make_recording(6), "VeryLongName" * 50)))
    figure.draw_without_rendering()
    assert figure.axes[0].get_window_extent().height > 0.24 * figure.bbox.height
    # Of a path the end tells layers apart.
    assert labels(figure)[0] == "…" + ("VeryLongName" * 50)[-31:]
    title = figure.get_suptitle()
    assert title.startswith("VeryLongName")
    assert title.split("\n")[0].endswith("…")


@pytest.mark.parametrize(
    "recording",
    [
        make_recording(n_trials=1),
        make_recording(n_trials=1, n_clean=0),
        make_recording(self_ns=np.zeros((5, 6), np.int64), n_trials=5),
    ],
    ids=["one trial", "no clean trials", "all times zero"],
)
def test_recordings_that_lack_parts(recording: Recording) -> None:
    summary = summarise(recording)
    figure = plot.figure(summary)
    words = f"{figure.get_suptitle()} {legend(figure)}"
    assert "nan" not in words
    assert "None" not in words
    assert np.isfinite(figure.axes[0].get_ylim()).all()
    assert drawn(summary, "svg")


def test_no_state_of_pyplot_is_made() -> None:
    code = (
        "import sys; from tests.conftest import make_recording;"
        "from chainer_profile.analyse.summaries import summarise;"
        "from chainer_profile.report.pictures import layers as plot;"
        "from chainer_profile.report.pictures.figures import save;"
        "save(plot.figure(summarise(make_recording())), 'png');"
        "assert 'matplotlib.pyplot' not in sys.modules;"
        "assert 'chainer' not in sys.modules; assert 'cupy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_very_many_layers_there_is_a_bar_a_block() -> None:
    summary = summarise(make_recording(300, n_trials=5), "top:30")
    figure = plot.figure(summary)
    bars = layer_bars(summary)
    assert bars.kind == "block"
    frame = bars.frame
    np.testing.assert_allclose(heights(figure, plot.OTHER_COLOUR), frame["typical_s"] * 1e6)
    red = frame["hot_s"][frame["hot_s"] > 0]
    np.testing.assert_allclose(heights(figure, plot.HOT_COLOUR), red * 1e6)
    np.testing.assert_allclose(whiskers(figure), frame[["low_s", "high_s"]] * 1e6, rtol=1e-6)
    assert labels(figure) == dict(enumerate(frame["name"]))
    axes = figure.axes[0]
    assert axes.get_xlabel() == "block, in the order of the calls; 300 layers by block"
    # No block is compared with the line of a layer.
    line = plot.figure(summarise(make_recording(300, n_trials=5), "0.2ms"))
    assert not any("line of the rule" in text for text in legend(line))


def test_of_very_many_blocks_the_slowest_layers_are_shown() -> None:
    summary = summarise(make_recording(1500, n_trials=5))
    figure = plot.figure(summary)
    whole = heights(figure, plot.OTHER_COLOUR)
    slowest = summary.layers["median_s"].nlargest(30).sort_index() * 1e6
    np.testing.assert_allclose(whole, slowest)
    label = figure.axes[0].get_xlabel()
    assert label.startswith("layer, in the order of the calls; the 30 slowest of 1,500 layers")
    # Hot are still all that are hot.
    assert legend(figure)[0].endswith(f"({summary.layers['hot'].sum()} of 1,500)")


def test_labels_of_a_wide_picture_are_larger() -> None:
    """A picture of 20 inches is shown at less than half of its size."""
    for count, least in ((66, 6), (200, 9)):
        figure = plot.figure(summarise(make_recording(count, n_trials=2)))
        assert below(figure)[0].get_fontsize() >= least


# --- more than one phase


def phase_names(figure: Figure) -> dict[str, Annotation]:
    found = [a for a in figure.axes[0].texts if isinstance(a, Annotation)]
    return {a.get_text(): a for a in found}


def alternating(phases: list[str], n_trials: int = 4) -> Recording:
    """One layer for each of the phases."""
    recording = make_recording(len(phases), n_trials=n_trials)
    layers = tuple(
        replace(layer, phase=phase) for layer, phase in zip(recording.layers, phases, strict=True)
    )
    return replace(recording, layers=layers)


LONG = ["forward"] * 60 + ["backward"] * 60 + ["update"] * 40


@pytest.mark.parametrize(
    "phases",
    [
        ["forward", "backward"],
        LONG,
        ["data", "data", *LONG],
        ["forward"] * 3 + ["backward"] + ["update"] * 2,
        ["forward"] * 200 + ["backward"] * 200 + ["update"],
        ["forward", "backward", "update"] * 10,
        ["data"] + ["forward"] * 5 + ["backward"] * 5 + ["update"] * 5 + ["backward"] * 5,
    ],
    ids=["two", "long", "data first", "small", "huge", "alternating", "two backwards"],
)
def test_names_of_phases_do_not_overlap_and_lie_within(phases: list[str]) -> None:
    figure = plot.figure(summarise(alternating(phases)))
    figure.draw_without_rendering()
    names = sorted(
        (text.get_window_extent() for text in phase_names(figure).values()), key=lambda box: box.x0
    )
    assert names
    assert all(left.x1 <= right.x0 for left, right in pairwise(names))
    axes, found = figure.axes[0], figure.axes[0].get_legend()
    assert found is not None
    assert min(box.x0 for box in names) >= 0
    assert max(box.x1 for box in names) <= figure.bbox.x1
    # Above the bars, below the legend, and that below the title.
    assert min(box.y0 for box in names) >= axes.get_window_extent().y1
    assert max(box.y1 for box in names) <= found.get_window_extent().y0
    title = figure.findobj(
        lambda artist: getattr(artist, "get_text", str)() == figure.get_suptitle()
    )
    assert found.get_window_extent().y1 <= title[0].get_window_extent().y0
    labels_below = [label.get_window_extent() for label in below(figure).values()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(labels_below))


def test_of_names_without_room_the_longest_phases_come_first() -> None:
    shown = phase_names(plot.figure(summarise(alternating(["data", "data", *LONG]))))
    assert [name.partition(":")[0] for name in shown][:3] == ["forward", "backward", "update"]
    one = phase_names(plot.figure(summarise(alternating(["forward", "update"] * 30))))
    assert 1 <= len(one) < 60


def test_hostile_names_of_phases() -> None:
    for name in ("$x$", "a\nb", "_hidden", ""):
        recording = alternating(["forward"] * 4 + [name] * 4)
        assert drawn(summarise(recording), "svg")


# --- which bars there are


def training(most: int = 200, rule: str = "top:4") -> tuple[Summary, list[tuple[str, str]]]:
    """A training step, and phase and name of its bars."""
    summary = summarise(make_training(), rule)
    frame = layer_bars(summary, most).frame
    return summary, list(zip(frame["phase"], frame["name"], strict=True))


@pytest.mark.parametrize("most", [25, 200])
def test_every_layer_has_a_bar(most: int) -> None:
    summary, _ = training(most)
    (frame, kind, note), layers = layer_bars(summary, most), summary.layers
    assert (len(frame), kind, note) == (25, "layer", "")
    np.testing.assert_array_equal(frame["typical_s"], layers["median_s"])
    np.testing.assert_array_equal(frame["low_s"], layers["p5_s"])
    np.testing.assert_array_equal(frame["high_s"], layers["p95_s"])
    np.testing.assert_array_equal(frame["hot_s"], layers["median_s"].where(layers["hot"], 0))
    regions = regions_of(frame["phase"])
    assert regions == [("forward", 0, 9), ("backward", 9, 20), ("update", 20, 25)]


def test_of_more_layers_every_block_has_a_bar_in_each_phase() -> None:
    summary, shown = training(24)
    frame, kind, note = layer_bars(summary, 24)
    assert (kind, note) == ("block", "25 layers by block")
    assert shown[:6] == [
        *(("forward", name) for name in ("/conv", "/res/0", "/res/1", "/", "/fc", "loss"))
    ]
    assert ("backward", "/res/0") in shown
    regions = regions_of(frame["phase"])
    assert [region[0] for region in regions] == ["forward", "backward", "update"]
    assert regions[-1][2] == len(frame)


def test_a_blocks_time_is_that_of_its_layers_in_a_trial() -> None:
    # Layers of a block that are slow in turn: their medians do not add up to that of the sum.
    recording = make_recording(9, 100)
    recording.self_ns[::2, 0] *= 3
    recording.self_ns[1::2, 1] *= 9
    summary = summarise(recording, "top:1")
    frame = layer_bars(summary, 8).frame
    assert frame["name"].tolist() == ["/res2/0", "/res2/1", "/res2/2"]
    sums = recording.self_ns.reshape(100, 3, 3).sum(axis=2) * 1e-9
    expected = np.quantile(sums, (0.05, 0.5, 0.95), axis=0).T
    np.testing.assert_allclose(frame[["low_s", "typical_s", "high_s"]], expected)
    # The hot part is as large as the hot layers' part of the medians.
    medians = summary.layers["median_s"].to_numpy()
    (hot,) = summary.hotspots.indices
    assert hot < 3
    part = medians[hot] / medians[:3].sum()
    assert frame["hot_s"].tolist() == pytest.approx([frame["typical_s"][0] * part, 0, 0])


@pytest.mark.parametrize("rule", ["pareto:100%", "10s"])
def test_a_block_is_hot_as_a_whole_or_not_at_all(rule: str) -> None:
    bars = layer_bars(summarise(make_recording(9), rule), 8)
    expected = bars.frame["typical_s"] if rule == "pareto:100%" else np.zeros(3)
    np.testing.assert_allclose(bars.frame["hot_s"], expected)


def test_of_more_blocks_the_slowest_layers_have_bars_in_the_order_of_the_calls() -> None:
    summary = summarise(make_recording(90, 20))
    bars = layer_bars(summary, 29)
    assert len(bars.frame) == SLOWEST
    slowest = summary.layers.nlargest(SLOWEST, "median_s").sort_index()
    np.testing.assert_array_equal(bars.frame["typical_s"], slowest["median_s"])
    assert bars.note == (
        f"the 30 slowest of 90 layers, which hold {slowest['share'].sum():.0%} of the layers' time"
    )


def test_layers_without_time() -> None:
    recording = make_recording(9, 4)
    recording.self_ns[:] = 0
    bars = layer_bars(summarise(recording), 8)
    assert bars.frame["typical_s"].tolist() == bars.frame["hot_s"].tolist() == [0, 0, 0]


def test_names_are_paths_and_where_these_are_the_same_functions_too() -> None:
    summary, shown = training()
    # A link's function in another phase is not the same name twice.
    assert ("forward", "/res/0/conv") in shown
    assert ("update", "/res/0/conv") in shown
    assert ("backward", "/res/0/conv Convolution") in shown
    assert ("backward", "/res/0/conv gradient_accumulation") in shown
    assert ("forward", "/") in shown
    hostile = (Layer(0, "/a\nb", "\x1b[31m"), Layer(1, "/a\nb", "ReLU"))
    names = names_of(summarise(make_recording(2, layers=hostile)))
    assert names == ["/a\\nb \\x1b[31m", "/a\\nb ReLU"]
    assert summary.layers["path"].tolist()[0] == "/conv"


@pytest.mark.parametrize(
    ("function", "name"),
    [("Convolution2DFunction", "Convolution"), ("ReLU", "ReLU"), ("Function", "Function")],
)
def test_short_names_of_functions(function: str, name: str) -> None:
    assert short(function) == name


def test_phases_that_come_again_are_regions_of_their_own() -> None:
    recording = make_recording(4)
    layers = tuple(
        replace(layer, phase=phase)
        for layer, phase in zip(recording.layers, ("a", "b", "a", "a"), strict=True)
    )
    bars = layer_bars(summarise(replace(recording, layers=layers)))
    assert regions_of(bars.frame["phase"]) == [("a", 0, 1), ("b", 1, 2), ("a", 2, 4)]
