"""profiling() records blocks and calls of functions as trials, without changing the program.

tests/ledger checks that rows and framework add up to the block.
"""

from contextlib import suppress

import chainer
import chainer.functions as F
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
def test_blocks_are_profiled_unless_they_raise(memory, timed):
    net, profile = MLP(), profiling(memory=memory)
    before = [vars(base).get(name) for _, base, names in _METHODS for name in names]
    with pytest.raises(ProfileError, match="no block has completed"):
        profile.recording()
    for number in range(16):
        with suppress(KeyError), profile:
            net(X)
            if number > 10:
                raise KeyError
    # The memory pass takes trials 2 and 3.
    recording = profile.recording()
    assert (recording.n_trials, len(recording.clean_ns)) == (timed, 0)
    assert len(recording.conditions.calibrations) == 1
    assert rows(recording) == ROWS
    assert (recording.memory is not None) is memory
    assert (recording.settings.model, recording.settings.phase) == ("MLP", "forward")
    # Chainer's methods are patched only while a trial is measured.
    assert [vars(base).get(name) for _, base, names in _METHODS for name in names] == before
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


class Trainer:
    """Has a network as an attribute, like many programs."""

    def __init__(self):
        self.net = MLP()

    @profiling()
    def predict(self, x, again=0):
        """The network's output."""
        return self.predict(x, again - 1) if again else self.net(x)


def test_decorated_function_is_profiled():
    trainer = Trainer()
    for _ in range(5):  # recursive calls are no trials
        assert trainer.predict(X, again=4).shape == (5, 2)
    recording = Trainer.predict.profiling.recording()
    assert recording.calls.tolist() == [[1, 1, 1]] * 5
    assert rows(recording) == [(f"/self.{path[1:]}", function) for path, function in ROWS]
    assert Trainer.predict.__doc__ == "The network's output."
    assert "A forward pass takes" in str(Trainer.predict.profiling.summary())
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        trainer.predict()  # the error of the function


def test_wrong_use_of_profiling_is_refused():
    profile = profiling()
    with profile, pytest.raises(UsageError, match="already open"):
        profile.__enter__()
    with pytest.raises(ProfileError, match="calls no Chainer function"):
        profile.recording()
    with pytest.raises(UsageError, match="decorates a function"):
        profiling()(MLP)


def train(net, optimizer):
    optimizer.update(lambda: F.sum(net(X)))


def updates(recording):
    """Calls by trial of the update rows, by path and optimizer."""
    return {
        (layer.path, layer.function): recording.calls[:, layer.index].tolist()
        for layer in recording.layers
        if layer.phase == "update"
    }


def test_networks_and_optimizers_of_later_blocks_are_found():
    first = MLP()
    sgd = chainer.optimizers.SGD().setup(first)
    profile = profiling()
    with profile:
        train(first, sgd)
    second = MLP()
    adam = chainer.optimizers.Adam().setup(second)
    adam.add_hook(chainer.optimizer_hooks.WeightDecay(0.1))
    for _ in range(2):
        with profile:
            train(second, adam)
    recording = profile.recording()
    assert updates(recording) == {
        ("/first/fc1", "SGD"): [2, 0, 0],
        ("/first/fc2", "SGD"): [2, 0, 0],
        ("optimizer", "WeightDecay"): [0, 1, 1],
        ("/second/fc1", "Adam"): [0, 2, 2],
        ("/second/fc2", "Adam"): [0, 2, 2],
    }
    assert recording.settings.optimizer == "SGD and Adam"
    calls = {link.path: link.calls for link in recording.links}
    assert calls["/first/fc1"] == pytest.approx(1 / 3)
    assert calls["/second/fc1"] == pytest.approx(2 / 3)


def test_optimizer_set_up_within_a_block_is_found():
    net, profile = MLP(), profiling()
    with profile:
        net(X)
    with profile:
        optimizer = chainer.optimizers.SGD().setup(net)
        train(net, optimizer)
    recording = profile.recording()
    assert updates(recording) == {("/net/fc1", "SGD"): [0, 2], ("/net/fc2", "SGD"): [0, 2]}
    train_rows = {layer.phase for layer in recording.layers}
    assert train_rows == {"forward", "backward", "update"}


def test_networks_of_later_calls_of_a_function_are_found():
    @profiling()
    def step(net, optimizer=None):
        net(X) if optimizer is None else train(net, optimizer)

    step(MLP())
    net = MLP()
    step(net, chainer.optimizers.SGD().setup(net))
    recording = step.profiling.recording()
    assert recording.settings.phase == "train"
    assert list(updates(recording).values()) == [[0, 2]] * 2


def test_new_network_in_the_same_variable_has_its_own_rows():
    profile = profiling()
    for _ in range(3):
        net = MLP()
        optimizer = chainer.optimizers.SGD().setup(net)
        with profile:
            train(net, optimizer)
    recording = profile.recording()
    forward = [layer.index for layer in recording.layers if layer.phase == "forward"]
    assert recording.calls[:, forward].sum(axis=1).tolist() == [4, 4, 4]
    rows = updates(recording)
    assert rows["/net/fc1", "SGD"] == [2, 0, 0]
    assert [sum(calls) for calls in zip(*rows.values(), strict=True)] == [4, 4, 4]
    assert {path.rpartition("/")[2] for path, _ in rows} == {"fc1", "fc2"}
