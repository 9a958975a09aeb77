"""Times of an engine's nodes as a recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.engines.engine_recording import engine_recording, node_rows
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile
from chainer_profile.record.recording import LinkCalls, Recording
from tests.engines.fake_engines import SETTINGS, layers, profile, recordings
from tests.report.reading import layers_csv, report_md

FAST = replace(SETTINGS, engine="fast 1.0", precision="fp32")


def test_a_row_stands_for_the_layers_that_the_node_does() -> None:
    fused, own, last = recordings()["fast"].layers
    assert (fused.path, fused.covers, fused.node) == ("/res2/0/conv1", (0, 1, 2), "Fused n0")
    assert fused.function == "Convolution2DFunction + FixedBatchNormalization + ReLU"
    assert fused.input_shapes == ((1, 16, 32, 32), (16, 16, 3, 3))
    assert fused.output_shapes == ((1, 16, 32, 32),)
    assert (fused.flops, fused.macs, fused.nbytes_read) == (612, 900, None)
    assert (own.path, own.function, own.covers, own.flops) == ("/", "Fused", (), None)
    assert (last.path, last.covers) == ("/res2/1/conv1", (3, 4))


def test_a_layer_that_several_nodes_do_has_no_work_in_any() -> None:
    nodes = [EngineNode("a", "A", (0,)), EngineNode("b", "B", (0, 1)), EngineNode("c", "C", (2,))]
    first, second, third = node_rows(nodes, layers())
    assert first.flops is second.flops is None
    assert third.flops == 6


def test_in_another_precision_arrays_are_not_as_large() -> None:
    known = tuple(replace(layer, nbytes_read=8, output_nbytes=4) for layer in layers(1))
    (full,) = node_rows([EngineNode("a", "A", (0,))], known)
    (half,) = node_rows([EngineNode("a", "A", (0,))], known, "fp16")
    assert (full.nbytes_read, full.output_nbytes, full.dtype) == (8, 4, "float32")
    assert (half.nbytes_read, half.output_nbytes, half.dtype) == (None, None, "")
    assert half.flops == full.flops


@settings(max_examples=30)
@given(st.data())
def test_every_layer_is_there_and_times_add_up_to_the_trial(data: Any) -> None:
    owners = data.draw(st.lists(st.integers(-1, 3), min_size=6, max_size=6))
    covers = [tuple(i for i, owner in enumerate(owners) if owner == n) for n in range(4)]
    gone = tuple(i for i, owner in enumerate(owners) if owner < 0)
    times = np.array(data.draw(st.lists(st.integers(0, 99), min_size=12, max_size=12)), np.int64)
    times, extra = times.reshape(3, 4), np.array([0, 5, 9])
    nodes = tuple(EngineNode(f"n{n}", "Node", c) for n, c in enumerate(covers))
    found = engine_recording(
        EngineProfile(nodes, times, times.sum(axis=1) + extra, gone), layers(), FAST
    )
    covered = {index for row in found.layers for index in row.covers}
    assert covered | set(gone) == set(range(6))
    assert found.trial_ns is not None
    np.testing.assert_array_equal(found.trial_ns - found.self_ns.sum(axis=1), extra)
    assert sum(row.flops or 0 for row in found.layers) == sum(
        layer.flops or 0 for layer in layers() if layer.index not in gone
    )


def test_chainers_own_recording_has_chainers_layers() -> None:
    found = recordings()["chainer"]
    assert found.layers == layers()
    assert found.settings.engine == ""
    swapped = profile([1] * 6, [(i,) for i in (1, 0, 2, 3, 4, 5)], 10)
    with pytest.raises(EngineError, match="not Chainer's layers, one each"):
        engine_recording(swapped, layers(), SETTINGS)


def good() -> EngineProfile:
    return profile([10, 20], [(0, 1, 2), (3, 4, 5)], 40)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_ns": np.full(4, 29_000)}, "nodes took longer than the whole run"),
        ({"node_ns": np.full((4, 2), -1)}, "a time below 0"),
        ({"node_ns": np.ones((4, 2))}, "not int64 nanoseconds"),
        ({"node_ns": np.ones((4, 3), np.int64)}, r"\(4, 3\) and \(4,\) for 2 nodes"),
        ({"node_ns": np.ones((0, 2), np.int64), "run_ns": np.ones(0, np.int64)}, "for 2 nodes"),
        ({"nodes": good().nodes[:1], "node_ns": good().node_ns[:, :1]}, "became of layer 3"),
        ({"gone": (6,)}, "it names layer 6, of 6 layers"),
    ],
)
def test_times_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        engine_recording(replace(good(), **changes), layers(), FAST)


def test_it_is_saved_reported_and_read_like_any_other(tmp_path: Path) -> None:
    clean = np.array([90_000, 91_000, 95_000], np.int64)
    found = engine_recording(
        good(),
        layers(),
        FAST,
        links=(LinkCalls("/", "Chain", 1, 0),),
        clean_ns=clean,
        clean_start_ns=clean.cumsum(),
    )
    path = tmp_path / "recording.npz"
    found.save(path)
    again = Recording.load(path)
    assert again.layers == found.layers
    assert again.settings == FAST
    np.testing.assert_array_equal(again.clean_ns, clean)
    summary = summarise(again)
    assert summary.totals.framework is not None
    assert summary.totals.framework.mean_s == pytest.approx(10e-6)
    assert summary.totals.overhead is None
    report = report_md(summary)
    assert "fast 1.0 in fp32" in report
    assert "Fused n0" in report
    for word in ("type checks", "hook", "BLAS thread", "--"):
        assert word not in report.partition("## 3")[2].partition("Appendix")[0].replace(
            SETTINGS.command, ""
        ).replace("---", ""), word
    assert len(layers_csv(summary).splitlines()) == 3
