"""Whatever a profile does, the program goes on as if it had not been there."""

import copy

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.measure.left_as_found import left_as_found
from tests.nets import net

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def network():
    """With running averages, a state, and random numbers."""

    def forward(self, x):
        self.lstm.reset_state()  # else each trial would go back through those before
        return self.lstm(F.dropout(self.bn(self.fc(x))))

    return net(forward, fc=L.Linear(3, 3), bn=L.BatchNormalization(3), lstm=L.LSTM(3, 2))


def contents(model):
    """Everything of a network that a training may change, without its weights."""
    state = {"state": [model.lstm.h, model.lstm.c]}
    for path, param in model.namedparams():
        state[path, "rule"] = param.update_rule, getattr(param.update_rule, "t", 0)
        state[path, "grad"] = None if param.grad is None else param.grad.copy()
    for link_path, link in model.namedlinks():
        for name in link._persistent:
            state[link_path, name] = np.copy(getattr(link, name))
    state["random"] = np.append(*np.random.get_state()[1:3])  # noqa: NPY002
    return state


def weights(model):
    return {path: param.array.copy() for path, param in model.namedparams()}


def same(first, second):
    assert first.keys() == second.keys()
    for key, value in first.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, second[key])
        else:  # the same objects: they have no equality of their own
            assert value == second[key], key


def note(optimizer):
    """A hook of an optimizer that keeps figures with it, as a schedule may."""
    optimizer.hyperparam.noted = 1
    for param in optimizer.target.params():
        if param.update_rule.state is not None:
            param.update_rule.state["noted"] = 1


def train(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.update(lambda: F.sum(model(X)))
        model.lstm.reset_state()


@pytest.mark.parametrize("optimizer", [None, chainer.optimizers.Adam, chainer.optimizers.SGD])
@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@pytest.mark.parametrize("trained", [False, True])
def test_a_profile_changes_nothing(phase, optimizer, trained):
    model, own = network(), chainer.optimizers.Adam() if optimizer is None else optimizer()
    own.setup(model)
    train(model, own, 2 if trained else 0)
    with chainer.using_config("train", False):
        model(X)
    before, t = contents(model) | weights(model), own.t
    hyperparam = dict(vars(own.hyperparam))
    own.add_hook(note, timing="post")
    rules = {path: param.update_rule.state for path, param in model.namedparams()}
    copies = copy.deepcopy(rules)
    given = {} if optimizer is None or phase != "train" else {"optimizer": own}
    profile(model, X, phase=phase, trials=3, warmups=1, memory=False, loss=F.sum, **given)
    same(before, contents(model) | weights(model))
    assert (own.t, vars(own.hyperparam)) == (t, hyperparam)
    for path, param in model.namedparams():
        assert param.update_rule.state is rules[path]
        if copies[path] is not None:
            same(copies[path], rules[path])
    assert chainer.config.train is True
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


def test_after_an_exception_too():
    model = network()
    model(X)
    before = contents(model)
    with pytest.raises(ZeroDivisionError), left_as_found(model):
        train(model, chainer.optimizers.SGD().setup(model), 1 // len(model.xp.zeros(0)))
    same(before, contents(model))


@pytest.mark.parametrize("phase", ["forward", "train"])
def test_parameters_may_get_their_first_array_in_the_profile(phase):
    model = chainer.Sequential(L.Linear(4), F.relu, L.Linear(2))
    assert len(profile(model, X, trials=2, warmups=1, phase=phase).layers) >= 3
    assert model[0].W.array.shape == (4, 3)
