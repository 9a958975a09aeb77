"""Groups of layers: examples, and sums that hold for any paths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.grouping import block_of, common_link
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.recording import Layer, LinkCalls, Recording
from tests.conftest import make_recording

PHASES = ("forward", "backward", "update", "data")


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def test_blocks_and_common_link_of_paths() -> None:
    with pytest.raises(ValueError, match="function, link, block, shape, not by 'colour'"):
        summarise(make_recording()).group("colour")
    for above, path, block in (
        *(("/", "/", "/"), ("/", "loss", "loss"), ("/", "/conv1", "/conv1")),
        *(("/", "/res2/0/conv1", "/res2/0"), ("/", "/res2/0", "/res2/0"), ("/", "/0/conv/1", "/0")),
        *(("/", "/res2/a/conv1", "/res2/a"), ("/", "/fire/squeeze", "/fire")),
        *(("/p", "/p/res2/0/conv1", "/p/res2/0"), ("/p", "/p/conv1", "/p/conv1")),
        *(("/p", "/p", "/p"), ("/p", "/ps/a", "/ps/a"), ("/p", "/", "/")),
    ):
        assert block_of(path, above) == block, path
    # Calls by the predictor itself do not make it a block.
    for paths, above in (
        *(("", "/"), ("/ loss", "/"), ("/ /conv /conv", "/"), ("/conv1 /conv2", "/")),
        ("/predictor/a /predictor/b / data", "/predictor"),
        ("/predictor /predictor/a", "/predictor"),
        ("/predictor/a/0 /predictor/ab/0", "/predictor"),
        ("/a/b/c", "/a/b"),
    ):
        assert common_link(paths.split()) == above, paths
    # As in Chainer's ResNet50Layers: /res2/a has links and calls ReLU itself.
    times_us = {"/res2/a/conv1": 5, "/res2/a": 1, "/res2/b1/conv1": 7, "/res2/b1": 1, "/fc": 2}
    layers = tuple(Layer(index, path, "ReLU") for index, path in enumerate(times_us))
    blocks_s = summarise(Recording(layers, np.array([[*times_us.values()]]))).group("block")
    sums = (blocks_s["total_s"] * 1e9).round().to_dict()
    assert sums == {"/res2/b1": 8, "/res2/a": 6, "/fc": 2}


def test_inclusive_time_of_functions_includes_nested_calls() -> None:
    rows = (("A", None), ("B", 0), ("A", 1), ("C", None))
    layers = tuple(Layer(i, "/", name, parent=parent) for i, (name, parent) in enumerate(rows))
    table = summarise(Recording(layers, np.array([[1, 2, 4, 8]]) * 10**9)).functions
    assert table["inclusive_s"].to_dict() == near({"C": 8.0, "A": 7.0, "B": 6.0})


NAMES = st.sampled_from(["a", "ab", "0", "1", "conv", "é", "a b"])
LINK_PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
PATHS = LINK_PATHS | st.sampled_from(["loss", "cleargrads", "optimizer", "data"])


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Strategy of recordings with framework time by phase, in one number, or unknown."""
    layers: list[Layer] = []
    for index in range(draw(st.integers(1, 12))):
        phase = draw(st.sampled_from(PHASES))
        forwards = [layer.index for layer in layers if layer.phase == "forward"]
        goes_back = phase == "backward" and forwards and draw(st.booleans())
        layers.append(
            Layer(
                index,
                draw(PATHS),
                draw(st.sampled_from(["ReLU", "Add", "MomentumSGD"])),
                phase,
                input_shapes=draw(st.sampled_from([(), ((1, 3),), ((2,), (3,))])),
                forward=draw(st.sampled_from(forwards)) if goes_back else None,
                calls=draw(st.integers(1, 3)),
            )
        )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(1, 3)), len(layers)
    limit = draw(st.sampled_from([1, 2, 10**6]))
    self_ns = rng.integers(0, limit, shape)
    changes: dict[str, Any] = {}
    outside = rng.integers(0, limit, shape[0])
    timed = draw(st.sampled_from(["no", "whole", "by phase"]))
    if timed == "by phase":
        layer_phases = {layer.phase for layer in layers}
        phases = [
            phase for phase in draw(st.permutations(PHASES)) if phase in layer_phases or limit > 1
        ]
        framework_ns = rng.integers(0, limit, (shape[0], len(phases)))
        changes |= {"phases": tuple(phases), "framework_ns": framework_ns}
        outside = outside + framework_ns.sum(axis=1)
    if timed != "no":
        changes["trial_ns"] = self_ns.sum(axis=1) + outside
    changes["links"] = tuple(
        LinkCalls(path, "Link", int(rng.integers(3)), int(rng.integers(1000)))
        for path in sorted(draw(st.sets(LINK_PATHS, max_size=6)))
    )
    return Recording(tuple(layers), self_ns, **changes)


def sum_of(values: pd.Series[float]) -> object:
    return near(math.fsum(values))


@given(recordings(), st.sampled_from(GROUPS))
def test_groups_and_phases_add_up(recording: Recording, by: str) -> None:
    summary = summarise(recording)
    layers, table, phases, totals = (
        summary.layers,
        summary.group(by),
        summary.phases,
        summary.totals,
    )
    assert table.index.is_unique
    assert math.fsum(table["total_s"]) == sum_of(layers["mean_s"])
    assert math.fsum(layers["mean_s"]) == near(totals.layers_s)
    slowest = layers.sort_values("share", ascending=False, kind="stable")
    assert slowest["cumulative_share"].tolist() == near(slowest["share"].cumsum().tolist())
    # All shares are of one total; the rest is the framework's share.
    framework, takes_time = summary.totals.framework_share, (layers["mean_s"] > 0).any()
    layers_share = float(takes_time) if framework is None else 1.0 - framework
    assert math.fsum(table["share"]) == near(layers_share)
    assert math.fsum(layers["share"]) == near(layers_share)
    assert table["hot"].sum() == layers["hot"].sum()
    assert table["total_s"].is_monotonic_decreasing
    assert (table["calls"] * table["mean_s"]).tolist() == near(table["total_s"].tolist())
    forward_calls = layers["calls"][layers["phase"] == "forward"].sum()
    assert forward_calls <= table["calls"].sum() <= layers["calls"].sum()
    if by in ("function", "link"):
        assert set(table.index) == set(layers["path" if by == "link" else by])
    # Phases come in the order of their first rows.
    assert list(phases.index[phases["layers"] > 0]) == list(layers["phase"].unique())
    for phase, rows in layers.groupby("phase"):
        assert math.fsum(table[f"{phase}_s"]) == sum_of(rows["mean_s"])
        assert phases["layers_s"][phase] == sum_of(rows["mean_s"])
        assert phases["layers"][phase] == len(rows)
    if totals.profiled is None or totals.framework is None:
        assert phases["framework_s"].isna().all()
        assert math.fsum(phases["total_s"]) == near(totals.layers_s)
    else:
        assert math.fsum(phases["framework_s"]) == near(totals.framework.mean_s)
        assert totals.layers_s + totals.framework.mean_s == near(totals.profiled.mean_s)
        assert math.fsum(phases["total_s"]) == near(totals.profiled.mean_s)
        assert (phases["framework_s"] >= 0).all()
    if recording.framework_ns is not None:
        means_s = recording.framework_ns.mean(axis=0) * 1e-9
        assert phases["framework_s"][list(recording.phases)].tolist() == near(means_s.tolist())
    if phases["total_s"].sum():
        assert math.fsum(phases["share"]) == near(1.0)


def is_below(path: str, link: str) -> bool:
    """Whether a path is this link or in the tree below it."""
    return path == link or (path.startswith("/") and path.startswith(link.rstrip("/") + "/"))


@given(recordings())
def test_link_tree_adds_up(recording: Recording) -> None:
    summary = summarise(recording)
    layers, tree, profiled = summary.layers, summary.links, summary.totals.profiled
    links = {link.path: link for link in recording.links}
    assert tree.index.is_unique
    assert {*layers["path"], *links} <= set(tree.index)
    whole_s = profiled.mean_s if profiled else math.fsum(layers["mean_s"])
    above: list[str] = []
    for path, row in tree.iterrows():
        inside = layers[[is_below(other, str(path)) for other in layers["path"]]]
        exclusive_rows = layers[layers["path"] == path]
        assert row["inclusive_s"] == sum_of(inside["mean_s"])
        assert row["exclusive_s"] == sum_of(exclusive_rows["mean_s"])
        assert row["hot"] == inside["hot"].sum()
        assert row["share"] == near(row["inclusive_s"] / whole_s if whole_s else 0)
        for phase, rows in layers.groupby("phase"):
            within = rows.index.intersection(inside.index)
            assert row[f"{phase}_inclusive_s"] == sum_of(rows["mean_s"][within])
            exclusive = rows.index.intersection(exclusive_rows.index)
            assert row[f"{phase}_exclusive_s"] == sum_of(rows["mean_s"][exclusive])
        if path in links:
            below = [link.parameters for at, link in links.items() if is_below(at, str(path))]
            assert (row["calls"], row["parameters"]) == (links[str(path)].calls, sum(below))
        else:
            assert row[["parameters", "calls"]].isna().all()
        # The parent of a row is the last row of the next higher level.
        del above[row["depth"] :]
        assert len(above) == row["depth"]
        assert not above or above[-1] == (str(path).rpartition("/")[0] or "/")
        above.append(str(path))
