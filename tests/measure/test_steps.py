"""Steps of a trial: phases, configuration, losses and the default optimizer."""

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


def test_configuration_of_each_phase():
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


def test_default_optimizer_runs_momentum_sgd_and_keeps_weights(monkeypatch):
    rule = chainer.optimizers.momentum_sgd.MomentumSGDRule
    updates, update_core_cpu = [], rule.update_core_cpu

    def counted(self, param):
        updates.append(param.name)
        update_core_cpu(self, param)

    monkeypatch.setattr(rule, "update_core_cpu", counted)
    model = chainer.Sequential(L.Linear(2, 5), F.tanh, L.BatchNormalization(5))
    step = make_step("train", model, (image(3, 2) + 1,))
    (decay,) = step.optimizer._hookable._pre_update_hooks.values()
    assert (decay.name, decay.rate) == ("WeightDecay", 1e-4)  # the values in train.py
    assert (step.optimizer.lr, step.optimizer.momentum) == (0.0, 0.9)
    before = [param.array.tobytes() for param in model.params()]
    with step.configured():
        step()
        with StepSession(step).recording():
            step()
    assert [param.array.tobytes() for param in model.params()] == before
    assert sorted(updates) == sorted(["W", "b", "gamma", "beta"] * 2)
    assert model[2].avg_mean.any()  # batch statistics change as in training


def test_losses_have_names_and_choosing_one_runs_no_network(clock):
    class CallableLoss:
        def __call__(self, y):
            return F.sum(y)

    model = Trained(clock)
    before = np.random.get_state(legacy=True)[1].tolist()  # noqa: NPY002
    named = [(slow_loss(clock), "loss"), (CallableLoss(), "CallableLoss"), (F.sum, "sum")]
    for loss, name in [*named, *zip(LOSSES, LOSSES, strict=True)]:
        assert make_step("train", model, (image(),), loss=loss).loss.name == name
    assert model.calls == 0
    assert np.random.get_state(legacy=True)[1].tolist() == before  # noqa: NPY002


def test_loss_from_the_network_in_train_mode_and_uninitialized_parameters():
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
def test_softmax_cross_entropy_uses_labels_of_all_classes(shape):
    def labels(seed):
        """Labels of the loss: the class with the smallest gradient, by example."""
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
def test_mean_squared_error_uses_normal_targets(dtype):
    y = output(2, 3, 4, dtype=dtype)
    losses = (choose_loss("mean_squared_error", y, seed) for seed in (1, 1, 2))
    values = [loss.function(y).array for loss in losses]
    assert values[0].dtype == dtype
    assert values[0] == values[1] != values[2]


HAS, NONE = "the network's output has shape", "no loss can be computed from the network's output, a"
NEEDS = f"{HAS} (4,), but softmax_cross_entropy needs (batch, classes): choose another loss, such"


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [
        ("output", output(4, 3), f"{HAS} (4, 3), but a loss is one number"),
        ("auto", output(4), NEEDS),
        ("softmax_cross_entropy", output(4), NEEDS),
        ("auto", (np.ones((2, 3), "f"),), f"{NONE} tuple"),
        ("output", output(2, 3, dtype=np.int32), f"{NONE} Variable"),
        ("mean_squared_error", None, f"{NONE} NoneType"),
    ],
)
def test_message_about_outputs_without_a_loss(name, output, message):
    assert refusal(choose_loss, name, output).startswith(message)
