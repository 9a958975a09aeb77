"""What is said of ranks: the answer first, and what makes it doubtful."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.ranks import training
from chainer_profile.ranks.merging import Ranks, merge
from chainer_profile.record.parts import UNKNOWN_NS
from chainer_profile.report.content.ranks import answer, doubts, merged, verdict
from chainer_profile.report.tables import Table
from tests.ranks.test_merging import two


def made(size: int = 4, **more: Any) -> Ranks:
    return merge(training(size, 60, 8, **more))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (lambda: made(1), "Rank 0 is here alone: there is none to set beside it."),
        (
            lambda: merge(two()),
            "No verdict: fewer than 4 iterations do not tell how much is noise.",
        ),
        (made, "No rank and no layer is slower than the others beyond noise."),
        (lambda: made(slow={3: 2.0}), "Rank 3 is slow as a whole: its layers take 2.01x the time"),
        (
            lambda: made(slow={3: 2.0}, planted_ms={(1, 0): 30.0}),
            "an iteration. Convolution2DFunction at /res0 in forward takes 29.",
        ),
        (lambda: made(12, slow=dict.fromkeys(range(5), 2.0)), "2 more ranks are slow."),
        (
            lambda: merge(training(2, 60, 30, planted_ms={(1, 0): 15.0}, every=5)),
            "takes 3.011 ms longer on rank 1 than on the others on average, in its slowest "
            "iterations 14.94 ms (95th percentile).",
        ),
        # What is a fifth of the longest is not named, and more than three are not.
        (lambda: made(planted_ms={(1, 0): 90.0, (2, 5): 10.0}), "others. 1 straggler more below."),
        (
            lambda: made(planted_ms={(1, at): 30.0 for at in range(0, 10, 2)}),
            "2 stragglers more below.",
        ),
    ],
)
def test_the_verdict(ranks: Any, said: str) -> None:
    assert said in verdict(ranks())


def test_the_parts_of_an_iteration_add_up_in_words() -> None:
    assert list(answer(merge(two()))) == [
        "An iteration takes 103.0 ns, 67.0 % of it communication: 22.50 ns waiting for the last "
        "rank, 41.50 ns moving, 5.000 ns between collectives (means of the ranks).",
        "Rank 1 is most often the one waited for: in 2 of 2 iterations.",
        "2 ranks do the work of about 0.68: estimated as 2 x 33.8 %, the part of an iteration that "
        "is no communication.",
    ]


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


@pytest.mark.parametrize(
    ("error_ns", "said"),
    [
        (5, []),
        (40, ["The clocks of the 2 hosts are known to 40.00 ns, and waits are no longer than that: "
              "they may be none."]),
        (UNKNOWN_NS, ["The clocks of the hosts could not be compared: waits between hosts are not "
                      "known."]),
    ],
)  # fmt: skip
def test_clocks_that_are_not_known_well_enough_are_said(error_ns: int, said: list[str]) -> None:
    recordings = two()
    who = recordings["rank-1"].rank
    assert who is not None
    other = replace(who, host="there", clock_error_ns=error_ns)
    ranks = merge(recordings | {"rank-1": replace(recordings["rank-1"], rank=other)})
    assert list(doubts(ranks)) == said


def test_a_host_is_named_where_there_are_several_and_of_many_ranks_the_slowest_are_first() -> None:
    tables = [block for block in merged(made(20, slow={13: 2.0}), 2) if isinstance(block, Table)]
    assert tables[0].head[:2] == ["rank", "iteration"]
    assert tables[0].cells()[0][0] == "13"
    assert "18 rows not shown." in tables[0].notes()
