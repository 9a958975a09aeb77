from __future__ import annotations

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.columns import PHASES, group_columns, tree_columns
from chainer_profile.report.rows import group_rows, phase_rows, tree_rows
from chainer_profile.report.tables import Table
from tests.conftest import make_recording, make_training


def cells(summary: Summary, by: str) -> dict[str, dict[str, str]]:
    """The cells of a table of groups: by group, then by heading."""
    columns = group_columns(by, summary.phase_names)
    return {
        row.name: {column.name: column.cell(row) for column in columns}
        for row in group_rows(summary, by)
    }


def test_groups_of_a_training_step() -> None:
    table = cells(summarise(make_training(), "top:1"), "function")
    assert table["Convolution2DFunction"] == {
        "function": "Convolution2DFunction",
        "calls": "3",
        "forward": "0.8000",
        "backward": "1.4800",
        "update": "",
        "total ms": "2.2800",
        "bwd/fwd": "1.85",
        "%": "76.0",
        "hot": "1",
    }
    assert table["MomentumSGD"]["update"] == "0.1200"
    assert table["MomentumSGD"]["bwd/fwd"] == table["MomentumSGD"]["forward"] == ""
    assert table["cleargrads"]["bwd/fwd"] == ""


def test_groups_of_one_phase() -> None:
    columns = group_columns("block", ["forward"])
    assert [column.name for column in columns] == [
        "block", "calls", "total ms", "mean ms", "%", "hot layers"
    ]  # fmt: skip
    assert not any(column.drop for column in columns)


def test_a_ratio_needs_both_phases() -> None:
    for phases in (["forward", "update"], ["data", "backward"]):
        assert "bwd/fwd" not in [column.name for column in group_columns("link", phases)]
    reordered = group_columns("function", ["backward", "forward"])
    (ratio,) = [column for column in reordered if column.name == "bwd/fwd"]
    recording = make_training()
    row = group_rows(summarise(recording), "function")[0]
    assert ratio.cell(row) == f"{0.8 / 1.48:.2f}"


def test_phases() -> None:
    rows = Table(PHASES, phase_rows(_training())).cells()
    assert rows[1] == ["backward", "11", "1.8000", "0.2500", "2.0500", "55.4"]
    assert rows[3] == ["outside of the phases", "", "0.0000", "0.0500", "0.0500", "1.4"]
    assert rows[4] == ["profiled trial", "25", "3.0000", "0.7000", "3.7000", "100.0"]


def _training() -> Summary:
    return summarise(make_training(), "top:1")


def tree_cells(summary: Summary, *, indent: bool) -> list[list[str]]:
    links, beside = tree_rows(summary, 2)
    columns = tree_columns(summary.phase_names, [*links, *beside], indent=indent)
    head = [column.name for column in columns]
    return [head] + [[column.cell(row) for column in columns] for row in [*links, *beside]]


def test_tree() -> None:
    table = tree_cells(_training(), indent=True)
    assert table[0] == [
        "link", "kind", "calls", "params", "forward", "backward", "update", "incl. ms", "excl. ms",
        "%", "hot",
    ]  # fmt: skip
    assert table[1][:4] == ["/", "Net", "1", "4,750"]
    assert table[4] == [
        "    0", "Block", "1", "592", "0.3700", "0.6900", "0.0600", "1.1200", "0.0200", "37.3", "0",
    ]  # fmt: skip
    assert table[-2] == [
        "framework", "", "", "", "0.3000", "0.2500", "0.1000", "0.7000", "", "", "",
    ]  # fmt: skip
    assert tree_cells(_training(), indent=False)[4][0] == "/res/0"


def test_tree_of_one_phase_without_links() -> None:
    table = tree_cells(summarise(make_recording()), indent=True)
    assert table[0] == ["link", "incl. ms", "excl. ms", "%", "hot"]
