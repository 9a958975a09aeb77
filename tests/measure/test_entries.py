"""Standing at Chainer's entries: who goes through, and that nothing is left behind."""

import os
from threading import Thread

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.measure.entries import Entries
from tests.nets import MLP


class Asked:
    """Notes who goes through, from without to within."""

    def __init__(self):
        self.calls, self.entries = [], []

    def __call__(self, entry, owner, call):
        self.calls.append((entry, owner))
        self.entries.append(entry)
        return call()


@pytest.fixture
def asked():
    return Asked()


class Old(MLP):
    def __call__(self, x):  # as up to Chainer 4
        return self.fc1(x)


X, T = np.ones((2, 3), np.float32), np.zeros(2, np.int32)


def step(model, optimizer):
    iterator = chainer.iterators.SerialIterator([(X[0], T[0])] * 2, 2)
    x, t = chainer.dataset.concat_examples(next(iterator))
    loss = F.softmax_cross_entropy(model(x), t)
    model.cleargrads()
    loss.backward()
    optimizer.update()


@pytest.mark.parametrize("kind", [MLP, Old])
def test_a_loop_goes_through_its_outermost_calls(kind, asked):
    model = kind()
    optimizer = chainer.optimizers.SGD()
    with Entries(asked):
        optimizer.setup(model)
        step(model, optimizer)
        optimizer.update(lambda: F.sum(model(X)))
    assert asked.entries == [
        *("setup", "load", "convert", "call", "backward", "update"),
        # An update with a loss function has all within: other kinds are asked about as well.
        *("update", "call", "backward"),
    ]
    assert [owner for entry, owner in asked.calls if entry == "call"] == [model, model]
    assert asked.calls[0][1] is optimizer


def in_thread(work):
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_other_threads_are_counted_and_forked_children_go_their_own_way(asked):
    model = MLP()
    optimizer = chainer.optimizers.SGD().setup(model)
    with Entries(asked) as standing:
        assert not standing.elsewhere
        in_thread(lambda: model(X))
        in_thread(lambda: [optimizer.update(lambda: F.sum(model(X))) for _ in range(3)])
        assert standing.elsewhere == {"call": 4, "backward": 3, "update": 3}
        child = os.fork()
        if not child:  # pragma: no cover
            model(X)
            os._exit(len(asked.calls) + 2 * standing.mine)
        assert os.waitpid(child, 0)[1] == 0
        assert standing.mine
        # Nor is one of ours within theirs.
        model(X)
        assert asked.entries == ["call"]
        # Nor are theirs within one of ours.
        model.fc2 = lambda x: in_thread(lambda: MLP()(X)) or x
        model(X)
    assert standing.elsewhere["call"] == 5


def test_all_is_left_as_it_was_found(asked):
    kinds = [chainer.Link, chainer.Variable, chainer.Optimizer, chainer.dataset.Iterator]
    kinds += [chainer.dataset.Converter, chainer.training.Trainer]
    for kind in kinds:  # and all below them
        kinds += kind.__subclasses__()
    before = {kind: dict(vars(kind)) for kind in kinds}
    with Entries(asked):
        changed = [kind for kind, names in before.items() if dict(vars(kind)) != names]
        assert {chainer.Link, chainer.Variable, chainer.Optimizer} <= set(changed)
    assert {kind: dict(vars(kind)) for kind in before} == before
