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
from tests.nets import SlowHook, SlowOptimizer, Trained, slow_loss, slow_sums
from tests.queues import (
    DEVICE_BOUND,
    LAUNCH_BOUND,
    N_HELD,
    N_STRUCTURE,
    Launcher,
    PlannedNet,
    asked,
    calls,
    check,
    device_clock,
    kernel,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


class TestExactTimes:
    @pytest.mark.parametrize(
        ("plan", "own", "gaps", "tail", "launch", "wait", "host", "kernels"),
        [
            (
                LAUNCH_BOUND,
                [130, 120, 150],
                [50, 20, 30],
                30,
                530,
                0,
                [100, 100, 100],
                [30, 20, 50],
            ),
            (DEVICE_BOUND, [310, 200, 500], [5, 0, 0], 0, 50, 965, [10, 10, 10], [300, 200, 500]),
            # A kernel outside of all functions: the device waits 10 for it, and its 70 end at 80.
            (
                (("host", 10), ("kernel", 70), *calls(kernel(20, 40))),
                [40],
                [80],
                0,
                30,
                90,
                [20],
                [40],
            ),
        ],
        ids=["launch-bound", "device-bound", "outside"],
    )
    def test_a_trial(self, clock, plan, own, gaps, tail, launch, wait, host, kernels):
        recording = run(PlannedNet(clock, plan), clock=clock)
        check(recording)
        assert recording.ended == "complete"
        assert recording.self_ns.tolist() == [own] * 20
        assert recording.gap_ns.tolist() == [gaps] * 20
        assert recording.host_ns.tolist() == [host] * 20
        assert recording.launch_ns.tolist() == [launch] * 20
        span = sum(own) + sum(gaps) + tail
        assert recording.span_ns.tolist() == [span] * 20
        assert recording.trial_ns.tolist() == [launch + wait] * 20 == [span] * 20
        # Trials without events wait for the device all the same.
        assert recording.clean_ns.tolist() == [span] * 5
        assert recording.warmup_ns.tolist() == [span] * 2
        # Held, the device never waits: these are the kernels.
        assert recording.held_ns.tolist() == [kernels] * N_HELD
        outside = sum(value for kind, value in plan if kind == "kernel")
        assert recording.held_span_ns.tolist() == [sum(kernels) + outside] * N_HELD
        assert (recording.phases, recording.framework_ns) == ((), None)

    def test_nested_calls_count_once(self, clock):
        inner = kernel(100, 10)
        outer = (("host", 20), ("kernel", 5), ("call", inner), ("host", 30), ("kernel", 200))
        recording = run(PlannedNet(clock, calls(outer)), clock=clock)
        check(recording)
        # Entered at 0; its first kernel from 20 to 25. The inner call is entered at 25, its kernel
        # is launched at 120 and ends at 130. The second kernel is launched at 150, ends at 350.
        assert recording.self_ns.tolist() == [[25 + 220, 105]] * 20
        assert recording.host_ns.tolist() == [[50, 100]] * 20
        assert recording.gap_ns.tolist() == [[0, 0]] * 20
        assert recording.held_ns.tolist() == [[205, 10]] * N_HELD

    def test_what_the_network_waits_for_is_launched_late(self, clock):
        # The device is at 110 when the host waits; the second kernel follows from 120 to 170.
        plan = (*calls(kernel(10, 100)), ("wait", 0), *calls(kernel(10, 50)))
        recording = run(PlannedNet(clock, plan), clock=clock)
        check(recording)
        assert recording.self_ns.tolist() == [[110, 60]] * 20
        assert recording.launch_ns.tolist() == [120] * 20
        assert recording.trial_ns.tolist() == [170] * 20

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
            model = PlannedNet(clock, LAUNCH_BOUND)
            recording = run(model, clock=clock, journal=Journal(file))
        recovered = recover(path)
        for name in ("self_ns", "gap_ns", "host_ns", "launch_ns", "span_ns", "trial_ns", "held_ns"):
            np.testing.assert_array_equal(getattr(recovered, name), getattr(recording, name))
        np.testing.assert_array_equal(recovered.held_span_ns, recording.held_span_ns)
        check(recovered)


# Trained under a SlowOptimizer with one hook: its times as in test_runner_training.py, but of
# kernels. The update's own two are before the hook and behind the last parameter.
ROWS = [100, 40, 40, 20, 9, 30, 83, 83, 13, 200, 17 + 1, 50, 50]
# The network's 10 and the links' 5 before and 2 after; the loss function's 11; the update's 1.
GAPS = [15, 7, 7, 13, 0, 0, 0, 0, 0, 0, 1, 0, 0]


@pytest.fixture(params=[0, 1000], ids=["device-bound", "launch-bound"])
def launcher(request, clock, monkeypatch):
    launcher = Launcher(clock, request.param)
    slow_sums(monkeypatch, launcher)
    return launcher


def trained(launcher, phase, clock):
    optimizer = None
    model = Trained(launcher)
    if phase == "train":
        optimizer = SlowOptimizer(launcher).setup(model)
        optimizer.add_hook(SlowHook(launcher, 17))
    loss = slow_loss(launcher)
    recording = run(model, asked(phase=phase), phase, loss, optimizer, clock=clock)
    check(recording)
    return recording


class TestPhases:
    """Every advance of the network, the loss and the optimizer is a kernel."""

    @pytest.mark.parametrize(
        ("phase", "n_rows", "framework", "tail"),
        [
            ("forward", 3, {}, 2),
            ("forward-backward", 10, {"forward": 42, "backward": 0}, 0),
            ("train", 13, {"update": 2, "forward": 42, "backward": 0}, 1),
        ],
    )
    def test_times_add_up(self, clock, launcher, phase, n_rows, framework, tail):
        recording = trained(launcher, phase, clock)
        rows, gaps = ROWS[:n_rows], GAPS[:n_rows]
        span = sum(rows) + sum(gaps) + tail
        assert recording.phases == tuple(framework)
        # Held, the device works through all of them without waiting, whatever the host needs.
        assert recording.held_ns.tolist() == [rows] * N_HELD
        assert recording.held_span_ns.tolist() == [span] * N_HELD
        if framework:
            # Nothing passes outside of the phases.
            inside = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
            assert inside.tolist() == recording.span_ns.tolist()
        if recording.launch_ns[0]:
            return
        # Where launching takes no time they are the same in every trial.
        assert recording.self_ns.tolist() == [rows] * 20
        assert recording.gap_ns.tolist() == [gaps] * 20
        assert recording.span_ns.tolist() == recording.trial_ns.tolist() == [span] * 20
        assert not recording.host_ns.any()
        if framework:
            assert recording.framework_ns.tolist() == [list(framework.values())] * 20

    @pytest.mark.parametrize("phase", ["forward-backward", "train"])
    def test_launch_bound(self, clock, monkeypatch, phase):
        """A kernel is launched every 1000 ns and soon done: the device waits in every row."""
        launcher = Launcher(clock, 1000)
        slow_sums(monkeypatch, launcher)
        recording = trained(launcher, phase, clock)
        # Kernels of the forward pass, launched at 1000, 2000, ...: the network's 10, then a link's
        # 5, 100 and 2, 5, 40 and 2, 5, 40 and 2, the loss function's 11 and 20. So the first row
        # is entered at 2005 and left at 3100, the next ones from 5005 to 6040 and 8005 to 9040,
        # and the loss from 11011 to 12020. cleargrads is entered then, and left at 13009.
        assert recording.self_ns[0, :5].tolist() == [1095, 1035, 1035, 1009, 989]
        assert recording.gap_ns[0, :5].tolist() == [2005, 1905, 1965, 1971, 0]
        assert recording.host_ns[0, :5].tolist() == [1000] * 5
        framework = dict(zip(recording.phases, recording.framework_ns[0].tolist(), strict=True))
        assert framework["forward"] == 2005 + 1905 + 1965 + 1971
        assert framework["backward"] == 0
        # The last row ends with its kernel, which is launched when all before are done.
        kernels = int(recording.launch_ns[0]) // 1000
        last = 1 if phase == "train" else 200
        assert recording.span_ns[0] == recording.trial_ns[0] == 1000 * kernels + last


# --- any network

_host = st.tuples(st.just("host"), st.integers(0, 300) | st.integers(0, 30_000))
_kernel = st.tuples(st.just("kernel"), st.integers(0, 300) | st.integers(0, 30_000))


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


@given(first=_call, rest=st.lists(_host | _kernel | _call, max_size=6))
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
    assert recording.held_ns.tolist() == [held.own] * 2
    assert recording.held_span_ns.tolist() == [held.span] * 2
