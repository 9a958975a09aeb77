"""Sessions: subtracted overhead, long logs that are read during a trial, failures."""

from contextlib import suppress

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure import iteration_writer, recorder
from chainer_profile.measure.iterations import Iterations
from chainer_profile.measure.loop import Loop
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.session import Session
from tests.conftest import FakeClock
from tests.nets import Nesting, SlowOptimizer, Step, Trained, Wait, image, net, slow_loss


@pytest.mark.parametrize("call_ns", [0.0, 1.0, 1e6])
def test_recording_cost_is_subtracted_from_framework_time(clock, call_ns, monkeypatch):
    """The cost is divided among phases in proportion to their framework time."""
    add_site = Recorder.add_site

    def slow(*args, **kwargs):
        clock.advance(1000)
        return add_site(*args, **kwargs)

    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    monkeypatch.setattr(Recorder, "add_site", slow)
    monkeypatch.setattr(iteration_writer, "cost_of_a_call", lambda now_ns: call_ns)
    monkeypatch.setattr(iteration_writer, "calibrated", lambda clock, xp: None)
    iterations = Iterations(Loop([("", model)], [optimizer]), clock)
    for number in range(2):
        with iterations.trial():
            optimizer.update(lambda: slow_loss(clock)(model(image())))
        # The rows have 12 calls. Phases and backpropagation have spans, too.
        spans = iterations._session.last.n_spans
        assert spans >= 12 + 5
        paused_ns = iterations._session.last.paused_ns
        assert (paused_ns > 0) is (number == 0)
        assert paused_ns % 1000 == 0
        assert iterations.added_ns == int(spans * call_ns) + paused_ns
    iterations.end()
    recording = iterations.recording()
    # The update's checks of gradients; the loss, the network and its links.
    phases_ns = np.array([2, 11 + 10 + 3 * 7, 0])
    subtracted_ns = (phases_ns * min(1, spans * call_ns / phases_ns.sum())).astype(int)
    left_ns = phases_ns - subtracted_ns
    assert recording.phases == ("update", "forward", "backward")
    assert recording.framework_ns.tolist() == [left_ns.tolist()] * 2
    assert (recording.self_ns[0] == recording.self_ns[1]).all()
    assert (recording.trial_ns == recording.self_ns.sum(axis=1) + left_ns.sum()).all()


def times_of(max_events, durations, raises):
    """Run two trials; return their times and calls. ``max_events`` limits the log in memory."""
    clock = FakeClock()

    def forward(self, x):
        for index, (duration_ns, link) in enumerate(durations):
            clock.advance(index)
            with suppress(ZeroDivisionError):
                x = (self.first if link else self.second)(x)
                x = Wait(clock, duration_ns, 2 * duration_ns).apply((x,))[0]
                if index in raises:
                    self.failing(x)
        return F.sum(x)

    def fail(x):
        clock.advance(50)
        raise ZeroDivisionError

    model = net(
        forward,
        first=Step(clock, 3, Nesting, 4),
        second=Step(clock, 7, Wait, 8),
        failing=chainer.Sequential(fail),
        other=L.Linear(1, 1),
    )
    session = Session([("", model)], clock, network_is_phase=True)
    with pytest.MonkeyPatch.context() as patch, session.recording():
        patch.setattr(recorder, "MAX_EVENTS", max_events)
        for _ in range(2):
            session.begin_trial()
            model(chainer.Variable(image())).backward()
            session.end_trial()
        spans, wall_ns = session.last.n_spans, session.last.wall_ns
        trials = session.read_own()
    rows = [row.key for row in session.target.aggregator.index.rows]
    times = [
        (
            each.wall_ns,
            dict(zip(rows, each.rows_ns.tolist(), strict=False)),
            dict(zip(rows, each.calls.tolist(), strict=False)),
            dict(zip(session.target.aggregator.phases, each.phases_ns.tolist(), strict=False)),
        )
        for each in trials
    ]
    return times, spans, wall_ns, session.target.link_table()


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=6),
    st.sets(st.integers(0, 5), max_size=2),
    st.integers(2, 40),
)
def test_rows_do_not_depend_on_max_events(durations, raises, max_events):
    expected_trials = times_of(10**6, durations, raises)
    assert times_of(max_events, durations, raises) == expected_trials
    (first, second), *_ = expected_trials
    assert first == second
    wall_ns, rows_ns, _, phases_ns = first
    assert sum(rows_ns.values()) + sum(phases_ns.values()) == wall_ns


def test_long_trial_moves_its_log_to_arrays(clock, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_EVENTS", 200)
    session, longest = Session([], clock), 0
    with session.recording():
        session.begin_trial()
        x = chainer.Variable(image())
        for _ in range(1000):
            x = Wait(clock, 1).apply((x,))[0]
            longest = max(longest, len(session.recorder.events))
        x.unchain()
        session.end_trial()
    (times,) = session.read_own()
    assert longest < 400
    assert (times.wall_ns, times.rows_ns.tolist(), times.calls.tolist()) == (1000, [1000], [1000])


def failed_in(session, model, x=None):
    """Run a failing network; return its failed layer, or the last layer before the failure."""
    with session.recording():
        session.begin_trial()
        try:
            model(image() if x is None else x)
        except ZeroDivisionError as error:
            layer, was_left = session.failed_layer(error)
        else:
            pytest.fail("it does not fail")
        session.discard_trial()
    return (None if layer is None else (layer.path, layer.function)), was_left


def test_failed_layer_is_the_innermost_one_that_raised(clock):
    class Fails(Wait):
        def forward(self, inputs):
            raise ZeroDivisionError

    class Around(Wait):
        def forward(self, inputs):
            return (Fails(self._clock, 1).apply(inputs)[0].array,)

    def caught(self, x):
        with suppress(ZeroDivisionError):
            Fails(clock, 1).apply((x,))
        x = self.first(x)
        raise ZeroDivisionError

    def same_identity(self, x):
        """Raise the caught exception again, after another layer."""
        try:
            Fails(clock, 1).apply((x,))
        except ZeroDivisionError as error:
            again = error.with_traceback(None)
        self.first(x)
        raise again

    def cleaned_up(self, x):
        """Call another layer while the exception is handled."""
        try:
            Fails(clock, 1).apply((x,))
        finally:
            self.first(x)

    def at_once(self, x):
        raise ZeroDivisionError

    for forward, expected in (
        (lambda self, x: Fails(clock, 1).apply((self.first(x),)), (("/", "Fails"), True)),
        # The innermost layer.
        (lambda self, x: Around(clock, 1).apply((self.first(x),)), (("/", "Fails"), True)),
        (caught, (("/first", "Wait"), False)),
        (same_identity, (("/first", "Wait"), False)),
        (cleaned_up, (("/", "Fails"), True)),
        (at_once, (None, False)),
    ):
        model = net(forward, first=Step(clock, 3))
        session = Session([("", model)], clock)
        assert failed_in(session, model) == expected, expected
        assert session.failed_layer(ZeroDivisionError()) == (None, False)  # no trial runs
        assert session.read() == []


def test_unfinished_trial_is_discarded_when_another_begins(clock):
    session = Session([], clock)
    with session.recording():
        for duration_ns in (1, 2, 3):
            session.begin_trial()
            Wait(clock, duration_ns).apply((image(),))
        session.end_trial()
        Wait(clock, 100).apply((image(),))  # between trials
        session.begin_trial()
        session.discard_trial()
    (times,) = session.read_own()
    assert (times.wall_ns, times.rows_ns.tolist()) == (3, [3])
    assert session.read() == []
