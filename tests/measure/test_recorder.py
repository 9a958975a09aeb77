"""The recorder: every nanosecond in one place, and nothing that stays behind.

That the times of any network are those of a ledger is in test_doors.py.
"""

from __future__ import annotations

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import ForwardStep, TrainStep, make_step
from tests.conftest import FakeClock
from tests.nets import (
    Chain,
    Nesting,
    SlowHook,
    SlowOptimizer,
    Sum,
    Total,
    Trained,
    Weighted,
    image,
    net,
    slow_loss,
    slow_sums,
)


def record(step, clock, recorder=None):
    """A structure, and a trial's time by row (same names added up), phase, and in all."""
    with step.configured():
        structure = learn_structure(step)
        recorder = recorder or Recorder(clock.now_ns, step)
        recorder.clear()
        with recorder:
            start_ns = clock.time_ns
            step()
            trial_ns = clock.time_ns - start_ns
    assert structure.stamps(recorder.log) is not None
    times = structure.times_ns(structure.stamps(recorder.log))
    rows = {}
    for layer, time in zip(structure.layers, times.tolist(), strict=False):
        key = layer.phase, layer.path, layer.function
        rows[key] = rows.get(key, 0) + time
    framework = dict(zip(structure.phases, times[len(structure.layers) :].tolist(), strict=True))
    return structure, rows, framework, trial_ns


def slow_optimizer(clock, model):
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 6, "each", call_for_each_param=True))
    return optimizer


def test_hooks_of_an_optimizer_and_of_an_update_rule_have_their_times(clock):
    model = Trained(clock)
    optimizer = slow_optimizer(clock, model)
    model.second.W.update_rule.add_hook(SlowHook(clock, 5, "pre"))
    model.second.W.update_rule.add_hook(SlowHook(clock, 2, "post", timing="post"))
    model.first.W.update_rule.enabled = False
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    _, rows, framework, _ = record(step, clock)
    assert {key[1:]: time for key, time in rows.items() if key[0] == "update"} == {
        # It ends with a look for cleared gradients.
        ("optimizer", "each"): 2 * 6 + 1,
        ("/first", "SlowOptimizer"): 0,
        ("/second", "SlowOptimizer"): 57,
    }
    assert framework["update"] == 2


def test_a_gradient_in_the_loss(clock):
    """Its backward windows stand in the forward phase, and are gone back through later."""

    def loss(y):
        (gx,) = chainer.grad([y], [model.first.W], enable_double_backprop=True)
        clock.advance(1)
        return Total(clock, 20, 30).apply((Sum(clock, 5, 9).apply((y, gx))[0],))[0]

    model = net(
        lambda self, x: Nesting(clock, 40, 80).apply((self.first(x),))[0],
        first=Weighted(clock, 100, 200),
    )
    step = make_step("forward-backward", model, (image(),), loss=loss)
    structure, rows, framework, trial_ns = record(step, clock)
    assert framework["forward"] == 7 + 1
    assert rows["backward", "/first", "Sum"] == 2 * 200
    # Its own row twice with the nested call's 3; the nested call's own backward takes 4.
    assert rows["backward", "/", "Nesting"] == 2 * (80 + 3)
    assert trial_ns == sum(rows.values()) + sum(framework.values())
    assert {a.calls for a in structure.layers if a.forward == 1} == {2}


def test_every_read_of_the_clock_falls_into_one_place(monkeypatch):
    clock = FakeClock(read_ns=1)
    slow_sums(monkeypatch, clock)
    model = Trained(clock)
    optimizer = slow_optimizer(clock, model)
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    structure, rows, framework, trial_ns = record(step, clock)
    # The first read is before all windows.
    assert sum(rows.values()) + sum(framework.values()) == trial_ns - 1
    assert rows["forward", "/first", "Sum"] == 101
    assert rows["backward", "/first", "Sum"] == 201
    assert len(structure.owners) % 2 == 0


def test_the_window_is_what_an_empty_function_shows(clock):
    step = ForwardStep(Chain(clock), (image(),))
    assert Recorder(FakeClock(read_ns=7).now_ns, step).window_ns(11) == 7


REAL = {
    "convolutions": lambda: chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1),
        L.BatchNormalization(3),
        F.relu,
        lambda x: x + F.dropout(x),
        L.Convolution2D(3, 4, 3),
        F.average,
    ),
    "two layers": lambda: chainer.Sequential(L.Linear(None, 4), F.tanh, L.Linear(4, 3)),
    # Runs forward and backward of its own within a backward.
    "forgetting": lambda: chainer.Sequential(
        L.Linear(None, 4), lambda x: F.forget(lambda y: F.tanh(y) * y, x)
    ),
}


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@pytest.mark.parametrize("build", REAL.values(), ids=list(REAL))
def test_all_the_time_of_real_networks_is_somewhere_once(phase, build):
    x = np.random.default_rng(0).standard_normal((2, 2, 6, 6)).astype(np.float32)
    step = make_step(phase, build(), (x,))
    with step.configured():
        learn_structure(step)
        structure = learn_structure(step)
        recorder = Recorder(HOST_CLOCK.now_ns, step)
        for _ in range(3):
            recorder.clear()
            with recorder:
                step()
            stamps = structure.stamps(recorder.log)
            assert structure.stamps(recorder.log) is not None
            times = structure.times_ns(stamps)
            spans = np.diff(np.array(stamps))
            outside = spans[structure.owners[:-1] == -1].sum()
            assert times.min() >= 0
            assert times[: len(structure.layers)].min() > 0
            assert times.sum() + outside == stamps[-1] - stamps[0]


def attributes(step):
    """All attributes of everything whose methods are replaced."""
    optimizer = getattr(step, "optimizer", None)
    owners = [step, step.model]
    if optimizer is not None:
        owners += [optimizer, *(p.update_rule for p in step.model.params())]
    return [(owner, {k: v for k, v in vars(owner).items() if k != "t"}) for owner in owners]


def assert_clean(step, before):
    for (owner, known), (_, now) in zip(before, attributes(step), strict=True):
        assert known.keys() == now.keys(), owner
        for name, value in known.items():
            if callable(value) or name in ("_hookable", "target"):
                assert now[name] is value, (owner, name)
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


class Fuse:
    """Fails when it is told to, at a place."""

    def __init__(self):
        self.place = ""

    def at(self, place):
        if self.place == place:
            raise ZeroDivisionError(place)


def fused(clock):
    """A training step that may fail in all its parts."""
    fuse = Fuse()

    class Fused(Sum):
        def forward(self, inputs):
            fuse.at("forward")
            return super().forward(inputs)

        def backward(self, indexes, grads):
            fuse.at("backward")
            return super().backward(indexes, grads)

    class Net(Trained):
        def cleargrads(self):
            fuse.at("cleargrads")
            super().cleargrads()

        def forward(self, x):
            y = super().forward(x)
            fuse.at("link")
            return y

    def loss(y):
        fuse.at("loss")
        return slow_loss(clock)(y)

    def hook(optimizer):
        fuse.at("hook")

    model = Net(clock)
    model.second._cls = Fused
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(hook)
    rule = model.second.W.update_rule
    update_core = rule.update_core

    def failing(param):
        fuse.at("rule")
        update_core(param)

    rule.update_core = failing
    step = make_step("train", model, (image(),), loss=loss, optimizer=optimizer)
    return step, fuse


PLACES = ["forward", "link", "loss", "cleargrads", "backward", "hook", "rule"]


class TestNothingStaysBehind:
    @pytest.mark.parametrize("place", PLACES)
    def test_methods_are_put_back_and_the_next_trial_is_right(self, clock, place):
        step, fuse = fused(clock)
        recorder = Recorder(clock.now_ns, step)
        known, *times = record(step, clock, recorder)
        before = attributes(step)
        fuse.place = place
        with pytest.raises(ZeroDivisionError), recorder:
            step()
        assert_clean(step, before)
        with pytest.raises(Exception, match=place):
            learn_structure(step)
        assert_clean(step, before)
        fuse.place = ""
        structure, *again = record(step, clock, recorder)
        assert structure.layers == known.layers
        assert structure.owners.tolist() == known.owners.tolist()
        assert again == times
        assert_clean(step, before)

    def test_methods_that_were_put_by_others_come_back(self, clock):
        step, _ = fused(clock)
        calls = []
        update = step.optimizer.update
        step.optimizer.update = lambda *args: calls.append(args) or update(*args)
        mine = step.optimizer.update
        record(step, clock)
        assert step.optimizer.update is mine
        assert len(calls) == 2


def function_nodes():
    return [o for o in gc.get_objects() if isinstance(o, chainer.FunctionNode)]


def convolutions():
    return chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1), L.BatchNormalization(3), F.relu, L.Linear(None, 4)
    )


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("phase", ["forward-backward", "train"])
class TestGraphsAreFreedAtOnce:
    def make(self, phase):
        x = np.ones((2, 2, 6, 6), np.float32)
        step = make_step(phase, convolutions(), (x,))
        losses = []
        lossfun = step.loss.of

        def loss(y):
            value = lossfun(y)
            losses.append(weakref.ref(value))
            return value

        optimizer = step.optimizer if isinstance(step, TrainStep) else None
        return make_step(phase, step.model, (x,), loss=loss, optimizer=optimizer), losses

    def test_in_the_structure_pass(self, phase, no_collector):
        step, losses = self.make(phase)
        before = len(function_nodes())

        class Counting:
            roots, timed = step.roots, step.timed

            def __call__(self):
                step()
                assert len(function_nodes()) == before

        with step.configured():
            for count in range(1, 4):
                structure = learn_structure(Counting())
                assert len(losses) == count
                assert [loss() for loss in losses] == [None] * count
                assert len(function_nodes()) == before
        assert [size for _, size in structure.windows].count(BACKWARD) > 3

    def test_in_a_trial(self, phase, no_collector):
        step, losses = self.make(phase)
        with step.configured():
            learn_structure(step)
            recorder = Recorder(lambda: 0, step)
            before = len(function_nodes())
            with recorder:
                for _ in range(3):
                    step()
                    assert len(function_nodes()) == before
        assert [loss() for loss in losses] == [None] * 4
        assert recorder.log.count(BACKWARD) > 9
        kept = recorder.log
        assert not any(isinstance(item, (chainer.FunctionNode, chainer.Variable)) for item in kept)

    def test_the_count_would_notice(self, phase, no_collector):
        step, _ = self.make(phase)
        before = len(function_nodes())
        with step.configured():
            loss = step.lossfun(*step.inputs)
            assert len(function_nodes()) > before + 3
            del loss
            assert len(function_nodes()) == before
