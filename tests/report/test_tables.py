"""A new column appears in every file and every text."""

import math
from collections import namedtuple
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.report import unit
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, TABLE_COLUMNS
from chainer_profile.report.content import (
    comparison_tables,
    engine_table,
    network,
    rank_tables,
    sweep,
)
from chainer_profile.report.tables import Column, by_key, choose, to_csv, to_json
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.csv_files import layers_csv
from tests.conftest import make_recording
from tests.docs.test_column_docs import documentation
from tests.report.documents import S

TABLES = {
    "layers": LAYER_COLUMNS,
    "links": LINK_COLUMNS,
    "comparison": comparison_tables.COLUMNS,
    "ranks": rank_tables.LAYER_COLUMNS,
    "collectives": rank_tables.COLLECTIVE_COLUMNS,
    "sweep": sweep.COLUMNS,
    **{f"summary {view}": columns for view, columns in network.COLUMNS.items()},
    "engines": engine_table.COLUMNS,
}


def test_each_column_has_a_unique_name_heading_and_meaning() -> None:
    for table, columns in TABLES.items():
        every = list(columns.values())
        for names in ([each.csv for each in every if each.csv], [each.heading for each in every]):
            assert len(set(names)) == len(names), table
        assert all(column.meaning for column in every), table
        # A spreadsheet does not read any text of a file as a formula.
        texts = [column for column in every if column.unit.format_json is str]
        assert all(column.unit.format_csv("=1") == "'=1" for column in texts), table
        # If a name in CSV is also a key, both mean the same column.
        by_csv = {column.csv: key for key, column in columns.items()}
        assert all(by_csv.get(key, key) == key for key in columns), table
    assert {key for keys in TABLE_COLUMNS.values() for key in keys} <= set(LAYER_COLUMNS)


def test_columns_can_be_chosen_by_their_names_in_csv() -> None:
    where = "the layer table"
    assert choose(["peak_nbytes", "mean", "mean_ms"], LAYER_COLUMNS, where) == ("peak", "mean")
    with pytest.raises(UsageError, match=r"'peek' \(did you mean peak\?\); known are index, label"):
        choose(["peek"], LAYER_COLUMNS, where)


def test_missing_value_is_empty_in_files() -> None:
    columns = by_key(
        Column("a", "a", unit.MS),
        Column("b", "b", unit.COUNT, unknown=""),
        Column("c", "c", unit.TEXT, unknown="-"),
    )
    for value in (None, math.nan, pd.NA):
        row = namedtuple("Row", ["a_s", "b", "c"])(value, value, value)
        assert [column.cell(row) for column in columns.values()] == ["-", "", "-"]
        assert to_json(columns, [row]) == {}
        beside = namedtuple("Row", ["a_s", "b", "c"])(0.5, None, "=1+1")
        assert to_csv(columns, [row, beside]) == "a_ms,c\n,\n500,'=1+1\n"
        beside = namedtuple("Row", ["a_s", "b", "c"])(0.5, math.inf, "=1+1")
        assert to_json(columns, [row, beside]) == {"a_ms": [None, 500.0], "c": [None, "=1+1"]}


@given(st.integers(1, 10**10), st.floats(1e-6, 1))
def test_files_have_only_significant_digits(median_ns: int, width: float) -> None:
    """The last digit of a time is at most a thousandth of its interval, and not much less."""
    Row = namedtuple("Row", ["median_s", "ci_low_s", "ci_high_s"])
    row = Row(median_ns / S, median_ns / S, median_ns / S * (1 + width))
    median = LAYER_COLUMNS["median"]
    (name, text) = to_csv([median], [row]).split()
    digits, _, exponent = text.partition("e")
    step_ms = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    assert name == "median_ms"
    thousandth_ms = median_ns / 1e6 * width / 1000
    assert abs(float(text) - median_ns / 1e6) <= thousandth_ms
    assert step_ms >= min(1.0, thousandth_ms / 200)
    unknown = Row(1.23456789e-3, math.nan, math.nan)
    assert to_csv([median], [unknown]) == "median_ms\n1.23457\n"


def test_new_column_is_in_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a field to the layers' frame, and a column for it."""
    column = Column("width", "width ms", unit.MS, "From the shortest to the longest", drop=1)
    monkeypatch.setitem(LAYER_COLUMNS, "width", column)
    summary = summarise(make_recording(3))
    layers = summary.layers.assign(width_s=summary.layers["max_s"] - summary.layers["min_s"])
    widened = replace(summary, layers=layers)
    expected = pytest.approx(layers["width_s"][0] * 1e3, rel=1e-3)
    head, first, *_ = layers_csv(widened).splitlines()
    assert head.split(",")[-1] == "width_ms"
    assert float(first.split(",")[-1]) == expected
    assert json_report.content(widened)["layers"]["width_ms"][0] == expected
    assert "- `width`, `width_ms` (width ms): From the shortest to the longest" in documentation()
