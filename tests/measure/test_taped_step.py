"""A step on the tape: every nanosecond in one place, and nothing that stays behind.

That the times of any network are those of a ledger is in tests/ledger.
"""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import TapedStep
from tests.ledger.drawn import nothing_left
from tests.nets import SlowOptimizer, Sum, Trained, image, slow_loss


def record(step, clock, taped=None):
    """A step on the tape, and the times of a trial by row and by phase, and of all of it."""
    taped = taped or TapedStep(step, clock.now_ns)
    with step.configured():
        if taped.order is None:
            taped.learn()
        with taped.recording():
            taped.tape.start()
            step()
            trial = taped.tape.end()
    return taped, trial.rows_ns.tolist(), trial.phases_ns.tolist(), trial.wall_ns


def forgetting():
    """Runs forward and backward of its own within a backward."""
    return chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1),
        L.BatchNormalization(3),
        lambda x: F.forget(lambda y: F.tanh(y) * y + F.dropout(y), x),
    )


class Fuse:
    """Fails at a place, if that is set."""

    place = ""

    def at(self, place, call=None):
        """A method that fails at this place, and else calls the original."""

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
    taped, *times = record(step, clock)
    expected = taped.layers
    owners = step, step.optimizer, *(param.update_rule for param in step.model.params())
    for place in ("forward", "link", "loss", "cleargrads", "backward", "hook", "rule"):
        fuse.place = place
        failing = pytest.raises(ZeroDivisionError, match=place)
        with nothing_left(step.model, *owners), failing, taped.recording():
            taped.tape.start()
            step()
        with nothing_left(step.model, *owners), pytest.raises(Exception, match=place):
            TapedStep(step).learn()
        fuse.place = ""
        with nothing_left(step.model, *owners):
            _, *again = record(step, clock, taped)
        assert taped.layers == expected
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
            taped = TapedStep(Counting())
            for _ in range(6):
                taped.learn()
            assert [loss() for loss in losses] == [None] * 6
            assert len(taped.order.codes) > 40
            # The count would notice.
            graph = step.lossfun(*step.inputs)
            assert len(function_nodes()) > before + 3
            del graph
            assert len(function_nodes()) == before
    finally:
        gc.enable()
