from __future__ import annotations

import math
from dataclasses import replace
from runpy import run_path

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import format_ms
from chainer_profile.report import layer_columns
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
from chainer_profile.report.writers import json_report
from tests.conftest import make_recording, make_training
from tests.report.reading import on_terminal
from tests.report.test_csv import read
from tests.report.working import training, working

_NO_NUMBERS = ("hot", "output_shapes", "work_is_about")


def test_every_column_of_the_csv_has_a_place() -> None:
    known = [described.csv for described in LAYER_COLUMNS.values() if described.csv]
    assert set(known) == set(layer_columns.COLUMNS)
    assert len(set(known)) == len(known)


def test_names_and_headings_are_not_mixed_up() -> None:
    headings = [described.column.name for described in LAYER_COLUMNS.values()]
    assert len(set(headings)) == len(headings)
    assert all(described.meaning for described in LAYER_COLUMNS.values())
    # A name of the CSV file that is a name here too is the same column.
    for key, described in LAYER_COLUMNS.items():
        assert key not in layer_columns.COLUMNS or described.csv == key
    assert {*USUAL, *WHICH, *TIMES, *WORK} <= set(LAYER_COLUMNS)


def test_names_of_the_csv_will_do() -> None:
    assert choose_layer_columns(["peak_nbytes", "mean", "mean_ms"]) == ("peak", "mean")
    assert choose_layer_columns(list(layer_columns.COLUMNS)) == tuple(
        sorted(
            (key for key, described in LAYER_COLUMNS.items() if described.csv),
            key=lambda key: list(layer_columns.COLUMNS).index(LAYER_COLUMNS[key].csv),
        )
    )
    with pytest.raises(UsageError, match=r"'peek' \(did you mean peak\?\); known are index, label"):
        choose_layer_columns(["peek"])


@pytest.mark.parametrize("summary", [working(), training()], ids=["forward", "training"])
def test_numbers_are_those_of_the_csv(summary) -> None:
    """To the digits that are shown."""
    million, billion = 1e6, 1.0
    scales = {"flops": million, "macs": million, "read": million, "written": million}
    for row, line in zip(
        summary.layers.itertuples(), read(layer_columns.render_csv(summary)), strict=True
    ):
        for key, described in LAYER_COLUMNS.items():
            shown = described.column.cell(row)
            exact = line.get(described.csv, "")
            if not exact or described.column.folds is not None or key in _NO_NUMBERS:
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


def test_a_new_column_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a field of the layers' table and an entry here."""
    new = layer_columns._ms("range", "range", "From the shortest to the longest", drop=1)
    monkeypatch.setitem(LAYER_COLUMNS, "range", new)
    summary = summarise(make_recording(3))
    layers = summary.layers.assign(range_s=summary.layers["max_s"] - summary.layers["min_s"])
    summary = replace(summary, layers=layers)
    head, first, *_ = layer_columns.render_csv(summary).splitlines()
    assert head.split(",")[-1] == "range_ms"
    assert float(first.split(",")[-1]) == pytest.approx(layers["range_s"][0] * 1e3)
    assert json_report.content(summary)["layers"][0]["range_s"] == layers["range_s"][0]
    described = run_path(json_report.__file__)["schema"]()["$defs"]["Layer"]["properties"][
        "range_s"
    ]
    assert described == {"type": "number", "description": "From the shortest to the longest"}
    assert choose_layer_columns(["range", "range_ms"]) == ("range",)
    shown = on_terminal(summary, columns=("path", "range"))
    assert f"{layers['path'][0]}" in shown
    assert format_ms(layers["range_s"][0]) in shown
