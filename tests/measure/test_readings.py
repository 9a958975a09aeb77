"""Trials that read counters instead of the clock."""

import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.readings import Readings, ReadingSession
from chainer_profile.measure.step_session import StepSession, learned
from chainer_profile.measure.steps import make_step
from tests.measure.recording import record_trial
from tests.nets import SlowOptimizer, Step, Trained, Wait, image, net, slow_loss


def training_step(clock):
    model = Trained(clock)
    more = {"loss": slow_loss(clock), "optimizer": SlowOptimizer(clock).setup(model)}
    return make_step("train", model, (image(),), **more)


def clock_readings(clock, size=1000):
    """Make readings of two values: the time, and twice the time."""
    return Readings(lambda: (clock.time_ns, 2 * clock.time_ns), 2, size)


def read_trial(session, step, readings):
    reading = ReadingSession(session)
    with reading.trial(readings):
        step()
    return reading.result(readings)


@pytest.mark.parametrize("single_calls", [True, False])
def test_readings_are_added_up_like_times(clock, single_calls):
    step = training_step(clock)
    session = StepSession(step, clock, single_calls=single_calls)
    with step.configured():
        session.learn()
        times = record_trial(session, step)
        trial = read_trial(session, step, clock_readings(clock))
    expected = [*times.rows_ns.tolist(), *times.phases_ns.tolist()]
    assert sum(expected) == times.wall_ns > 0
    first, second = trial.values.T
    assert trial.sums(first).tolist() == expected
    assert trial.sums(second).tolist() == [2 * ns for ns in expected]
    assert (trial.layers, trial.phases) == (session.layers, session.phases)
    assert len(trial.owners) == len(trial.values)
    # Each owner of a span has a column of the sums.
    columns = [trial.column(context.owner) for context in trial.layout.contexts]
    assert columns[0] == -1
    assert {column for column in columns if column >= 0} == set(range(len(expected)))


def test_clock_is_restored_after_a_trial_with_readings(clock):
    step = training_step(clock)
    with step.configured():
        session = learned(step)
        before = session.recorder._read_begin
        readings = clock_readings(clock)
        read_trial(session, step, readings)
        assert session.recorder._read_begin == before
        reading = ReadingSession(session)
        with pytest.raises(KeyError), reading.trial(readings):
            raise KeyError
        assert session.recorder._read_begin == before
        with session.recording():
            session.begin_trial()
            step()
            session.end_trial()
        (times,) = session.read_own()
        assert times.rows_ns.shape == (len(session.layers),)
        # Trials with readings do not count as trials.
        assert session.target.aggregator.trials == 2


@pytest.mark.parametrize("single_calls", [True, False])
def test_trial_with_other_calls_is_refused_or_has_rows_by_link(clock, single_calls):
    """Rows of single calls refuse such a trial; rows by link omit the other calls."""
    counts = iter([1, 2])

    def forward(self, x):
        for _ in range(next(counts)):
            x = self.step(x)
        return Wait(clock, 5).apply((x,))[0] if next(more) else x

    more = iter([False, True])
    model = net(forward, step=Step(clock, 3))
    step = make_step("forward", model, (image(),))
    session = StepSession(step, clock, single_calls=single_calls)
    with step.configured():
        session.learn()
        if single_calls:
            with pytest.raises(ProfileError, match="different calls from the earlier ones"):
                read_trial(session, step, clock_readings(clock))
            return
        trial = read_trial(session, step, clock_readings(clock))
    assert [layer.function for layer in trial.layers] == ["Wait"]
    assert trial.sums(trial.values[:, 0]).tolist() == [2 * 3]
    assert session.layers == trial.layers


def test_readings_beyond_the_capacity_are_counted_only(clock):
    step = training_step(clock)
    with step.configured():
        session = learned(step)
        with pytest.raises(ProfileError, match="made many more calls than the earlier ones"):
            read_trial(session, step, clock_readings(clock, size=7))
    readings = clock_readings(clock, size=2)
    assert [readings.read() for _ in range(3)] == [0, 1, 2]
    assert readings.is_full
    readings.clear()
    assert (readings.read(), readings.is_full) == (0, False)


def test_failed_reading_is_not_retried_and_raises_nothing():
    calls = []

    def fail():
        calls.append(1)
        raise OSError("none")

    readings = Readings(fail, 1, 10)
    assert [readings.read() for _ in range(3)] == [0, 1, 2]
    assert (len(calls), readings.failure) == (1, "OSError: none")
    refusing = Readings(lambda: (_ for _ in ()).throw(ProfileError("no counters here")), 1, 10)
    refusing.read()
    assert refusing.failure == "no counters here"
