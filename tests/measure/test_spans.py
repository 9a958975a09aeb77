"""Spans of a log: self times add up to the trial, also after exceptions and without pauses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.spans import PAUSE, TRIAL, match_spans, without_pauses

IDS = st.integers(2, 5)
#: Trees of spans: event id, inner spans, and whether the log has the end event.
TREES = st.recursive(
    st.tuples(IDS, st.just([]), st.booleans()),
    lambda inner: st.tuples(IDS, st.lists(inner, max_size=3), st.booleans()),
    max_leaves=12,
)


def events_of(tree, complete):
    event_id, inner, has_end = tree
    within = [event for each in inner for event in events_of(each, complete)]
    return [event_id, *within, *([~event_id] if has_end or complete else [])]


def logs(complete):
    """Strategy of logs of one trial; complete ones have all end events."""
    return st.lists(TREES, max_size=4).map(
        lambda trees: [
            TRIAL,
            *(event for tree in trees for event in events_of(tree, complete)),
            ~TRIAL,
        ]
    )


def inclusive(spans, clock):
    return [clock[end] - clock[begin] for begin, end in zip(spans.begins, spans.ends, strict=True)]


def self_times(spans, clock):
    """The time after each event, added up by innermost span."""
    times = [0] * len(spans.event_ids)
    for index, passed in enumerate(np.diff(clock).tolist()):
        times[spans.innermost[index]] += passed
    return times


def check(events, steps):
    spans = match_spans(events)
    clock = np.cumsum([0, *steps[: len(events) - 1]])
    self_ns, inclusive_ns = self_times(spans, clock), inclusive(spans, clock)
    assert sum(self_ns) == inclusive_ns[0] == clock[-1]
    assert spans.parents[0] == -1
    for span, parent in enumerate(spans.parents[1:], 1):
        assert parent < span
        assert spans.begins[parent] < spans.begins[span] <= spans.ends[span] <= spans.ends[parent]
    # The time of a span is its self time and the time of its children.
    for span, time in enumerate(inclusive_ns):
        within = [at for at, parent in enumerate(spans.parents) if parent == span]
        assert time == self_ns[span] + sum(inclusive_ns[at] for at in within)
    return spans


STEPS = st.lists(st.integers(0, 1000), min_size=400, max_size=400)


@given(logs(complete=True), STEPS)
def test_self_times_add_up_to_the_trial(events, steps):
    spans = check(events, steps)
    ends = [events[end] for end in spans.ends]
    assert ends == [~event_id for event_id in spans.event_ids]
    assert len(spans.event_ids) == len(events) // 2


@given(logs(complete=False), STEPS)
def test_self_times_add_up_without_some_end_events(events, steps):
    spans = check(events, steps)
    assert spans.event_ids == [event for event in events if event >= 0]
    assert spans.innermost[-1] == -1


@given(logs(complete=True), STEPS, st.integers(0, 100))
def test_self_times_add_up_in_a_log_that_ends_early(events, steps, n_events):
    check(events[: max(1, n_events)], steps)


@given(logs(complete=True), STEPS, st.data())
def test_end_events_without_a_begin_event_are_ignored(events, steps, data):
    at = data.draw(st.integers(1, len(events) - 1))
    expected = match_spans(events)
    spans = check([*events[:at], ~9, *events[at:]], steps)
    assert (spans.event_ids, spans.parents) == (expected.event_ids, expected.parents)


def test_end_of_a_span_ends_inner_spans():
    a, b, c = 2, 3, 4
    spans = match_spans([TRIAL, a, b, c, ~a, ~b, a, ~a, ~TRIAL])
    assert spans.event_ids == [TRIAL, a, b, c, a]
    assert spans.parents == [-1, 0, 1, 2, 0]
    assert spans.begins == [0, 1, 2, 3, 6]
    assert spans.ends == [8, 4, 4, 4, 7]
    assert spans.innermost == [0, 1, 2, 3, 0, 0, 4, 0, -1]


@given(logs(complete=True), STEPS, st.data())
def test_without_pauses_removes_the_time_of_pauses(events, steps, data):
    kinds = st.sampled_from([0] * 5 + [1, 2, 3])
    ids, clock, expected = [], [], []
    now = paused = 0
    for event, step in zip(events, steps, strict=False):
        # Pauses before an event, which may be nested.
        kind = data.draw(kinds)
        nested = {0: [], 1: [PAUSE, ~PAUSE], 2: [PAUSE, PAUSE, ~PAUSE, ~PAUSE]}
        for pause in nested.get(kind, [PAUSE, ~PAUSE, PAUSE, ~PAUSE]) if ids else []:
            if pause == ~PAUSE:
                now, paused = now + 7, paused + 7
            ids.append(pause)
            clock.append(now)
        ids.append(event)
        clock.append(now)
        expected.append(now - paused)
        now += step
    two = np.array([clock, np.multiply(clock, 3)], np.int64)
    ids_left, values, total = without_pauses(np.array(ids), two)
    assert ids_left.tolist() == events
    assert values.tolist() == [expected, [3 * value for value in expected]]
    assert total.tolist() == [paused, 3 * paused]
