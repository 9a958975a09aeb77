"""What the terminal and a notebook show of a run: which rows, in which order, and their sums."""

from __future__ import annotations

from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.cli.options import SORT_KEYS
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.profile import overview
from chainer_profile.report.rows import group_rows
from chainer_profile.report.tables import Table
from tests.conftest import make_recording, make_training
from tests.report.working import with_work, working


def table(summary: Summary, caption: str = "The layers", **options: Any) -> Table:
    """The table of this caption."""
    (found,) = (
        block
        for block in overview(summary, **options)
        if isinstance(block, Table) and block.caption == caption
    )
    return found


def column(found: Table, name: str) -> list[str]:
    (at,) = (at for at, one in enumerate(found.columns) if one.name == name)
    return [row[at] for row in found.cells()]


def added(found: Table, name: str) -> float:
    return sum(float(cell.replace(",", "") or 0) for cell in column(found, name))


def notes(found: Table) -> str:
    return found.notes()


@pytest.mark.parametrize("sort", SORT_KEYS)
def test_order_of_the_layers(sort: str) -> None:
    summary = summarise(with_work(make_recording(12)))
    layers = summary.layers
    key = {
        **dict.fromkeys(("time", "median"), "median_s"),
        **{name: f"{name}_s" for name in ("mean", "p95", "std")},
        **{"path": "path", "name": "function", "memory": "peak_nbytes"},
    }.get(sort, sort)
    ascending = sort in ("path", "name")
    expected = (
        layers if sort == "index" else layers.sort_values(key, ascending=ascending, kind="stable")
    )
    shown = [row.Index for row in table(summary, sort=sort).rows]
    assert shown == list(expected.index)
    if sort in ("flops", "reached"):
        assert shown[-1] == 11  # has no formula
    # Where nothing is known of work and memory, the order is that of the calls.
    if sort in ("flops", "memory", "reached"):
        bare = table(summarise(make_recording()), sort=sort)
        assert [row.Index for row in bare.rows] == list(range(6))


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(KeyError):
        table(summarise(make_recording()), sort="colour")


def test_limit_says_what_is_not_shown() -> None:
    summary = summarise(make_recording(66))
    found = table(summary, limit=10)
    assert len(found.rows) == 10
    rest = summary.layers["share"].sort_values(ascending=False, kind="stable").iloc[10:].sum()
    said = f"56 layers not shown: {rest * 100:.1f} % of the layers' time."
    assert said in notes(found)
    assert added(found, "%") + rest * 100 == pytest.approx(100, abs=0.5)
    assert "66 layers not shown" in notes(table(summary, limit=0))
    for limit in (None, 66):
        assert "not shown" not in notes(table(summary, limit=limit))


def test_one_phase_has_no_table_of_phases() -> None:
    captions = [b.caption for b in overview(working()) if isinstance(b, Table)]
    assert not {"Time by phase", "Memory by phase"} & set(captions)


@pytest.mark.parametrize("by", ["function", "link", "block", "shape"])
@pytest.mark.parametrize("recording", [make_recording(66), make_training()], ids=["one", "several"])
def test_groups_add_up(by: str, recording: Recording) -> None:
    summary = summarise(recording)
    found = table(summary, f"By {by}", group_by=by)
    names = [one.name for one in found.columns]
    if recording.phases:
        times = ["forward", "backward", "update", "total ms", "bwd/fwd"]
        assert names == [by, "calls", *times, "%", "hot"]
    else:
        assert names == [by, "calls", "total ms", "mean ms", "%", "hot layers"]
        assert added(found, "calls") == 66
    assert column(found, by) == list(group_rows(summary, by).index)
    assert added(found, "total ms") == pytest.approx(summary.totals.layers_s * 1e3, abs=1e-3)
    assert added(found, "%") == pytest.approx(100, abs=0.051 * len(found.rows))
    assert added(found, names[-1]) == len(summary.hotspots.indices)


def test_limit_of_the_groups() -> None:
    summary = summarise(make_training())
    found = table(summary, "By block", limit=2, group_by="block")
    rest = group_rows(summary, "block")["share"].iloc[2:].sum()
    assert len(found.rows) == 2
    assert f"6 blocks not shown: {rest * 100:.1f} %" in notes(found)
    one = table(summary, "By block", limit=7, group_by="block")
    assert "1 block not shown: 1.0 %" in notes(one)
    assert "not shown" not in notes(table(summary, "By block", limit=8, group_by="block"))


TREE = "The tree of links"


def test_levels_of_the_tree() -> None:
    def said(depth: int | None = None) -> str:
        more = {} if depth is None else {"depth": depth}
        return notes(table(summarise(make_training()), TREE, tree=True, **more))

    assert "4 links below are not shown (--depth 99 shows all)" in said()
    assert "10 links below are not shown" in said(0)
    assert "not shown" not in said(3)
    nearly = table(summarise(make_recording(1)), TREE, tree=True, depth=2)
    assert "1 link below is not shown" in notes(nearly)
    assert [one.name for one in nearly.columns] == ["", "link", "incl. ms", "excl. ms", "%", "hot"]
