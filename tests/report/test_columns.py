from __future__ import annotations

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.columns import group_columns
from chainer_profile.report.rows import group_rows
from tests.conftest import make_training


def test_a_ratio_needs_both_phases() -> None:
    for phases in (["forward", "update"], ["data", "backward"]):
        assert "bwd/fwd" not in [column.name for column in group_columns("link", phases)]
    (ratio,) = [
        column
        for column in group_columns("function", ["backward", "forward"])
        if column.name == "bwd/fwd"
    ]
    row = next(group_rows(summarise(make_training()), "function").itertuples())
    assert ratio.cell(row) == f"{1.48 / 0.8:.2f}"
