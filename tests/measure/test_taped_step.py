"""A step on the tape leaves nothing behind, and the next trial is right.

That the times of any network are those of a ledger is in tests/ledger.
"""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import TapedStep
from tests.ledger.drawn import nothing_left
from tests.nets import SlowOptimizer, Sum, Trained, image, slow_loss


class Fuse:
    """Fails at a place, if that is set."""

    place = ""

    def at(self, place, call=lambda *_: None):
        """A method that fails at this place, and else calls the original."""

        def may_fail(*args):
            if self.place == place:
                raise ZeroDivisionError(place)
            return call(*args)

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
    taped = TapedStep(step, clock.now_ns)
    owners = step, step.optimizer, *(param.update_rule for param in step.model.params())

    def trial():
        with taped.recording() as recorder:
            recorder.start()
            step()
            recorder.stop()
        (trial,) = taped.tape.fold()
        return taped.layers, trial.wall_ns, *map(list, (trial.rows_ns, trial.phases_ns))

    with step.configured():
        taped.learn()
        expected = trial()
        for fuse.place in ("forward", "link", "loss", "cleargrads", "backward", "hook", "rule"):
            with nothing_left(step.model, *owners):
                with pytest.raises(ZeroDivisionError, match=fuse.place):
                    trial()
                with pytest.raises(Exception, match=fuse.place):
                    TapedStep(step).learn()
                fuse.place = ""
                assert trial() == expected


@pytest.mark.parametrize("phase", ["forward-backward", "train"])
def test_graphs_are_freed_at_once(phase):
    def loss(y):
        value = F.sum(y)
        losses.append(weakref.ref(value))
        return value

    model = chainer.Sequential(
        L.Convolution2D(2, 3, 3, pad=1),
        # Runs forward and backward of its own within a backward.
        lambda x: F.forget(lambda y: F.tanh(y) * y + F.dropout(y), x),
        L.Linear(None, 4),
    )
    step, losses = make_step(phase, model, (image(2, 2, 6, 6),), loss=loss), []
    gc.collect()
    gc.disable()
    try:
        with step.configured():
            taped = TapedStep(step)
            for _ in range(6):
                taped.learn()
            assert [loss() for loss in losses] == [None] * 6
            assert not [o for o in gc.get_objects() if isinstance(o, chainer.FunctionNode)]
            graph = step.lossfun(*step.inputs)  # which would be noticed
            assert [o for o in gc.get_objects() if isinstance(o, chainer.FunctionNode)]
            del graph
    finally:
        gc.enable()
