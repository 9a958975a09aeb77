"""Work and sizes of every row of a training step, exactly."""

from functools import partial

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from tests.measure.test_order import learn as learn_trial
from tests.nets import image, net

WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
SIZES = ("input_nbytes", "parameter_nbytes", "output_nbytes")
UNKNOWN = (None,) * 4


def work(row):
    return tuple(getattr(row, name) for name in WORK)


def sizes(row):
    return tuple(getattr(row, name) for name in SIZES)


def residual():
    """A network with a shortcut, whose gradients are added up."""

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        h = h + self.again(h)
        return self.fc(F.average(h, axis=(2, 3)))

    return net(
        forward,
        conv=L.Convolution2D(3, 4, 3, pad=1),
        bn=L.BatchNormalization(4),
        again=L.Convolution2D(4, 4, 3, pad=1),
        fc=L.Linear(4, 5),
    )


X = image(2, 3, 6, 6)


learn = partial(learn_trial, phase="train")


def updates(structure):
    return [a for a in structure.layers if a.phase == "update"]


def test_every_row_of_a_step_has_its_work_and_the_update_is_that_of_all_parameters():
    model = residual()
    structure = learn(model, X, loss="auto")
    assert [a.function for a in structure.layers if None in work(a)] == []
    by_name = {a.function: work(a) for a in structure.layers}
    n = 2 * 4 * 6 * 6
    assert by_name["cleargrads"] == (0, 0, 0, 0)
    assert by_name["gradient_accumulation"] == (n, 0, 8 * n, 4 * n)
    n = sum(param.size for param in model.params())
    hook, *rest = updates(structure)
    assert (hook.function, work(hook)) == ("WeightDecay", (2 * n, 0, 8 * n, 4 * n))
    assert {a.function for a in rest} == {"MomentumSGD"}
    assert [sum(column) for column in zip(*map(work, rest), strict=True)] == [
        *(4 * n, 0, 12 * n, 8 * n)
    ]
    (fc,) = [a for a in rest if a.path == "/fc"]
    assert (fc.flops, fc.calls) == (4 * (4 * 5 + 5), 2)
    rows = updates(learn(model, X, optimizer=optimizers.Adam().setup(model)))
    assert {a.function for a in rows} == {"Adam"}
    assert sum(a.flops for a in rows) == 13 * n


# -- unusual updates: of one network of four weights and two biases, by SGD


def shared(model, optimizer):
    return chainer.Sequential(model, F.relu, model)


def scaled(model, optimizer):
    optimizer.loss_scaling(scale=8)


def switched_off_on_the_way(model, optimizer):
    optimizer.add_hook(lambda _: setattr(model.W.update_rule, "enabled", False), "switch off")


def one_rule_for_all(model, optimizer):
    model.b.update_rule = model.W.update_rule


def hooks_of_a_rule(model, optimizer):
    model.W.update_rule.add_hook(hooks.WeightDecay(0.1))


@pytest.mark.parametrize(
    ("change", "calls", "expected"),
    [
        (shared, 4, (2 * 2 * 6, 0, 2 * 48, 2 * 24)),  # it is updated twice
        (scaled, 2, (3 * 6, 0, (4 + 8) * 6, 8 * 6)),
        (switched_off_on_the_way, 2, (2 * 2, 0, 16, 8)),  # the bias alone
        (one_rule_for_all, 2, UNKNOWN),
        (hooks_of_a_rule, 2, (2 * 6 + 2 * 4, 0, 48 + 32, 24 + 16)),
    ],
)
def test_unusual_updates(change, calls, expected):
    model = L.Linear(2, 2)
    optimizer = optimizers.SGD().setup(model)
    changed = change(model, optimizer)
    if changed is not None:
        optimizer = optimizers.SGD().setup(changed)
    row = updates(learn(changed or model, image(1, 2), optimizer=optimizer))[-1]
    assert (row.calls, work(row)) == (calls, expected)


def test_sizes():
    for model, x, expected in (
        (L.Linear(3, 2), image(4, 3), (4 * 3 * 4, (3 * 2 + 2) * 4, 4 * 2 * 4)),
        # An array that is passed twice counts once.
        (chainer.Sequential(lambda x: x * x), chainer.Variable(image(4, 3)), (48, 0, 48)),
        (L.EmbedID(7, 5), np.zeros((2, 3), np.int32), (24, 7 * 5 * 4, 2 * 3 * 5 * 4)),
        # A parameter that the call initializes.
        (L.Linear(None, 2), image(4, 3), (48, 32, 32)),
        # Statistics are no parameters.
        (L.BatchNormalization(3), image(2, 3, 4, 4), (384 + 2 * 12, 24, 384)),
    ):
        (row,) = learn(model, x, phase="forward").layers
        assert sizes(row) == expected, type(model)
    model = L.Linear(2, 2, nobias=True)
    (row,) = learn(chainer.Sequential(lambda x: F.sum(model.W)), image(), phase="forward").layers
    assert sizes(row) == (16, 0, 4)  # of another network: an input like others
    model.forward = lambda x: F.sum(model.W)
    (row,) = learn(model, image(), phase="forward").layers
    assert sizes(row) == (0, 16, 4)
