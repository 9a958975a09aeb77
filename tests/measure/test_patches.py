"""Standing at Chainer's entries: who goes through, and that nothing is left behind."""

import os
from threading import Thread

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer_profile.measure.entries import Entries

from tests.nets import MLP

X, T = np.ones((2, 3), np.float32), np.zeros(2, np.int32)


class Asked(list):
    """The entries and owners of those who go through, from without to within."""

    def __call__(self, entry, owner, call):
        self.append((entry, owner))
        return call()


class Old(MLP):
    def __call__(self, x):  # as up to Chainer 4
        return self.fc1(x)


@pytest.mark.parametrize("kind", [MLP, Old])
def test_a_loop_goes_through_its_outermost_calls(kind):
    model, optimizer, asked = kind(), chainer.optimizers.SGD(), Asked()
    iterator = chainer.iterators.SerialIterator([(X[0], T[0])] * 2, 2)
    with Entries(asked):
        optimizer.setup(model)
        x, t = chainer.dataset.concat_examples(next(iterator))
        loss = F.softmax_cross_entropy(model(x), t)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        optimizer.update(lambda: F.sum(model(X)))
    assert [entry for entry, _ in asked] == [
        *("setup", "load", "convert", "call", "backward", "update"),
        # An update with a loss function has all within: other kinds are asked about as well.
        *("update", "call", "backward"),
    ]
    assert [owner for entry, owner in asked if entry == "call"] == [model, model]
    assert asked[0] == ("setup", optimizer)


def in_thread(work):
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_other_threads_are_counted_and_forked_children_go_their_own_way():
    model, asked = MLP(), Asked()
    optimizer = chainer.optimizers.SGD().setup(model)
    with Entries(asked) as standing:
        assert not standing.elsewhere
        in_thread(lambda: [optimizer.update(lambda: F.sum(model(X))) for _ in range(3)])
        assert standing.elsewhere == {"call": 3, "backward": 3, "update": 3}
        child = os.fork()
        if not child:  # pragma: no cover
            model(X)
            os._exit(len(asked) + 2 * standing.mine)
        assert os.waitpid(child, 0)[1] == 0
        assert standing.mine
        # Nor is one of ours within theirs, nor theirs within one of ours.
        model(X)
        assert asked == [("call", model)]
        model.fc2 = lambda x: in_thread(lambda: MLP()(X)) or x
        model(X)
    assert standing.elsewhere["call"] == 4


def test_a_call_of_a_link_that_calls_its_base_class_is_one_call():
    class Twice(Old):
        def __call__(self, x, again=True):
            y = super().__call__(x)
            return self(y, again=False) if again else y

    model, calls = Twice(), []
    model.fc1 = chainer.links.Linear(3, 3)
    with Entries(lambda entry, owner, call: call()) as standing:
        standing.running.link_calls = calls
        place = standing.running.adopt(model)
        model(X)
    assert len(calls) == 4  # it calls itself, and its layer each time
    assert calls == [place] * 4


def test_all_is_left_as_it_was_found():
    kinds = [chainer.Link, chainer.Variable, chainer.Optimizer, chainer.dataset.Iterator]
    kinds += [chainer.dataset.Converter, chainer.training.Trainer]
    for kind in kinds:  # and all below them
        kinds += kind.__subclasses__()
    before = {kind: dict(vars(kind)) for kind in kinds}
    with Entries(Asked()):
        changed = [kind for kind, names in before.items() if dict(vars(kind)) != names]
        assert {chainer.Link, chainer.Variable, chainer.Optimizer} <= set(changed)
    assert {kind: dict(vars(kind)) for kind in before} == before
