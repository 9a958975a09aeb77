"""Which bars the layers have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Layer
from chainer_profile.report.pictures.layers import SLOWEST, layer_bars, names_of, regions_of
from chainer_profile.report.text import short
from tests.conftest import make_recording, make_training


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
