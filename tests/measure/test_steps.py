"""Steps of a trial: the three phases, their configuration, losses and the default optimizer."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.basics.words import LOSSES
from chainer_profile.measure.step_session import StepSession, learned
from chainer_profile.measure.steps import choose_loss, make_step
from tests.nets import Trained, image, net, slow_loss
from tests.refusing import refusal


def test_the_configuration_of_a_trial():
    model = L.Linear(2, 2)
    for phase, train_mode, expected in (
        ("forward", False, (False, False)),
        ("forward", True, (True, False)),
        ("forward-backward", False, (True, True)),
    ):
        step = make_step(phase, model, (image(),), train_mode=train_mode)
        with chainer.using_config("train", False), chainer.no_backprop_mode(), step.configured():
            assert (chainer.config.train, chainer.config.enable_backprop) == expected
    assert chainer.config.train is chainer.config.enable_backprop is True


def test_the_default_optimizer_leaves_all_weights_as_they_are_while_momentum_sgd_runs(monkeypatch):
    rule = chainer.optimizers.momentum_sgd.MomentumSGDRule
    updates, update_core_cpu = [], rule.update_core_cpu

    def counted(self, param):
        updates.append(param.name)
        update_core_cpu(self, param)

    monkeypatch.setattr(rule, "update_core_cpu", counted)
    model = chainer.Sequential(L.Linear(2, 5), F.tanh, L.BatchNormalization(5))
    step = make_step("train", model, (image(3, 2) + 1,))
    (decay,) = step.optimizer._hookable._pre_update_hooks.values()
    assert (decay.name, decay.rate) == ("WeightDecay", 1e-4)  # as train.py has them
    assert (step.optimizer.lr, step.optimizer.momentum) == (0.0, 0.9)
    before = [param.array.tobytes() for param in model.params()]
    with step.configured():
        step()
        with StepSession(step).recording():
            step()
    assert [param.array.tobytes() for param in model.params()] == before
    assert sorted(updates) == sorted(["W", "b", "gamma", "beta"] * 2)
    assert model[2].avg_mean.any()  # batch statistics move on as in training


def test_a_loss_has_a_name_and_choosing_it_runs_nothing_beside_the_trials(clock):
    class Own:
        def __call__(self, y):
            return F.sum(y)

    model = Trained(clock)
    before = np.random.get_state(legacy=True)[1].tolist()  # noqa: NPY002
    named = [(slow_loss(clock), "loss"), (Own(), "Own"), (F.sum, "sum")]
    for loss, name in [*named, *zip(LOSSES, LOSSES, strict=True)]:
        assert make_step("train", model, (image(),), loss=loss).loss.name == name
    assert model.calls == 0
    assert np.random.get_state(legacy=True)[1].tolist() == before  # noqa: NPY002


def test_a_loss_that_the_network_gives_in_train_mode_alone_and_parameters_to_come():
    def forward(self, x):
        y = self.b(self.a(x))
        return F.sum(y * y) if chainer.config.train else F.argmax(y)

    model = net(forward, a=L.Linear(None, 4), b=L.Linear(None, 3))
    step = make_step("train", model, (image() + 1,))
    with step.configured():
        learned(step)
        layers = learned(step).layers
    assert step.loss.name == "output"
    shapes = {row.path: row.input_shapes for row in layers if row.phase == "update"}
    assert shapes == {"optimizer": (), "/a": ((4, 2), (4,)), "/b": ((3, 4), (3,))}


def output(*shape, dtype=np.float32):
    return chainer.Variable(np.ones(shape, dtype))


@pytest.mark.parametrize("shape", [(64, 10), (8, 7, 5, 4), (16, 3, 6)])
def test_softmax_cross_entropy_against_labels_of_all_classes(shape):
    def labels(seed):
        """From the class with the smallest gradient of each example."""
        y = output(*shape)
        loss = choose_loss("auto", y, seed)
        loss.function(y).backward()
        assert loss.name == "softmax_cross_entropy"
        assert loss.function(y).array == pytest.approx(uniform)
        return y.grad.argmin(axis=1)

    uniform = np.log(shape[1])
    assert set(labels(3).ravel().tolist()) == set(range(shape[1]))
    assert (labels(3) == labels(3)).all()
    assert (labels(3) != labels(4)).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_mean_squared_error_against_normal_targets(dtype):
    given = output(2, 3, 4, dtype=dtype)
    losses = (choose_loss("mean_squared_error", given, seed) for seed in (1, 1, 2))
    values = [loss.function(given).array for loss in losses]
    assert values[0].dtype == dtype
    assert values[0] == values[1] != values[2]


HAS, NONE = "the network's output has shape", "no loss can be computed from the network's output, a"
NEEDS = f"{HAS} (4,), but softmax_cross_entropy needs (batch, classes): choose another loss, such"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("output", output(4, 3), f"{HAS} (4, 3), but a loss is one number"),
        ("auto", output(4), NEEDS),
        ("softmax_cross_entropy", output(4), NEEDS),
        ("auto", (np.ones((2, 3), "f"),), f"{NONE} tuple"),
        ("output", output(2, 3, dtype=np.int32), f"{NONE} Variable"),
        ("mean_squared_error", None, f"{NONE} NoneType"),
    ],
)
def test_an_output_that_has_no_loss(name, given, said):
    assert refusal(choose_loss, name, given).startswith(said)
