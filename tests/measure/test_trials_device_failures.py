"""Runs on a device that fail: what was measured is kept, and the next run is right."""

from __future__ import annotations

import chainer
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import runner, trials
from chainer_profile.measure.runner import RunError
from chainer_profile.measure.steps import make_step
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Environment
from tests.fake_queue import OutOfMemoryError
from tests.nets import image
from tests.queues import (
    BEFORE,
    LAUNCH_BOUND,
    N_HELD,
    N_STRUCTURE,
    PlannedNet,
    asked,
    check,
    device_clock,
    fails,
    kernel,
    other_calls,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


MEMORY_FULL = OutOfMemoryError("Out of memory allocating\n 512 bytes")
FULL = (
    "the GPU's memory is full with a batch of 8 (3.0 GiB of 8.0 GiB are free; "
    "OutOfMemoryError: Out of memory allocating 512 bytes): take a smaller --batchsize"
)


class TestFailures:
    @pytest.mark.parametrize("group_ns", [1, 10**9])
    def test_an_exception_in_the_middle_of_a_trial(self, clock, monkeypatch, group_ns):
        monkeypatch.setattr(trials, "_GROUP_NS", group_ns)
        model = PlannedNet(
            clock, LAUNCH_BOUND, BEFORE + 5, fails(ValueError("broken\n on purpose"))
        )
        with pytest.raises(RunError) as caught:
            run(model, clock=clock)
        assert str(caught.value) == (
            "the network fails after 4 trials, in or after layer 0_Planned: ValueError: broken on "
            "purpose"
        )
        recording = caught.value.recording
        check(recording)
        assert recording.self_ns.tolist() == [[130, 120, 150]] * 4
        assert recording.held_ns is None
        assert not chainer.get_function_hooks()
        assert clock.device.end_ns > clock.time_ns  # the device still works
        # The next run is as if nothing had happened.
        again = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock)
        check(again)
        assert again.self_ns.tolist() == [[130, 120, 150]] * 20
        assert set(again.trial_ns.tolist()) == set(again.warmup_ns.tolist()) == {530}

    def test_the_next_trials_of_the_same_run(self, clock):
        """A block of trials leaves nothing of an unfinished one to the next block."""
        model = PlannedNet(clock, LAUNCH_BOUND, N_STRUCTURE + 3, fails(ValueError("broken")))
        step = make_step("forward", model, (image(),))
        with step.configured():
            structure, _ = runner.learn(step, asked(), clock)
            made = trials.Trials(step, structure, asked(), Environment(), Journal(), clock)
            made.begin()
            with pytest.raises(ValueError, match="broken"):
                made.profiled(10)
            clock.device.synchronize()
            model.first_change = 10**9
            assert made.profiled(3)
        recording = made.recording()
        assert recording.self_ns.tolist() == [[130, 120, 150]] * 5
        assert recording.trial_ns.tolist() == [530] * 5

    @pytest.mark.parametrize("count", [1, 4])
    @pytest.mark.parametrize("trial", [1, 5, 20 + 5])
    def test_other_calls_have_rows_by_link(self, clock, count, trial):
        model = PlannedNet(
            clock, LAUNCH_BOUND, BEFORE + trial, other_calls(*[kernel(1, 1)] * count)
        )
        recording = run(model, clock=clock)
        assert recording.by_link
        assert (recording.n_trials, recording.left_out) == (20, 0)
        (row,) = recording.layers
        assert row.function == "Planned"
        # By the host's clock, and by the device's.
        assert recording.calls[-1, 0] == count
        ends = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
        assert (ends >= 0).all()
        assert (recording.launch_ns >= recording.host_ns.sum(axis=1)).all()
        assert recording.self_ns[0, 0] == (400 if trial > 1 else recording.self_ns[-1, 0])
        assert recording.held_ns is None

    @pytest.mark.parametrize("trial", [25 + 1, 25 + N_HELD])
    def test_other_calls_of_a_held_trial_are_no_layers(self, clock, trial):
        model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, other_calls(kernel(1, 1)))
        recording = run(model, clock=clock)
        assert not recording.by_link
        held = [] if recording.held_ns is None else recording.held_ns.tolist()
        assert held == [[30, 20, 50]] * (trial - 25 - 1)

    @pytest.mark.parametrize("trial", [1, 3, 12, 25 + 2])
    def test_a_full_memory(self, clock, trial):
        model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + trial, fails(MEMORY_FULL))
        with pytest.raises(RunError) as caught:
            run(model, asked(batchsize=8), clock=clock)
        recording = caught.value.recording
        # Trials 11 to 15 are clean ones; the 26th is held.
        done = trial - 1 if trial < 10 else 10 if trial < 25 else 20
        count = "1 trial" if done == 1 else f"{done} trials"
        at = "" if trial == 12 else ", in or after layer 0_Planned"
        assert str(caught.value) == f"the network fails after {count}{at}: {FULL}"
        assert recording.ended == f"failed: {caught.value}"
        assert recording.self_ns.tolist() == [[130, 120, 150]] * done
        assert (recording.held_ns is not None) == (trial > 26)

    def test_a_full_memory_in_the_last_structure_pass(self, clock):
        change = fails(MEMORY_FULL)
        model = PlannedNet(clock, LAUNCH_BOUND, BEFORE + 25 + N_HELD + 1, change)
        with pytest.raises(RunError) as caught:
            run(model, asked(batchsize=8), clock=clock)
        assert str(caught.value) == (
            f"the network fails after 20 trials, in PlannedNet at /: {FULL}"
        )
        assert caught.value.recording.n_trials == 20

    def test_a_full_memory_before_all_trials(self, clock):
        model = PlannedNet(clock, LAUNCH_BOUND, 2, fails(MEMORY_FULL))
        with pytest.raises(ProfileError) as caught:
            run(model, asked(batchsize=8), clock=clock)
        assert str(caught.value) == f"the network fails in PlannedNet at /: {FULL}"
        assert not isinstance(caught.value, RunError)

    def test_other_exceptions_and_hosts_say_nothing_of_a_gpus_memory(self, clock):
        made = asked(batchsize=8)
        assert trials.memory_full(MEMORY_FULL, clock, made) == FULL
        assert trials.memory_full(MemoryError(), clock, made) == ""
        clock.device = None
        assert trials.memory_full(ValueError(), clock, made) == ""
        on_host = trials.memory_full(MemoryError("no room"), clock, made)
        assert on_host.startswith("a batch of 8 does not fit into memory (MemoryError: no room)")
