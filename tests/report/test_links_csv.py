from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Recording
from chainer_profile.report.columns import LINK_COLUMNS
from chainer_profile.report.tables import meanings
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording, make_training
from tests.report.reading import links_csv as render

COLUMNS = list(meanings(LINK_COLUMNS))


def read(text: str) -> dict[str, dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    assert all(list(row) == COLUMNS for row in rows)
    return {row["path"]: row for row in rows}


def test_a_training_step() -> None:
    rows = read(render(summarise(make_training(), "top:1")))
    row = rows["/res/0"]
    assert (row["kind"], row["depth"], row["calls"], row["parameters"]) == (
        "Block", "2", "1", "592"
    )  # fmt: skip
    expected = {
        "inclusive": 1.12,
        "exclusive": 0.02,
        "forward_inclusive": 0.37,
        "forward_exclusive": 0.01,
        "backward_inclusive": 0.69,
        "backward_exclusive": 0.01,
        "update_inclusive": 0.06,
        "update_exclusive": 0.0,
    }
    for name, ms in expected.items():
        assert float(row[f"{name}_ms"]) == pytest.approx(ms, rel=1e-12)
    assert float(row["share_percent"]) == pytest.approx(112 / 3, rel=1e-12)
    assert row["data_inclusive_ms"] == row["data_exclusive_ms"] == ""
    assert [path for path, row in rows.items() if row["hot_layers"] == "1"] == [
        "/", "/res", "/res/1", "/res/1/conv"
    ]  # fmt: skip
    loss = rows["loss"]
    assert loss["kind"] == loss["calls"] == loss["parameters"] == ""
    assert loss["update_inclusive_ms"] == "0.0"
    assert rows["/unused"]["calls"] == "0"


def test_a_forward_pass_has_the_same_columns() -> None:
    rows = read(render(summarise(make_recording(6))))
    assert rows["/res2/0"]["forward_inclusive_ms"] == rows["/res2/0"]["inclusive_ms"] != ""
    for row in rows.values():
        assert all(row[name] == "" for name in COLUMNS if name.startswith(("backward", "update")))


@settings(max_examples=20)
@given(recordings())
def test_times_add_up_to_the_layers(recording: Recording) -> None:
    summary = summarise(recording)
    table = pd.read_csv(io.StringIO(render(summary)))
    layers_ms = pytest.approx(summary.totals.layers_s * 1e3, rel=1e-12)
    assert table["exclusive_ms"].sum() == layers_ms
    assert table["inclusive_ms"][table["depth"] == 0].sum() == layers_ms
    by_phase = [name for name in COLUMNS if name.endswith("_exclusive_ms")]
    assert table[by_phase].sum().sum() == layers_ms
    assert table["hot_layers"][table["depth"] == 0].sum() == len(summary.hotspots.indices)
    assert len(table) == len(summary.links)
