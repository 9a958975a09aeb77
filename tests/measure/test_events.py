"""Events in a device queue are reused, and their times are exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.events import EventPool
from tests.queues import device_clock


@given(st.lists(st.lists(st.integers(0, 30_000_000), max_size=60), max_size=4))
def test_events_are_reused_and_long_trials_stay_exact(trials):
    """CUDA reports milliseconds in single precision, which are exact to 1 ns up to 8 ms.

    The resolution is 0.95 ns above 8 ms, 1.9 ns above 16 ms, and 122 ns above 1 s.
    """
    clock = device_clock()
    queue, pool = clock.device, EventPool(clock.device, clock.now_ns)
    assert pool.times_ns().tolist() == []
    for number, spans in enumerate(trials, 1):
        pool.clear()
        assert pool.used == 0
        pool.record()
        for span in spans:
            queue.launch(span)
            pool.record()
        pool.wait()
        times = pool.times_ns()
        assert queue.log.count("synchronize") == number
        assert (times.dtype, len(times), times[0]) == (np.int64, len(spans) + 1, 0)
        measured, expected = np.diff(times), np.array(spans, np.int64)
        assert np.abs(measured - expected).max(initial=0) <= 1
        short = expected <= 8_000_000
        assert (measured[short] == expected[short]).all()
        clock.advance(1000)
    assert len(queue.events) == max((len(spans) + 1 for spans in trials), default=0)
    assert queue.log.count("record") == sum(len(spans) + 1 for spans in trials)
