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
from chainer_profile.report.columns import LINK_COLUMNS
from chainer_profile.report.tables import meanings
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording
from tests.report.reading import layers_csv as render
from tests.report.reading import links_csv


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


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


COLUMNS = list(meanings(LINK_COLUMNS))


@settings(max_examples=20)
@given(recordings())
def test_times_add_up_to_the_layers(recording: Recording) -> None:
    summary = summarise(recording)
    table = pd.read_csv(io.StringIO(links_csv(summary)))
    layers_ms = pytest.approx(summary.totals.layers_s * 1e3, rel=1e-12)
    assert table["exclusive_ms"].sum() == layers_ms
    assert table["inclusive_ms"][table["depth"] == 0].sum() == layers_ms
    by_phase = [name for name in COLUMNS if name.endswith("_exclusive_ms")]
    assert table[by_phase].sum().sum() == layers_ms
    assert table["hot_layers"][table["depth"] == 0].sum() == len(summary.hotspots.indices)
    assert len(table) == len(summary.links)
