"""Trials that the device begins when the host has launched all of them."""

from __future__ import annotations

import pytest

from tests.queues import (
    BEFORE,
    LAUNCH_BOUND,
    MS,
    N_HELD,
    PlannedNet,
    asked,
    calls,
    check,
    device_clock,
    follow,
    kernel,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


class TestHeld:
    @pytest.mark.parametrize(
        ("launches_ns", "hold_ns", "count"),
        [
            ([2 * MS, MS], 6 * MS, N_HELD),  # twice as long as launching
            ([100], MS, N_HELD),  # a millisecond at least
            # Long trials are few: of 100 ms of launching, so 300 ms in all, 6 in two seconds.
            ([100 * MS], 200 * MS, 6),
            ([400 * MS], 800 * MS, 3),
        ],
    )
    def test_how_long_and_how_often(self, clock, launches_ns, hold_ns, count):
        plan = calls(*(kernel(launch_ns, 30) for launch_ns in launches_ns))
        recording = run(PlannedNet(clock, plan), clock=clock)
        assert clock.device.holds == [hold_ns] * count
        assert recording.held_ns.tolist() == [[30] * len(launches_ns)] * count

    def test_a_time_limit_ends_them(self, clock):
        # Trials end at four fifths of the two seconds; a held one takes 300 ms.
        limit = asked(max_seconds=2.0, trials=100, clean_trials=10)
        recording = run(PlannedNet(clock, calls(kernel(100 * MS, 30))), limit, clock=clock)
        assert recording.ended == "time limit reached"
        assert len(recording.clean_ns) >= 1
        assert len(recording.held_ns) == 2

    def test_it_grows_when_it_was_too_short(self, clock):
        def slowly(model, x):
            model.clock.advance(5 * MS)
            return follow(model.clock, model.plan, x)

        model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + 25 + 1, slowly)
        recording = run(model, clock=clock)
        # The device begins when the hold is over, within the 5 ms and a little.
        assert clock.device.holds == [MS, 2 * MS, 4 * MS] + [8 * MS] * N_HELD
        assert recording.held_ns.tolist() == [[30, 20, 50]] * N_HELD
        assert recording.held_span_ns.tolist() == [100] * N_HELD
        assert model.calls == BEFORE + 25 + 3 + N_HELD + 1

    def test_a_network_that_waits_for_the_device_is_never_held(self, clock):
        model = PlannedNet(clock, (*calls(kernel(10, 30)), ("wait", 0), *calls(kernel(10, 20))))
        recording = run(model, clock=clock)
        check(recording)
        assert clock.device.holds == [MS * 2**i for i in range(6)]
        assert (recording.held_ns, recording.held_span_ns) == (None, None)
        assert recording.ended == "complete"
        assert model.calls == BEFORE + 25 + 6 + 1

    def test_nor_is_the_device_held_for_longer_than_a_second(self, clock):
        plan = (*calls(kernel(150 * MS, 30)), ("wait", 0), *calls(kernel(150 * MS, 20)))
        recording = run(PlannedNet(clock, plan), clock=clock)
        # What was launched took 300 ms and the 30 ns of the kernel that was waited for.
        assert clock.device.holds == [600 * MS + 60]
        assert recording.held_ns is None

    def test_a_network_that_waits_now_and_then_is_held_in_the_other_trials(self, clock):
        class Net(PlannedNet):
            def forward(self, x):
                if self.calls % 2:
                    self.clock.device.synchronize()
                return super().forward(x)

        recording = run(Net(clock, LAUNCH_BOUND), clock=clock)
        check(recording)
        # Every other trial is held; one that is not doubles the hold, to a second at most.
        assert recording.held_ns.tolist() == [[30, 20, 50]] * 10
        assert clock.device.holds == [MS * 2**i for i in range(10) for _ in range(2)]

    @pytest.mark.parametrize("after", [1, 7])
    def test_a_stop_is_heeded(self, clock, after):
        model = PlannedNet(clock, LAUNCH_BOUND)

        def stop():
            return "interrupted" if model.calls >= BEFORE + 25 + after else ""

        recording = run(model, clock=clock, stop=stop)
        assert recording.held_ns.tolist() == [[30, 20, 50]] * after
        # It ends no run, whose trials are made.
        assert recording.ended == "complete"
        assert (recording.n_trials, len(clock.device.holds)) == (20, after)

    def test_not_after_a_stop_or_without_trials(self, clock):
        model = PlannedNet(clock, LAUNCH_BOUND)
        says = ["", "", "", "", "", "enough"]
        recording = run(model, clock=clock, stop=lambda: says.pop(0) if says else "")
        assert (recording.n_trials, recording.ended) == (4, "enough")
        assert run(model, asked(trials=0), clock=clock).n_trials == 0
        assert clock.device.holds == []

    def test_not_on_the_host(self, clock):
        launcher, clock.device = clock.device, None
        model = PlannedNet(clock, (*calls((("host", 40),)),))
        recording = run(model, clock=clock)
        assert not recording.on_device
        assert recording.held_ns is None
        assert launcher.log == []
