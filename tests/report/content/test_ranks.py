"""What is said of ranks: the answer first, and what makes it doubtful."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.ranks import training
from chainer_profile.ranks.merging import Ranks, merge
from chainer_profile.report.content.ranks import answer, merged
from chainer_profile.report.tables import Table
from tests.ranks.test_merging import two


def made(size: int = 4, **more: Any) -> Ranks:
    return merge(training(size, 60, 8, **more))


def test_without_collectives_there_is_no_waiting_to_tell() -> None:
    known = merge(two(arrived_ns=None, left_ns=None))
    assert [line for line in answer(known) if "waiting" in line or "waited" in line] == []
    tables = [block for block in merged(known) if isinstance(block, Table)]
    assert [table.caption for table in tables] == [
        "An iteration on each rank",
        "The phases of an iteration on all ranks",
    ]
    rows = [replace(row, phase="update") for row in known.layers]
    without = [
        replace(one, layers=tuple(rows), arrived_ns=None, left_ns=None) for one in known.recordings
    ]
    silent = merge(dict(zip(known.names, without, strict=True)))
    assert list(answer(silent)) == [
        "An iteration takes 103.0 ns; no communication was recorded in it."
    ]


def test_a_host_is_named_where_there_are_several_and_of_many_ranks_the_slowest_are_first() -> None:
    tables = [block for block in merged(made(20, slow={13: 2.0}), 2) if isinstance(block, Table)]
    assert tables[0].head[:2] == ["rank", "iteration"]
    assert tables[0].cells()[0][0] == "13"
    assert "18 rows not shown." in tables[0].notes()
