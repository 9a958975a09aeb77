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
from tests.nets import SlowOptimizer, Trained, slow_loss, slow_sums
from tests.queues import BEFORE, LAUNCH_BOUND, MS, N_HELD, PlannedNet, asked, device_clock, run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


def test_one_wait_and_no_new_event_a_trial(clock, monkeypatch):
    monkeypatch.setattr(trials, "GROUP_NS", 2000)  # groups of two trials
    queue, waits, events = clock.device, [], []

    class Net(PlannedNet):
        def forward(self, x):
            waits.append(queue.log.count("synchronize"))
            events.append(len(queue.events))
            return super().forward(x)

    run(Net(clock, queues.DEVICE_BOUND))
    assert set(np.diff(waits[queues.N_STRUCTURE + 2 :]).tolist()) == {1}
    # The second group takes the events of the first.
    assert len({*events[BEFORE + 2 :]}) == 1


def test_the_journal_holds_all_and_how_the_gpu_fares_is_asked_before_and_after(
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
def test_phases_of_a_device_are_those_of_the_host(clock, monkeypatch, phase, launch_ns):
    """Every advance of the network, the loss and the optimizer is a kernel."""
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
    # Held, the device works through all of them without waiting, whatever the host needs.
    assert (of_device.held_ns == of_host.self_ns[0]).all()
    assert set(of_device.held_span_ns.tolist()) == {int(of_host.trial_ns[0])}
    if of_device.phases:
        # Nothing passes outside of the phases.
        within = of_device.self_ns.sum(axis=1) + of_device.framework_ns.sum(axis=1)
        assert within.tolist() == of_device.span_ns.tolist()
    if launch_ns:
        # The last row ends with its kernel, which is launched when all before are done.
        assert (of_device.span_ns == of_device.trial_ns).all()
        assert (of_device.span_ns > of_device.launch_ns).all()
        return
    assert not of_device.host_ns.any()
    for name in ("self_ns", "trial_ns", "framework_ns"):
        np.testing.assert_array_equal(getattr(of_device, name), getattr(of_host, name))


OWN = [130, 120, 150]  # of LAUNCH_BOUND's rows
FULL = (
    "the GPU's memory is full with a batch of 8 (3.0 GiB of 8.0 GiB are free; "
    "OutOfMemoryError: Out of memory allocating 512 bytes): use a smaller batch"
)


# Trials 11 to 15 are clean ones; the 26th and so on are held.
@pytest.mark.parametrize(
    ("trial", "done", "where"),
    [
        (3, 2, " after 2 trials, in PlannedNet at /"),
        (12, 10, " after 10 trials"),
        (25 + 2, 20, " after 20 trials, in PlannedNet at /"),
        (2 - BEFORE, None, " in PlannedNet at /"),
    ],
)
def test_a_full_memory(clock, trial, done, where):
    error = OutOfMemoryError("Out of memory allocating\n 512 bytes")
    model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, queues.fails(error))
    with pytest.raises(ProfileError) as caught:
        run(model, asked(batchsize=8))
    assert str(caught.value) == f"the network fails{where}: {FULL}"
    assert isinstance(caught.value, RunError) is (done is not None)
    if done is not None:
        recording = caught.value.recording
        assert recording.ended == f"failed: {caught.value}"
        assert recording.self_ns.tolist() == [OWN] * done
        assert (recording.held_ns is not None) == (trial > 26)
    assert not chainer.get_function_hooks()
    assert clock.device.end_ns > clock.time_ns  # the device still works
    # The next run is as if nothing had happened.
    again = run(PlannedNet(clock, LAUNCH_BOUND))
    assert again.self_ns.tolist() == [OWN] * 20
    assert set(again.trial_ns.tolist()) == {530}


@pytest.mark.parametrize("trial", [1, 5, 20 + 5])
@pytest.mark.parametrize("count", [1, 4])
def test_other_calls_have_rows_by_link(clock, trial, count):
    change = queues.other_calls(*[queues.kernel(1, 1)] * count)
    recording = run(PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, change))
    assert recording.by_link
    assert recording.n_trials == 20
    assert [layer.function for layer in recording.layers] == ["Planned"]
    # By the host's clock, and by the device's.
    assert recording.calls[-1, 0] == count
    ends = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
    assert (ends >= 0).all()
    assert (recording.launch_ns >= recording.host_ns.sum(axis=1)).all()
    assert recording.self_ns[0, 0] == (sum(OWN) if trial > 1 else recording.self_ns[-1, 0])
    assert recording.held_ns is None


@pytest.mark.parametrize(
    ("launches_ns", "hold_ns", "count", "limit"),
    [
        ([2 * MS, MS], 6 * MS, N_HELD, {}),  # twice as long as launching
        ([100], MS, N_HELD, {}),  # a millisecond at least
        # Long trials are few: of 100 ms of launching, so 300 ms in all, 6 in two seconds.
        ([100 * MS], 200 * MS, 6, {}),
        ([400 * MS], 800 * MS, 3, {}),
        # Other trials take four fifths of the two seconds.
        ([100 * MS], 200 * MS, 2, {"max_seconds": 2.0, "trials": 100, "clean_trials": 10}),
    ],
)
def test_how_long_and_how_often_trials_are_held(clock, launches_ns, hold_ns, count, limit):
    plan = queues.calls(*(queues.kernel(launch_ns, 30) for launch_ns in launches_ns))
    recording = run(PlannedNet(clock, plan), asked(**limit))
    assert clock.device.holds == [hold_ns] * count
    assert recording.held_ns.tolist() == [[30] * len(launches_ns)] * count


# Never for longer than a second: launching takes 300 ms and the 30 ns that are waited for.
@pytest.mark.parametrize(
    ("launch_ns", "holds"), [(10, [MS * 2**i for i in range(6)]), (150 * MS, [600 * MS + 60])]
)
def test_a_network_that_waits_for_the_device_is_never_held(clock, launch_ns, holds):
    before, behind = (queues.calls(queues.kernel(launch_ns, n)) for n in (30, 20))
    model = PlannedNet(clock, (*before, ("wait", 0), *behind))
    recording = run(model)
    queues.check(recording)
    assert clock.device.holds == holds
    assert (recording.held_ns, recording.held_span_ns) == (None, None)
    assert recording.ended == "complete"
    assert model.calls == BEFORE + 25 + len(holds)


def test_a_run_that_is_stopped_holds_no_trial(clock):
    model = PlannedNet(clock, LAUNCH_BOUND)
    recording = run(model, stop=lambda: "enough" if model.calls > BEFORE + 3 else "")
    assert (recording.n_trials > 0, clock.device.holds) == (True, [])
