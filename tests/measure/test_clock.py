"""Clocks, and durations of the warm-up and, with ``max_seconds``, of a run."""

import pytest

from chainer_profile.measure import memory
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.trials import split_first_cycle
from chainer_profile.record.recording import Calibration
from tests import queues
from tests.conftest import FakeClock
from tests.fake_queue import FakeQueue
from tests.nets import Chain
from tests.queues import asked

SECOND = 1_000_000_000

pytestmark = pytest.mark.usefixtures("one_thread")


class Slow(Chain):
    """A network whose call takes ``seconds`` longer."""

    def __init__(self, clock, seconds):
        super().__init__(clock)
        self.own_ns += int(seconds * SECOND)


def run(model, calibration=None, **changes):
    settings = asked(**({"trials": 1000, "clean_trials": 100, "warmups": 50} | changes))
    return queues.run(model, settings, memory=True, calibration=calibration)


def test_warm_up_stops_after_ten_seconds(clock):
    for seconds, count in ((0.0, 50), (0.1, 50), (1.0, 10), (4.0, 3), (10.0, 1), (60.0, 1)):
        recording = run(Slow(clock, seconds), trials=5, clean_trials=5)
        assert len(recording.warmup_ns) == count, seconds
        assert recording.settings.warmups == 50
    assert not len(run(Slow(clock, 1), trials=5, clean_trials=5, warmups=0).warmup_ns)


@pytest.mark.parametrize(("seconds", "memory_passes"), [(0.01, 2), (0.05, 4), (0.2, 2), (1.0, 4)])
def test_all_passes_end_within_max_seconds_with_profiled_and_unprofiled_trials(
    clock, seconds, memory_passes, monkeypatch
):
    def calibration():
        clock.advance(SECOND // 10)
        return Calibration(1e-3, 1e-3)

    def measure(step, traced, n_rows):
        clock.advance(int(memory_passes * seconds * SECOND))

    monkeypatch.setattr(memory, "measure_memory", measure)
    begin_ns = clock.time_ns
    limit = {"max_seconds": 20.0, "trials": 100_000}
    recording = run(Slow(clock, seconds), calibration=calibration, **limit)
    took_s = (clock.time_ns - begin_ns) / SECOND
    assert recording.ended == "time limit reached"
    assert 16 - seconds < took_s <= 20 + seconds
    assert len(recording.clean_ns) >= 1
    assert recording.n_trials >= 5
    assert len(recording.conditions.calibrations) == 2
    assert len(recording.warmup_ns) * seconds <= 2 + seconds


def test_opening_splits_the_first_cycle():
    for cycle, parts in (
        ((25, 5, 25), [(1, 1, 9), (5, 1, 5), (10, 2, 10), (5, 1, 5)]),
        ((5, 1, 5), [(1, 1, 9)]),
        ((1, 5, 0), [(1, 1, 0), (0, 1, 0), (0, 2, 0), (0, 1, 0)]),
        ((3, 0, 2), [(1, 0, 4)]),
    ):
        assert list(split_first_cycle(*cycle)) == parts


def test_waiting_clock_synchronizes_before_each_reading():
    assert HOST_CLOCK.device is None
    assert HOST_CLOCK.waiting() is HOST_CLOCK
    host = FakeClock(time_ns=100)
    queue = FakeQueue(host)
    clock = Clock(host.now_ns, queue)
    waiting = clock.waiting()
    queue.launch(70)
    assert (clock.now_ns(), waiting.device, queue.log) == (100, None, [])
    assert [waiting.now_ns(), waiting.now_ns()] == [170, 170]
    assert queue.log == ["synchronize"] * 2
