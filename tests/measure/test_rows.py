"""Rows of single calls: link paths, shapes, nesting, updates, and exact work and sizes.

tests/ledger checks the rows of any network.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.measure.step_session import learned
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import LinkCalls
from tests import nets
from tests.nets import SlowOptimizer, Step, Trained, image, net, slow_loss


def learn(model, *inputs, phase="forward", loss=F.sum, optimizer=None):
    step = make_step(phase, model, inputs or (image(),), loss=loss, optimizer=optimizer)
    with step.configured():
        return learned(step)


def rows_of_phase(structure, phase):
    return [row for row in structure.layers if row.phase == phase]


def rows(structure, phase):
    return ", ".join(f"{row.path} {row.function}" for row in rows_of_phase(structure, phase))


def linears(*names):
    return {name: L.Linear(2, 2) for name in names}


CLEARGRADS = "cleargrads cleargrads"


def test_rows_have_paths_of_links(clock):
    link, linear, tied = Step(clock, 1), L.Linear(2, 2), linears("a", "b")
    tied["b"].W = tied["a"].W
    for model, expected in (
        # Sequential numbers its links only.
        (
            chainer.Sequential(linear, F.relu, chainer.Sequential(linear.copy())),
            "/0 LinearFunction, / ReLU, /1/0 LinearFunction",
        ),
        # The path of a link outside of the network is below its caller.
        (
            chainer.Sequential(chainer.Sequential(lambda x: link(x), linear)),
            "/0/Step Wait, /0/0 LinearFunction",
        ),
        # If no link is called, a parameter gives the path.
        (
            net(lambda self, x: F.linear(self.a.forward(x), self.b.W), **linears("a", "b")),
            "/a LinearFunction, /b LinearFunction",
        ),
        # A shared parameter belongs to the first link.
        (net(lambda self, x: F.linear(x, self.b.W), **tied), "/a LinearFunction"),
    ):
        assert rows(learn(model), "forward") == expected


def test_rows_of_losses_have_paths():
    model = net(lambda self, x: (F.argmax(x), self.fc(F.relu(x)))[1], fc=L.Linear(2, 3))
    structure = learn(model, phase="train")
    assert rows(structure, "forward") == "/ ArgMax, / ReLU, /fc LinearFunction, loss Sum"
    assert rows(structure, "backward") == f"{CLEARGRADS}, loss Sum, /fc LinearFunction"
    # The loss of a classifier, and a loss with a link.
    model = L.Classifier(net(lambda self, x: F.relu(self.fc(x)), fc=L.Linear(2, 3)))
    labels = np.array([0, 1, 2, 1], np.int32)
    structure = learn(model, image(4, 2), labels, phase="train", loss="auto")
    network = "/predictor/fc LinearFunction, /predictor ReLU"
    assert rows(structure, "forward") == f"{network}, / SoftmaxCrossEntropy, / Accuracy"
    back = "/ SoftmaxCrossEntropy, /predictor ReLU, /predictor/fc LinearFunction"
    assert rows(structure, "backward") == f"{CLEARGRADS}, {back}"
    critic, model = L.Linear(2, 1), net(lambda self, x: self.a(x), **linears("a"))
    structure = learn(model, phase="forward-backward", loss=lambda y: F.sum(critic(y)))
    assert rows(structure, "forward") == "/a LinearFunction, loss/Linear LinearFunction, loss Sum"


def test_update_rules_and_hooks_have_rows(clock):
    def update_rows():
        loss = slow_loss(clock)
        return rows(learn(model, phase="train", loss=loss, optimizer=optimizer), "update")

    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    for name in ("one", "two"):
        optimizer.add_hook(lambda opt: None, name=name)
    optimizer.add_hook(nets.SlowHook(clock, 1, "same"), name="three", timing="post")
    # Rows of hooks have the names under which the hooks were added.
    rules = "/first SlowOptimizer, /second SlowOptimizer"
    assert update_rows() == f"optimizer one, optimizer two, {rules}, optimizer three"
    optimizer = SlowOptimizer(clock).setup(model)
    model.first.disable_update()
    model.second.W.update_rule = None
    assert update_rows() == "/first SlowOptimizer"


def test_rows_have_shapes_phases_and_parents(clock):
    nested = learn(Step(clock, 10, nets.Outer))
    assert [row.parent for row in nested.layers] == [None, 0]
    assert nested.phases == ()
    trained = learn(Trained(clock), phase="forward-backward", loss=slow_loss(clock))
    assert trained.phases == ("forward", "backward")
    assert [row.forward for row in trained.layers] == [None] * 5 + [3, 2, 1, None, 0]
    assert {row.calls for row in trained.layers} == {1}
    linear = learn(L.Linear(3, 2), image(4, 3), phase="forward-backward")
    (call, _), (_, _, back) = (rows_of_phase(linear, phase) for phase in ("forward", "backward"))
    assert (call.input_shapes, call.output_shapes) == (((4, 3), (2, 3), (2,)), ((4, 2),))
    assert (back.input_shapes, back.dtype) == (((4, 2),), "float32")
    assert back.output_shapes == ((2, 3), (2,))  # the input needs no gradient


def test_links_have_class_calls_and_parameters():
    class Net(chainer.ChainList):
        def forward(self, x):
            for link in self:
                x = link(x)
            return x

    first, tied = L.Linear(2, 5), L.Linear(5, 5)
    model = Net(first, L.Linear(None, 5), L.BatchNormalization(5), Net(tied))
    tied.b = first.b  # a shared parameter counts in the first link only
    for _ in range(2):
        assert learn(model, image(4, 2)).links == (
            LinkCalls("/", "Net", 1, 0),
            LinkCalls("/0", "Linear", 1, 15),
            LinkCalls("/1", "Linear", 1, 30),
            LinkCalls("/2", "BatchNormalization", 1, 10),
            LinkCalls("/3", "Net", 1, 0),
            LinkCalls("/3/0", "Linear", 1, 25),
        )
    uncalled = net(lambda self, x: F.relu(x), **linears("a"))
    assert [(link.path, link.calls) for link in learn(uncalled).links] == [("/", 1), ("/a", 0)]


# -- work and sizes

WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
SIZES = ("input_nbytes", "parameter_nbytes", "output_nbytes")
UNKNOWN = (None,) * 4


def work(row):
    return tuple(getattr(row, name) for name in WORK)


def test_every_row_of_a_training_step_has_its_work():
    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        return self.fc(F.average(h + self.again(h), axis=(2, 3)))  # needs a gradient sum

    conv, again = (L.Convolution2D(n, 4, 3, pad=1) for n in (3, 4))
    model = net(forward, conv=conv, bn=L.BatchNormalization(4), again=again, fc=L.Linear(4, 5))
    with model.init_scope():
        model.scale = chainer.Parameter(np.ones(5, np.float32))
    structure = learn(model, image(2, 3, 6, 6), phase="train", loss="auto")
    assert structure.phases == ("update", "forward", "backward")
    updates = rows_of_phase(structure, "update")
    assert [(row.path, row.function, row.input_shapes, row.calls) for row in updates] == [
        ("optimizer", "WeightDecay", (), 1),
        ("/", "MomentumSGD", ((5,),), 1),
        ("/again", "MomentumSGD", ((4, 4, 3, 3), (4,)), 2),
        ("/bn", "MomentumSGD", ((4,), (4,)), 2),
        ("/conv", "MomentumSGD", ((4, 3, 3, 3), (4,)), 2),
        ("/fc", "MomentumSGD", ((5, 4), (5,)), 2),
    ]
    assert all(row.output_shapes == row.input_shapes for row in updates)
    assert [row.function for row in structure.layers if None in work(row)] == []
    by_name = {row.function: work(row) for row in structure.layers}
    n = 2 * 4 * 6 * 6
    assert by_name["cleargrads"] == (0, 0, 0, 0)
    assert by_name["gradient_accumulation"] == (n, 0, 8 * n, 4 * n)
    n = sum(param.size for param in model.params())
    hook, *rest = updates
    assert work(hook) == (2 * n, 0, 8 * n, 4 * n)
    assert [sum(column) for column in zip(*map(work, rest), strict=True)] == [
        *(4 * n, 0, 12 * n, 8 * n)
    ]
    optimizer = optimizers.Adam().setup(model)
    structure = learn(model, image(2, 3, 6, 6), phase="train", optimizer=optimizer)
    assert sum(row.flops for row in rows_of_phase(structure, "update")) == 13 * n


# Unusual updates, by SGD, of a network with four weights and two biases.


def shared(model, optimizer):
    return chainer.Sequential(model, F.relu, model)


def scaled(model, optimizer):
    optimizer.loss_scaling(scale=8)


def disabled_by_a_hook(model, optimizer):
    optimizer.add_hook(lambda _: setattr(model.W.update_rule, "enabled", False), "switch off")


def one_rule_for_all(model, optimizer):
    model.b.update_rule = model.W.update_rule


def hooks_of_a_rule(model, optimizer):
    model.W.update_rule.add_hook(hooks.WeightDecay(0.1))


def unknown_hook_of_a_rule(model, optimizer):
    model.W.update_rule.add_hook(lambda rule, param: None, "own")


@pytest.mark.parametrize(
    ("change", "calls", "expected"),
    [
        (unknown_hook_of_a_rule, 2, UNKNOWN),
        (shared, 4, (2 * 2 * 6, 0, 2 * 48, 2 * 24)),  # Chainer updates it twice
        (scaled, 2, (3 * 6, 0, (4 + 8) * 6, 8 * 6)),
        (disabled_by_a_hook, 2, (2 * 2, 0, 16, 8)),  # only the bias
        (one_rule_for_all, 2, (2 * 6, 0, 48, 24)),
        (hooks_of_a_rule, 2, (2 * 6 + 2 * 4, 0, 48 + 32, 24 + 16)),
    ],
)
def test_work_of_unusual_updates(change, calls, expected):
    model = L.Linear(2, 2)
    optimizer = optimizers.SGD().setup(model)
    changed = change(model, optimizer)
    if changed is not None:
        optimizer = optimizers.SGD().setup(changed)
    structure = learn(changed or model, image(1, 2), phase="train", optimizer=optimizer)
    row = structure.layers[-1]
    assert (row.phase, row.calls, work(row)) == ("update", calls, expected)


def test_sizes_of_inputs_parameters_and_outputs():
    other = L.Linear(2, 2, nobias=True)
    uses_own_parameter = net(lambda self, x: F.sum(self.fc.W), fc=other)
    for model, x, expected in (
        (L.Linear(3, 2), image(4, 3), (4 * 3 * 4, (3 * 2 + 2) * 4, 4 * 2 * 4)),
        # An array that is passed twice counts once.
        (chainer.Sequential(lambda x: x * x), chainer.Variable(image(4, 3)), (48, 0, 48)),
        (L.EmbedID(7, 5), np.zeros((2, 3), np.int32), (24, 7 * 5 * 4, 2 * 3 * 5 * 4)),
        # The call initializes a parameter.
        (L.Linear(None, 2), image(4, 3), (48, 32, 32)),
        # Running statistics are not parameters.
        (L.BatchNormalization(3), image(2, 3, 4, 4), (384 + 2 * 12, 24, 384)),
        # A parameter of another network is an input.
        (chainer.Sequential(lambda x: F.sum(other.W)), image(), (16, 0, 4)),
        (uses_own_parameter, image(), (0, 16, 4)),
    ):
        (row,) = learn(model, x).layers
        assert tuple(getattr(row, name) for name in SIZES) == expected, type(model)
