from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording
from chainer_profile.report.rows import GroupRow, has_blocks, phase_rows, shortened, tree_rows
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording, make_training

US = 1e-6


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def test_phase_rows_say_what_is_not_known() -> None:
    unknown = phase_rows(summarise(make_training(phases=(), framework_ns=None)))
    assert unknown[-2].name == "framework, phase not known"
    untimed = phase_rows(summarise(make_training(trial_ns=None, start_ns=None)))
    assert untimed[-1].name == "all layers"
    assert math.isnan(untimed[-1].framework_s)
    assert untimed[-1].total_s == near(3e-3)


@settings(max_examples=20)
@given(recordings())
def test_phase_rows_add_up(recording: Recording) -> None:
    summary = summarise(recording)
    *rows, whole = phase_rows(summary)
    for name in ("layers", "layers_s", "total_s"):
        assert math.fsum(getattr(row, name) for row in rows) == near(getattr(whole, name))
    profiled = summary.totals.profiled
    expected = summary.totals.layers_s if profiled is None else profiled.mean_s
    assert whole.total_s == near(expected)
    if profiled is not None:
        assert math.fsum(row.framework_s for row in rows) == near(whole.framework_s)


def group_row(name: str, calls: int, us: int) -> GroupRow:
    return GroupRow(name, calls, (us * US, us * US), 2 * us * US, 2 * us * US / calls, us / 100, 1)


def test_small_groups_are_summed_up() -> None:
    rows = [group_row("a", 1, 50), group_row("b", 2, 30), group_row("c", 1, 15)]
    first, others = shortened([*rows, group_row("d", 1, 5)], 1)
    assert first is rows[0]
    assert (others.name, others.calls, others.hot) == ("3 others", 4, 3)
    assert others.phases_s == near((50 * US, 50 * US))
    assert (others.total_s, others.mean_s, others.share) == near((100 * US, 25 * US, 0.5))
    # One row takes no more room than the sum.
    assert shortened(rows, 2) == rows
    assert shortened(rows, 3) == rows


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
    assert [row.path for row in deep if row.marked] == ["/conv", "/res/0/conv", "/res/1/conv"]
    assert {row.path: row.hot for row in deep}["/"] == 5
    level_2, _ = tree_rows(summary, 2)
    assert [row.path for row in level_2 if row.marked] == ["/conv", "/res/0", "/res/1"]
    level_0, _ = tree_rows(summary, 0)
    assert [row.marked for row in level_0] == [True]


def test_of_many_links_those_of_the_longest_times_are_shown() -> None:
    links, _ = tree_rows(summarise(make_training()), 99, most=4)
    assert [row.path for row in links] == ["/", "/res", "/res/0", "/res/1"]


@settings(max_examples=30)
@given(recordings(), st.integers(0, 4), st.none() | st.integers(1, 5))
def test_the_tree_adds_up_to_the_trial(recording: Recording, depth: int, most: int | None) -> None:
    summary = summarise(recording)
    links, beside = tree_rows(summary, depth, most)
    profiled = summary.totals.profiled
    parts = beside if profiled is None else beside[:-1]
    roots = [row for row in links if row.depth == 0]
    assert len(roots) <= 1
    total = math.fsum(row.inclusive_s for row in [*roots, *parts])
    assert total == near(summary.totals.layers_s if profiled is None else profiled.mean_s)
    if profiled is not None:
        trial = beside[-1]
        assert trial.inclusive_s == near(profiled.mean_s)
        for at in range(len(summary.phase_names)):
            of_phase = math.fsum(row.phases_s[at] for row in [*roots, *parts])
            assert of_phase == near(trial.phases_s[at])
    # No link without the one above it, and each in its place.
    seen: set[str] = set()
    for row in links:
        assert row.depth <= depth
        above = row.path.rpartition("/")[0] or "/"
        assert row.path == "/" or above in seen
        seen.add(row.path)
    # Every hot layer is under a mark.
    hot = summary.layers["path"][summary.layers["hot"]]
    marked = [row.path for row in [*links, *beside] if row.marked]
    for path in hot:
        assert any(path == m or path.startswith(m.rstrip("/") + "/") for m in marked)


def test_numbers_of_numpy_become_plain() -> None:
    rows = tree_rows(summarise(make_training()), 1)[0]
    assert not any(isinstance(v, np.generic) for row in rows for v in vars(row).values())
