"""The event log of a program: trials are cut from it afterwards."""

import chainer
import numpy as np
import pytest

from chainer_profile.measure.aggregate import Aggregator
from chainer_profile.measure.event_log import EventLog
from tests.conftest import FakeClock
from tests.queues import device_clock

X = np.ones((2, 3), np.float32)


class Slow(chainer.FunctionNode):
    """Calls two functions that take time."""

    def __init__(self, forward, backward):
        super().__init__()
        self.calls = forward, backward

    def forward(self, inputs):
        self.calls[0]()
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        self.calls[1]()
        return grads


def backpropagate(forward, backward, between=lambda: None):
    loss = chainer.functions.sum(Slow(forward, backward).apply((chainer.Variable(X),))[0])
    between()
    loss.backward()


def times_of(log, trials):
    aggregator = Aggregator(log.recorder.sites, network_is_phase=True)
    times = aggregator.add(trials)
    rows = [(row.function, row.phase) for row in aggregator.index.rows]
    return [
        dict(zip(rows, trial.rows_ns.tolist(), strict=False)) | {"wall": trial.wall_ns}
        for trial in times
    ]


@pytest.mark.parametrize("takes", ["never", "within", "between"])
def test_rows_do_not_depend_on_when_the_log_is_read(takes):
    clock = FakeClock()
    log = EventLog(clock, print)
    log.start()
    cuts = []
    try:
        for number in range(3):
            clock.advance(1000)  # outside
            begin, begin_ns = log.position(), clock.time_ns
            within = log.take if takes == "within" else lambda: None
            backpropagate(lambda: clock.advance(10), lambda: clock.advance(20), within)
            clock.advance(3)
            cuts.append((begin, log.position(), begin_ns, clock.time_ns, number))
            if takes == "between":
                log.take()
    finally:
        log.stop()
    log.take()
    trials = [log.cut(*cut)[0] for cut in cuts]
    for times in times_of(log, trials):
        assert times["Slow", "forward"] == 10
        assert times["Slow", "backward"] == 20
        assert times["wall"] == 33


def test_forget_frees_memory_and_keeps_later_trials():
    clock = FakeClock()
    log = EventLog(clock, print)
    log.start()
    try:
        backpropagate(lambda: None, lambda: None)
        begin, begin_ns = log.position(), clock.time_ns
        backpropagate(lambda: clock.advance(10), lambda: clock.advance(20))
        end = log.position()
    finally:
        log.stop()
    log.take()
    log.forget(begin)
    assert log.n_stored == end.events - begin.events
    (times,) = times_of(log, [log.cut(begin, end, begin_ns, clock.time_ns, 1)[0]])
    assert times["Slow", "backward"] == 20
    log.forget(end)
    assert log.n_stored == 0


def test_rows_have_device_times():
    clock = device_clock()
    log = EventLog(FakeClock(), print)
    log.now_ns = clock.now_ns
    log.use_device(clock)
    log.start()
    launch, cuts = clock.device.launch, []
    try:
        for number in range(2):
            begin, begin_ns = log.position(), clock.time_ns
            backpropagate(lambda: launch(100), lambda: launch(200))
            log.wait()
            cuts.append((begin, log.position(), begin_ns, clock.time_ns, number))
            log.take()
            clock.advance(50)
    finally:
        log.stop()
    for times in times_of(log, [log.cut(*cut)[0] for cut in cuts]):
        assert times["Slow", "forward"] == 100
        assert times["Slow", "backward"] == 200
        assert times["wall"] == 300
