"""Trials that repeat known calls have the rows that the tape has, and others are not kept."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def trials(taped, step, count):
    """That many trials within one ``recording()``."""
    with taped.recording() as recorder:
        for _ in range(count):
            recorder.start()
            step()
            recorder.stop()
        return type(recorder), recorder.fold()


def learned(step, now_ns):
    taped = TapedStep(step, now_ns)
    taped.learn()
    taped.learn()
    return taped


@given(
    kinds=st.lists(st.sampled_from(["relu", "add", "as it is"]), min_size=1, max_size=4),
    phase=st.sampled_from(["forward", "forward-backward", "train"]),
)
def test_rows_are_those_of_the_tape(kinds, phase):
    clock = FakeClock(read_ns=1)
    step = make_step(phase, Drawn(kinds), (np.zeros((2, 2, 3, 3), np.float32),))
    with step.configured():
        step()
        taped, on_tape = learned(step, clock.now_ns), learned(step, clock.now_ns)
        on_tape._repeats = None
        kind, repeats = trials(taped, step, TRIALS)
        others = trials(on_tape, step, TRIALS)[1]
    assert kind is Repeats
    assert taped.layers == on_tape.layers
    assert taped.links == on_tape.links
    assert taped.phases == on_tape.phases
    for one, other in zip(repeats, others, strict=True):
        assert one.rows_ns.sum() + one.phases_ns.sum() <= one.wall_ns
        assert one.calls.tolist() == other.calls.tolist()
        # A read of the clock takes 1 ns, and both read it once on entering and on leaving.
        assert one.rows_ns.tolist() == other.rows_ns.tolist()
        assert one.phases_ns.tolist() == other.phases_ns.tolist()
        assert one.wall_ns == other.wall_ns


def unlike_at(step, at, change):
    """Calls of a step, of which one is changed."""
    clock = FakeClock(read_ns=1)
    with step.configured():
        step()
        taped = learned(step, clock.now_ns)
        with taped.recording() as recorder:
            for number in range(TRIALS):
                recorder.start()
                with change if number == at else chainer.using_config("unlike", False):
                    step()
                recorder.stop()
            kept = recorder.fold()
    assert isinstance(recorder, Repeats)
    return taped, recorder, kept


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
    with chainer.using_config("unlike", False):
        taped, recorder, kept = unlike_at(step, at, chainer.using_config("unlike", True))
        assert (recorder.unlike, len(kept)) == (1, TRIALS - 1)
        assert len({trial.rows_ns.tobytes() for trial in kept}) == 1
        with step.configured():
            kind, (trial,) = trials(taped, step, 1)
    assert kind is not Repeats
    assert trial.order is None


def test_links_that_call_no_function_are_counted():
    model = Drawn(["relu"])
    times = iter([0, 0, 0, *range(TRIALS)])
    model.at_last = lambda y: [y, *(model.idle(y) for _ in range(next(times)))][0]
    step = make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))
    with step.configured():
        step()
        taped = learned(step, FakeClock(read_ns=1).now_ns)
        taped.tape.forget()
        kind, _ = trials(taped, step, TRIALS)
    calls = {link.path: link.calls for link in taped.links}
    assert kind is Repeats
    assert (calls["/"], calls["/head"], calls["/idle"]) == (1, 1, sum(range(TRIALS)) / TRIALS)


def test_a_parameter_with_another_array_leaves_the_rest_to_the_tape():
    model = Drawn(["relu"])
    step = make_step("forward", model, (np.zeros((1, 2, 3, 3), np.float32),))
    clock = FakeClock(read_ns=1)
    with step.configured():
        step()
        taped = learned(step, clock.now_ns)
        model.head.b.array = model.head.b.array.copy()
        kind, iterations = trials(taped, step, 2)
    assert kind is not Repeats
    assert all(trial.order is taped.order for trial in iterations)


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
