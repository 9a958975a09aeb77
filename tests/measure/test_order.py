"""Rows of single calls: link paths, shapes, nesting, updates.

That the rows of any network are those of its calls is in tests/ledger.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import learned
from chainer_profile.record.recording import LinkCalls
from tests import nets
from tests.nets import SlowOptimizer, Step, Trained, image, net, slow_loss


def learn(model, *inputs, phase="forward", loss=F.sum, optimizer=None):
    step = make_step(phase, model, inputs or (image(),), loss=loss, optimizer=optimizer)
    with step.configured():
        return learned(step)


def rows(structure, phase):
    return ", ".join(f"{a.path} {a.function}" for a in structure.layers if a.phase == phase)


def linears(*names):
    return {name: L.Linear(2, 2) for name in names}


CLEARGRADS = "cleargrads cleargrads"


def test_paths_of_links_and_losses(clock):
    link, linear = Step(clock, 1), L.Linear(2, 2)
    # Sequential numbers its links only.
    structure = learn(chainer.Sequential(linear, F.relu, chainer.Sequential(linear.copy())))
    assert rows(structure, "forward") == "/0 LinearFunction, / ReLU, /1/0 LinearFunction"
    structure = learn(chainer.Sequential(chainer.Sequential(lambda x: link(x), linear)))
    # A link of no network is one below where it is called.
    assert rows(structure, "forward") == "/0/Step Wait, /0/0 LinearFunction"
    model = net(lambda self, x: (F.argmax(x), self.fc(F.relu(x)))[1], fc=L.Linear(2, 3))
    structure = learn(model, phase="train")
    assert rows(structure, "forward") == "/ ArgMax, / ReLU, /fc LinearFunction, loss Sum"
    assert rows(structure, "backward") == f"{CLEARGRADS}, loss Sum, /fc LinearFunction"
    structure = learn(net(lambda self, x: F.relu(x)), phase="forward-backward")
    assert rows(structure, "backward") == CLEARGRADS
    # The loss of a classifier, and one with a link of its own.
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


def test_rules_and_hooks_of_an_update(clock):
    def update_rows():
        loss = slow_loss(clock)
        return rows(learn(model, phase="train", loss=loss, optimizer=optimizer), "update")

    model = Trained(clock)
    optimizer = SlowOptimizer(clock).setup(model)
    for name in ("one", "two"):
        optimizer.add_hook(lambda opt: None, name=name)
    optimizer.add_hook(nets.SlowHook(clock, 1, "same"), name="three", timing="post")
    # Hooks go by the names that they were added by.
    rules = "/first SlowOptimizer, /second SlowOptimizer"
    assert update_rows() == f"optimizer one, optimizer two, {rules}, optimizer three"
    optimizer = SlowOptimizer(clock).setup(model)
    model.first.disable_update()
    model.second.W.update_rule = None
    assert update_rows() == "/first SlowOptimizer"


def test_shapes_phases_and_parents_of_rows(clock):
    structure = learn(nets.Chain(clock), image(3, 2))
    assert {(a.input_shapes, a.output_shapes, a.dtype) for a in structure.layers} == {
        (((3, 2),), ((3, 2),), "float32")
    }
    assert {(a.phase, a.parent, a.forward, a.calls) for a in structure.layers} == {
        ("forward", None, None, 1)
    }
    assert structure.phases == ()
    nested = learn(Step(clock, 10, nets.Outer))
    assert [a.parent for a in nested.layers] == [None, 0]
    assert nested.order.columns.tolist() == [2, 0, 1, 0, 2, 2]
    trained = learn(Trained(clock), phase="forward-backward", loss=slow_loss(clock))
    assert trained.phases == ("forward", "backward")
    assert [a.forward for a in trained.layers] == [None] * 5 + [3, 2, 1, None, 0]
    assert {a.calls for a in trained.layers} == {1}
    linear = learn(L.Linear(3, 2), image(4, 3), phase="forward-backward")
    (back,) = [a for a in linear.layers if (a.phase, a.path) == ("backward", "/")]
    assert (back.input_shapes, back.dtype) == (((4, 2),), "float32")
    assert back.output_shapes == ((2, 3), (2,))  # the input needs no gradient


def test_links_know_their_class_calls_and_own_parameters():
    class Net(chainer.ChainList):
        def forward(self, x):
            for link in self:
                x = link(x)
            return x

    first, tied = L.Linear(2, 5), L.Linear(5, 5)
    model = Net(first, L.Linear(None, 5), L.BatchNormalization(5), Net(tied))
    tied.b = first.b  # counts for the first of them alone
    for _ in range(2):
        assert learn(model, image(4, 2)).links == (
            LinkCalls("/", "Net", 1, 0),
            LinkCalls("/0", "Linear", 1, 15),
            LinkCalls("/1", "Linear", 1, 30),
            LinkCalls("/2", "BatchNormalization", 1, 10),
            LinkCalls("/3", "Net", 1, 0),
            LinkCalls("/3/0", "Linear", 1, 25),
        )
    assert learn(first).links == (LinkCalls("/", "Linear", 1, 15),)
    # Parameters name the link where no link hook fires.
    structure = learn(
        net(lambda self, x: F.linear(self.a.forward(x), self.b.W), **linears("a", "b"))
    )
    assert rows(structure, "forward") == "/a LinearFunction, /b LinearFunction"
    assert {link.path: link.calls for link in structure.links} == {"/": 1, "/a": 0, "/b": 0}


def test_one_row_of_the_update_for_each_link_with_its_parameters():
    links = {"a": L.Linear(2, 3), "b": L.Linear(3, 2, nobias=True)}
    model = net(lambda self, x: self.b(self.a(x)), **links)
    with model.init_scope():
        model.scale = chainer.Parameter(np.ones(5, np.float32))
    structure = learn(model, phase="train")
    assert structure.phases == ("update", "forward", "backward")
    updates = [a for a in structure.layers if a.phase == "update"]
    assert [(a.path, a.input_shapes, a.calls, a.dtype) for a in updates] == [
        ("optimizer", (), 1, ""),
        ("/", ((5,),), 1, "float32"),
        ("/a", ((3, 2), (3,)), 2, "float32"),
        ("/b", ((2, 3),), 1, "float32"),
    ]
    assert all(a.output_shapes == a.input_shapes for a in updates)
    # Chainer goes through a shared parameter twice, and updates it twice.
    link = L.Linear(2, 2)
    shared = net(lambda self, x: self.b(F.relu(self.a(x))), a=link, b=link)
    update = learn(shared, phase="train").layers[-1]
    assert (update.path, update.input_shapes, update.calls) == ("/a", ((2, 2), (2,)), 4)
