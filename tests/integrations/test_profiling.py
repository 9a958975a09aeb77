"""profiling(): blocks and calls of functions as trials, and that the program does not notice.

That rows and framework are the block is in tests/ledger, whose clock tells the times.
"""

from contextlib import suppress

import chainer
import numpy as np
import pytest

from chainer_profile import ProfileError, UsageError, profiling
from chainer_profile.measure.patches import _METHODS
from tests.nets import MLP

X = np.ones((5, 3), np.float32)
ROWS = [("/net/fc1", "LinearFunction"), ("/net", "ReLU"), ("/net/fc2", "LinearFunction")]


def rows(recording):
    return [(layer.path, layer.function) for layer in recording.layers]


@pytest.mark.parametrize(("memory", "timed"), [(False, 11), (True, 9)])
def test_every_block_is_profiled_and_those_that_raise_count_for_nothing(memory, timed):
    net, profile = MLP(), profiling(memory=memory)
    before = [vars(base).get(name) for _, base, names in _METHODS for name in names]
    with pytest.raises(ProfileError, match="no block has completed"):
        profile.recording()
    for number in range(16):
        with suppress(KeyError), profile:
            net(X)
            if number > 10:
                raise KeyError
    # The memory pass takes 2 and 3.
    recording = profile.recording()
    assert (recording.n_trials, len(recording.clean_ns)) == (timed, 0)
    assert len(recording.conditions.calibrations) == 1
    assert rows(recording) == ROWS
    assert (recording.memory is not None) is memory
    assert (recording.settings.model, recording.settings.phase) == ("MLP", "forward")
    # Chainer's entries are replaced while a trial is measured.
    assert [vars(base).get(name) for _, base, names in _METHODS for name in names] == before
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


class Trainer:
    """A network is an attribute of it, as in many a program."""

    def __init__(self):
        self.net = MLP()

    @profiling()
    def predict(self, x, again=0):
        """The network's output."""
        return self.predict(x, again - 1) if again else self.net(x)


def test_calls_of_a_function():
    trainer = Trainer()
    for _ in range(5):  # it calls itself: that is one trial
        assert trainer.predict(X, again=4).shape == (5, 2)
    recording = Trainer.predict.profiling.recording()
    assert recording.calls.tolist() == [[1, 1, 1]] * 5
    assert rows(recording) == [(f"/self.{path[1:]}", function) for path, function in ROWS]
    assert Trainer.predict.__doc__ == "The network's output."
    assert "A forward pass takes" in str(Trainer.predict.profiling.summary())
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        trainer.predict()  # the function's own error


def test_wrong_uses_are_refused():
    profile = profiling()
    with profile, pytest.raises(UsageError, match="already open"):
        profile.__enter__()
    with pytest.raises(ProfileError, match="calls no Chainer function"):
        profile.recording()
    with pytest.raises(UsageError, match="decorates a function"):
        profiling()(MLP)
