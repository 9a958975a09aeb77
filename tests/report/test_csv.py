from __future__ import annotations

import csv
import io
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Layer, Recording
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.tables import meanings
from tests.conftest import make_recording, make_training
from tests.report.devicing import launching
from tests.report.reading import layers_csv as render


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_one_row_a_layer_in_the_order_of_the_calls() -> None:
    summary = summarise(make_recording(12))
    rows = read(render(summary))
    assert list(rows[0]) == list(meanings(LAYER_COLUMNS))
    assert [row["index"] for row in rows] == [str(i) for i in range(12)]
    assert [row["label"] for row in rows] == [layer.label for layer in summary.recording.layers]
    assert rows[0]["input_shapes"] == "1x16x32x32 16x16x3x3"
    assert rows[0]["output_shapes"] == "1x16x32x32"
    assert {row["trials"] for row in rows} == {"100"}


def test_a_training_step() -> None:
    rows = read(render(summarise(make_training())))
    assert [row["phase"] for row in rows] == ["forward"] * 9 + ["backward"] * 11 + ["update"] * 5
    assert [row["forward_index"] for row in rows[:9]] == [""] * 9
    assert [row["forward_index"] for row in rows[9:]] == [
        *["", "8", "7", "6", "5", "4", "3", "2", "1", "", "0"],
        *[""] * 5,
    ]
    for row in rows:
        if row["forward_index"]:
            forward = rows[int(row["forward_index"])]
            assert (forward["path"], forward["function"]) == (row["path"], row["function"])
    assert [row["calls"] for row in rows] == ["1"] * 22 + ["2", "2", "1"]


def test_shares_add_up_and_means_add_up_to_the_trial() -> None:
    summary = summarise(make_recording(66))
    table = pd.read_csv(io.StringIO(render(summary)))
    assert table["share_percent"].sum() == pytest.approx(100, abs=1e-9)
    assert table["cumulative_share_percent"].max() == pytest.approx(100, abs=1e-9)
    assert summary.totals.framework is not None
    assert summary.totals.profiled is not None
    layers_s = table["mean_ms"].sum() / 1e3
    whole = layers_s + summary.totals.framework.mean_s
    assert whole == pytest.approx(summary.totals.profiled.mean_s, rel=1e-12)
    assert table["hot"].tolist() == summary.layers["hot"].tolist()
    assert table["hot"].dtype == bool


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.integers(0, 10**12), min_size=3, max_size=3), min_size=1, max_size=5
    ).filter(lambda rows: any(map(any, rows)))
)
def test_reading_back_gives_the_same_numbers(rows: list[list[int]]) -> None:
    layers = tuple(Layer(i, f"/l{i}", "ReLU") for i in range(3))
    summary = summarise(Recording(layers, np.array(rows, np.int64)))
    for row, expected in zip(read(render(summary)), summary.layers.itertuples(), strict=True):
        for name, cell in row.items():
            if name.endswith("_ms"):
                column = name.replace("ci95", "ci").replace("_ms", "_s")
                value = getattr(expected, column)
                if math.isnan(value):
                    assert cell == ""
                else:
                    tolerance = np.spacing(abs(float(cell)))
                    assert abs(float(cell) - value * 1e3) <= tolerance
        assert float(row["share_percent"]) == expected.share * 100


def test_one_trial_has_no_deviation_and_no_interval() -> None:
    rows = read(render(summarise(make_recording(6, n_trials=1))))
    for row in rows:
        assert row["std_ms"] == row["ci95_low_ms"] == row["ci95_high_ms"] == ""
        assert row["mean_ms"] == row["median_ms"] == row["max_ms"] != ""


def test_times_of_a_gpu() -> None:
    rows = read(render(launching()))
    assert [float(row["host_ms"]) for row in rows] == pytest.approx([0.9, 0.2, 0.3, 0.4, 0.2, 1])
    assert [float(row["gap_ms"]) for row in rows] == pytest.approx([0.4, *[0.1] * 5])
    assert [float(row["busy_ms"]) for row in rows] == pytest.approx([0.2, *[0.05] * 4, 0.2])
    assert {row["busy_ms"] for row in read(render(launching(n_held=0)))} == {""}
    for row in read(render(summarise(make_recording()))):
        assert row["host_ms"] == row["gap_ms"] == row["busy_ms"] == ""
