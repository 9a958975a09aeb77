"""Times on a device with its own queue: each nanosecond belongs to the right row.

A kernel starts when the host has launched it and the device is free. An event has the time at which
the device reaches it, which is at once if the queue is empty.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure import runner, trials
from chainer_profile.record.recording import Environment
from tests.queues import PlannedNet, asked, check, device_clock, run

_host = st.tuples(st.just("host"), st.integers(0, 300) | st.integers(0, 30_000))
_kernel = st.tuples(st.just("kernel"), st.integers(0, 300) | st.integers(0, 30_000))
_wait = st.just(("wait", 0))


def _plans(inner):
    return st.lists(_host | _kernel | inner, max_size=5).map(tuple)


_call = st.tuples(
    st.just("call"),
    st.recursive(_plans(_host), lambda more: _plans(st.tuples(st.just("call"), more))),
)


class Ledger:
    """Runs a plan, and records the owner of each nanosecond."""

    def __init__(self, plan, held=False):
        self.held = held
        self.host = self.end = self.last = self.host_last = 0
        self.self_ns, self.host_self_ns, self.gaps = [], [], []
        self.running, self.outside = [], 0
        self.follow(plan)
        self.book()
        self.tail, self.span = self.outside, self.last

    def book(self):
        """Add the time since the last event to the running function."""
        now = self.end if self.held else max(self.host, self.end)
        if self.running:
            self.self_ns[self.running[-1]] += now - self.last
            self.host_self_ns[self.running[-1]] += self.host - self.host_last
        else:
            self.outside += now - self.last
        self.last, self.host_last = now, self.host

    def follow(self, plan):
        for kind, value in plan:
            if kind == "host":
                self.host += value
            elif kind == "kernel":
                self.end = (self.end if self.held else max(self.host, self.end)) + value
            elif kind == "wait":
                self.host = max(self.host, self.end)
            else:
                self.book()
                self.gaps.append(self.outside)
                self.outside = 0
                self.running.append(len(self.self_ns))
                self.self_ns.append(0)
                self.host_self_ns.append(0)
                self.follow(value)
                self.book()
                self.running.pop()


@given(first=_call, rest=st.lists(_host | _kernel | _call | _wait, max_size=6))
def test_device_times_of_any_network_equal_the_ledger(first, rest):
    plan = (*rest[:2], first, *rest[2:])
    clock, expected, held = device_clock(), Ledger(plan), Ledger(plan, held=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.environment, "collect", lambda *_: Environment(numpy="1"))
        patch.setattr(trials, "HELD_TRIALS", 2)
        recording = run(
            PlannedNet(clock, plan), asked(trials=3, clean_trials=1, warmups=0), clock=clock
        )
    check(recording)
    assert recording.self_ns.tolist() == [expected.self_ns] * 3
    assert recording.host_ns.tolist() == [expected.host_self_ns] * 3
    assert recording.gap_ns.tolist() == [expected.gaps] * 3
    assert recording.launch_ns.tolist() == [expected.host] * 3
    assert recording.span_ns.tolist() == [expected.span] * 3
    assert sum(expected.self_ns) + sum(expected.gaps) + expected.tail == expected.span
    assert recording.trial_ns.tolist() == [max(expected.host, expected.end)] * 3
    assert recording.clean_ns.tolist() == recording.trial_ns.tolist()[:1]
    if ("wait", 0) not in plan:  # a network that waits is not held
        assert recording.held_ns.tolist() == [held.self_ns] * 2
        assert recording.held_span_ns.tolist() == [held.span] * 2
