"""A step on the tape leaves nothing behind, and the next trial is right.

That the times of any network are those of a ledger is in tests/ledger.
"""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import pytest
from chainer_profile.measure.taped_step import StepError, TapedStep

from chainer_profile.measure.steps import make_step
from tests.ledger.drawn import nothing_left
from tests.nets import Nesting, SlowHook, SlowOptimizer, SlowRule, Trained, image, slow_loss


def test_a_failure_is_told_methods_are_put_back_and_the_next_trial_is_right(clock):
    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 5))
    step = make_step("train", model, (image(),), loss=slow_loss(clock), optimizer=optimizer)
    taped = TapedStep(step, clock.now_ns)
    owners = step, optimizer, *(param.update_rule for param in model.params())

    def trial():
        with taped.recording() as recorder:
            recorder.start()
            step()
            recorder.stop()
        (trial,) = taped.tape.fold()
        return taped.layers, trial.wall_ns, *map(list, (trial.rows_ns, trial.phases_ns))

    def fail(*_):
        raise ZeroDivisionError

    with step.configured():
        taped.learn()
        expected = trial()
        for owner, name, where in (
            (Nesting, "forward", "in layer 1_Nesting at /second"),
            (Nesting, "backward", "in the backward of layer 6_Nesting at /second"),
            (Trained, "forward", "in Trained at /"),
            (Trained, "cleargrads", "in the backward of layer 4_cleargrads at cleargrads"),
            (step.loss, "of", "after layer 2_Nesting at /second"),
            (SlowHook, "__call__", "in the update of layer 10_SlowHook at optimizer"),
            (SlowRule, "update_core", "in the update of layer 11_SlowOptimizer at /first"),
        ):
            with nothing_left(model, *owners), pytest.MonkeyPatch.context() as patch:
                patch.setattr(owner, name, fail)
                with pytest.raises(ZeroDivisionError):
                    trial()
                with pytest.raises(StepError, match=f"^{where}: "):
                    TapedStep(step).learn()
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
        # Runs forward and backward of its own within a backward.
        lambda x: F.forget(lambda y: F.tanh(y) * y + F.dropout(y), x),
        L.Linear(None, 4),
    )
    step, losses = make_step(phase, model, (image(2, 2, 6, 6),), loss=loss), []
    gc.collect()
    gc.disable()

    def count_functions():
        return sum(isinstance(o, chainer.FunctionNode) for o in gc.get_objects())

    before = count_functions()  # those of other tests
    try:
        with step.configured():
            taped = TapedStep(step)
            for _ in range(6):
                taped.learn()
            assert [loss() for loss in losses] == [None] * 6
            assert count_functions() == before
            graph = step.lossfun(*step.inputs)  # which would be noticed
            assert count_functions() > before
            del graph
    finally:
        gc.enable()
