"""Runs of forward and backward, and of training steps: exact times, failures, what is kept."""

from __future__ import annotations

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.measure import trials
from chainer_profile.measure.runner import RunError, run
from chainer_profile.measure.steps import make_step
from chainer_profile.record.journal import Journal, recover
from chainer_profile.record.recording import Settings
from tests.nets import (
    Nesting,
    SlowHook,
    SlowOptimizer,
    Trained,
    Wait,
    image,
    slow_loss,
    slow_sums,
)

N_STRUCTURE = 3  # structure passes before the first trial
# A training step of Trained under a SlowOptimizer with one hook.
ROWS = [100, 40, 40, 20, 9, 30, 83, 83, 13, 200, 17 + 1, 50, 50]
FRAMEWORK = {"update": 2, "forward": 42, "backward": 0}
TRIAL_NS = sum(ROWS) + sum(FRAMEWORK.values())


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(clock, monkeypatch):
    slow_sums(monkeypatch, clock)
    return Trained(clock)


def settings(phase="train", **changes):
    return Settings(phase=phase, **({"trials": 20, "clean_trials": 5, "warmups": 2} | changes))


def train(model, clock, loss=None):
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 17))
    loss = loss or slow_loss(clock)
    return make_step("train", model, (image(),), loss=loss, optimizer=optimizer)


class TestTimes:
    def test_rows_and_framework_are_the_trial(self, clock, model):
        recording = run(train(model, clock), settings(), clock=clock, memory=False)
        assert recording.ended == "complete"
        assert recording.self_ns.tolist() == [ROWS] * 20
        assert recording.phases == tuple(FRAMEWORK)
        assert recording.framework_ns.tolist() == [list(FRAMEWORK.values())] * 20
        assert recording.trial_ns.tolist() == [TRIAL_NS] * 20
        assert recording.clean_ns.tolist() == [TRIAL_NS] * 5
        assert recording.warmup_ns.tolist() == [TRIAL_NS] * 2
        assert model.calls == N_STRUCTURE + 2 + 20 + 5 + 1

    def test_trials_are_the_same_in_groups_of_any_size(self, clock, model, monkeypatch):
        for group_ns in (1, 3 * TRIAL_NS):
            monkeypatch.setattr(trials, "_GROUP_NS", group_ns)
            recording = run(train(model, clock), settings(), clock=clock)
            assert recording.self_ns.tolist() == [ROWS] * 20
            assert recording.framework_ns.tolist() == [list(FRAMEWORK.values())] * 20
            assert (np.diff(recording.start_ns) >= TRIAL_NS).all()

    def test_the_journal_holds_the_recording(self, clock, model, tmp_path):
        path = tmp_path / "journal"
        with open(path, "w+b") as file:
            recording = run(train(model, clock), settings(), clock=clock, journal=Journal(file))
        recovered = recover(path)
        for name in ("layers", "phases", "links", "settings"):
            assert getattr(recovered, name) == getattr(recording, name)
        for name in ("self_ns", "framework_ns", "trial_ns", "start_ns", "clean_ns", "warmup_ns"):
            np.testing.assert_array_equal(getattr(recovered, name), getattr(recording, name))

    def test_a_run_that_is_killed_is_recovered(self, clock, model, monkeypatch, tmp_path):
        monkeypatch.setattr(trials, "_GROUP_NS", 1)
        path, copy = tmp_path / "journal", tmp_path / "copy"
        with open(path, "w+b") as file:

            def stop():
                if model.calls == N_STRUCTURE + 2 + 7:
                    copy.write_bytes(path.read_bytes())
                return ""

            journal = Journal(file)
            run(train(model, clock), settings(), clock=clock, journal=journal, stop=stop)
        recovered = recover(copy)
        assert recovered.self_ns.tolist() == [ROWS] * 7
        assert recovered.framework_ns.tolist() == [list(FRAMEWORK.values())] * 7
        assert recovered.settings.optimizer == "SlowOptimizer"
        assert recovered.ended == "killed before its end"


class Unchained(Trained):
    """Has no backward from a trial on, or in every other one."""

    def forward(self, x):
        y = super().forward(x)
        if self.goes_without(self.calls):
            y.unchain_backward()
        return y


class Picky(Wait):
    """Calls another function in its backward from a time on."""

    late = False

    def backward(self, indexes, grads):
        grads = super().backward(indexes, grads)
        return (F.identity(*grads),) if self.late else grads


class Later(Trained):
    def forward(self, x):
        function = Picky(self.clock, 1, 1)
        y = super().forward(x)
        function.late = self.calls >= FIRST + 4
        return function.apply((y,))[0]


class Other(Wait):
    pass


class Swapping(Trained):
    """Two branches whose order of ranks changes, and with it that of the backwards."""

    def forward(self, x):
        self.calls += 1
        h = self.first(x)
        (a,) = Wait(self.clock, 1).apply((h,))
        (b,) = Other(self.clock, 1).apply((h,))
        swapped = self.calls >= FIRST + 3
        return self.second(b) + a if swapped else self.second(a) + b


FIRST = N_STRUCTURE + 2  # calls before the first profiled trial


@pytest.mark.parametrize(
    ("kind", "goes_without"),
    [
        (Unchained, lambda calls: calls >= FIRST + 5),
        (Unchained, lambda calls: calls % 2),
        (Later, None),
        (Swapping, None),
    ],
)
def test_backwards_that_differ_have_rows_by_link(clock, kind, goes_without):
    model = kind(clock)
    model.goes_without = goes_without
    recording = run(train(model, clock), settings(), clock=clock)
    assert recording.by_link
    assert (recording.n_trials, recording.left_out) == (20, 0)
    assert recording.phases == ("update", "forward", "backward")
    times_ns = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
    assert recording.trial_ns.tolist() == times_ns.tolist()
    assert (len(set(recording.calls.sum(axis=1).tolist())) > 1) is (kind is Unchained)


class TestFailures:
    @pytest.mark.parametrize(
        ("place", "where"),
        [("backward", "6_Nesting"), ("update", "12_SlowOptimizer"), ("hook", "10_broken")],
    )
    def test_an_exception_in_trial_5_keeps_4(self, clock, model, monkeypatch, place, where):
        step = train(model, clock)

        def fail(*args):
            if model.calls >= FIRST + 5:
                raise ValueError("broken\n  on purpose")

        if place == "update":
            rule = model.second.W.update_rule
            core = rule.update_core
            rule.update_core = lambda param: (fail(), core(param))
        elif place == "hook":
            step.optimizer.remove_hook("SlowHook")
            step.optimizer.add_hook(fail, name="broken")
        else:
            backward = Nesting.backward
            monkeypatch.setattr(Nesting, "backward", lambda *args: fail() or backward(*args))
        with pytest.raises(RunError) as caught:
            run(step, settings(), clock=clock)
        assert str(caught.value) == (
            f"the network fails after 4 trials, in or after layer {where}: ValueError: broken on "
            "purpose"
        )
        kept = caught.value.recording
        assert kept.n_trials == 4
        times_ns = kept.self_ns.sum(axis=1) + kept.framework_ns.sum(axis=1)
        assert kept.trial_ns.tolist() == times_ns.tolist()
        assert not chainer.get_function_hooks()
        assert "update" not in vars(step.optimizer)
        assert "cleargrads" not in vars(model)
