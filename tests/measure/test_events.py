"""Events in a device's queue: made once, used again and again, and divided among the layers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.calls import read
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import ForwardStep
from tests.nets import image
from tests.queues import PlannedNet, calls, device_clock, kernel


@pytest.fixture
def clock():
    return device_clock()


@pytest.fixture
def queue(clock):
    return clock.device


def stamps_of(log):
    """The clock reads of a recorder's log."""
    return [log[at] for at in read(log).stamps]


class TestEventPool:
    def test_events_are_made_once_and_used_again_with_the_times_of_the_last_recording(
        self, clock, queue
    ):
        pool = EventPool(queue)
        assert pool.times_ns().tolist() == []
        for kernels in ([], [70, 20, 5], [1, 2, 3, 4], [8]):
            pool.clear()
            assert pool.used == 0
            pool.record()
            for duration in kernels:
                queue.launch(duration)
                pool.record()
            begin_ns, waits = clock.time_ns, queue.log.count("synchronize")
            pool.wait()
            assert clock.time_ns == begin_ns + sum(kernels)
            times = pool.times_ns()
            assert queue.log.count("synchronize") == waits + 1
            assert times.tolist() == [0, *np.cumsum(kernels).tolist()]
            assert times.dtype == np.int64
            assert pool.used == len(times)
            clock.advance(1000)
        assert len(queue.events) == 5
        assert queue.log.count("record") == 1 + 4 + 5 + 2

    @given(st.lists(st.integers(0, 30_000_000), min_size=1, max_size=60))
    def test_a_long_trial_is_as_exact_as_a_short_one(self, spans):
        """CUDA's milliseconds in single precision are exact to the nanosecond up to 8 ms.

        Steps are 0.95 ns from there on, 1.9 ns from 16 ms, and 122 ns from 1 s.
        """
        clock = device_clock()
        queue, pool = clock.device, EventPool(clock.device)
        pool.record()
        for span in spans:
            queue.launch(span)
            pool.record()
        pool.wait()
        found = np.diff(pool.times_ns())
        assert np.abs(found - spans).max() <= 1
        short = np.array(spans) <= 8_000_000
        assert (found[short] == np.array(spans)[short]).all()


def test_an_event_goes_with_every_clock_read_and_is_in_no_layers_host_time(clock, queue):
    step = ForwardStep(PlannedNet(clock, calls(kernel(10, 30), kernel(20, 40))), (image(),))
    with step.configured():
        structure = learn_structure(step)
    queue.synchronize()
    pool = EventPool(queue)
    recorder = Recorder(clock.now_ns, step, pool)
    with step.configured(), recorder:
        pool.record()
        step()
        pool.record()
    pool.wait()
    assert pool.used == len(stamps_of(recorder.log)) + 2 == 6
    # The kernels are launched at 10 and 30, so the second begins when the first ends, at 40.
    assert pool.times_ns().tolist() == [0, 0, 40, 40, 80, 80]
    assert structure.times_ns(stamps_of(recorder.log)).tolist() == [10, 20]
    queue.record_ns = 1000
    recorder.clear()
    with step.configured(), recorder:
        step()
    assert structure.times_ns(stamps_of(recorder.log)).tolist() == [10, 20]
