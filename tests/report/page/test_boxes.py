"""The pictures of a page that are made of boxes."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Layer, LinkCalls, Settings
from chainer_profile.report.page import boxes
from chainer_profile.report.text import printable
from tests.conftest import make_kinds, make_layers, make_recording, make_training
from tests.report.devicing import computing, launching
from tests.report.page.reading import Read


@dataclass
class Box:
    kind: str
    left: float
    width: float
    row: int
    said: str


def boxes_of(html: str) -> list[Box]:
    found = []
    for tag, attributes in Read(html).tags:
        if tag == "i":
            numbers = re.fullmatch(
                r"left:(-?[\d.]+)%;width:(-?[\d.]+)%(?:;top:(\d+)px)?", str(attributes["style"])
            )
            assert numbers is not None
            left, width, top = (float(number or 0) for number in numbers.groups())
            kind, said = str(attributes["class"]), str(attributes["title"])
            found.append(Box(kind, left, width, int(top) // 24, said))
    return found


def nested() -> Summary:
    """Calls three deep."""
    parents = (None, 0, 1, 1, None, None)
    layers = [
        replace(layer, parent=parent) for layer, parent in zip(make_layers(6), parents, strict=True)
    ]
    return summarise(make_recording(layers=tuple(layers)))


def overlapping() -> Summary:
    """Layers that take longer together than the trial."""
    recording = make_recording()
    return summarise(replace(recording, trial_ns=recording.self_ns.sum(axis=1) // 2))


def deep() -> Summary:
    """Links on nine levels."""
    layers = [Layer(i, "/" + "/".join("abcdefghi"[: i + 1]), "ReLU") for i in range(9)]
    links = [LinkCalls("/" + "/".join("abcdefghi"[:i]), "Chain", 1, 0) for i in range(10)]
    return summarise(make_recording(9, layers=tuple(layers), links=tuple(links)))


SUMMARIES = {
    "forward": lambda: summarise(make_recording()),
    "training": lambda: summarise(make_training(data=True)),
    "layers alone": lambda: summarise(make_recording(trial_ns=None, start_ns=None, n_clean=0)),
    "kinds": lambda: summarise(make_kinds()),
    "GPU": launching,
    "busy GPU": computing,
    "nested": nested,
    "overlapping": overlapping,
    "deep": deep,
    "many": lambda: summarise(make_recording(3000, 3)),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_boxes_lie_within_and_beside_each_other(name: str) -> None:
    summary = SUMMARIES[name]()
    pictures = [boxes.parts(summary), boxes.timeline(summary)]
    pictures += [picture for _, _, picture in boxes.icicles(summary)]
    for picture in pictures:
        rows = defaultdict(list)
        for box in boxes_of(picture):
            rows[box.row].append(box)
            assert box.width >= 0
            assert -0.01 <= box.left <= box.left + box.width <= 100.02
        assert rows
        for row in rows.values():
            for one, other in pairwise(row):
                # Numbers have two digits.
                assert one.left + one.width <= other.left + 0.0101
        (height,) = re.findall(r"style=\"height:(\d+)px", picture) or ["24"]
        assert len(rows) == int(height) // 24


@pytest.mark.parametrize("name", SUMMARIES)
def test_parts_add_up(name: str) -> None:
    summary = SUMMARIES[name]()
    picture = boxes.parts(summary)
    found = boxes_of(picture)
    assert sum(box.width for box in found) == pytest.approx(100, abs=0.05)
    # The legend says the same in the same colours.
    items = [attributes["class"] for tag, attributes in Read(picture).tags if tag == "li"]
    assert items == [box.kind for box in found]
    for box in found:
        assert box.said in Read(picture).text


def test_parts_are_the_shares_of_the_trial() -> None:
    found = boxes_of(boxes.parts(summarise(make_training())))
    parts = {box.said.partition(":")[0]: box for box in found}
    # 2,310 us of 3,700, and 700 between.
    assert found[0].said == "Convolution2DFunction: 61.6 %"
    assert parts["between the functions"].width == pytest.approx(100 * 700 / 3700, abs=0.01)
    assert parts["between the functions"].kind == "between"
    assert found[-1].said.startswith("all else: ")


def test_functions_without_a_colour_are_all_else() -> None:
    layers = [replace(layer, function=f"F{layer.index}") for layer in make_layers(12)]
    recording = make_recording(12, layers=tuple(layers), trial_ns=None, start_ns=None, n_clean=0)
    recording.self_ns[:] = 1000
    kinds = [box.kind for box in boxes_of(boxes.parts(summarise(recording)))]
    assert kinds == [*(f"series-{at}" for at in range(boxes.MAX_COLOURS)), "other"]


def test_icicles_of_the_trial_and_of_every_phase() -> None:
    summary = summarise(make_training())
    found = boxes.icicles(summary)
    assert [name for _, name, _ in found] == ["All phases", "Forward", "Backward", "Update"]
    whole = {box.said.partition(":")[0]: box for box in boxes_of(found[0][2])}
    trial_s = summary.totals.profiled
    assert trial_s is not None
    for path, row in summary.links.iterrows():
        if row["inclusive_s"]:
            assert whole[str(path)].width == pytest.approx(
                100 * row["inclusive_s"] / trial_s.mean_s, abs=0.01
            )
    # A link lies below the one that it is in.
    outer, inner = whole["/res/0"], whole["/res/0/bn"]
    assert outer.left <= inner.left
    assert inner.left + inner.width <= outer.left + outer.width + 0.01
    assert "hot" in whole["/res/0/conv"].kind
    assert whole["framework"].kind == "link beside"
    # In a phase without time there is nothing.
    assert boxes.icicles(summarise(make_recording(1, layers=(Layer(0, "/", "ReLU"),)))) == []


def test_of_too_many_links_the_widest_are_there() -> None:
    # 350 links, and in each of them another: all of them wide enough to be seen.
    paths = [f"/{i}" for i in range(350)]
    layers = tuple(Layer(i, f"{path}/x", "ReLU") for i, path in enumerate(paths))
    links = [LinkCalls(path, "N", 1, 0) for one in paths for path in (one, f"{one}/x")]
    recording = make_recording(
        350, 2, layers=layers, links=(LinkCalls("/", "N", 1, 0), *links), trial_ns=None
    )
    recording.self_ns[:] = 1000 + np.arange(350)
    ((_, _, picture),) = boxes.icicles(summarise(recording))
    found = boxes_of(picture)
    shown = {box.said.partition(":")[0] for box in found}
    assert len(found) <= 502
    assert shown >= {"/", "/200", "/200/x", "/349", "/349/x"}
    assert "/0" not in shown
    assert max(box.left + box.width for box in found[1:]) == pytest.approx(100, abs=0.05)


def test_the_trial_in_time_has_a_box_for_every_call() -> None:
    summary = summarise(make_training())
    picture = boxes.timeline(summary)
    found = boxes_of(picture)
    assert len(found) == 25
    assert sum(box.width for box in found) == pytest.approx(100 * 3000 / 3700, abs=0.2)
    assert found[1].said == "1_Convolution2DFunction at /res/0/conv: 306.0 us"
    # Colours are those of the parts.
    assert found[1].kind == boxes_of(boxes.parts(summary))[0].kind
    assert {box.row for box in boxes_of(boxes.timeline(nested()))} == {0, 1, 2}


def test_without_any_time_there_is_no_picture() -> None:
    recording = make_recording(trial_ns=None, start_ns=None, n_clean=0)
    recording.self_ns[:] = 0
    summary = summarise(recording)
    assert boxes.parts(summary) == boxes.timeline(summary) == ""
    for _, _, picture in boxes.icicles(summary):
        assert boxes_of(picture) == []


@pytest.mark.parametrize(
    "name", ['"><script>alert(1)</script>', "' onclick='x", "&lt;b&gt;", "a\n\x00b", "\ud800"]
)
def test_hostile_names_are_texts(name: str) -> None:
    layers = (Layer(0, f"/{name}", name), Layer(1, "/b", name, phase=name))
    links = (LinkCalls("/", name, 1, 1), LinkCalls(f"/{name}", name, 1, 2))
    summary = summarise(
        make_recording(2, layers=layers, links=links, settings=Settings(model=name))
    )
    pictures = [boxes.parts(summary), boxes.timeline(summary)]
    pictures += [picture for _, _, picture in boxes.icicles(summary)]
    for picture in pictures:
        read = Read(picture)
        assert {tag for tag, _ in read.tags} <= {"div", "i", "ul", "li", "p"}
        names = {key for _, attributes in read.tags for key in attributes}
        assert names <= {"class", "style", "title", "role", "aria-label"}
    said = "".join(box.said for picture in pictures for box in boxes_of(picture))
    assert said.count(printable(name)) >= 4
