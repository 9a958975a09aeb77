"""Runs on a device with its own queue: one wait per trial, failures, held trials.

tests/ledger checks that the times of any network are exact.
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
from tests.nets import SlowOptimizer, Trained, slow_loss, slow_sums
from tests.queues import BEFORE, LAUNCH_BOUND, MS, N_HELD, PlannedNet, asked, device_clock, run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


def test_each_trial_waits_once_and_reuses_events(clock, monkeypatch):
    monkeypatch.setattr(trials, "GROUP_NS", 2000)  # groups of two trials
    queue, waits, events = clock.device, [], []

    class Net(PlannedNet):
        def forward(self, x):
            waits.append(queue.log.count("synchronize"))
            events.append(len(queue.events))
            return super().forward(x)

    run(Net(clock, queues.DEVICE_BOUND))
    assert set(np.diff(waits[queues.N_STRUCTURE + 2 :]).tolist()) == {1}
    # The second group reuses the events of the first.
    assert len({*events[BEFORE + 2 :]}) == 1


def test_journal_has_all_samples_and_gpu_state_is_read_before_and_after(
    clock, monkeypatch, tmp_path
):
    model, path = PlannedNet(clock, LAUNCH_BOUND), tmp_path / "journal"
    monkeypatch.setattr(trials, "gpu_state", lambda number: GpuState(sm_mhz=model.calls))
    with open(path, "w+b") as file:
        recording = run(model, asked(device="gpu:1"), journal=Journal(file))
    assert recording.conditions.gpu_before == GpuState(sm_mhz=queues.N_STRUCTURE)
    assert recording.conditions.gpu_after == GpuState(sm_mhz=model.calls)
    recovered = recover(path)
    for name in ["self", "gap", "host", "launch", "span", "trial", "held", "held_span"]:
        samples = getattr(recovered, f"{name}_ns")
        np.testing.assert_array_equal(samples, getattr(recording, f"{name}_ns"))
    assert run(model).conditions.gpu_before is None


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@pytest.mark.parametrize("launch_ns", [0, 1000])
def test_device_and_host_record_the_same_phases(clock, monkeypatch, phase, launch_ns):
    """Each advance of the network, the loss and the optimizer is a kernel."""
    recordings = []
    host = FakeClock()
    for advancing, timing in ((host, host), (queues.Launcher(clock, launch_ns), clock)):
        model, optimizer = Trained(advancing), None
        if phase == "train":
            optimizer = SlowOptimizer(advancing).setup(model)
        with monkeypatch.context() as patch:
            slow_sums(patch, advancing)
            more = slow_loss(advancing), optimizer
            recordings.append(run(model, asked(phase=phase), phase, *more, clock=timing))
    of_host, of_device = recordings
    queues.check(of_device)
    assert of_device.phases == of_host.phases
    # In a held trial the device never waits for the host.
    assert (of_device.held_ns == of_host.self_ns[0]).all()
    assert set(of_device.held_span_ns.tolist()) == {int(of_host.trial_ns[0])}
    if of_device.phases:
        # All time is within phases.
        within = of_device.self_ns.sum(axis=1) + of_device.framework_ns.sum(axis=1)
        assert within.tolist() == of_device.span_ns.tolist()
    if launch_ns:
        # The last row ends with its kernel, which is launched after all others have ended.
        assert (of_device.span_ns == of_device.trial_ns).all()
        assert (of_device.span_ns > of_device.launch_ns).all()
        return
    assert not of_device.host_ns.any()
    for name in ("self_ns", "trial_ns", "framework_ns"):
        np.testing.assert_array_equal(getattr(of_device, name), getattr(of_host, name))


SELF_NS = [130, 120, 150]  # self times of LAUNCH_BOUND's rows
FULL = (
    "the GPU's memory is full with a batch of 8 (3.0 GiB of 8.0 GiB are free; "
    "OutOfMemoryError: Out of memory allocating 512 bytes): use a smaller batch"
)


# Trials 11 to 15 are unprofiled; trials from the 26th on are held.
@pytest.mark.parametrize(
    ("trial", "n_done", "location"),
    [
        (3, 2, " after 2 trials, in PlannedNet at /"),
        (12, 10, " after 10 trials"),
        (25 + 2, 20, " after 20 trials, in PlannedNet at /"),
        (2 - BEFORE, None, " in PlannedNet at /"),
    ],
)
def test_full_device_memory_is_reported_and_trials_are_kept(clock, trial, n_done, location):
    error = OutOfMemoryError("Out of memory allocating\n 512 bytes")
    model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, queues.fails(error))
    with pytest.raises(ProfileError) as caught:
        run(model, asked(batchsize=8))
    assert str(caught.value) == f"the network fails{location}: {FULL}"
    assert isinstance(caught.value, RunError) is (n_done is not None)
    if n_done is not None:
        recording = caught.value.recording
        assert recording.ended == f"failed: {caught.value}"
        assert recording.self_ns.tolist() == [SELF_NS] * n_done
        assert (recording.held_ns is not None) == (trial > 26)
    assert not chainer.get_function_hooks()
    assert clock.device.end_ns > clock.time_ns  # the device is still busy
    # The failure does not affect the next run.
    again = run(PlannedNet(clock, LAUNCH_BOUND))
    assert again.self_ns.tolist() == [SELF_NS] * 20
    assert set(again.trial_ns.tolist()) == {530}


@pytest.mark.parametrize("trial", [1, 5, 20 + 5])
@pytest.mark.parametrize("count", [1, 4])
def test_rows_of_device_trials_with_other_calls_are_by_link(clock, trial, count):
    change = queues.other_calls(*[queues.kernel(1, 1)] * count)
    recording = run(PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, change))
    assert recording.by_link
    assert recording.n_trials == 20
    assert [layer.function for layer in recording.layers] == ["Planned"]
    # On the clocks of the host and the device.
    assert recording.calls[-1, 0] == count
    ends = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
    assert (ends >= 0).all()
    assert (recording.launch_ns >= recording.host_ns.sum(axis=1)).all()
    assert recording.self_ns[0, 0] == (sum(SELF_NS) if trial > 1 else recording.self_ns[-1, 0])
    assert recording.held_ns is None


@pytest.mark.parametrize(
    ("launches_ns", "hold_ns", "count", "limit"),
    [
        ([2 * MS, MS], 6 * MS, N_HELD, {}),  # twice the time of launching
        ([100], MS, N_HELD, {}),  # at least a millisecond
        # Held trials take at most two seconds: 6 trials of 300 ms, with 100 ms of launching each.
        ([100 * MS], 200 * MS, 6, {}),
        ([400 * MS], 800 * MS, 3, {}),
        # The other trials take four fifths of the two seconds.
        ([100 * MS], 200 * MS, 2, {"max_seconds": 2.0, "trials": 100, "clean_trials": 10}),
    ],
)
def test_duration_and_number_of_held_trials(clock, launches_ns, hold_ns, count, limit):
    plan = queues.calls(*(queues.kernel(launch_ns, 30) for launch_ns in launches_ns))
    recording = run(PlannedNet(clock, plan), asked(**limit))
    assert clock.device.holds == [hold_ns] * count
    assert recording.held_ns.tolist() == [[30] * len(launches_ns)] * count


# A trial is held for at most a second. Launching takes 300 ms, and the wait 30 ns.
@pytest.mark.parametrize(
    ("launch_ns", "holds"), [(10, [MS * 2**i for i in range(6)]), (150 * MS, [600 * MS + 60])]
)
def test_network_that_waits_for_the_device_has_no_held_trials(clock, launch_ns, holds):
    before, after = (queues.calls(queues.kernel(launch_ns, n)) for n in (30, 20))
    model = PlannedNet(clock, (*before, ("wait", 0), *after))
    recording = run(model)
    queues.check(recording)
    assert clock.device.holds == holds
    assert (recording.held_ns, recording.held_span_ns) == (None, None)
    assert recording.ended == "complete"
    assert model.calls == BEFORE + 25 + len(holds)


def test_stopped_run_has_no_held_trials(clock):
    model = PlannedNet(clock, LAUNCH_BOUND)
    recording = run(model, stop=lambda: "enough" if model.calls > BEFORE + 3 else "")
    assert (recording.n_trials > 0, clock.device.holds) == (True, [])
