"""Events in a device's queue: made once, used again and again, and exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.events import EventPool
from tests.queues import device_clock


def test_events_are_made_once_and_have_the_times_of_the_last_recording():
    clock = device_clock()
    queue = clock.device
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
def test_a_long_trial_is_as_exact_as_a_short_one(spans):
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
