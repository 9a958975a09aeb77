"""Summaries of recordings: exact values and sums."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chainer_profile.analyse.summaries import layer_memory, summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Layer, MemoryUse, Recording, Settings
from tests.analyse.test_checks import alternating
from tests.conftest import make_layers, make_recording, make_training
from tests.report.working import with_work

MS = 1_000_000


def near(value):
    return pytest.approx(value, rel=1e-12)


def test_order_shares_and_hot_layers_use_means():
    """A layer that is very slow in one trial takes most of the time of the mean trial."""
    self_ns = np.array([[3, 2]] * 40, np.int64) * MS
    self_ns[7, 1] = 1000 * MS
    recording = Recording(make_layers(2), self_ns, trial_ns=self_ns.sum(axis=1))
    for rule in ("top:1", "pareto:50%", "5ms", "60%"):
        summary = summarise(recording, rule)
        assert summary.hotspots.indices == [1]
    layers = summary.layers
    means = [3.0, (39 * 2 + 1000) / 40]
    assert (layers["mean_s"] * 1e3).tolist() == near(means)
    assert layers["share"].tolist() == near([mean / sum(means) for mean in means])
    assert layers["median_s"].tolist() == near([3e-3, 2e-3])
    assert summary.slowest.index.tolist() == [1, 0]
    assert summary.totals.layers_s == near(summary.totals.profiled.mean_s)


def test_totals_without_data_are_none():
    for n_trials, n_layers in ((0, 3), (3, 0)):
        recording = Recording(make_layers(n_layers), np.zeros((n_trials, n_layers), np.int64))
        with pytest.raises(ProfileError, match="no complete profiled trial"):
            summarise(recording)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        totals = summarise(make_recording(clean_ns=np.zeros(10, np.int64))).totals
    assert totals.overhead is totals.fps is None  # unprofiled trials without time
    # Means of the layers are 4, 1 and 3 ms, of the framework 2 ms.
    complete = {
        "trial_ns": np.array([7, 13]) * MS,
        "start_ns": np.array([0, 7]) * MS,
        "clean_ns": np.array([8, 10]) * MS,
        "clean_start_ns": np.array([20, 28]) * MS,
        "settings": Settings(batchsize=4, trials=2),
    }
    none = np.zeros(0, np.int64)
    for changes, missing, fps in (
        ({"trial_ns": None, "start_ns": None, "clean_ns": none, "clean_start_ns": none},
         {"profiled", "clean", "framework", "overhead", "trial", "framework_share"}, None),
        ({"clean_ns": none, "clean_start_ns": none}, {"clean", "overhead"}, 4 / 10e-3),
        ({"start_ns": None}, {"overhead"}, 4 / 9e-3),
    ):  # fmt: skip
        self_ns = np.array([[3, 1, 2], [5, 1, 4]]) * MS
        totals = summarise(Recording(make_layers(3), self_ns, **complete | changes)).totals
        names = ("profiled", "clean", "framework", "overhead", "trial", "framework_share")
        assert {name for name in names if getattr(totals, name) is None} == missing
        assert (totals.layers_s, totals.fps) == (near(8e-3), fps and near(fps))
        assert totals.trial is (totals.clean or totals.profiled)


def test_drift_is_not_overhead():
    """The machine slows down by 40 %. The first half has three times as many profiled trials."""
    for added in (0.0, 0.008, 0.05):
        recording = alternating(added, profiled=[90] * 10 + [30] * 10, pace=lambda at: 1 + 0.4 * at)
        assert abs(recording.trial_ns.mean() / recording.clean_ns.mean() - 1 - added) > 0.02, added
        overhead = summarise(recording).totals.overhead
        assert overhead.fraction == pytest.approx(added, abs=2e-4), added
        assert overhead.low <= overhead.fraction <= overhead.high, added


def test_overhead_interval_contains_the_true_value_and_needs_enough_blocks():
    few = summarise(alternating(0.02, profiled=[10] * 5)).totals.overhead
    assert (few.fraction, math.isnan(few.low + few.high)) == (near(0.02), True)
    overheads = [
        summarise(alternating(0.01, 0.02, [20] * 20, lambda at: 1 + 0.1 * at, seed)).totals.overhead
        for seed in range(40)
    ]
    assert sum(overhead.low <= 0.01 <= overhead.high for overhead in overheads) >= 34
    fractions = [overhead.fraction for overhead in overheads]
    assert np.mean(fractions) == pytest.approx(0.01, abs=0.001)


def test_rate_of_a_row_missing_in_some_iterations_uses_the_mean() -> None:
    """Three quarters of the iterations have the row, so its median is too high."""
    training = with_work(make_training())
    self_ns = training.self_ns.copy()
    self_ns[::4, 2] = 0
    mixed = replace(training, self_ns=self_ns, calls=(self_ns > 0).astype(np.int64))
    # If all trials make the same calls, the rate uses the median, by link and by call.
    same_calls = replace(training, calls=np.ones_like(self_ns))
    for recording, column in ((mixed, "mean_s"), (training, "median_s"), (same_calls, "median_s")):
        row = summarise(recording).layers.loc[2]
        assert row["flops_per_s"] == near(row["flops"] / row[column])


def test_memory_columns_of_a_layer() -> None:
    def memory_of(layer: Layer, peak: int) -> dict[str, Any]:
        memory = MemoryUse((peak,), (0,), 1, 2, 3, None)
        columns = layer_memory(make_recording(1, layers=(layer,), memory=memory))
        return {
            name.removesuffix("_nbytes"): None if pd.isna(values[0]) else int(values[0])
            for name, values in columns.items()
        }

    layer = Layer(0, "/", "A", input_nbytes=300, parameter_nbytes=20, output_nbytes=64, dtype="f4")
    memory = {"peak": 100, "retained": 0, "input": 300, "parameter": 20, "output": 64}
    assert memory_of(layer, 100) == memory | {"workspace": 36}
    assert memory_of(layer, 50)["workspace"] == 0
    # The workspace of a backward is unknown.
    assert memory_of(replace(layer, phase="backward"), 100) == memory | {"workspace": None}
    # Otherwise shapes give the size of outputs, if the data type is known.
    for dtype, nbytes in (("bfloat16", 12), ("float16", 12), ("", None), ("no type", None)):
        layer = Layer(0, "/", "A", output_shapes=((2, 3),), dtype=dtype)
        by_shapes = memory_of(layer, 15)
        assert (by_shapes["output"], by_shapes["workspace"]) == (nbytes, nbytes and 3), dtype
