from __future__ import annotations

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.columns import group_columns
from chainer_profile.report.rows import group_rows
from tests.conftest import make_training


def cells(summary: Summary, by: str) -> dict[str, dict[str, str]]:
    """The cells of a table of groups: by group, then by heading."""
    columns = group_columns(by, summary.phase_names)
    return {
        row.name: {column.name: column.cell(row) for column in columns}
        for row in group_rows(summary, by)
    }


def test_a_ratio_needs_both_phases() -> None:
    for phases in (["forward", "update"], ["data", "backward"]):
        assert "bwd/fwd" not in [column.name for column in group_columns("link", phases)]
    reordered = group_columns("function", ["backward", "forward"])
    (ratio,) = [column for column in reordered if column.name == "bwd/fwd"]
    recording = make_training()
    row = group_rows(summarise(recording), "function")[0]
    assert ratio.cell(row) == f"{0.8 / 1.48:.2f}"
