"""Runs of forward and backward, and of training steps: exact times, failures, what is kept."""

from __future__ import annotations

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
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
# A training step of Trained under a SlowOptimizer with one hook; see test_recorder_training.py.
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

    def test_settings_say_what_a_trial_was(self, clock, model):
        recording = run(train(model, clock), settings(seed=3), clock=clock)
        made = recording.settings
        assert (made.phase, made.loss, made.optimizer) == ("train", "loss", "SlowOptimizer")
        assert made.train_mode is True
        assert made.seed == 3

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

    def test_it_can_be_summarised(self, clock, model):
        recording = run(train(model, clock), settings(), clock=clock)
        layers = summarise(recording).layers
        assert (layers["mean_s"] * 1e9).round().tolist() == ROWS
        assert layers["phase"].tolist() == ["forward"] * 4 + ["backward"] * 6 + ["update"] * 3


class Changing(Trained):
    """Behaves differently from a call on."""

    def __init__(self, clock, call, change):
        super().__init__(clock)
        self._call, self._change = call, change

    def forward(self, x):
        y = super().forward(x)
        return self._change(self, y) if self.calls >= self._call else y


class Picky(Wait):
    """Calls another function in its backward from a time on."""

    late = False

    def backward(self, indexes, grads):
        grads = super().backward(indexes, grads)
        return (F.identity(*grads),) if Picky.late else grads


FIRST = N_STRUCTURE + 2  # calls before the first profiled trial


def check(recording):
    """Rows are by link; with the framework of the phases they are the whole of every trial."""
    assert recording.by_link
    assert (recording.n_trials, recording.left_out) == (20, 0)
    assert recording.phases == ("update", "forward", "backward")
    times_ns = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
    assert recording.trial_ns.tolist() == times_ns.tolist()


class TestTrialsThatDiffer:
    def test_another_backward_from_trial_5_on(self, clock):
        def unchained(model, y):
            y.unchain_backward()
            return y

        model = Changing(clock, FIRST + 5, unchained)
        check(run(train(model, clock), settings(), clock=clock))

    def test_another_function_within_a_backward(self, clock, monkeypatch):
        class Later(Trained):
            def forward(self, x):
                Picky.late = self.calls >= FIRST + 4
                return Picky(clock, 1, 1).apply((super().forward(x),))[0]

        monkeypatch.setattr(Picky, "late", False)
        check(run(train(Later(clock), clock), settings(), clock=clock))

    def test_another_backward_of_the_same_length(self, clock):
        class Other(Wait):
            pass

        class Swapping(Trained):
            """Two branches whose order of ranks changes, and with it that of the backwards."""

            def forward(self, x):
                self.calls += 1
                h = self.first(x)
                (a,) = Wait(clock, 1).apply((h,))
                (b,) = Other(clock, 1).apply((h,))
                swapped = self.calls >= FIRST + 3
                return self.second(b) + a if swapped else self.second(a) + b

        check(run(train(Swapping(clock), clock), settings(), clock=clock))

    def test_a_change_at_once(self, clock):
        class Odd(Trained):
            def forward(self, x):
                y = super().forward(x)
                if self.calls % 2:
                    y.unchain_backward()
                return y

        recording = run(train(Odd(clock), clock), settings(), clock=clock)
        check(recording)
        first, second = (recording.calls[at].sum() for at in (0, 1))
        assert first != second


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

    def test_stop_keeps_the_trials_so_far(self, clock, model):
        def stop():
            return "interrupted by SIGINT" if model.calls == FIRST + 4 else ""

        recording = run(train(model, clock), settings(), clock=clock, stop=stop)
        assert recording.ended == "interrupted by SIGINT"
        assert recording.self_ns.tolist() == [ROWS] * 4
