"""LayerTimerHook: trials and rows, and all uses that Chainer's TimerHook allows.

tests/ledger checks that times, history and totals are exact for any network.
"""

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import chainer
import chainer.functions as F
import chainer.links as L
import pytest
from chainer.function_hooks import TimerHook

from chainer_profile import LayerTimerHook
from chainer_profile.basics.errors import ProfileError
from tests.conftest import CALIBRATION
from tests.nets import Chain, Step, Wait, image, net
from tests.queues import asked, run


@pytest.fixture
def hook(clock):
    return LayerTimerHook(clock)


def rows(recording):
    """Paths and times of all rows, which must be equal in all trials; and the number of trials."""
    assert not recording.by_link
    assert (recording.self_ns == recording.self_ns[0]).all()
    paths = [layer.path for layer in recording.layers]
    return list(zip(paths, recording.self_ns[0].tolist(), strict=True)), recording.n_trials


def test_hook_makes_a_recording_and_a_report(clock, hook, capsys):
    with pytest.raises(ProfileError, match="call history is empty"):
        hook.recording()
    hook.print_report()
    assert capsys.readouterr().out == "no function was called under this hook\n"
    first, second = Chain(clock), Step(clock, 1)
    with hook:
        for _ in range(4):
            second(first(image(5, 2)))
    recording = hook.recording()
    assert rows(recording) == ([("/first", 100), ("/second", 40), ("/second", 40)], 4)
    assert recording.layers[0].input_shapes == ((5, 2),)
    assert recording.trial_ns.tolist() == [208] * 4
    settings = recording.settings
    assert (settings.model, settings.batchsize, settings.train_mode) == ("Chain", 5, True)
    assert recording.conditions.calibrations == (CALIBRATION,)
    # Each network has its own recording.
    assert hook.networks == [first, second]
    assert hook.recording(second).self_ns.tolist() == [[1]] * 4
    with pytest.raises(ProfileError, match="no Chain of this kind was called"):
        hook.recording(Chain(clock))
    timer, ours, theirs = TimerHook(), io.StringIO(), io.StringIO()
    timer.call_history = hook.call_history
    hook.print_report(file=ours)
    timer.print_report(file=theirs)
    assert ours.getvalue() == theirs.getvalue()
    assert "LongWait     320.00ns           8" in ours.getvalue()


@pytest.mark.parametrize("fails", [{0}, {1, 4}, {0, 6}])
def test_trials_that_raise_are_not_recorded(clock, hook, fails):
    def forward(self, x):
        y = self.a(x)
        if next(numbers) in fails:
            raise ValueError
        return self.b(y)

    model, numbers = net(forward, a=Step(clock, 3), b=Step(clock, 4)), count()
    with hook:
        for _ in range(9):
            with suppress(ValueError):
                model(image())
            F.identity(image())
    recording, n_trials = hook.recording(), 9 - len(fails)
    assert rows(recording) == ([("/a", 3), ("/b", 4)], n_trials)
    assert recording.trial_ns.tolist() == [3 + 4 + 2 * 7] * n_trials
    assert {link.path: link.calls for link in recording.links} == {"/": 1, "/a": 1, "/b": 1}
    assert len(hook.call_history) == 9 * 3 - len(fails)


def test_hook_with_recursion_copies_and_other_threads(clock, hook):
    def forward(self, x, depth=2):
        if not depth:
            return self.leaf(x)
        return Wait(clock, 1).apply((self(x, depth - 1), self(x, depth - 1)))[0]

    model = net(forward, leaf=Step(clock, 3))
    with hook:
        for _ in range(3):
            model(image())
        model.copy()(image())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model, image()).result()
    leaves = [("/leaf", 3)] * 2 + [("/", 1)]
    assert rows(hook.recording(model)) == (leaves * 2 + [("/", 1)], 3)
    assert len(hook.call_history) == 4 * 7


def test_functions_called_in_a_backward_count_in_its_time_by_link(clock, hook):
    class Outer(Wait):
        def backward(self, indexes, grads):
            clock.advance(2)
            return Wait(clock, 5).apply(grads)

    def forward(self, x):
        F.sum(Outer(clock, 3).apply((chainer.Variable(x),))[0]).backward()

    model = net(forward)
    with hook:
        for batchsize in (1, 1, 2):
            model(image(batchsize, 2))
    recording = hook.recording()
    assert recording.by_link
    times = zip(recording.layers, recording.self_ns.T.tolist(), strict=True)
    outer_ns = {(row.function, row.phase): ns for row, ns in times if row.function == "Outer"}
    assert outer_ns == {("Outer", "forward"): [3] * 3, ("Outer", "backward"): [7] * 3}


def test_history_with_forget_equals_that_of_timer_hook(hook):
    fc, timer = L.Linear(2, 2), TimerHook()
    for timing_hook in (hook, timer):
        with timing_hook:
            y = F.forget(lambda x: F.relu(fc(x)), chainer.Variable(image()))
            F.sum(y).backward()
    names = [[name for name, _ in each.call_history] for each in (hook, timer)]
    assert names[0] == names[1]


def test_profile_within_a_hook_is_exact(clock, hook):
    model = Chain(clock)
    with hook:
        model(image())
        recording = run(model, asked(trials=4))
        model(image())
    for recorded in (recording, hook.recording()):
        assert rows(recorded)[0] == [("/first", 100), ("/second", 40), ("/second", 40)]
        assert set(recorded.trial_ns.tolist()) == {208}
