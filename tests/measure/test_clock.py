from __future__ import annotations

from chainer_profile.measure.clock import HOST_CLOCK, Clock
from tests.conftest import FakeClock
from tests.fake_queue import FakeQueue


def test_resolution_is_the_smallest_step_between_differing_reads():
    reads = iter([10, 10, 40, 60, 60, 160])
    assert Clock(lambda: next(reads)).resolution_ns(6) == 20
    assert Clock(lambda: 3).resolution_ns(5) == 0  # it stands still


def test_the_host_clock_moves_forward_and_has_no_device_to_wait_for():
    first, second = HOST_CLOCK.now_ns(), HOST_CLOCK.now_ns()
    assert second >= first
    assert HOST_CLOCK.device is None
    assert HOST_CLOCK.waiting() is HOST_CLOCK


def test_a_clock_that_waits_for_its_device():
    host = FakeClock(time_ns=100)
    queue = FakeQueue(host)
    clock = Clock(host.now_ns, queue)
    queue.launch(70)
    assert clock.now_ns() == 100
    waiting = clock.waiting()
    assert (waiting.device, queue.log) == (None, [])
    assert waiting.now_ns() == 170
    assert queue.log == ["synchronize"]
    queue.launch(5)
    assert clock.now_ns() == 170
    assert [waiting.now_ns(), waiting.now_ns()] == [175, 175]
    assert queue.log == ["synchronize"] * 3
