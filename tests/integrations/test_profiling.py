"""profiling(): blocks and calls of functions as trials, and that the program does not notice."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile import ProfileError, UsageError, profiling, summarise
from chainer_profile.measure import live
from chainer_profile.measure.entries import _ENTRIES
from chainer_profile.record.recording import Calibration
from tests.conftest import FakeClock
from tests.integrations.test_extension import Net
from tests.nets import LongWait, Wait

X, T = np.ones((5, 3), np.float32), np.zeros(5, np.int32)
ROWS = [("/net/fc1", "LinearFunction"), ("/net", "ReLU"), ("/net/fc2", "LinearFunction")]


def rows(recording, phase="forward"):
    return [(layer.path, layer.function) for layer in recording.layers if layer.phase == phase]


def chainer_s():
    """Chainer's entries as they are, which are replaced while a trial is measured."""
    return [vars(base).get(name) for _, base, names in _ENTRIES for name in names]


def test_blocks_that_raise_measure_nothing_of_the_machine_again(monkeypatch):
    asked = []
    monkeypatch.setattr(live, "calibrated", lambda *_: asked.append(1) or Calibration(1e-3, 7e-4))
    net, profile = Net(), profiling()
    for _ in range(5):
        with suppress(KeyError), profile:
            net(X)
            raise KeyError
    assert len(asked) == 1
    for _ in range(4):
        with profile:
            net(X)
    assert len(profile.recording().conditions.calibrations) == len(asked) == 1


def test_every_other_block_is_profiled():
    net, profile = Net(), profiling()
    before = chainer_s()
    for _ in range(11):
        with profile:
            net(X)
    # The memory pass took 2 and 3; 1, 5, 7, 9 and 11 are profiled.
    recording = profile.recording()
    assert (recording.n_trials, len(recording.clean_ns)) == (5, 4)
    assert rows(recording) == ROWS
    assert recording.memory is not None
    assert recording.settings.model == "Net"
    assert recording.settings.phase == "forward"
    assert chainer_s() == before
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


def test_the_times_are_those_of_the_functions(clock: FakeClock):
    def work():
        Wait(clock, 100).apply((X,))
        clock.advance(7)
        LongWait(clock, 200).apply((X,))

    profile = profiling(memory=False, clock=clock)
    for _ in range(3):
        with profile:
            work()
    recording = profile.recording()
    assert recording.self_ns.tolist() == [[100, 200]] * 2
    assert (recording.trial_ns.tolist(), recording.clean_ns.tolist()) == ([307] * 2, [307])


def test_one_block_alone():
    net = Net()
    with profiling() as profile:
        net(X)
    recording = profile.recording()
    assert recording.n_trials == 1
    assert rows(recording) == ROWS
    assert (recording.self_ns > 0).all()
    assert recording.self_ns.sum() < recording.trial_ns.sum()


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_nothing_goes_on_behind_the_last_block(blocks):
    net, profile = Net(), profiling()
    for _ in range(blocks):
        with profile:
            net(X)
    assert (profile.recording().memory is not None) is (blocks == 3)
    assert not tracemalloc.is_tracing()
    for _ in range(5):
        with profile:
            net(X)
    assert profile.recording().memory is not None
    assert not tracemalloc.is_tracing()


def test_a_training_step_has_phases_that_add_up():
    net = Net()
    optimizer = chainer.optimizers.Adam().setup(net)
    profile = profiling("mine")
    for _ in range(9):
        with profile:
            loss = F.softmax_cross_entropy(net(X), T)
            net.cleargrads()
            loss.backward()
            optimizer.update()
    recording = profile.recording()
    assert recording.phases == ("forward", "backward", "update")
    assert recording.settings.model == "mine"
    assert (recording.settings.phase, recording.settings.optimizer) == ("train", "Adam")
    assert rows(recording, "update") == [("/net/fc1", "Adam"), ("/net/fc2", "Adam")]
    framework = recording.trial_ns - recording.self_ns.sum(axis=1)
    assert (framework >= recording.framework_ns.sum(axis=1)).all()
    found = summarise(recording)
    assert found.phases["total_s"].sum() == pytest.approx(found.totals.profiled.mean_s)


class Trainer:
    """A network is an attribute of it, as in many a program."""

    def __init__(self):
        self.net = Net()

    @profiling()
    def predict(self, x):
        """What the network gives."""
        return self.net(x)


def test_calls_of_a_function():
    trainer = Trainer()
    for _ in range(5):
        assert trainer.predict(X).shape == (5, 2)
    recording = Trainer.predict.profiling.recording()
    assert recording.n_trials == 2
    assert [path for path, _ in rows(recording)] == [
        "/self.net/fc1",
        "/self.net",
        "/self.net/fc2",
    ]
    assert Trainer.predict.__doc__ == "What the network gives."
    assert "A forward pass takes" in str(Trainer.predict.profiling.summary())


def test_a_function_that_calls_itself_is_one_trial():
    @profiling()
    def deeper(x, levels):
        return deeper(F.relu(x), levels - 1) if levels else x

    for _ in range(3):
        deeper(X, 4)
    recording = deeper.profiling.recording()
    assert recording.calls.tolist() == [[4]]
    assert rows(recording) == [("/", "ReLU")]


def test_a_block_that_raises_counts_for_nothing():
    net, profile = Net(), profiling()
    for number in range(8):
        try:
            with profile:
                net(X)
                if number % 2:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            assert number % 2
    recording = profile.recording()
    assert recording.n_trials + len(recording.clean_ns) <= 4
    assert not chainer.get_function_hooks()


def test_blocks_may_differ():
    net, profile = Net(), profiling(memory=False)
    for number in range(60):
        with profile:
            for _ in range(number % 3 + 1):
                net(X[: number % 4 + 1])
    recording = profile.recording()
    assert recording.left_out == 0
    assert rows(recording) == ROWS
    assert recording.calls.tolist() == [[number % 3 + 1] * 3 for number in range(0, 60, 2)]


def test_what_cannot_be():
    profile = profiling()
    with pytest.raises(ProfileError, match="no block has come to its end"):
        profile.recording()
    with profile, pytest.raises(UsageError, match="open already"):
        profile.__enter__()
    with pytest.raises(ProfileError, match="calls no Chainer function"):
        profile.recording()
    with pytest.raises(UsageError, match="decorates a function"):
        profiling()(Net)


def test_wrong_arguments_are_the_function_s_own_error():
    @profiling()
    def one(x):
        return x

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        one()
