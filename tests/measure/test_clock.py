from __future__ import annotations

import pytest

from chainer_profile.measure.clock import HOST_CLOCK, Clock
from tests.conftest import FakeClock
from tests.fake_queue import CUDARuntimeError, FakeQueue


def test_resolution_is_the_smallest_step_between_differing_reads():
    reads = iter([10, 10, 40, 60, 60, 160])
    assert Clock(lambda: next(reads)).resolution_ns(6) == 20


def test_a_clock_that_stands_still_has_no_resolution():
    assert Clock(lambda: 3).resolution_ns(5) == 0


def test_the_host_clock_moves_forward():
    first, second = HOST_CLOCK.now_ns(), HOST_CLOCK.now_ns()
    assert second >= first


def test_the_host_has_no_device_to_wait_for():
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


def test_the_fake_queue_works_through_its_kernels_in_order():
    """What all tests with a device rest on."""
    clock = FakeClock(time_ns=0)
    queue = FakeQueue(clock)
    fake = queue
    assert isinstance(fake, FakeQueue)
    first, second, third = (queue.new_event() for _ in range(3))
    clock.advance(10)
    first.record()  # the device is idle: it gets there at once
    assert first.done
    fake.launch(100)  # from 10 to 110
    clock.advance(20)
    fake.launch(50)  # behind it, to 160
    second.record()
    queue.hold(1000)
    third.record()
    assert (second.done, third.done) == (False, False)
    # As CUDA refuses them, and as CuPy says it.
    with pytest.raises(CUDARuntimeError, match=r"^cudaErrorNotReady: device not ready$"):
        queue.elapsed_ms(first, second)
    unrecorded = r"^cudaErrorInvalidResourceHandle: invalid resource handle$"
    with pytest.raises(CUDARuntimeError, match=unrecorded):
        queue.elapsed_ms(first, queue.new_event())
    clock.advance(130)  # the host is at 160
    assert (second.done, third.done) == (True, False)
    queue.synchronize()
    assert (clock.time_ns, third.done) == (1160, True)
    queue.synchronize()
    assert clock.time_ns == 1160
    # In milliseconds and in single precision.
    assert [queue.elapsed_ms(first, event) for event in (second, third)] == [
        0.0001500000071246177,
        0.0011500000255182385,
    ]
    clock.advance(5)
    first.record()
    assert queue.elapsed_ms(third, first) < queue.elapsed_ms(second, first)
