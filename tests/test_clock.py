from __future__ import annotations

from chainer_profile.clock import HOST_CLOCK, Clock


def test_resolution_is_the_smallest_step_between_differing_reads():
    reads = iter([10, 10, 40, 60, 60, 160])
    assert Clock(lambda: next(reads)).resolution_ns(6) == 20


def test_a_clock_that_stands_still_has_no_resolution():
    assert Clock(lambda: 3).resolution_ns(5) == 0


def test_the_host_clock_moves_forward():
    first, second = HOST_CLOCK.now_ns(), HOST_CLOCK.now_ns()
    assert second >= first
