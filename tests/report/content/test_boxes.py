"""The pictures that are made of boxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.ranks import training
from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.ranks.merging import merge
from chainer_profile.record.recording import Layer, LinkCalls
from chainer_profile.report.content import boxes
from chainer_profile.report.content.budget import picture_of
from chainer_profile.report.content.pass_section import memory_on_page
from chainer_profile.report.content.ranks import bars
from chainer_profile.report.document import Box, Boxes
from tests.conftest import make_layers, make_recording, make_training
from tests.report.content.test_budget import BUDGET
from tests.report.devicing import computing, launching
from tests.report.working import working


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
    "GPU": launching,
    "busy GPU": computing,
    "nested": nested,
    "overlapping": overlapping,
    "deep": deep,
    "memory": working,
    "many": lambda: summarise(make_recording(3000, 3)),
}


def pictures(summary: Summary) -> Iterator[Boxes]:
    yield from boxes.parts(summary)
    yield from boxes.timeline(summary)
    yield from (block for block in memory_on_page(summary) if isinstance(block, Boxes))
    yield from (picture for _, picture in boxes.links(summary))


def named(picture: Boxes) -> dict[str, Box]:
    return {box.said.partition(":")[0]: box for box in picture.boxes}


@pytest.mark.parametrize("name", SUMMARIES)
def test_boxes_lie_within_and_beside_each_other(name: str) -> None:
    for picture in pictures(SUMMARIES[name]()):
        rows = defaultdict(list)
        for box in picture.boxes:
            rows[box.row].append(box)
            assert box.width >= 0
            assert -1e-9 <= box.left <= box.left + box.width <= 1 + 1e-9
        assert sorted(rows) == list(range(len(rows)))
        for row in rows.values():
            for one, other in pairwise(row):
                assert one.left + one.width <= other.left + 1e-9


@pytest.mark.parametrize("name", SUMMARIES)
def test_parts_add_up_and_the_legend_says_the_same(name: str) -> None:
    (picture,) = boxes.parts(SUMMARIES[name]())
    assert sum(box.width for box in picture.boxes) == pytest.approx(1)
    assert picture.legend == [(box.said, box.kind) for box in picture.boxes]


def test_parts_are_the_shares_of_the_trial() -> None:
    (picture,) = boxes.parts(summarise(make_training()))
    # 2,310 us of 3,700, and 700 between.
    assert picture.boxes[0].said == "Convolution2DFunction: 61.6 %"
    between = named(picture)["between the functions"]
    assert (between.kind, between.width) == ("between", pytest.approx(700 / 3700))
    assert picture.boxes[-1].said.startswith("all else: ")


def test_functions_without_a_colour_are_all_else() -> None:
    layers = [replace(layer, function=f"F{layer.index}") for layer in make_layers(12)]
    recording = make_recording(12, layers=tuple(layers), trial_ns=None, start_ns=None, n_clean=0)
    recording.self_ns[:] = 1000
    (picture,) = boxes.parts(summarise(recording))
    kinds = [*(f"series-{at}" for at in range(boxes.MAX_COLOURS)), "other"]
    assert [box.kind for box in picture.boxes] == kinds


def test_the_links_of_the_trial_and_of_every_phase() -> None:
    summary = summarise(make_training())
    found = dict(boxes.links(summary))
    assert list(found) == ["All phases", "Forward", "Backward", "Update"]
    whole = named(found["All phases"])
    trial_s = summary.totals.profiled
    assert trial_s is not None
    for path, row in summary.links.iterrows():
        if row["inclusive_s"]:
            part = row["inclusive_s"] / trial_s.mean_s
            assert whole[str(path)].width == pytest.approx(part)
    # A link lies below the one that it is in.
    outer, inner = whole["/res/0"], whole["/res/0/bn"]
    assert outer.left <= inner.left
    assert inner.left + inner.width <= outer.left + outer.width + 1e-9
    assert inner.row == outer.row + 1
    assert (whole["/res/0/conv"].kind, whole["framework"].kind) == ("link hot", "beside")
    assert not list(boxes.links(summarise(make_recording(1, layers=(Layer(0, "/", "ReLU"),)))))


def test_of_too_many_links_the_widest_are_there() -> None:
    # 350 links, and in each of them another: all of them wide enough to be seen.
    paths = [f"/{i}" for i in range(350)]
    layers = tuple(Layer(i, f"{path}/x", "ReLU") for i, path in enumerate(paths))
    links = [LinkCalls(path, "N", 1, 0) for one in paths for path in (one, f"{one}/x")]
    recording = make_recording(
        350, 2, layers=layers, links=(LinkCalls("/", "N", 1, 0), *links), trial_ns=None
    )
    recording.self_ns[:] = 1000 + np.arange(350)
    ((_, picture),) = boxes.links(summarise(recording))
    assert len(picture.boxes) <= 502
    assert named(picture).keys() >= {"/", "/200", "/200/x", "/349", "/349/x"}
    assert "/0" not in named(picture)


def test_the_trial_in_time_has_a_box_for_every_call() -> None:
    summary = summarise(make_training())
    (picture,), (parts,) = boxes.timeline(summary), boxes.parts(summary)
    assert len(picture.boxes) == 25
    assert sum(box.width for box in picture.boxes) == pytest.approx(3000 / 3700, abs=0.002)
    assert picture.boxes[1].said == "1_Convolution2DFunction at /res/0/conv: 306.0 us"
    assert picture.boxes[1].kind == parts.boxes[0].kind
    assert {box.row for box in next(boxes.timeline(nested())).boxes} == {0, 1, 2}


def test_without_any_time_there_is_no_picture() -> None:
    recording = make_recording(trial_ns=None, start_ns=None, n_clean=0)
    recording.self_ns[:] = 0
    assert not list(pictures(summarise(recording)))


def test_the_bar_of_a_program_is_the_whole_of_it() -> None:
    (picture,) = picture_of(BUDGET)
    assert [box.said for box in picture.boxes] == [
        "iterations: 60.0 %",
        "evaluation: 15.0 %",
        "imports: 10.0 %",
        "extensions: 9.0 %",
        "snapshots: 2.5 %",
        "train.py's own code: 2.5 %",
        "start of Python: 1.0 %",
    ]
    assert sum(box.width for box in picture.boxes) == pytest.approx(1)


def test_a_bar_is_the_iteration_of_its_rank() -> None:
    ranks = merge(training(3, 30, 5, planted_ms={(2, 1): 10.0}))
    whole = np.median(ranks.iteration_ns, axis=1)
    for at in range(3):
        name, *parts = [box for box in next(bars(ranks)).boxes if box.row == at]
        assert (name.said, name.width) == (f"rank {at}", 0.1)
        assert [box.said.split(":")[0] for box in parts[:4]] == [
            f"rank {at}, {name}" for name in ("forward", "backward", "waiting", "moving")
        ]
        length = sum(box.width for box in parts)
        assert length == pytest.approx(0.9 * whole[at] / whole.max(), abs=0.01)


def test_of_many_ranks_the_ends_have_bars() -> None:
    (picture,) = bars(merge(training(40, 11, 4, planted_ms={(33, 0): 50.0})))
    assert len({box.row for box in picture.boxes}) == 16
    assert picture.boxes[1].said.startswith("rank 33, forward")
    assert "The 8 of 40 ranks that compute longest" in picture.caption
