"""Ctrl-C in profile(): the exception has the recording, and the signal handler is restored."""

import _tracemalloc
import signal
import threading

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.measure import trials
from tests.nets import net

X = np.ones((2, 3), np.float32)
FIRST = 3 + 2  # structure passes and warm-up before the first profiled trial

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def usual_handler():
    """Make Ctrl-C raise KeyboardInterrupt even if a shell runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


def interrupt():
    raise KeyboardInterrupt


def network(action, when):
    """Make a network that calls ``action`` in the calls for which ``when(number)`` is true."""
    calls = []

    def forward(self, x):
        calls.append(1)
        if when(len(calls)):
            action()
        return self.fc(x)

    return net(forward, fc=L.Linear(3, 2)), calls


def interrupted(model, **options):
    """Profile until the interrupt, and return the recording of its exception."""
    few = {"trials": 20, "clean_trials": 5, "warmups": 2, "counters": False}
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        profile(model, X, **few | options)
    assert signal.getsignal(signal.SIGINT) is before
    assert not chainer.get_function_hooks()
    return caught.value.recording


@pytest.mark.parametrize("call", range(1, FIRST + 1))
@pytest.mark.parametrize("action", [press, interrupt])
def test_interrupt_before_the_first_profiled_trial_leaves_no_recording(action, call):
    model, _ = network(action, lambda number: number == call)
    assert interrupted(model) is None


@pytest.mark.parametrize("action", [press, interrupt])
@pytest.mark.parametrize("call", [FIRST + 2, FIRST + 4, FIRST + 14])
def test_interrupt_keeps_earlier_trials(action, call, monkeypatch):
    monkeypatch.setattr(trials, "_SETTLING_TRIALS", 0)  # they do not count
    model, calls = network(action, lambda number: number == call)
    recording = interrupted(model)
    assert len(calls) == call
    n_trials = recording.n_trials + len(recording.clean_ns)
    assert n_trials == call - FIRST - (action is interrupt)
    assert recording.n_trials > 0
    assert recording.ended == "interrupted"
    np.testing.assert_array_equal(
        recording.self_ns.sum(axis=1) <= recording.trial_ns, np.full(recording.n_trials, True)
    )


def test_interrupt_ends_the_run_within_settling_trials(monkeypatch):
    counted = []
    model, calls = network(press, lambda number: len(calls) == counted[0] if counted else False)
    settle = trials.Trials._settle

    def noted(self):
        counted[:] = counted or [len(calls) + 3]  # the third settling trial
        return settle(self)

    monkeypatch.setattr(trials.Trials, "_settle", noted)
    recording = interrupted(model)
    assert len(calls) == counted[0]
    assert recording.n_trials > 0
    assert len(recording.clean_ns) == 0


def test_second_interrupt_does_not_wait_for_the_trial():
    def twice():
        press()
        press()
        raise AssertionError

    model, _ = network(twice, lambda number: number == FIRST + 5)
    assert interrupted(model).ended == "interrupted"


@pytest.mark.parametrize("action", [press, interrupt])
def test_interrupt_in_a_later_pass_keeps_all_trials(action):
    model, _ = network(action, lambda _: _tracemalloc.is_tracing())
    recording = interrupted(model)
    assert (recording.n_trials, len(recording.clean_ns)) == (20, 5)
    assert recording.ended == "complete"


@pytest.mark.parametrize("action", [press, interrupt])
def test_interrupt_between_trials_keeps_them(action):
    def progress(done, total, mean_s):
        if done == total:
            action()

    model, _ = network(action, lambda _: False)
    assert interrupted(model, progress=progress).n_trials == 20


def test_signal_handler_of_the_program_is_called():
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        model, _ = network(press, lambda number: number == FIRST + 3)
        assert profile(model, X, trials=3, warmups=2, memory=False).n_trials == 3
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [1]


def test_profile_in_another_thread_sets_no_signal_handler():
    n_trials = []
    model, _ = network(press, lambda _: False)
    options = {"trials": 3, "warmups": 1, "memory": False, "counters": False}
    thread = threading.Thread(target=lambda: n_trials.append(profile(model, X, **options)))
    thread.start()
    thread.join()
    assert n_trials[0].n_trials == 3
