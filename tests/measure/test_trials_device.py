"""Runs on a device with a queue of its own: one wait a trial, failures, and trials that are held.

That the times of any network are exact is in tests/ledger.
"""

import chainer
import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import trials
from chainer_profile.measure.runner import RunError
from chainer_profile.record.journal import Journal, recover
from chainer_profile.record.recording import GpuState
from tests import queues
from tests.conftest import FakeClock
from tests.fake_queue import OutOfMemoryError
from tests.nets import SlowHook, SlowOptimizer, Trained, slow_loss, slow_sums
from tests.queues import BEFORE, LAUNCH_BOUND, MS, N_HELD, PlannedNet, asked, device_clock, run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


class TestRun:
    def test_one_wait_and_no_new_event_a_trial(self, clock, monkeypatch):
        monkeypatch.setattr(trials, "GROUP_NS", 2000)  # groups of two trials
        monkeypatch.setattr(trials, "window_ns", lambda *_: 0.0)
        queue, logs = clock.device, []

        class Net(PlannedNet):
            def forward(self, x):
                logs.append(list(queue.log))
                queue.log.clear()
                return super().forward(x)

        run(Net(clock, queues.DEVICE_BOUND))
        # 3 times 2, and the first and the last one; 4 where the first trial looks up its calls.
        assert len(queue.events) == 8 + 4
        # Each is between two calls: the first event is recorded before the call.
        begin, plain, profiled = ["record"], ["synchronize"], ["record"] * 7 + ["synchronize"]
        assert logs[queues.N_STRUCTURE + 1 :] == [
            plain,
            plain + begin,
            *[profiled + begin] * 9,
            profiled,
            *[plain] * 4,
            plain + begin,
            *[profiled + begin] * (10 + N_HELD - 1),
        ]

    def test_the_journal_holds_all_and_how_the_gpu_fares_is_asked_before_and_after(
        self, clock, monkeypatch, tmp_path
    ):
        states = []

        def state(number):
            states.append((number, model.calls))
            return GpuState(sm_mhz=len(states))

        monkeypatch.setattr(trials, "gpu_state", state)
        model, path = PlannedNet(clock, LAUNCH_BOUND), tmp_path / "journal"
        with open(path, "w+b") as file:
            recording = run(model, asked(device="gpu:1"), journal=Journal(file))
        assert recording.conditions.gpu_before == GpuState(sm_mhz=1)
        assert recording.conditions.gpu_after == GpuState(sm_mhz=2)
        assert states == [(1, queues.N_STRUCTURE), (1, model.calls)]
        recovered = recover(path)
        for name in ["self", "gap", "host", "launch", "span", "trial", "held", "held_span"]:
            samples = getattr(recovered, f"{name}_ns")
            np.testing.assert_array_equal(samples, getattr(recording, f"{name}_ns"))
        assert run(model).conditions.gpu_before is None


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
    of_host = trained(host, clock=host)
    recording = trained(queues.Launcher(clock, launch_ns), clock=clock)
    queues.check(recording)
    assert recording.phases == of_host.phases
    # Held, the device works through all of them without waiting, whatever the host needs.
    assert (recording.held_ns == of_host.self_ns[0]).all()
    assert set(recording.held_span_ns.tolist()) == {int(of_host.trial_ns[0])}
    if recording.phases:
        # Nothing passes outside of the phases.
        inside = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
        assert inside.tolist() == recording.span_ns.tolist()
    if launch_ns:
        # The last row ends with its kernel, which is launched when all before are done.
        assert (recording.span_ns == recording.trial_ns).all()
        assert (recording.span_ns > recording.launch_ns).all()
        return
    assert (recording.self_ns == of_host.self_ns).all()
    assert (recording.trial_ns == of_host.trial_ns).all()
    assert not recording.host_ns.any()
    if recording.phases:
        assert (recording.framework_ns == of_host.framework_ns).all()


# -- failures: measured trials are kept, and the next run is right


MEMORY_FULL = OutOfMemoryError("Out of memory allocating\n 512 bytes")
FULL = (
    "the GPU's memory is full with a batch of 8 (3.0 GiB of 8.0 GiB are free; "
    "OutOfMemoryError: Out of memory allocating 512 bytes): use a smaller --batchsize"
)
OWN = [130, 120, 150]  # of LAUNCH_BOUND's rows


@pytest.mark.parametrize("group_ns", [1, 10**9])
def test_an_exception_in_the_middle_of_a_trial(clock, monkeypatch, group_ns):
    monkeypatch.setattr(trials, "GROUP_NS", group_ns)
    model = PlannedNet(
        clock, LAUNCH_BOUND, BEFORE + 5, queues.fails(ValueError("broken\n on purpose"))
    )
    with pytest.raises(RunError) as caught:
        run(model)
    assert str(caught.value) == (
        "the network fails after 4 trials, in PlannedNet at /: ValueError: broken on purpose"
    )
    recording = caught.value.recording
    queues.check(recording)
    assert recording.self_ns.tolist() == [OWN] * 4
    assert recording.held_ns is None
    assert not chainer.get_function_hooks()
    assert clock.device.end_ns > clock.time_ns  # the device still works
    # The next run is as if nothing had happened.
    again = run(PlannedNet(clock, LAUNCH_BOUND))
    queues.check(again)
    assert again.self_ns.tolist() == [OWN] * 20
    assert set(again.trial_ns.tolist()) == set(again.warmup_ns.tolist()) == {530}


@pytest.mark.parametrize("trial", [1, 5, 20 + 5])
def test_other_calls_have_rows_by_link(clock, trial):
    for count in (1, 4):
        change = queues.other_calls(*[queues.kernel(1, 1)] * count)
        recording = run(PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, change))
        assert recording.by_link
        assert recording.n_trials == 20
        (row,) = recording.layers
        assert row.function == "Planned"
        # By the host's clock, and by the device's.
        assert recording.calls[-1, 0] == count
        ends = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
        assert (ends >= 0).all()
        assert (recording.launch_ns >= recording.host_ns.sum(axis=1)).all()
        assert recording.self_ns[0, 0] == (sum(OWN) if trial > 1 else recording.self_ns[-1, 0])
        assert recording.held_ns is None


# Trials 11 to 15 are clean ones; the 26th and so on are held.
def test_a_full_memory(clock):
    for trial, done, where in (
        (1, 0, " after 0 trials, in PlannedNet at /"),
        (3, 2, " after 2 trials, in PlannedNet at /"),
        (12, 10, " after 10 trials"),
        (25 + 2, 20, " after 20 trials, in PlannedNet at /"),
        (2 - BEFORE, None, " in PlannedNet at /"),
    ):
        model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, queues.fails(MEMORY_FULL))
        with pytest.raises(ProfileError) as caught:
            run(model, asked(batchsize=8))
        assert str(caught.value) == f"the network fails{where}: {FULL}"
        assert isinstance(caught.value, RunError) is (done is not None)
        if done is not None:
            recording = caught.value.recording
            assert recording.ended == f"failed: {caught.value}"
            assert recording.self_ns.tolist() == [OWN] * done
            assert (recording.held_ns is not None) == (trial > 26)


# -- trials that the device begins when the host has launched all of them


def test_how_long_and_how_often_trials_are_held():
    for launches_ns, hold_ns, count in (
        ([2 * MS, MS], 6 * MS, N_HELD),  # twice as long as launching
        ([100], MS, N_HELD),  # a millisecond at least
        # Long trials are few: of 100 ms of launching, so 300 ms in all, 6 in two seconds.
        ([100 * MS], 200 * MS, 6),
        ([400 * MS], 800 * MS, 3),
    ):
        clock = device_clock()
        plan = queues.calls(*(queues.kernel(launch_ns, 30) for launch_ns in launches_ns))
        recording = run(PlannedNet(clock, plan))
        assert clock.device.holds == [hold_ns] * count
        assert recording.held_ns.tolist() == [[30] * len(launches_ns)] * count
    # Of a time limit trials take four fifths of the two seconds; a held one takes 300 ms.
    limit = asked(max_seconds=2.0, trials=100, clean_trials=10)
    recording = run(PlannedNet(device_clock(), queues.calls(queues.kernel(100 * MS, 30))), limit)
    assert recording.ended == "time limit reached"
    assert len(recording.clean_ns) >= 1
    assert len(recording.held_ns) == 2


def test_a_network_that_waits_for_the_device_is_never_held():
    # Never for longer than a second: launching takes 300 ms and the 30 ns that are waited for.
    for launch_ns, holds in ((10, [MS * 2**i for i in range(6)]), (150 * MS, [600 * MS + 60])):
        clock = device_clock()
        plan = (
            *queues.calls(queues.kernel(launch_ns, 30)),
            ("wait", 0),
            *queues.calls(queues.kernel(launch_ns, 20)),
        )
        model = PlannedNet(clock, plan)
        recording = run(model)
        queues.check(recording)
        assert clock.device.holds == holds
        assert (recording.held_ns, recording.held_span_ns) == (None, None)
        assert recording.ended == "complete"
        assert model.calls == BEFORE + 25 + len(holds)
