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
from chainer_profile.ranks.merging import merge
from chainer_profile.record.recording import Layer, Rank, Recording

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
        (lambda: {"rank-0": replace(two()["rank-0"], rank=None)}, "not a recording of a rank"),
        (lambda: two(rank=Rank(1, 3, "")), "rank-0 is one of 2, rank-1 one of 3"),
        (lambda: two(iteration=np.array([8, 9])), "no iteration in common"),
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
