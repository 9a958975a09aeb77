"""Runs on a device with a queue of its own: exact times, and one wait a trial.

A kernel starts when the device is free and the host has launched it. An event in the queue is at
the moment when the device gets to it: at once if it has nothing to do.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure import runner, trials
from chainer_profile.measure.threads import _VARIABLES
from chainer_profile.record.journal import Journal, recover
from chainer_profile.record.recording import BlasLibrary, Environment, GpuState
from tests.conftest import FakeClock
from tests.nets import SlowHook, SlowOptimizer, Trained, slow_loss, slow_sums
from tests.queues import (
    DEVICE_BOUND,
    LAUNCH_BOUND,
    N_HELD,
    N_STRUCTURE,
    Launcher,
    PlannedNet,
    asked,
    check,
    device_clock,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


class TestRun:
    """That the times of any network are those of a ledger is below."""

    def test_reads_of_the_clock_pass_time_of_the_host_only(self):
        # Each read takes 3; the kernels keep the device busy all the while.
        clock = device_clock(read_ns=3)
        recording = run(PlannedNet(clock, DEVICE_BOUND[1:]), clock=clock)
        assert recording.host_ns.tolist() == [[13] * 3] * 20
        assert recording.self_ns[0].tolist()[1:] == [200, 500]
        assert recording.conditions.window_ns == 6

    def test_one_wait_and_no_new_event_a_trial(self, clock, monkeypatch):
        monkeypatch.setattr(trials, "_GROUP_NS", 2000)  # groups of two trials
        monkeypatch.setattr("chainer_profile.measure.recorder._DEVICE_WINDOWS", 1)
        queue, logs = clock.device, []

        class Net(PlannedNet):
            def forward(self, x):
                logs.append(list(queue.log))
                queue.log.clear()
                return super().forward(x)

        run(Net(clock, DEVICE_BOUND), clock=clock)
        # 2 for an empty window, or 3 times 2, and the first and the last one.
        assert len(queue.events) == 8
        first, *between = logs
        assert first == []
        window = ["synchronize", "record", "record", "synchronize"]
        assert between[: N_STRUCTURE - 1] == [[]] * (N_STRUCTURE - 1)
        assert between[N_STRUCTURE - 1] == window
        trial = ["record"] * 7 + ["synchronize"]
        # Each is between two calls: the first event is recorded before the call.
        begin = ["record"]
        plain, profiled = ["synchronize"], trial
        assert between[N_STRUCTURE:] == [
            plain,
            plain + begin,
            *[profiled + begin] * 9,
            profiled,
            *[plain] * 4,
            plain + begin,
            *[profiled + begin] * (10 + N_HELD - 1),
            profiled,
        ]

    def test_threads_are_not_tried(self, clock, monkeypatch):
        blas = (BlasLibrary("openblas", "1", 4),)
        monkeypatch.setattr(runner.environment, "collect", lambda *_: Environment(blas=blas))
        for name in _VARIABLES:
            monkeypatch.delenv(name, raising=False)
        recording = run(PlannedNet(clock, LAUNCH_BOUND), asked(trials=100), clock=clock)
        assert not len(recording.probe_ns)
        assert (recording.ended, len(recording.clean_ns), len(recording.warmup_ns)) == (
            *("complete", 5, 2),
        )

    def test_how_the_gpu_fares_is_asked_before_and_after(self, clock, monkeypatch):
        states = []

        def state(number):
            states.append((number, model.calls))
            return GpuState(sm_mhz=len(states))

        monkeypatch.setattr(trials, "gpu_state", state)
        model = PlannedNet(clock, LAUNCH_BOUND)
        recording = run(model, asked(device="gpu:1"), clock=clock)
        assert recording.conditions.gpu_before == GpuState(sm_mhz=1)
        assert recording.conditions.gpu_after == GpuState(sm_mhz=2)
        assert states == [(1, N_STRUCTURE), (1, model.calls)]
        assert run(model, clock=clock).conditions.gpu_before is None

    def test_the_journal_holds_all_of_it(self, clock, tmp_path):
        path = tmp_path / "journal"
        with open(path, "w+b") as file:
            recording = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock, journal=Journal(file))
        recovered = recover(path)
        times = ("self", "gap", "host", "launch", "span", "trial", "held", "held_span")
        for name in (f"{time}_ns" for time in times):
            np.testing.assert_array_equal(getattr(recovered, name), getattr(recording, name))


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@pytest.mark.parametrize("launch_ns", [0, 1000])
def test_phases_of_a_device_are_those_of_the_host(clock, monkeypatch, phase, launch_ns):
    """Every advance of the network, the loss and the optimizer is a kernel."""

    def trained(host, **more):
        optimizer = None
        model = Trained(host)
        with monkeypatch.context() as patch:
            slow_sums(patch, host)
            if phase == "train":
                optimizer = SlowOptimizer(host).setup(model)
                optimizer.add_hook(SlowHook(host, 17))
            return run(model, asked(phase=phase), phase, slow_loss(host), optimizer, **more)

    host = FakeClock()
    known = trained(host, clock=host)
    recording = trained(Launcher(clock, launch_ns), clock=clock)
    check(recording)
    assert recording.phases == known.phases
    # Held, the device works through all of them without waiting, whatever the host needs.
    assert (recording.held_ns == known.self_ns[0]).all()
    assert set(recording.held_span_ns.tolist()) == {int(known.trial_ns[0])}
    if recording.phases:
        # Nothing passes outside of the phases.
        inside = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
        assert inside.tolist() == recording.span_ns.tolist()
    if launch_ns:
        # The last row ends with its kernel, which is launched when all before are done.
        assert (recording.span_ns == recording.trial_ns).all()
        assert (recording.span_ns > recording.launch_ns).all()
        return
    assert (recording.self_ns == known.self_ns).all()
    assert (recording.trial_ns == known.trial_ns).all()
    assert not recording.host_ns.any()
    if recording.phases:
        assert (recording.framework_ns == known.framework_ns).all()


# --- any network

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
    """Whose every nanosecond is, kept while the plan is followed: one entry for each moment."""

    def __init__(self, plan, held=False):
        self.held = held
        self.host = self.end = self.mark = self.host_mark = 0
        self.own, self.host_own, self.gaps = [], [], []
        self.running, self.outside = [], 0
        self.follow(plan)
        self.book()
        self.tail, self.span = self.outside, self.mark

    def book(self):
        """The time since the last event belongs to what is running."""
        now = self.end if self.held else max(self.host, self.end)
        if self.running:
            self.own[self.running[-1]] += now - self.mark
            self.host_own[self.running[-1]] += self.host - self.host_mark
        else:
            self.outside += now - self.mark
        self.mark, self.host_mark = now, self.host

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
                self.running.append(len(self.own))
                self.own.append(0)
                self.host_own.append(0)
                self.follow(value)
                self.book()
                self.running.pop()


@given(first=_call, rest=st.lists(_host | _kernel | _call | _wait, max_size=6))
def test_any_network_is_as_in_the_ledger(first, rest):
    plan = (*rest[:2], first, *rest[2:])
    clock, known, held = device_clock(), Ledger(plan), Ledger(plan, held=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.environment, "collect", lambda *_: Environment(numpy="1"))
        patch.setattr(trials, "HELD_TRIALS", 2)
        recording = run(
            PlannedNet(clock, plan), asked(trials=3, clean_trials=1, warmups=0), clock=clock
        )
    check(recording)
    assert recording.self_ns.tolist() == [known.own] * 3
    assert recording.host_ns.tolist() == [known.host_own] * 3
    assert recording.gap_ns.tolist() == [known.gaps] * 3
    assert recording.launch_ns.tolist() == [known.host] * 3
    assert recording.span_ns.tolist() == [known.span] * 3
    assert sum(known.own) + sum(known.gaps) + known.tail == known.span
    assert recording.trial_ns.tolist() == [max(known.host, known.end)] * 3
    assert recording.clean_ns.tolist() == recording.trial_ns.tolist()[:1]
    if ("wait", 0) not in plan:  # else it is not held
        assert recording.held_ns.tolist() == [held.own] * 2
        assert recording.held_span_ns.tolist() == [held.span] * 2
