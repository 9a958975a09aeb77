"""One iteration on all ranks in time: collectives where they were, arrows from the last to come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.ranks import training
from chainer_profile.ranks.merging import merge
from chainer_profile.record.recording import Recording
from chainer_profile.report.pictures.ranks_trace import MOST_RANKS, render
from tests.ranks.test_merging import stays, two
from tests.report.documents import NAMES, merged_ranks
from tests.report.tracing import read


def test_every_rank_that_waited_has_its_arrow_and_every_call_its_length() -> None:
    ranks = merge(training(4, 30, 5, planted_ms={(2, 1): 10.0}))
    trace = read(render(ranks))
    chosen = ranks.iterations.tolist().index(trace.other["iteration"])
    assert len(trace.arrows) == int((ranks.waiting_ns[:, chosen] > 0).sum())
    first = [pair for pair in trace.arrows.values() if pair[1]["block"].args["order"] == 1]
    assert {begin["pid"] for begin, _ in first} == {3}
    for at in range(4):
        lengths = [block.length for block in trace.functions(at + 1)]
        assert lengths == ranks.self_ns[at, chosen, list(ranks.computing)].tolist()


def test_of_many_ranks_those_are_shown_that_the_others_waited_for() -> None:
    ranks = merge(training(MOST_RANKS + 6, 11, 4, planted_ms={(MOST_RANKS + 3, 0): 50.0}))
    trace = read(render(ranks))
    assert len(trace.processes) == MOST_RANKS
    assert f"rank {MOST_RANKS + 3}" in trace.processes.values()
    assert {int(begin["pid"]) for begin, _ in trace.arrows.values()} <= set(trace.processes)


@pytest.mark.parametrize("names", [(), NAMES], ids=["plain", "hostile"])
def test_any_names_hosts_and_clocks(names: tuple[str, ...]) -> None:
    trace = read(render(merged_ranks(names)))
    assert len(trace.processes) == 3
    assert all(name.isprintable() for name in trace.processes.values())


@settings(max_examples=30)
@given(stays())
def test_any_stays_make_a_trace(recordings: dict[str, Recording]) -> None:
    ranks = merge(recordings)
    # A rank's collectives follow one another.
    arrived = np.sort(ranks.arrived_ns, axis=2)
    gap = np.diff(arrived, axis=2, append=arrived[:, :, -1:])
    ranks = replace(
        ranks,
        arrived_ns=arrived,
        waiting_ns=np.minimum(ranks.waiting_ns, gap),
        moving_ns=np.maximum(0, np.minimum(ranks.moving_ns, gap - ranks.waiting_ns)),
    )
    read(render(ranks))


def test_without_arrivals_or_starts_there_are_the_calls() -> None:
    changes = {"arrived_ns": None, "left_ns": None, "start_ns": None}
    trace = read(render(merge(two(**changes))))
    assert not trace.arrows
    assert np.sum([len(trace.functions(pid)) for pid in (1, 2)]) == 8
