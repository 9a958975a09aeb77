"""comparison.csv: totals, layers and unmatched layers, with all digits."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.report.content.comparison import COLUMNS, file_rows
from chainer_profile.report.tables import meanings, to_csv
from tests.comparing import run, scaled
from tests.fusing import chainer_run, engine_run, in_threes


def compared(**changes: Any) -> Comparison:
    after = scaled(run(2, **changes), {3: 1.5, 7: 0.6})
    return compare(Side("A", (run(1),)), Side("B", (after,)))


def rows(*comparisons: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(COLUMNS, file_rows(comparisons)))))


def test_totals_layers_and_unmatched_layers_with_all_digits() -> None:
    comparison = compared()
    longer = compare(Side("A", (run(1),)), Side("B", (run(2, 30),)))
    found = rows(comparison, longer)
    assert list(found[0]) == list(meanings(COLUMNS))
    usual = ["total"] * 4 + ["layer"] * 24
    assert [row["row"] for row in found] == [*usual, *usual, *["only after"] * 6]
    layer, expected = found[4 + 3], comparison.layers.loc[3]
    assert (layer["before"], layer["after"], layer["verdict"]) == ("A", "B", "slower")
    assert float(layer["ratio"]) == expected["ratio"]
    assert float(layer["before_ms"]) == expected["before_s"] * 1e3
    assert float(layer["ci95_low"]) == expected["low"]
    assert float(layer["p_value"]) == expected["p_value"]
    assert layer["name"] == "3_Convolution2DFunction"
    assert found[0]["name"] == "clean trial"
    assert found[0]["path"] == found[0]["before_share_percent"] == ""
    only = found[-1]
    assert only["before_ms"] == only["ratio"] == only["verdict"] == only["before_index"] == ""
    assert only["after_index"] == "29"
    assert float(only["after_ms"]) == pytest.approx(longer.after.time_s(29) * 1e3)
    shares = [float(row["before_share_percent"]) for row in found[4:28]]
    assert sum(shares) == pytest.approx(100)
    assert {row["covers"] for row in found} == {""}


def test_what_is_not_known_is_empty() -> None:
    row = rows(compared(n_trials=1))[4]
    assert row["ci95_low"] == row["ci95_high"] == ""
    assert row["verdict"] == "not known"


def test_groups_of_layers_have_all_their_names() -> None:
    nodes = [(), *in_threes()[:-1], (21, 22)]
    engine = engine_run(chainer_run(2), nodes)
    found = rows(compare(Side("A", (chainer_run(),)), Side("B", (engine,))))
    groups = [f"{at} {at + 1} {at + 2}" for at in range(0, 21, 3)]
    assert [row["covers"] for row in found] == [*[""] * 4, *groups, "21 22", "23", ""]
    assert found[4]["function"] == "Convolution2DFunction + FixedBatchNormalization + ReLU"
