"""What a pass learns of work and sizes: of every row of a training step, exactly."""

import gc
import weakref
from functools import partial

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.costs import work as costs
from chainer_profile.costs.work import register_cost
from chainer_profile.measure.windows import CLEARGRADS, Mark
from tests.measure.test_order import learn as learn_trial
from tests.nets import SlowHook, SlowOptimizer, SlowRule, Trained, image, net, slow_loss

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


def test_what_is_approximate_says_so():
    model = chainer.Sequential(L.Linear(3, 2), F.normalize)
    about = [row for row in learn(model, image(4, 3)).layers if row.work_is_about]
    assert [row.function for row in about] == ["NormalizeL2"] * 2
    assert [row.phase for row in about] == ["forward", "backward"]
    assert about[0].flops == 3 * 4 * 2


def test_gradients_are_added_up_lazily_too():
    def threefold(self, x):
        h = self.fc(x)
        return F.tanh(h) + F.relu(h) + F.sigmoid(h)

    with chainer.using_config("lazy_grad_sum", True):
        structure = learn(net(threefold, fc=L.Linear(2, 3)), image(4, 2))
    (row,) = [a for a in structure.layers if a.function == "gradient_accumulation"]
    assert work(row) == (24, 0, 3 * 48, 48)
    assert (row.phase, row.path, len(row.input_shapes)) == ("backward", "/", 3)


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
    found = change(model, optimizer)
    if found is not None:
        optimizer = optimizers.SGD().setup(found)
    row = updates(learn(found or model, image(1, 2), optimizer=optimizer))[-1]
    assert (row.calls, work(row)) == (calls, expected)


def test_formulas_of_users(clock, monkeypatch):
    monkeypatch.setattr(costs, "_users", {})
    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 1))

    def found():
        given = {"loss": slow_loss(clock), "optimizer": optimizer}
        return [a.flops for a in updates(learn(model, image(), **given))]

    assert found() == [None] * 3
    register_cost(SlowRule)(lambda call: call.p.size)
    register_cost(SlowHook)(lambda call: 7)
    assert found() == [7, 2, 2]
    register_cost(SlowRule)(lambda call: 1 / 0)
    with pytest.warns(UserWarning, match="cost formula of SlowOptimizer failed"):
        assert found() == [7, None, None]


def test_a_parameter_without_a_gradient_is_not_updated():
    class NoGradients(optimizers.SGD):
        def reallocate_cleared_grads(self):
            pass

    links = {"used": L.Linear(2, 2), "unused": L.Linear(2, 2)}
    model = net(lambda self, x: self.used(x), **links)
    structure = learn(model, image(), optimizer=NoGradients().setup(model))
    assert {a.path: a.flops for a in updates(structure)} == {"/used": 12, "/unused": 0}


def test_what_was_learned_holds_no_network_and_work_makes_no_difference_to_a_mark():
    mark = Mark("backward", "cleargrads", "cleargrads")
    assert mark == CLEARGRADS
    assert (hash(mark), repr(mark)) == (hash(CLEARGRADS), repr(CLEARGRADS))
    model = residual()
    order = learn(model, X, loss="auto").order
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None
    assert order.layers


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


def test_rows_of_other_phases_have_no_sizes():
    model = L.Linear(2, 2)

    def loss(y):
        (gx,) = chainer.grad([F.sum(y)], [model.W], enable_double_backprop=True)
        return F.sum(gx * gx)

    for structure in (learn(model, image(), loss=loss), learn(residual(), X, loss="auto")):
        for row in structure.layers:
            assert [size is None for size in sizes(row)] == [row.phase != "forward"] * 3
