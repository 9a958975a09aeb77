"""Merged ranks: waiting times, sums, and recordings that do not match."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.ranks.merging import merge
from chainer_profile.record.recording import Layer, Rank, Recording
from chainer_profile.report.content import ranks as content
from chainer_profile.report.writers import terminal
from tests.refusing import refusal

#: A row of forward, two collectives, and a row of update.
ROWS = (
    Layer(0, "/l1", "LinearFunction", "forward"),
    Layer(1, "/l1/W", "Allreduce", "communication", input_nbytes=4_000),
    Layer(2, "/l1/b", "Allreduce", "communication", input_nbytes=40),
    Layer(3, "/l1", "SGD", "update"),
)


def rank(identity, arrived, left, **changes):
    """Recording of a rank with these times of entering and leaving two collectives."""
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
        "rank": identity,
    }
    return Recording(ROWS, self_ns, **values | changes)


def two_ranks(**changes):
    """Two ranks: rank 0 waits 40 ns in the first collective, rank 1 waits 5 ns in the second."""
    return {
        "rank-0": rank(Rank(0, 2, "here"), [[100, 170]] * 2, [[160, 190]] * 2),
        "rank-1": rank(Rank(1, 2, "here"), [[140, 165]] * 2, [[162, 191]] * 2, **changes),
    }


@given(st.integers(1, 5), st.integers(1, 4), st.sampled_from([2, 100, 10**9]), st.integers(0, 99))
def test_waiting_and_moving_add_up_to_communication(size, count, limit_ns, seed):
    """This holds for any number of ranks, and for any times in collectives."""
    rng = np.random.default_rng(seed)
    recordings = {}
    for number in range(size):
        arrived = rng.integers(0, limit_ns, (count, 2)) + 2**40
        left = arrived + rng.integers(0, limit_ns, (count, 2))
        recordings[f"rank-{number}"] = rank(Rank(number, size, "here"), arrived, left)
    ranks = merge(recordings)
    assert ranks.waiting_ns.min() >= 0
    assert ranks.moving_ns.min() >= 0
    stayed = [(each.left_ns - each.arrived_ns).tolist() for each in recordings.values()]
    assert (ranks.waiting_ns + ranks.moving_ns).tolist() == stayed
    in_rows = [each.self_ns[:, 1:3].sum(1).tolist() for each in recordings.values()]
    assert ranks.communication_ns.tolist() == in_rows
    assert ranks.iteration_ns.tolist() == [each.trial_ns.tolist() for each in recordings.values()]
    parts = ranks.computing_ns + ranks.communication_ns + ranks.between_ns
    assert parts.tolist() == ranks.iteration_ns.tolist()
    last = ranks.arrived_ns == ranks.arrived_ns.max(axis=0)
    assert not ranks.waiting_ns[last].any()
    assert ranks.last.sum() == pytest.approx(1)
    assert 0 <= ranks.efficiency <= 1


def test_waiting_is_unknown_on_several_hosts():
    one_host = merge(two_ranks())
    hosts = merge(two_ranks(rank=Rank(1, 2, "there")))
    assert "waiting in collectives is unknown: the ranks ran on 2 hosts" in hosts.notes[0]
    assert (one_host.notes, one_host.collectives) == ((), (1, 2))
    assert hosts.collectives == ()
    assert not hosts.last.any()
    for name in ("iteration_ns", "communication_ns", "between_ns", "computing_ns", "phase_ns"):
        np.testing.assert_array_equal(getattr(hosts, name), getattr(one_host, name))
    assert hosts.efficiency == one_host.efficiency
    assert "moving" not in terminal.written(content.overview(hosts), 80)
    # Ranks without collectives have no notes.
    computing = tuple(replace(row, phase="forward") for row in ROWS)
    bare = {
        name: replace(each, layers=computing, arrived_ns=None, left_ns=None)
        for name, each in two_ranks(rank=Rank(1, 2, "there")).items()
    }
    assert merge(bare).notes == ()


def test_recordings_that_do_not_match_are_refused_in_one_line():
    rank_0 = rank(Rank(0, 2, "here"), [[100, 170]] * 2, [[160, 190]] * 2)
    rank_1 = rank(Rank(1, 2, "here"), [[140, 165]] * 2, [[162, 191]] * 2)
    wider = {
        "layers": (*ROWS, replace(ROWS[3], index=4, path="/new")),
        "self_ns": np.hstack([rank_1.self_ns, rank_1.self_ns[:, :1]]),
    }
    other = (replace(ROWS[0], path="/new"), *ROWS[1:])
    assert "there is no recording of a rank" in refusal(merge, {})
    assert "not a recording of a rank" in refusal(merge, {"rank-0": replace(rank_0, rank=None)})
    for change, message in (
        ({"rank": Rank(1, 3, "")}, "rank-0 is one of 2, rank-1 one of 3"),
        ({"iteration": np.array([8, 9])}, "no iteration in common"),
        ({"rank": Rank(0, 2, "")}, "rank-0 and rank-1 are both rank 0"),
        ({"layers": other}, "rank-1 has no LinearFunction at /l1 in forward, which rank-0 has"),
        (wider, "rank-1 has no iteration with just the 4 rows, which rank-0 has"),
    ):
        assert message in refusal(merge, {"rank-0": rank_0, "rank-1": replace(rank_1, **change)})
