"""Aggregation adds up the same rows, whatever it remembers of the trials before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure import aggregate
from chainer_profile.measure.aggregate import Aggregator, LoggedTrial
from chainer_profile.measure.call_sites import CallSite, Kind
from chainer_profile.measure.spans import TRIAL

SITES = (
    CallSite(Kind.TRIAL),
    CallSite(Kind.PAUSE),
    CallSite(Kind.PHASE, phase="forward"),
    CallSite(Kind.BACKPROP),
    CallSite(Kind.FUNCTION, "/a", "F"),
    CallSite(Kind.FUNCTION, "/b", "G"),
    CallSite(Kind.SUM, "/", "Add"),
    CallSite(Kind.STEP, "/a", "SGD", "update"),
    CallSite(Kind.BACKWARD, "/a", "F", "backward"),
    CallSite(Kind.BACKWARD, "/b", "G", "backward"),
)
IDS = st.integers(2, len(SITES) - 1)
TREES = st.recursive(
    st.tuples(IDS, st.just([])),
    lambda inner: st.tuples(IDS, st.lists(inner, max_size=3)),
    max_leaves=10,
)


def events_of(trees):
    for event_id, inner in trees:
        yield event_id
        yield from events_of(inner)
        yield ~event_id


@st.composite
def logged_trials(draw):
    """Draw a trial with random spans; each backward has any earlier event as its forward call."""
    event_ids = [TRIAL, *events_of(draw(st.lists(TREES, max_size=4))), ~TRIAL]
    backwards = [
        at for at, event_id in enumerate(event_ids) if event_id >= 0 and SITES[event_id].is_backward
    ]
    forwards = [draw(st.integers(-1, at - 1)) for at in backwards]
    steps = draw(st.lists(st.integers(0, 9), min_size=len(event_ids), max_size=len(event_ids)))
    clock = np.cumsum(steps)
    wall_ns = int(clock[-1] - clock[0])
    return LoggedTrial(np.array(event_ids), clock[None], np.array(forwards, np.int64), 0, wall_ns)


def table_of(times, aggregator):
    """Time and calls of all rows, and the time of the phases, of each trial."""
    names = [row.key for row in aggregator.rows]
    return [
        (
            dict(zip(names, trial.rows_ns.tolist(), strict=False)),
            dict(zip(names, trial.calls.tolist(), strict=False)),
            dict(zip(aggregator.phases, trial.phases_ns.tolist(), strict=False)),
        )
        for trial in times
    ]


def sums_of(aggregator):
    """Calls and time of each call site of each row."""
    return [
        {site: (sums.calls, sums.self_ns) for site, sums in row.sums.items()}
        for row in aggregator.rows
    ]


@given(st.lists(logged_trials(), min_size=1, max_size=6))
def test_rows_do_not_depend_on_what_is_remembered(trials):
    with pytest.MonkeyPatch.context() as patches:
        remembering = Aggregator(SITES, network_is_phase=True)
        times = [time for trial in trials for time in remembering.add([trial])]
        expected = table_of(times, remembering)
        patches.setattr(aggregate, "_MAX_SPANS", 0)
        patches.setattr(aggregate, "_MAX_CONTEXTS", 0)
        forgetting = Aggregator(SITES, network_is_phase=True)
        times = [time for trial in trials for time in forgetting.add([trial])]
        assert table_of(times, forgetting) == expected
    for trial, (rows, _, phases) in zip(trials, expected, strict=True):
        assert sum(rows.values()) + sum(phases.values()) <= trial.wall_ns
    assert sums_of(remembering) == sums_of(forgetting)


def test_remembered_layouts_have_a_limited_size(monkeypatch):
    monkeypatch.setattr(aggregate, "_MAX_SPANS", 10)
    aggregator = Aggregator(SITES, network_is_phase=True)
    for n_calls in range(1, 9):
        event_ids = np.array([TRIAL, *[4, ~4] * n_calls, ~TRIAL])
        clock = np.arange(len(event_ids))[None]
        aggregator.add([LoggedTrial(event_ids, clock, np.empty(0, np.int64), 0, len(event_ids))])
        n_spans = sum(len(layout.contexts) for layout in aggregator._layouts.values())
        assert n_spans == aggregator._n_spans <= 10
    assert [row.key for row in aggregator.rows] == [("/a", "F", "forward")]
    assert aggregator.layers()[0].calls == sum(range(1, 9)) / 8
