"""Trials that repeat known calls: those that make others are not kept.

That they have the rows of their calls is in tests/ledger.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer_profile.measure.repeats import Repeats
from chainer_profile.measure.taped_step import TapedStep

from chainer_profile.measure.steps import make_step
from tests.conftest import FakeClock
from tests.nets import net

TRIALS = 12


def step_of(at_last):
    """The step of a network that does something behind its first layer."""
    links = {"first": L.Convolution2D(2, 2, 1), "second": L.Convolution2D(2, 2, 1)}
    links |= {"tanh": chainer.Sequential(F.tanh), "idle": chainer.Sequential(lambda y: y)}
    model = net(lambda self, x: at_last(self, F.relu(self.first(x))), **links)
    return make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))


def learned(step):
    """The step when its calls are known to repeat."""
    taped = TapedStep(step, FakeClock(read_ns=1).now_ns)
    step()
    taped.learn()
    taped.learn()
    taped.tape.forget()
    return taped


def trials(taped, step, unlike=()):
    """A number of trials, some of them unlike the others; by whom, and what is kept of them."""
    with taped.recording() as recorder:
        for number in range(TRIALS):
            recorder.start()
            with chainer.using_config("unlike", number in unlike):
                step()
            recorder.stop()
        return recorder, recorder.fold()


@pytest.mark.parametrize("at", [0, 5, TRIALS - 1])
@pytest.mark.parametrize(
    "other",
    [
        lambda model, y: F.relu(model.first(y)),
        lambda model, y: F.tanh(F.identity(model.first(y))),
        lambda model, y: model.first(y),
        lambda model, y: model.first(F.tanh(y)),
        lambda model, y: F.tanh(model.second(y)),
        lambda model, y: F.tanh(model.first(y[:, :, :2])),
        lambda model, y: model.tanh(model.first(y[:, :, :])),
    ],
    ids=["class", "one more", "one less", "order", "parameter", "shape", "link"],
)
def test_nothing_is_kept_of_a_trial_that_calls_something_else(at, other):
    def at_last(model, y):
        usual = not chainer.config.unlike
        y = F.tanh(model.first(y[:, :, :])) if usual else other(model, y)
        return F.broadcast_to(y[:, :, :1], (1, 2, 3, 3))

    step = step_of(at_last)
    with chainer.using_config("unlike", False), step.configured():
        taped = learned(step)
        recorder, kept = trials(taped, step, unlike=[at])
        assert isinstance(recorder, Repeats)
        assert (recorder.unlike, len(kept)) == (1, TRIALS - 1)
        assert len({trial.rows_ns.tobytes() for trial in kept}) == 1
        recorder, kept = trials(taped, step)
    assert not isinstance(recorder, Repeats)
    assert [trial.order for trial in kept] == [None] * TRIALS


def test_links_that_call_no_function_are_counted():
    times = iter([0, 0, 0, *range(TRIALS)])
    step = step_of(lambda model, y: [y, *(model.idle(y) for _ in range(next(times)))][0])
    with step.configured():
        taped = learned(step)
        recorder, _ = trials(taped, step)
    assert isinstance(recorder, Repeats)
    calls = {link.path: link.calls for link in taped.links}
    assert (calls["/"], calls["/first"], calls["/idle"]) == (1, 1, sum(range(TRIALS)) / TRIALS)


def test_a_parameter_with_another_array_leaves_the_rest_to_the_tape():
    step = step_of(lambda model, y: y)
    with step.configured():
        taped = learned(step)
        step.model.first.b.array = step.model.first.b.array.copy()
        recorder, kept = trials(taped, step)
    assert not isinstance(recorder, Repeats)
    assert all(trial.order is taped.order for trial in kept)
