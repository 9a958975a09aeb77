"""Trials of a step: location of a failure, clean-up, and trials after a failure.

tests/ledger checks the times of any network.
"""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.step_session import StepError, StepSession, learned
from chainer_profile.measure.steps import make_step
from tests.ledger.random_programs import assert_unpatched
from tests.measure.recording import record_trial
from tests.nets import (
    Nesting,
    SlowHook,
    SlowOptimizer,
    SlowRule,
    Trained,
    image,
    net,
    slow_loss,
)


def test_failure_names_its_layer_and_does_not_affect_the_next_trial(clock):
    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 5))
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    session = StepSession(step, clock)
    owners = step, optimizer, *(param.update_rule for param in model.params())

    def trial():
        times = record_trial(session, step)
        return session.layers, times.wall_ns, *map(list, (times.rows_ns, times.phases_ns))

    def fail(*_):
        raise ZeroDivisionError

    with step.configured():
        session.learn()
        expected = trial()
        for owner, name, where in (
            (Nesting, "forward", "in layer 1_Nesting at /second"),
            (Nesting, "backward", "in the backward of layer 6_Nesting at /second"),
            (Trained, "forward", "in Trained at /"),
            (Trained, "cleargrads", "in the backward of layer 4_cleargrads at cleargrads"),
            (step.loss, "function", "after layer 2_Nesting at /second"),
            (SlowHook, "__call__", "in the update of layer 10_SlowHook at optimizer"),
            (SlowRule, "update_core", "in the update of layer 11_SlowOptimizer at /first"),
        ):
            with assert_unpatched(model, *owners), pytest.MonkeyPatch.context() as patch:
                patch.setattr(owner, name, fail)
                with pytest.raises(ZeroDivisionError):
                    trial()
                with pytest.raises(StepError, match=f"^{where}: "):
                    StepSession(step).learn()
                patch.undo()
                assert trial() == expected


@pytest.mark.parametrize("phase", ["forward-backward", "train"])
def test_graphs_are_freed_at_once(phase):
    def loss(y):
        value = F.sum(y)
        losses.append(weakref.ref(value))
        return value

    model = chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1),
        # forget() runs a forward and a backward within a backward.
        lambda x: F.forget(lambda y: F.tanh(y) * y + F.dropout(y), x),
        L.Linear(None, 4),
    )
    step, losses = make_step(phase, model, (image(2, 2, 6, 6),), loss=loss), []
    gc.collect()
    gc.disable()

    def count_functions():
        return sum(isinstance(o, chainer.FunctionNode) for o in gc.get_objects())

    before = count_functions()  # other tests may leave some
    try:
        with step.configured():
            session = StepSession(step)
            for _ in range(6):
                session.learn()
            assert [loss() for loss in losses] == [None] * 6
            assert count_functions() == before
            graph = step.lossfun(*step.inputs)  # a graph that is alive increases the count
            assert count_functions() > before
            del graph
    finally:
        gc.enable()


@pytest.mark.parametrize("at", [0, 3, 9])
@pytest.mark.parametrize(
    "other",
    [
        lambda model, y: F.relu(model.first(y)),
        lambda model, y: F.tanh(F.identity(model.first(y))),
        lambda model, y: model.first(y),
        lambda model, y: model.first(F.tanh(y)),
        lambda model, y: F.tanh(model.second(y)),
        lambda model, y: F.tanh(model.first(y[:, :, :2])),
        lambda model, y: model.tanh(model.first(y)),
    ],
    ids=["function", "one more", "one fewer", "order", "parameter", "shape", "link"],
)
def test_rows_are_by_link_after_a_trial_with_other_calls(at, other):
    links = {name: L.Convolution2D(2, 2, 1) for name in ("first", "second")}

    def forward(self, x):
        y = F.relu(self.first(x))
        return other(self, y) if chainer.config.other_calls else F.tanh(self.first(y))

    model = net(forward, tanh=chainer.Sequential(F.tanh), **links)
    step, trials = make_step("forward", model, (image(1, 2, 3, 3),)), []
    session = StepSession(step)
    with step.configured(), chainer.using_config("other_calls", False):
        session.learn()
        session.forget()
        with session.recording():
            for number in range(10):
                with chainer.using_config("other_calls", number == at):
                    session.begin_trial()
                    step()
                    session.end_trial()
                trials += session.read_own()
                assert session.has_single_calls is (number < at)
    assert len(trials) == 10
    rows = {(row.path, row.function): row.index for row in session.layers}
    assert len(rows) == len(session.layers)
    # Means include all trials; each trial has its own calls.
    usual = [times.calls.tolist() for at_trial, times in enumerate(trials) if at_trial > at]
    assert [*map(sum, usual)] == [4] * len(usual)
    relu, convolution = rows["/", "ReLU"], rows["/first", "Convolution2DFunction"]
    for calls in usual:
        assert (calls[relu], calls[convolution]) == (1, 2)
    total = sum(int(times.calls.sum()) for times in trials)
    assert sum(row.calls for row in session.layers) == pytest.approx(total / 10)
    sizes = {int(times.calls.sum()) for times in trials}
    assert sizes <= {3, 4, 5, 6}


def test_new_shape_in_a_late_trial_changes_mean_work():
    x = image(1000, 1)
    rows = [10] * 20 + [1000] * 5
    model = net(lambda self, x: F.relu(x[: rows.pop(0)]))
    step = make_step("forward", model, (x,))
    session = StepSession(step)
    with step.configured(), session.recording():
        while rows:
            session.begin_trial()
            step()
            session.end_trial()
    assert len(session.read()) == 25
    assert not session.has_single_calls
    row = next(row for row in session.layers if row.function == "ReLU")
    assert row.flops == (20 * 10 + 5 * 1000) // 25


def test_links_that_call_no_function_are_counted():
    times = iter(range(12))
    idle = chainer.Sequential(lambda y: y)
    model = net(
        lambda self, x: [F.relu(x), *(self.idle(x) for _ in range(next(times)))][0], idle=idle
    )
    step = make_step("forward", model, (image(),))
    session = StepSession(step)
    with step.configured():
        for _ in range(12):
            session.learn()
    assert session.has_single_calls
    calls = {link.path: link.calls for link in session.links}
    assert (calls["/"], calls["/idle"]) == (1, sum(range(12)) / 12)


def test_replaced_array_of_a_parameter_changes_no_row():
    model = net(lambda self, x: F.linear(x, self.fc.W) + self.fc.b, fc=L.Linear(2, 2))
    step = make_step("forward", model, (image(),))
    with step.configured():
        session = learned(step)
        before = session.layers
        for param in model.params():
            param.array = param.array.copy()
        session.learn()
        assert session.has_single_calls
        assert session.layers == before
    assert {row.path for row in before} == {"/fc"}


def test_failed_recorder_raises_profile_error(monkeypatch):
    def fail(*_):
        raise OSError("none")

    step = make_step("forward", L.Linear(2, 2), (image(),))
    monkeypatch.setattr(Recorder, "begin_operation", fail)
    with step.configured(), pytest.raises(ProfileError, match="measuring failed: OSError: none"):
        learned(step)
    assert not chainer.get_function_hooks()


def test_update_replaced_on_the_instance_has_its_phases(clock):
    """The program replaces it on the instance, before the profile."""
    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    with step.configured():
        expected = learned(step)
        update = optimizer.update
        optimizer.update = lambda *args, **kwargs: update(*args, **kwargs)
        replaced = optimizer.update
        session = StepSession(step, clock)
        session.learn()
        times = record_trial(session, step)
    assert (session.layers, session.phases) == (expected.layers, expected.phases)
    assert times.rows_ns.sum() + times.phases_ns.sum() == times.wall_ns
    assert optimizer.update is replaced
