"""comparison.csv, comparison.md, comparison.png and the terminal."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image
from rich.console import Console

from chainer_profile.comparison.compare import Side, compare
from chainer_profile.report.pictures import comparison as comparison_plot
from chainer_profile.report.writers import comparison_csv, comparison_markdown, comparison_table
from tests.comparing import run, scaled
from tests.fusing import chainer_run, engine_run, in_threes
from tests.report.reading import read

SLOW = {3: 1.5, 7: 0.6}
HOSTILE = "=cmd|a[b]*c_`<b>\x1b[31m\n$x$"


def compared(n_layers=24, factors=SLOW, **changes):
    after = scaled(run(2, n_layers, **changes), factors)
    return compare(Side("A", (run(1, n_layers),)), Side("B", (after,)))


def hostile():
    recordings = []
    for seed in (1, 2):
        recording = run(seed)
        layers = [replace(x, function=HOSTILE + str(x.index)) for x in recording.layers]
        layers[seed] = replace(layers[seed], path="/" + HOSTILE * 9 + str(seed))
        settings = replace(recording.settings, model=HOSTILE, input=HOSTILE)
        recordings.append(replace(recording, layers=tuple(layers), settings=settings))
    return compare(
        Side(HOSTILE, (recordings[0],)), Side(HOSTILE * 20, (scaled(recordings[1], SLOW),))
    )


def rows(*comparisons):
    return list(csv.DictReader(io.StringIO(comparison_csv.render(comparisons))))


def printed(comparison, width=120, **options):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    comparison_table.render(comparison, console, **options)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_csv_has_totals_layers_and_unmatched_layers_with_all_digits():
    longer = compare(Side("A", (run(1),)), Side("B", (run(2, 30),)))
    found = rows(compared(), longer)
    assert list(found[0]) == list(comparison_csv.COLUMNS)
    kinds = [row["row"] for row in found]
    assert (
        kinds
        == ["total"] * 4 + ["layer"] * 24 + ["total"] * 4 + ["layer"] * 24 + ["only after"] * 6
    )
    comparison = compared()
    layer, expected = found[4 + 3], comparison.layers.loc[3]
    assert (layer["before"], layer["after"], layer["verdict"]) == ("A", "B", "slower")
    assert float(layer["ratio"]) == expected["ratio"]
    assert float(layer["before_ms"]) == expected["before_s"] * 1e3
    assert float(layer["ci95_low"]) == expected["low"]
    assert float(layer["p_value"]) == expected["p_value"]
    assert layer["name"] == "3_Convolution2DFunction"
    assert found[0]["name"] == "clean trial"
    assert found[0]["path"] == found[0]["before_share_percent"] == ""
    only = found[-1]
    assert only["before_ms"] == only["ratio"] == only["verdict"] == only["before_index"] == ""
    assert only["after_index"] == "29"
    assert float(only["after_ms"]) == pytest.approx(longer.after.time_s(29) * 1e3)
    shares = [float(row["before_share_percent"]) for row in found[4:28]]
    assert sum(shares) == pytest.approx(100)


def test_csv_of_what_is_not_known_is_empty():
    few = compared(n_trials=1)
    row = rows(few)[4]
    assert row["ci95_low"] == row["ci95_high"] == ""
    assert row["verdict"] == "not known"


def test_csv_of_hostile_names_is_safe():
    text = comparison_csv.render([hostile()])
    assert "\x1b" not in text
    found = list(csv.reader(io.StringIO(text)))
    assert {len(row) for row in found} == {len(comparison_csv.COLUMNS)}
    assert not [cell for row in found for cell in row if cell.startswith(("=", "@", "+"))]


def test_markdown_has_the_tables_of_the_terminal():
    comparison = compared()
    report = read(comparison_markdown.render([comparison], plots=["p 1.png"], fail_above=0.05))
    assert report.headings == ["B compared with A"]
    assert [row[0] for row in report.table("total")] == [
        *("clean trial", "profiled trial", "layers", "framework")
    ]
    layers = report.table("#")
    assert [row[0] for row in layers] == ["3", "7"]
    assert layers[0][5].endswith("x slower")
    assert report.images == [("Times of the layers in both runs", "p%201.png")]
    assert report.links == ["comparison.csv"]
    assert "Gate: FAILED, 1 slower by more than 5.0 %." in report.words
    assert "3_Convolution2DFunction at /res2/1/conv1: 1.5" in report.words
    assert "One run of each" in report.words


def test_markdown_of_several_comparisons_and_limits():
    one, other = compared(), compared(factors={})
    text = comparison_markdown.render([one, other], plots=["1.png", "2.png"], limit=1)
    report = read(text)
    assert report.headings == ["B, B compared with A", "B", "B"]
    assert [image[1] for image in report.images] == ["1.png", "2.png"]
    assert "1 row not shown." in report.words
    assert "Gate" not in report.words


def test_markdown_of_hostile_names_is_shown_as_it_is():
    report = read(comparison_markdown.render([hostile()], plots=["p.png"], everything=True))
    assert not report.html
    assert len(report.tables) == 2
    assert {len(row) for row in report.tables[1]} == {8}
    assert report.headings[0].endswith("$x$")


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_everything_in_order(width):
    text = printed(compared(), width, fail_above=0.05)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    parts = [
        *("before A: chain", "after B: chain", "Settings and environments are the same."),
        *("The machine itself was as fast", "One run of each", "total before after"),
        *("2 of 24 matched layers changed", "path function", "Gate: FAILED"),
    ]
    places = [flat.index(part) for part in parts]
    assert places == sorted(places)


def test_the_terminal_counts_what_it_hides():
    text = printed(compared(), everything=True, limit=5)
    assert "19 rows not shown (--limit 0 shows all)." in text
    assert "not shown" not in printed(compared(), everything=True, limit=None)
    assert "rows" not in printed(compared(factors={}))


def test_the_terminal_of_hostile_names():
    text = printed(hostile(), 100, everything=True, limit=None)
    assert "\x1b" not in text
    assert "\\x1b[31m" in text
    assert "Only in" in text


def test_bars_are_the_times_and_changed_layers_are_marked():
    comparison = compared()
    figure = comparison_plot.figure(comparison)
    ax = figure.axes[0]
    before, after = (container.patches for container in ax.containers)
    assert ax.get_ylabel() == "median self time [us]"
    for bars, name in ((before, "before_s"), (after, "after_s")):
        heights = [bar.get_height() for bar in bars]
        np.testing.assert_allclose(heights, comparison.layers[name] * 1e6)
    colours = [to_hex(bar.get_facecolor()) for bar in after]
    marked = {at: colour for at, colour in enumerate(colours) if colour != colours[0]}
    assert marked == {3: comparison_plot.HOT_COLOUR, 7: comparison_plot.FASTER_COLOUR}
    words = [text.get_text() for text in ax.texts]
    assert len(words) == 2
    assert words[0].endswith("x slower")
    assert words[1].endswith("x faster")
    title = figure.get_suptitle()
    assert title.splitlines() == ["B compared with A", "clean trial: not significant"]


def test_of_many_layers_the_most_changed_ones_and_the_largest_are_shown():
    comparison = compared(300, {298: 1.5, 101: 0.7}, n_trials=60)
    ax = comparison_plot.figure(comparison).axes[0]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert len(labels) == comparison_plot.MAX_LAYERS
    assert "298_FixedBatchNormalization" in labels
    assert "101_ReLU" in labels
    indices = [int(label.partition("_")[0]) for label in labels]
    assert indices == sorted(indices)
    others = [label for label in labels if not label.startswith(("298_", "101_"))]
    assert {label.partition("_")[2] for label in others} == {"Convolution2DFunction"}


def test_the_picture_is_the_same_each_time_and_of_readable_size():
    whole = compared(66)
    pictures = [
        comparison_plot.render(shown) for shown in (whole, whole, compared(1, {}), hostile())
    ]
    assert pictures[0] == pictures[1]
    for picture in pictures[1:]:
        image = Image.open(io.BytesIO(picture))
        assert image.format == "PNG"
        assert 1000 <= image.width <= 2600
        assert image.height == 900


def test_a_picture_of_no_time():
    zero = replace(run(1, 3), self_ns=np.zeros((200, 3), np.int64))
    assert comparison_plot.render(compare(zero, zero)).startswith(b"\x89PNG")


def test_groups_of_layers_have_all_their_names_in_the_csv_and_short_ones_elsewhere():
    nodes = [(), *in_threes()[:-1], (21, 22)]
    comparison = compare(
        Side("A", (chainer_run(),)), Side("B", (engine_run(chainer_run(2), nodes),))
    )
    found = rows(comparison)
    assert [row["covers"] for row in found[4:]] == [
        *(f"{at} {at + 1} {at + 2}" for at in range(0, 21, 3)),
        "21 22",
        "23",
        "",
    ]
    assert found[4]["function"] == "Convolution2DFunction + FixedBatchNormalization + ReLU"
    assert {row["covers"] for row in found[:4]} == {""}
    assert {row["covers"] for row in rows(compared())} == {""}
    line = "24 layers of chainer became 9 nodes of onnxruntime 1.31.1; compared as 8 groups"
    ax = comparison_plot.figure(comparison).axes[0]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[0] == "0-2_Convolution2D + 2 fused"
    assert line in ax.figure.get_suptitle()
    page = comparison_markdown.render([comparison], plots=["a.png"])
    for text in (page, printed(comparison)):
        assert f"{line}." in text
        assert "Convolution2D + 2 fused" in text
        assert "FixedBatchNormalization" not in text
