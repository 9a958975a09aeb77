"""The recorder: every nanosecond in one place, and nothing that stays behind.

That the times of any network are those of a ledger is in tests/ledger.
"""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import make_step
from tests import nets
from tests.conftest import FakeClock
from tests.ledger.drawn import nothing_left
from tests.nets import Nesting, SlowHook, SlowOptimizer, Sum, Total, Trained, image, net, slow_loss


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


def test_a_gradient_in_the_loss(clock):
    """Its backward windows stand in the forward phase, and are gone back through later."""

    def loss(y):
        (gx,) = chainer.grad([y], [model.first.W], enable_double_backprop=True)
        clock.advance(1)
        return Total(clock, 20, 30).apply((Sum(clock, 5, 9).apply((y, gx))[0],))[0]

    model = net(
        lambda self, x: Nesting(clock, 40, 80).apply((self.first(x),))[0],
        first=nets.Weighted(clock, 100, 200),
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
    nets.slow_sums(monkeypatch, clock)
    model = Trained(clock)
    optimizer = slow_optimizer(clock, model)
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    _, rows, framework, trial_ns = record(step, clock)
    # The first read is before all windows.
    assert sum(rows.values()) + sum(framework.values()) == trial_ns - 1
    assert (rows["forward", "/first", "Sum"], rows["backward", "/first", "Sum"]) == (101, 201)


def forgetting():
    """Runs forward and backward of its own within a backward."""
    return chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1),
        L.BatchNormalization(3),
        lambda x: F.forget(lambda y: F.tanh(y) * y + F.dropout(y), x),
    )


class Fuse:
    """Fails when it is told to, at a place."""

    place = ""

    def at(self, place, call=None):
        """A method that fails there, or else does what it did."""

        def may_fail(*args):
            if self.place == place:
                raise ZeroDivisionError(place)
            return call(*args) if call else None

        return may_fail


def fused(clock):
    """A training step that may fail in all its parts."""
    fuse = Fuse()

    class Fused(Sum):
        forward = fuse.at("forward", Sum.forward)
        backward = fuse.at("backward", Sum.backward)

    class Net(Trained):
        cleargrads = fuse.at("cleargrads", Trained.cleargrads)

        def forward(self, x):
            y = super().forward(x)
            fuse.at("link")()
            return y

    model = Net(clock)
    model.second._cls = Fused
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(fuse.at("hook"), "hook")
    rule = model.second.W.update_rule
    rule.update_core = fuse.at("rule", rule.update_core)
    loss = fuse.at("loss", slow_loss(clock))
    return make_step("train", model, (image(),), loss=loss, optimizer=optimizer), fuse


def test_methods_are_put_back_and_the_next_trial_is_right(clock):
    step, fuse = fused(clock)
    recorder = Recorder(clock.now_ns, step)
    known, *times = record(step, clock, recorder)
    owners = step, step.optimizer, *(param.update_rule for param in step.model.params())
    for place in ("forward", "link", "loss", "cleargrads", "backward", "hook", "rule"):
        fuse.place = place
        failing = pytest.raises(ZeroDivisionError, match=place)
        with nothing_left(step.model, *owners), failing, recorder:
            step()
        with nothing_left(step.model, *owners), pytest.raises(Exception, match=place):
            learn_structure(step)
        fuse.place = ""
        with nothing_left(step.model, *owners):
            structure, *again = record(step, clock, recorder)
        assert structure.layers == known.layers
        assert structure.owners.tolist() == known.owners.tolist()
        assert again == times


def function_nodes():
    return [o for o in gc.get_objects() if isinstance(o, chainer.FunctionNode)]


@pytest.mark.parametrize("phase", ["forward-backward", "train"])
def test_graphs_are_freed_at_once(phase):
    losses, x = [], np.ones((2, 2, 6, 6), np.float32)

    def loss(y):
        value = F.sum(y)
        losses.append(weakref.ref(value))
        return value

    class Counting:
        def __call__(self):
            step()
            assert len(function_nodes()) == before

    model = chainer.Sequential(forgetting(), F.relu, L.Linear(None, 4))
    step = make_step(phase, model, (x,), loss=loss)
    Counting.roots, Counting.timed, Counting.inputs = step.roots, step.timed, step.inputs
    gc.collect()
    gc.disable()
    try:
        before = len(function_nodes())
        with step.configured():
            for _ in range(3):
                structure = learn_structure(Counting())
            recorder = Recorder(lambda: 0, step)
            with recorder:
                for _ in range(3):
                    Counting()()
            assert [loss() for loss in losses] == [None] * 6
            assert [size for _, size in structure.windows].count(BACKWARD) > 3
            assert recorder.log.count(BACKWARD) > 9
            kept = chainer.FunctionNode, chainer.Variable
            assert not any(isinstance(item, kept) for item in recorder.log)
            # The count would notice.
            graph = step.lossfun(*step.inputs)
            assert len(function_nodes()) > before + 3
            del graph
            assert len(function_nodes()) == before
    finally:
        gc.enable()
