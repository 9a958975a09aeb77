from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording
from chainer_profile.report.columns import group_columns
from chainer_profile.report.rows import group_rows, has_blocks, phase_rows, tree_rows
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording, make_training

US = 1e-6


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def test_phase_rows_say_what_is_not_known() -> None:
    unknown = phase_rows(summarise(make_training(phases=(), framework_ns=None)))
    assert unknown.index[-2] == "framework, phase not known"
    untimed = phase_rows(summarise(make_training(trial_ns=None, start_ns=None)))
    assert untimed.index[-1] == "all layers"
    assert math.isnan(untimed["framework_s"].iloc[-1])
    assert untimed["total_s"].iloc[-1] == near(3e-3)


@settings(max_examples=20)
@given(recordings())
def test_phase_rows_add_up(recording: Recording) -> None:
    summary = summarise(recording)
    table = phase_rows(summary)
    rows, whole = table.iloc[:-1], table.iloc[-1]
    for name in ("layers", "layers_s", "total_s"):
        assert math.fsum(rows[name]) == near(whole[name])
    profiled = summary.totals.profiled
    expected = summary.totals.layers_s if profiled is None else profiled.mean_s
    assert whole["total_s"] == near(expected)
    if profiled is not None:
        assert math.fsum(rows["framework_s"]) == near(whole["framework_s"])


def test_small_groups_are_summed_up() -> None:
    summary = summarise(make_training())
    every = group_rows(summary, "block")
    found = group_rows(summary, "block", 2)
    rest, others = every.iloc[2:], found.iloc[2]
    assert list(found.index) == [*every.index[:2], f"{len(rest)} others"]
    for name in ("calls", "forward_s", "backward_s", "total_s", "share", "hot"):
        assert others[name] == near(math.fsum(rest[name]))
    assert others["mean_s"] == near(rest["total_s"].sum() / rest["calls"].sum())
    # One row takes no more room than the sum.
    assert group_rows(summary, "block", len(every) - 1).equals(every)


def test_networks_with_and_without_blocks() -> None:
    assert has_blocks(summarise(make_training()))
    assert has_blocks(summarise(make_recording(66)))
    assert not has_blocks(summarise(fold_call_history([("ReLU", 1e-3)] * 4)))
    flat = make_training()
    layers = tuple(layer for layer in flat.layers if layer.path.count("/") <= 1)
    keep = [layer.index for layer in layers]
    assert not has_blocks(summarise(Recording(layers, flat.self_ns[:, keep])))


def test_hot_links_are_marked_where_they_are_shown() -> None:
    # Hot: the four slowest, which are the backwards and forwards of /res/*/conv.
    summary = summarise(make_training(), "0.3ms")
    assert summary.layers["path"][summary.layers["hot"]].tolist() == [
        "/res/0/conv", "/res/1/conv", "/res/1/conv", "/res/0/conv", "/conv"
    ]  # fmt: skip
    deep, _ = tree_rows(summary, 3)
    assert list(deep[deep["marked"]].index) == ["/conv", "/res/0/conv", "/res/1/conv"]
    assert deep["hot"]["/"] == 5
    level_2, _ = tree_rows(summary, 2)
    assert list(level_2[level_2["marked"]].index) == ["/conv", "/res/0", "/res/1"]
    level_0, _ = tree_rows(summary, 0)
    assert level_0["marked"].tolist() == [True]


def test_of_many_links_those_of_the_longest_times_are_shown() -> None:
    links, _ = tree_rows(summarise(make_training()), 99, most=4)
    assert list(links.index) == ["/", "/res", "/res/0", "/res/1"]


@settings(max_examples=30)
@given(recordings(), st.integers(0, 4), st.none() | st.integers(1, 5))
def test_the_tree_adds_up_to_the_trial(recording: Recording, depth: int, most: int | None) -> None:
    summary = summarise(recording)
    links, beside = tree_rows(summary, depth, most)
    profiled = summary.totals.profiled
    parts = beside if profiled is None else beside.iloc[:-1]
    roots = links[links["depth"] == 0]
    assert len(roots) <= 1
    whole = pd.concat([roots, parts])
    total = math.fsum(whole["inclusive_s"])
    assert total == near(summary.totals.layers_s if profiled is None else profiled.mean_s)
    if profiled is not None:
        trial = beside.iloc[-1]
        assert trial["inclusive_s"] == near(profiled.mean_s)
        for phase in summary.phase_names:
            of_phase = whole[f"{phase}_inclusive_s"]
            assert math.fsum(of_phase) == near(trial[f"{phase}_inclusive_s"])
    # No link without the one above it, and each in its place.
    seen: set[str] = set()
    assert (links["depth"] <= depth).all()
    for path in links.index:
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)
    # Every hot layer is under a mark.
    hot = summary.layers["path"][summary.layers["hot"]]
    marked = [*links.index[links["marked"]], *beside.index[beside["marked"]]]
    for path in hot:
        assert any(path == m or path.startswith(m.rstrip("/") + "/") for m in marked)


def test_a_ratio_needs_both_phases() -> None:
    for phases in (["forward", "update"], ["data", "backward"]):
        assert "bwd/fwd" not in [column.name for column in group_columns("link", phases)]
    (ratio,) = [
        column
        for column in group_columns("function", ["backward", "forward"])
        if column.name == "bwd/fwd"
    ]
    row = next(group_rows(summarise(make_training()), "function").itertuples())
    assert ratio.cell(row) == f"{1.48 / 0.8:.2f}"
