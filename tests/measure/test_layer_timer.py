"""LayerTimerHook: its trials and rows, and that a program may do everything that TimerHook allows.

That its times, history and totals are exact, of any network, is in tests/ledger.
"""

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import chainer
import chainer.functions as F
import chainer.links as L
import pytest
from chainer.function_hooks import TimerHook

from chainer_profile import LayerTimerHook
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.rows import Rows
from chainer_profile.measure.runner import run
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.record.recording import Settings
from tests.conftest import CALIBRATION
from tests.ledger.drawn import Busy, WorkError, doing
from tests.nets import Chain, Step, image, net


@pytest.fixture
def hook(clock):
    return LayerTimerHook(clock)


def names(hook):
    return [name for name, _ in hook.call_history]


def rows(recording):
    """The paths and times of all rows, which are those of every trial; and the trials' number."""
    assert not recording.by_link
    assert (recording.self_ns == recording.self_ns[0]).all()
    paths = [layer.path for layer in recording.layers]
    return list(zip(paths, recording.self_ns[0].tolist(), strict=True)), recording.n_trials


def in_turn(clock):
    """A network that calls its links of 3 and of 4 ns in turn."""
    links = {"a": Step(clock, 3), "b": Step(clock, 4)}
    return doing(lambda self, x, n: (self.b if n % 2 else self.a)(x), **links)


def test_a_recording_and_a_report(clock, hook, capsys):
    with pytest.raises(ProfileError, match="call history is empty"):
        hook.recording()
    hook.print_report()
    assert capsys.readouterr().out == "no function was called under this hook\n"
    first, second = Chain(clock), Step(clock, 1)
    with hook:
        for _ in range(4):
            second(first(image(5, 2)))
    recording = hook.recording()
    assert [layer.path for layer in recording.layers] == ["/first", "/second", "/second"]
    assert recording.layers[0].input_shapes == ((5, 2),)
    assert recording.self_ns.tolist() == [[100, 40, 40]] * 4
    assert recording.trial_ns.tolist() == [208] * 4
    made = recording.settings
    assert (made.model, made.batchsize, made.train_mode) == ("Chain", 5, True)
    assert recording.conditions.calibrations == (CALIBRATION,)
    # Each network has its own.
    assert hook.networks == [first, second]
    assert hook.recording(second).self_ns.tolist() == [[1]] * 4
    with pytest.raises(ProfileError, match="no Chain of this kind was called"):
        hook.recording(Chain(clock))
    timer, mine, theirs = TimerHook(), io.StringIO(), io.StringIO()
    timer.call_history = hook.call_history
    hook.print_report(file=mine)
    timer.print_report(file=theirs)
    assert mine.getvalue() == theirs.getvalue()
    assert "LongWait     320.00ns           8" in mine.getvalue()


def test_trials_that_raise_count_for_nothing(clock):
    for fails in ({0}, {1, 4}, {0, 6}):

        def does(self, x, n, fails=fails):
            y = self.a(x)
            if n in fails:
                raise ValueError
            return self.b(y)

        hook, model = LayerTimerHook(clock), doing(does, a=Step(clock, 3), b=Step(clock, 4))
        with hook:
            for _ in range(9):
                with suppress(ValueError):
                    model(image())
                F.identity(image())
        recording = hook.recording()
        n_trials = 9 - len(fails)
        assert rows(recording) == ([("/a", 3), ("/b", 4)], n_trials)
        assert recording.trial_ns.tolist() == [3 + 4 + 2 * 7] * n_trials
        assert {link.path: link.calls for link in recording.links} == {"/": 1, "/a": 1, "/b": 1}
        assert len(hook.call_history) == 9 * 3 - len(fails)


def test_rows_of_trials_that_differ_by_shapes_are_those_of_calls_folded(hook):
    """Bytes are those of most of the time; work is that of all trials, on average."""
    model = doing(lambda self, x, n: F.relu(self.a(F.relu(self.a(x)))), a=L.Linear(3, 3))
    with hook:
        for _ in range(5):
            model(image(2, 3))
        exact = hook.recording()
        model(image(1, 3))
    with LayerTimerHook() as other:
        model(image(1, 3))
    alone, recording = other.recording(), hook.recording()
    assert (exact.n_trials, recording.n_trials) == (5, 6)
    names = [(layer.path, layer.function) for layer in recording.layers]
    assert names == [("/a", "LinearFunction"), ("/", "ReLU")]
    for number, row in enumerate(recording.layers):
        calls, others = exact.layers[number::2], alone.layers[number::2]
        assert row.calls == 2
        assert row.output_nbytes == sum(call.output_nbytes for call in calls)
        for name in ("flops", "nbytes_read", "nbytes_written"):
            usual, other = (sum(getattr(call, name) for call in of) for of in (calls, others))
            assert getattr(row, name) == round((5 * usual + other) / 6)
        assert not row.work_is_about
        of_calls = exact.self_ns[:, number::2].sum(axis=1)
        assert recording.self_ns[:5, number].tolist() == of_calls.tolist()


def test_a_network_that_calls_itself_and_forget(clock, hook):
    def forward(self, x, depth=2):
        if not depth:
            return self.leaf(x)
        return Busy(clock, 1).apply((self(x, depth - 1), self(x, depth - 1)))[0]

    model = net(forward, leaf=Step(clock, 3))
    with hook:
        for _ in range(3):
            model(image())
    leaves = [("/leaf", 3)] * 2 + [("/", 1)]
    assert rows(hook.recording()) == (leaves * 2 + [("/", 1)], 3)
    fc, hook, timer = L.Linear(2, 2), LayerTimerHook(clock), TimerHook()
    for timing_hook, times in ((hook, 3), (timer, 1)):
        with timing_hook:
            for _ in range(times):
                y = F.forget(lambda x: F.relu(fc(x)), chainer.Variable(image()))
                F.sum(y).backward()
    assert names(hook) == names(timer) * 3


def test_copies_and_other_threads_are_no_trials_of_a_network(clock, hook):
    model = Chain(clock)
    with hook:
        for _ in range(5):
            model(image())
        model.copy()(image())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model, image()).result()
        model(image())
    assert hook.recording(model).n_trials == 6
    assert len(hook.call_history) == 7 * 3


def test_a_profile_within_a_hook_is_exact(clock, hook):
    def does(self, x, n):
        with suppress(WorkError):
            Busy(clock, 5, raises="forward").apply((x,))
        return self.a(x)

    model = doing(does, a=Step(clock, 3))
    with hook:
        model(image())
        plan = Settings(trials=4, warmups=1, clean_trials=1)
        step = ForwardStep(model, (image(),))
        recording = run(step, plan, clock=clock, memory=False, choose_threads=False)
        for _ in range(3):
            model(image())
    for recorded in (recording, hook.recording()):
        assert rows(recorded)[0] == [("/", 5), ("/a", 3)]
        assert set(recorded.trial_ns.tolist()) == {5 + 3 + 7}
    assert recording.n_trials == 4


def test_looking_up_counts_for_nothing(clock, monkeypatch):
    """Neither in the rows nor in the history, where a trial differs."""
    entry_of = Rows.entry_of

    def slow(*args, **kwargs):
        clock.advance(1000)
        return entry_of(*args, **kwargs)

    monkeypatch.setattr(Rows, "entry_of", slow)
    for build, times, trials in (
        (Chain, [100, 40, 40] * 2, [208] * 2),
        (in_turn, [3, 4], [10, 11]),
    ):
        hook, model = LayerTimerHook(clock), build(clock)
        with hook:
            for _ in range(2):
                model(image())
        assert [round(seconds * 1e9) for _, seconds in hook.call_history] == times
        assert hook.total_time() == pytest.approx(sum(times) * 1e-9)
        assert hook.recording().trial_ns.tolist() == trials
