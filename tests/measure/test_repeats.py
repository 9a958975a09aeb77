"""Trials that repeat known calls: those that make others are not kept.

That they have the rows of their calls is in tests/ledger.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.measure import runner
from chainer_profile.measure.repeats import Repeats
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import TapedStep
from chainer_profile.record.recording import Settings
from tests.conftest import FakeClock
from tests.nets import Chain, Wait, image

TRIALS = 12


class Drawn(chainer.Chain):
    """Convolutions, their activations and sums, as drawn; an order of calls may be given later."""

    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        with self.init_scope():
            self.convs = chainer.ChainList(*(L.Convolution2D(2, 2, 1) for _ in kinds))
            self.head = L.Linear(None, 2)
            self.tanh = chainer.Sequential(F.tanh)
            self.idle = chainer.Sequential(lambda y: y)
        self.at_last = lambda y: y

    def forward(self, x):
        y = x
        for kind, link in zip(self.kinds, self.convs, strict=True):
            y = {"relu": F.relu, "add": lambda z, y=y: z + y, "as it is": F.identity}[kind](link(y))
        return self.head(self.at_last(y))


def trials(taped, step, unlike=()):
    """A number of trials, some of them unlike the others; by whom, and what is kept of them."""
    with taped.recording() as recorder:
        for number in range(TRIALS):
            recorder.start()
            with chainer.using_config("unlike", number in unlike):
                step()
            recorder.stop()
        return recorder, recorder.fold()


def learned(step):
    taped = TapedStep(step, FakeClock(read_ns=1).now_ns)
    step()
    taped.learn()
    taped.learn()
    return taped


@pytest.mark.parametrize("at", [0, 5, TRIALS - 1])
@pytest.mark.parametrize(
    "other",
    [
        lambda model, y: F.relu(model.convs[0](y)),
        lambda model, y: F.tanh(F.identity(model.convs[0](y))),
        lambda model, y: model.convs[0](y),
        lambda model, y: model.convs[0](F.tanh(y)),
        lambda model, y: F.tanh(model.convs[1](y)),
        lambda model, y: F.tanh(model.convs[0](y[:, :, :2])),
        lambda model, y: model.tanh(model.convs[0](y[:, :, :])),
    ],
    ids=["class", "one more", "one less", "order", "parameter", "shape", "link"],
)
def test_nothing_is_kept_of_a_trial_that_calls_something_else(at, other):
    model = Drawn(["relu", "relu"])

    def at_last(y):
        y = F.tanh(model.convs[0](y[:, :, :])) if not chainer.config.unlike else other(model, y)
        return F.broadcast_to(y[:, :, :1], (1, 2, 3, 3))

    model.at_last = at_last
    step = make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))
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
    model = Drawn(["relu"])
    times = iter([0, 0, 0, *range(TRIALS)])
    model.at_last = lambda y: [y, *(model.idle(y) for _ in range(next(times)))][0]
    step = make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))
    with step.configured():
        taped = learned(step)
        taped.tape.forget()
        recorder, _ = trials(taped, step)
    calls = {link.path: link.calls for link in taped.links}
    assert isinstance(recorder, Repeats)
    assert (calls["/"], calls["/head"], calls["/idle"]) == (1, 1, sum(range(TRIALS)) / TRIALS)


def test_a_parameter_with_another_array_leaves_the_rest_to_the_tape():
    model = Drawn(["relu"])
    step = make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))
    with step.configured():
        taped = learned(step)
        model.head.b.array = model.head.b.array.copy()
        recorder, kept = trials(taped, step)
    assert not isinstance(recorder, Repeats)
    assert all(trial.order is taped.order for trial in kept)


def test_an_unlike_trial_is_told_of():
    clock = FakeClock()

    class Net(Chain):
        def forward(self, x):
            y = super().forward(x)
            return Wait(clock, 7).apply((y,))[0] if self.calls == 9 else y

    step = make_step("forward", Net(clock), (image(),))
    recording = runner.run(step, Settings(trials=20, clean_trials=2), clock=clock, memory=False)
    assert recording.by_link
    assert (recording.n_trials, recording.conditions.unlike_trials) == (20, 1)
    assert [finding.code for finding in summarise(recording).findings].count("unlike-trials") == 1
