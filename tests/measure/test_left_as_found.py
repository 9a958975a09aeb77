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
    """Everything of a network and of NumPy's random numbers that a training may change."""
    contents = {"random": np.append(*np.random.get_state()[1:3])}  # noqa: NPY002
    for path, param in model.namedparams():
        rule = param.update_rule
        contents[path] = param.array.copy()
        contents[path, "grad"] = copy.copy(param.grad)
        contents[path, "rule"] = rule, rule.t, id(rule.state)
        contents |= {(path, name): copy.copy(of) for name, of in (rule.state or {}).items()}
    for path, link in model.namedlinks():
        contents |= {(path, name): np.copy(getattr(link, name)) for name in link._persistent}
        contents[path, "state"] = [getattr(link, name, None) for name in "hc"]
    return contents


def assert_same(contents, before):
    assert contents.keys() == before.keys()
    for key, value in before.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(contents[key], value)
        else:  # the same objects: they have no equality of their own
            assert contents[key] == value, key


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


@pytest.mark.parametrize("kind", [chainer.optimizers.Adam, chainer.optimizers.SGD])
@pytest.mark.parametrize(
    ("phase", "given"),
    [("forward", False), ("forward-backward", False), ("train", False), ("train", True)],
)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_profile_changes_nothing(phase, given, kind, steps):
    model, optimizer = network(), kind()
    optimizer.setup(model)
    train(model, optimizer, steps)
    with chainer.using_config("train", False):
        model(X)
    before, t, hyperparam = contents(model), optimizer.t, dict(vars(optimizer.hyperparam))
    optimizer.add_hook(note, timing="post")
    more = {"optimizer": optimizer} if given else {}
    profile(model, X, phase=phase, trials=3, warmups=1, memory=False, loss=F.sum, **more)
    assert_same(contents(model), before)
    assert (optimizer.t, vars(optimizer.hyperparam)) == (t, hyperparam)
    assert chainer.config.train is True
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


def test_after_an_exception_too():
    model, optimizer = network(), chainer.optimizers.SGD()
    model(X)
    optimizer.setup(model)
    before = contents(model)
    with pytest.raises(ZeroDivisionError), left_as_found(model, optimizer):
        train(model, optimizer, 1 // len(model.xp.zeros(0)))
    assert_same(contents(model), before)


@pytest.mark.parametrize("phase", ["forward", "train"])
def test_parameters_may_get_their_first_array_in_the_profile(phase):
    model = chainer.Sequential(L.Linear(4), F.relu, L.Linear(2))
    assert len(profile(model, X, trials=2, warmups=1, phase=phase).layers) >= 3
    assert model[0].W.array.shape == (4, 3)
