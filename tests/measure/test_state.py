"""profile() and summary() restore everything that is reachable from a network."""

import gc
import random
import warnings
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizers

import chainer_profile
from chainer_profile import ProfileError
from chainer_profile.measure import state
from chainer_profile.measure.state import preserved_state
from tests import nets
from tests.measure.describing import describe, differences
from tests.measure.restoring import PHASES, Slotted, X, assert_restored, changing, profile

pytestmark = pytest.mark.usefixtures("one_thread")


def change_dict(link):
    link.value["calls"] = link.value.pop("calls") + 1  # the order changes, too


def replace_weights(link):
    link.fc.W.array = link.fc.W.array * 2


def scale_weights(link):
    link.fc.W.array *= 2


#: A change that forward makes, and the initial attribute ``value`` of the link.
CHANGES = {
    "attribute": (lambda link: setattr(link, "value", link.value + 1), 0),
    "attribute that forward sets first": (lambda link: setattr(link, "late", [1]), None),
    "deleted attribute": (lambda link: vars(link).pop("value", 0), 3),
    "list": (lambda link: link.value.append(1), [3]),
    "nested list": (lambda link: link.value[0].insert(0, 1), [[3]]),
    "tuple of lists": (lambda link: link.value[0].append(1), ([3],)),
    "dict": (change_dict, {"calls": 0, "other": 1}),
    "ordered dict": (change_dict, OrderedDict(calls=0, other=1)),
    "default dict": (lambda link: link.value["new"].append(1), defaultdict(list)),
    "counter": (lambda link: link.value.update("ab"), Counter("aab")),
    "set": (lambda link: link.value.symmetric_difference_update({1, 2}), {2, 3}),
    "deque": (lambda link: link.value.append(4), deque([1, 2, 3], maxlen=3)),
    "bytes": (lambda link: link.value.extend(b"!"), bytearray(b"bytes")),
    "array in place": (lambda link: link.value.fill(5), np.arange(6.0)),
    "shape of an array": (lambda link: setattr(link.value, "shape", (3, 2)), np.arange(6.0)),
    "read-only array": (lambda link: link.value.setflags(write=False), np.arange(6.0)),
    "array of objects": (lambda link: link.value[0].append(1), np.array([[], None], object)),
    "masked array": (
        lambda link: link.value.__setitem__(0, np.ma.masked),
        np.ma.masked_array([1.0, 2], [False, True]),
    ),
    "part of an array": (lambda link: link.value[1].fill(5), (np.arange(6.0)[::2], np.zeros(3))),
    "array in a list in a dict": (lambda link: link.value["a"][0].fill(1), {"a": [np.zeros(2)]}),
    "object": (lambda link: setattr(link.value, "n", 1), SimpleNamespace(n=0)),
    "slots": (lambda link: link.value.add(), Slotted()),
    "random generator": (lambda link: link.value.normal(), np.random.default_rng(0)),
    "RandomState": (lambda link: link.value.normal(), np.random.RandomState(0)),
    "Python's random generator": (lambda link: link.value.random(), random.Random(0)),
    "variable": (lambda link: setattr(link.value, "array", X), chainer.Variable(X[0])),
    "weights in place": (scale_weights, None),
    "replaced weights": (replace_weights, None),
    "global random numbers": (lambda _: (random.random(), np.random.rand()), None),  # noqa: NPY002
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_by_forward_are_restored(kind):
    change, value = CHANGES[kind]
    model = changing(change, value=value)
    before = describe(model=model)
    model(X)
    assert differences(before, describe(model=model))  # the change has an effect
    assert_restored(model)


class CountsOnClass(L.Linear):
    """Counts calls and stores outputs in attributes of its class."""

    calls, outputs = 0, [None]
    total = np.zeros(3)

    def forward(self, x):
        y = super().forward(x)
        cls = type(self)
        cls.calls += 1
        cls.outputs.append(y.array)
        cls.total += 1
        cls.last = y.array
        return y


class Inherits(CountsOnClass):
    """A subclass that overrides nothing."""


@pytest.mark.parametrize("wrap", [lambda link: link, lambda link: chainer.Sequential(link, F.relu)])
def test_class_attributes_are_restored(wrap):
    total = CountsOnClass.total
    profile(wrap(Inherits(6, 6)))
    assert (CountsOnClass.calls, CountsOnClass.outputs) == (0, [None])
    assert CountsOnClass.total is total
    assert not total.any()
    assert not {"calls", "last", "total"} & vars(Inherits).keys()
    assert "last" not in vars(CountsOnClass)


def test_view_and_its_array_are_restored():
    array = np.zeros((4, 6))
    model = changing(lambda link: link.value[0].fill(1), value=(array[1], array))
    assert_restored(model)
    frozen = np.broadcast_to(array, (2, 4, 6))  # a read-only view
    assert_restored(changing(lambda link: array.fill(1), value=frozen))


def test_attributes_that_are_not_persistent_are_restored():
    norm = L.BatchNormalization(6)
    norm.plain = [np.zeros(3)]

    def forward(self, x):
        self.norm.plain[0] += 1
        self.norm.plain.append(x)
        return self.norm(x)

    for phase in PHASES:
        assert_restored(nets.net(forward, norm=norm), phase=phase)


def test_default_optimizer_keeps_weights_despite_infinite_gradients():
    def forward(self, x):
        return F.sum(self.l2(F.sqrt(F.relu(self.l1(x)))))

    model = nets.net(forward, l1=L.Linear(6, 5), l2=L.Linear(5, 3))
    with np.errstate(all="ignore"):
        model(X).backward()
        assert not np.isfinite(model.l1.W.grad).all()
        model.cleargrads()
        assert_restored(model, phase="train")


def first_weights(make, phase="forward"):
    """Weights of a new network after one call, by path."""
    model = make()
    with chainer.using_config("train", phase != "forward"):
        model(X)
    return {path: param.array for path, param in model.namedparams()}


@pytest.mark.parametrize("phase", PHASES)
def test_parameters_keep_their_first_array_with_its_initial_values(phase):
    def make():
        np.random.seed(1)  # noqa: NPY002  (Chainer's initializers draw from it)
        return chainer.Sequential(L.Linear(20), F.relu, L.Linear(6))

    model, before = make(), np.random.get_state()[1].tolist()  # noqa: NPY002
    optimizer = optimizers.Adam().setup(model)
    rules = [param.update_rule for param in model.params()]
    profile(model, phase=phase, **{"optimizer": optimizer} if phase == "train" else {})
    for path, param in model.namedparams():
        assert param.array.tobytes() == first_weights(make)[path].tobytes()
    make()
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert [param.update_rule for param in model.params()] == rules
    assert [rule.state for rule in rules] == [None] * 4
    assert_restored(model, phase=phase)


def test_inputs_keep_their_arrays_and_gradients():
    x = chainer.Variable(X.copy())
    x.grad = np.ones_like(X)
    model = nets.net(lambda self, x: self.fc(F.relu(x)), fc=L.Linear(6, 3))
    for phase in PHASES:
        assert_restored(model, x, phase)
    overwriting = nets.net(lambda self, x: (x.array.fill(2), self.fc(x))[1], fc=L.Linear(6, 3))
    assert_restored(overwriting, x)


OPTIMIZERS_STATE = {
    "float32 copies": lambda: optimizers.MomentumSGD(0.1).use_fp32_update,
    "dynamic loss scaling": lambda: optimizers.SGD(0.1).loss_scaling,
    "beta_power": lambda: optimizers.MSVAG().new_epoch,
}


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("kind", OPTIMIZERS_STATE)
def test_state_of_optimizers_and_update_rules_is_restored(kind, steps):
    with chainer.using_config("dtype", np.dtype(np.float16)):
        model, x = L.Linear(6, 3), X.astype(np.float16)
    prepare = OPTIMIZERS_STATE[kind]()
    optimizer = prepare.__self__.setup(model)
    prepare()
    for _ in range(steps):
        optimizer.update(lambda: F.sum(model(x)))
    before = describe(model=model, optimizer=optimizer)
    optimizer.update(lambda: F.sum(model(x)))
    assert differences(before, describe(model=model, optimizer=optimizer))
    assert_restored(model, x, "train", optimizer=optimizer)
    assert_restored(model, x, "train")  # the profile removes the update rules for a while


# -- functions


def lstm_with_state():
    lstm = L.LSTM(6, 6)
    lstm(X)
    return lstm


LSTM = lstm_with_state()
TOTAL = 0


def by_global_name(x):
    global TOTAL
    TOTAL += 1
    return LSTM(x)


def test_networks_called_by_a_profiled_function_are_restored():
    lstm, norm = lstm_with_state(), L.BatchNormalization(6)
    calls, count = [], 0

    def counting(x, *, linear=L.Linear(6, 6)):  # noqa: B008
        nonlocal count
        count += 1
        calls.append(x)
        return linear(norm(lstm(x)))

    holder = SimpleNamespace(lstm=lstm)

    class Predictor:
        calls = 0

        def predict(self, x):
            self.calls += 1
            return holder.lstm(norm(x))

    functions = (counting, Predictor().predict, lstm.forward, by_global_name, lambda x: counting(x))
    for function in functions:
        for phase in PHASES[:2]:
            assert_restored(function, phase=phase)
            assert (calls, count, TOTAL) == ([], 0, 0)


def test_network_of_the_loss_is_restored():
    critic = nets.net(lambda self, y: F.sum(self.norm(y)), norm=L.BatchNormalization(6))
    model = L.Linear(6, 6)
    before = describe(critic=critic)
    for phase in PHASES[1:]:
        profile(model, phase=phase, loss=lambda y: critic(y))
        profile(model, phase=phase, loss=critic)
    assert not differences(before, describe(critic=critic))


# -- failures


def fail(self, x):
    y = self.lstm(x)
    self.calls.append(1)
    if len(self.calls) > 7:
        raise self.error
    return y


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_state_is_restored_after_exceptions(error):
    model = nets.net(fail, lstm=lstm_with_state())
    model.calls, model.error = [], None
    before = describe(model=model)
    model.error = error
    with pytest.raises((ProfileError, KeyboardInterrupt)):
        profile(model, trials=20)
    model.error = None
    assert not differences(before, describe(model=model))


def test_failed_restore_warns_and_hides_no_exception(monkeypatch):
    monkeypatch.setattr(state, "copy_array", lambda array: lambda: 1 // 0)
    model = L.Linear(6, 3)
    message = "not all state is restored: content of ndarray: ZeroDivisionError"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(UserWarning, match=message):
            profile(model)
        with (
            pytest.warns(UserWarning, match=message),
            pytest.raises(KeyError),
            preserved_state(model),
        ):
            raise KeyError


def test_state_too_large_to_copy_is_refused_before_any_call(monkeypatch):
    model = changing(lambda link: link.calls.append(1), calls=[])
    model.large = np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 30,), (0,), writeable=True)
    monkeypatch.setattr(state, "free_nbytes", lambda: 1 << 20)
    with pytest.raises(
        ProfileError, match=r"a copy of arrays .* does not fit into memory: .* free"
    ):
        profile(model)
    assert model.calls == []
    model.large.flags.writeable = False  # a read-only array is not copied
    model.calls = ()
    with pytest.raises(ProfileError, match="fails"):
        profile(model)


def test_no_network_is_kept_alive():
    model = lstm_with_state()
    reference = weakref.ref(model)
    profile(model, phase="train", loss=F.sum)
    del model
    gc.collect()
    assert reference() is None


def test_long_graphs_are_restored():
    x = chainer.Variable(X)
    y = x
    for _ in range(5000):
        y = F.identity(y)
    model = changing(lambda link: link.value.unchain_backward(), value=y)
    profile(model)
    F.sum(y).backward()
    assert x.grad is not None


def test_summary_restores_state():
    norm = L.BatchNormalization(6)
    model = nets.net(lambda self, x: self.norm(self.lstm(x)), lstm=lstm_with_state(), norm=norm)
    model.calls = 0

    def summary(model, x):
        return chainer_profile.summary(model, x)

    assert_restored(model, run=summary)
    assert_restored(model.forward, run=summary)
    lazy = chainer.Sequential(L.Linear(3))
    chainer_profile.summary(lazy, X)
    assert lazy[0].W.array.shape == (3, 6)
