"""Ranks put together: who waits for whom, what adds up, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ranks import training
from chainer_profile.basics.errors import ProfileError
from chainer_profile.ranks.merging import OUTSIDE, merge, who_died
from chainer_profile.record.budget import RUNNING
from chainer_profile.record.journal import KILLED
from chainer_profile.record.parts import UNKNOWN_NS
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT, Layer, Rank, Recording

#: Rows: one of forward, two collectives, one of update.
ROWS = (
    Layer(0, "/l1", "LinearFunction", "forward"),
    Layer(1, "/l1/W", "Allreduce", "communication", input_nbytes=4_000),
    Layer(2, "/l1/b", "Allreduce", "communication", input_nbytes=40),
    Layer(3, "/l1", "SGD", "update"),
)


def rank(
    number: int, arrived: Any, left: Any, *, size: int = 2, host: str = "here", **changes: Any
) -> Recording:
    """A rank whose iterations came to its two collectives at these times, and left them."""
    arrived_ns, left_ns = np.array(arrived, np.int64), np.array(left, np.int64)
    count = len(arrived_ns)
    self_ns = np.full((count, 4), 10, np.int64)
    self_ns[:, 1:3] = left_ns - arrived_ns
    framework_ns = np.tile(np.array([3, 4, 5], np.int64), (count, 1))
    values = {
        "phases": ("update", "forward", "communication"),
        "framework_ns": framework_ns,
        "trial_ns": self_ns.sum(axis=1) + framework_ns.sum(axis=1) + 7,
        "start_ns": arrived_ns[:, 0] - 20,
        "iteration": np.arange(1, count + 1),
        "arrived_ns": arrived_ns,
        "left_ns": left_ns,
        "rank": Rank(number, size, host),
    }
    return Recording(ROWS, self_ns, **values | changes)  # type: ignore[arg-type]


def two(**changes: Any) -> dict[str, Recording]:
    """Rank 0 waits 40 ns in the first collective, rank 1 waits 5 ns in the second."""
    return {
        "rank-0": rank(0, [[100, 170]] * 2, [[160, 190]] * 2),
        "rank-1": rank(1, [[140, 165]] * 2, [[162, 191]] * 2, **changes),
    }


def test_waiting_is_until_the_last_comes_and_moving_is_the_rest() -> None:
    ranks = merge(two())
    assert ranks.waiting_ns.tolist() == [[[40, 0]] * 2, [[0, 5]] * 2]
    assert ranks.moving_ns.tolist() == [[[20, 20]] * 2, [[22, 21]] * 2]
    assert ranks.moving_of_last_ns.tolist() == [[22, 20]] * 2
    assert ranks.last.tolist() == [0, 1]
    assert ranks.communication_ns.tolist() == [[80, 80], [48, 48]]
    assert ranks.iterations.tolist() == [1, 2]
    # 20 ns of rows, 12 of framework and 7 beyond, and the collectives.
    assert ranks.iteration_ns.tolist() == [[119, 119], [87, 87]]
    assert ranks.between_ns.tolist() == [[5, 5]] * 2
    assert ranks.computing_ns.tolist() == [[34, 34]] * 2
    assert ranks.efficiency == pytest.approx((34 / 119 + 34 / 87) / 2)
    assert ranks.phases == ("forward", "communication", "update", OUTSIDE)
    assert ranks.phase_ns[1].tolist() == [[14, 53, 13, 7]] * 2


def test_arrivals_are_on_the_clock_of_rank_0() -> None:
    other = two(rank=Rank(1, 2, "there", clock_offset_ns=-1_000_000, clock_error_ns=5))
    later = [getattr(other["rank-1"], name) + 1_000_000 for name in ("arrived_ns", "left_ns")]
    other["rank-1"] = replace(other["rank-1"], arrived_ns=later[0], left_ns=later[1])
    ranks = merge(other)
    assert ranks.waiting_ns.tolist() == merge(two()).waiting_ns.tolist()
    assert ranks.clock_doubt_s == 0
    for error_ns, doubt_s in ((40, 40e-9), (UNKNOWN_NS, float("inf"))):
        known = replace(other["rank-1"], rank=replace(ranks.ranks[1], clock_error_ns=error_ns))
        assert merge(other | {"rank-1": known}).clock_doubt_s == doubt_s


def test_a_broadcast_waits_for_its_root_alone() -> None:
    rows = (ROWS[0], replace(ROWS[1], function="Bcast"), *ROWS[2:])
    ranks = merge({name: replace(one, layers=rows) for name, one in two().items()})
    assert ranks.waiting_ns[:, 0].tolist() == [[0, 0], [0, 5]]
    assert ranks.moving_ns[:, 0].tolist() == [[60, 20], [22, 21]]


@st.composite
def stays(draw: st.DrawFn) -> dict[str, Recording]:
    """Any number of ranks that come and leave at any time, on clocks of their own."""
    size, count = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([2, 100, 10**9]))
    found = {}
    for number in range(size):
        arrived = rng.integers(0, most, (count, 2)) + 2**40
        left = arrived + rng.integers(0, most, (count, 2))
        offset = int(rng.integers(-most, most))
        who = Rank(number, size, "here", clock_offset_ns=offset)
        found[f"rank-{number}"] = rank(number, arrived, left, rank=who)
    return found


@given(stays())
def test_waits_and_moves_are_the_communication_and_phases_the_iteration(
    recordings: dict[str, Recording],
) -> None:
    ranks = merge(recordings)
    assert ranks.waiting_ns.min() >= 0
    assert ranks.moving_ns.min() >= 0
    ours: list[Any] = [*recordings.values()]
    stayed = [(one.left_ns - one.arrived_ns).tolist() for one in ours]
    assert (ranks.waiting_ns + ranks.moving_ns).tolist() == stayed
    in_rows = [one.self_ns[:, 1:3].sum(1).tolist() for one in ours]
    assert ranks.communication_ns.tolist() == in_rows
    assert ranks.iteration_ns.tolist() == [one.trial_ns.tolist() for one in ours]
    parts = (ranks.computing_ns, ranks.communication_ns, ranks.between_ns)
    assert sum(parts).tolist() == ranks.iteration_ns.tolist()  # type: ignore[union-attr]
    last = ranks.arrived_ns == ranks.arrived_ns.max(axis=0)
    assert not ranks.waiting_ns[last].any()
    assert ranks.last.sum() == pytest.approx(1)
    assert 0 <= ranks.efficiency <= 1


def test_iterations_are_matched_by_their_numbers() -> None:
    recordings = two(iteration=np.array([2, 3]))
    ranks = merge(recordings)
    assert ranks.iterations.tolist() == [2]
    assert ranks.trials.tolist() == [[1], [0]]
    assert ranks.notes == ("1 of 2 iterations are on all ranks shown",)
    with pytest.raises(ProfileError, match="no iteration in common"):
        merge(two(iteration=np.array([8, 9])))


def test_iterations_without_numbers_are_taken_in_their_order() -> None:
    ranks = merge(two(iteration=None))
    assert ranks.iterations.tolist() == [1, 2]
    assert not ranks.numbered
    assert "no numbers" in ranks.notes[0]


def test_what_is_missing_is_said_and_the_others_are_shown() -> None:
    recordings = training(4, iterations=10)
    short = recordings["rank-2"]
    parts = ("self_ns", "trial_ns", "start_ns", "iteration", "framework_ns", "arrived_ns")
    cut = {name: getattr(short, name)[:3] for name in (*parts, "left_ns")}
    recordings["rank-2"] = replace(short, ended=KILLED, **cut)
    del recordings["rank-1"]
    other = replace(short, rank=None)
    ranks = merge(recordings | {"x": other}, problems=["rank-7: damaged"])
    assert ranks.names == ("rank-0", "rank-3")
    assert ranks.size == 4
    assert len(ranks.iterations) == 10
    assert ranks.notes == (
        "rank-7: damaged",
        "x: is left out, it is no recording of a rank",
        "there is no recording of rank 1 (1 of 4)",
        f"rank-2: is left out: 3 of 10 iterations, its run ended early ({KILLED})",
    )


def test_a_rank_that_was_cut_short_late_is_shown() -> None:
    recordings = training(2, iterations=10)
    cut = {"ended": KILLED, "iteration": np.arange(3, 13) * 100}
    ranks = merge(recordings | {"rank-1": replace(recordings["rank-1"], **cut)})
    assert ranks.iterations.tolist() == [100 * at for at in range(3, 11)]
    assert ranks.notes == (
        f"rank-1: 10 of 10 iterations, its run ended early ({KILLED})",
        "8 of 10 iterations are on all ranks shown",
    )


def other_network() -> dict[str, Recording]:
    one = two()["rank-1"]
    return two() | {"rank-1": replace(one, layers=(replace(ROWS[0], path="/new"), *ROWS[1:]))}


def fewer_rows() -> dict[str, Recording]:
    one = two()["rank-0"]
    more = replace(ROWS[3], index=4, path="/new")
    wide = np.hstack([one.self_ns, one.self_ns[:, :1]])
    return two() | {"rank-1": replace(two()["rank-1"], layers=(*ROWS, more), self_ns=wide)}


def test_what_does_not_belong_together_is_one_line() -> None:
    for recordings, said in (
        (dict, "there is no recording of a rank"),
        (lambda: {"rank-0": replace(two()["rank-0"], rank=None)}, "no recording of a rank"),
        (lambda: two(rank=Rank(1, 3, "")), "rank-0 is one of 2, rank-1 one of 3"),
        (lambda: two(rank=Rank(0, 2, "")), "rank-0 and rank-1 are both rank 0"),
        (other_network, "rank-1 has no LinearFunction at /l1 in forward, which rank-0 has"),
        (fewer_rows, "rank-1 has no iteration with just the 4 rows, which rank-0 has"),
    ):
        with pytest.raises(ProfileError) as error:
            merge(recordings())
        assert said in str(error.value), said
        assert "\n" not in str(error.value), said


def test_some_of_the_ranks() -> None:
    whole = merge(training(4, 30, 5))
    some = whole.only([1, 3])
    assert [one.number for one in some.ranks] == [1, 3]
    assert some.self_ns.tolist() == whole.self_ns[[1, 3]].tolist()
    assert some.size == 4


RANKS = training(3, iterations=4)
BAD = "ValueError: a batch is bad"


def test_what_the_endings_tell() -> None:
    for ended, outcomes, said in (
        ([COMPLETE] * 3, {}, ""),
        ([TIME_LIMIT] * 3, {"rank-0": COMPLETE}, ""),
        ([COMPLETE] * 3, dict.fromkeys(RANKS, "interrupted"), ""),
        # A program's error is not in its recording, and a rank may have none at all.
        (
            [KILLED, COMPLETE, KILLED],
            {"rank-0": RUNNING, "rank-1": BAD},
            f"rank-1 died: {BAD}; rank-0, rank-2 were killed from outside",
        ),
        (
            [KILLED, KILLED, KILLED],
            {"rank-9": "exit code 3"},
            "rank-9 died: exit code 3; rank-0, rank-1, rank-2 were killed from outside",
        ),
        (["failed: full", COMPLETE, COMPLETE], {}, "rank-0 died: failed: full"),
        (
            [COMPLETE, KILLED, COMPLETE],
            {"rank-0": COMPLETE, "rank-1": RUNNING, "rank-2": "exit code 0"},
            "rank-1 was killed; rank-0, rank-2 came to the end",
        ),
        ([COMPLETE, KILLED, COMPLETE], {}, ""),
        ([KILLED] * 3, {}, "all ranks were killed, and nothing tells which one died first"),
    ):
        recordings = {
            name: replace(one, ended=end)
            for (name, one), end in zip(RANKS.items(), ended, strict=True)
        }
        assert who_died(recordings, outcomes) == said, said


def test_of_killed_ranks_the_earliest_last_iteration_tells() -> None:
    recordings = {
        name: replace(one, ended=KILLED, iteration=np.arange(4) + (0 if name == "rank-1" else 1000))
        for name, one in RANKS.items()
    }
    assert who_died(recordings, {}) == (
        "all ranks were killed; rank-1 stopped first, behind iteration 3, the others behind 1,003"
    )
