from __future__ import annotations

import math

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.report import csv_file as csv
from chainer_profile.report.layer_columns import (
    LAYER_COLUMNS,
    TIMES,
    USUAL,
    WHICH,
    WORK,
    choose_layer_columns,
    columns,
    with_content,
)
from tests.conftest import make_recording, make_training
from tests.report.test_csv import read
from tests.report.working import training, working


def test_every_column_of_the_csv_has_a_place() -> None:
    known = [described.csv for described in LAYER_COLUMNS.values() if described.csv]
    assert set(known) == set(csv.COLUMNS)
    assert len(set(known)) == len(known)


def test_names_and_headings_are_not_mixed_up() -> None:
    headings = [described.column.name for described in LAYER_COLUMNS.values()]
    assert len(set(headings)) == len(headings)
    assert all(described.meaning for described in LAYER_COLUMNS.values())
    # A name of the CSV file that is a name here too is the same column.
    for key, described in LAYER_COLUMNS.items():
        assert key not in csv.COLUMNS or described.csv == key
    assert {*USUAL, *WHICH, *TIMES, *WORK} <= set(LAYER_COLUMNS)


def test_names_of_the_csv_will_do() -> None:
    assert choose_layer_columns(["peak_nbytes", "mean", "mean_ms"]) == ("peak", "mean")
    assert choose_layer_columns(list(csv.COLUMNS)) == tuple(
        sorted(
            (key for key, described in LAYER_COLUMNS.items() if described.csv),
            key=lambda key: list(csv.COLUMNS).index(LAYER_COLUMNS[key].csv),
        )
    )
    with pytest.raises(UsageError, match=r"'peek' \(did you mean peak\?\); known are index, hot"):
        choose_layer_columns(["peek"])


@pytest.mark.parametrize("summary", [working(), training()], ids=["forward", "training"])
def test_numbers_are_those_of_the_csv(summary) -> None:
    """To the digits that are shown."""
    million, billion = 1e6, 1.0
    scales = {"flops": million, "macs": million, "read": million, "written": million}
    for row, line in zip(summary.layers.itertuples(), read(csv.render(summary)), strict=True):
        for key, described in LAYER_COLUMNS.items():
            shown = described.column.cell(row)
            exact = line.get(described.csv, "")
            if not exact or described.column.folds is not None or key in ("hot", "output_shapes"):
                continue
            if shown.endswith("B"):
                number, unit = shown.split()
                factor = 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)
                assert float(number) * factor == pytest.approx(float(exact), abs=0.051 * factor)
            else:
                value = float(shown.replace(",", "")) * scales.get(key, billion)
                assert value == pytest.approx(float(exact), rel=1e-3, abs=0.051)
    first = next(summary.layers.itertuples())
    assert math.isclose(float(LAYER_COLUMNS["moved"].column.cell(first)), 0.6)


def test_what_is_not_known_is_a_dash() -> None:
    row = next(summarise(make_recording(n_trials=1)).layers.itertuples())
    for key in WORK:
        assert LAYER_COLUMNS[key].column.cell(row) == "-"
    assert LAYER_COLUMNS["ci"].column.cell(row) == "-"
    assert LAYER_COLUMNS["forward_index"].column.cell(row) == ""
    for described in LAYER_COLUMNS.values():
        assert not {"nan", "None", "<NA>"} & set(described.column.cell(row).split())


def test_a_backward_says_what_it_goes_back_through() -> None:
    rows = list(summarise(make_training()).layers.itertuples())
    column = LAYER_COLUMNS["forward_index"].column
    assert [column.cell(row) for row in rows[8:12]] == ["", "", "8", "7"]


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [("compute bound", "compute"), ("overhead bound", "overhead"), ("", "-")],
)
def test_verdicts_are_short(verdict: str, shown: str) -> None:
    class Row:
        pass

    Row.verdict = verdict  # type: ignore[attr-defined]
    assert LAYER_COLUMNS["verdict"].column.cell(Row) == shown


def test_columns_without_content_are_left_out() -> None:
    rows = list(working(limits=None).layers.itertuples())
    names = [column.name for column in with_content(columns(WORK), rows)]
    assert names == [
        *("MFLOP", "MB moved", "flop/byte", "GFLOP/s", "GB/s"),
        *("peak", "workspace", "left allocated"),
    ]
    assert with_content(columns(WORK), list(summarise(make_recording()).layers.itertuples())) == []


def test_the_phase_is_there_for_several() -> None:
    assert [column.name for column in columns(WHICH)] == ["#", "path", "function", "phase"]
    assert [column.name for column in columns(WHICH, several_phases=False)] == [
        "#", "path", "function"
    ]  # fmt: skip
