"""Rows of single calls: link paths, shapes, nesting; and trials that differ.

That the rows of any network are those of its calls is in tests/ledger.
"""

from contextlib import suppress
from functools import partial

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.steps import ForwardStep, make_step
from chainer_profile.measure.taped_step import StepError, TapedStep, learned
from chainer_profile.record.recording import LinkCalls
from tests import nets
from tests.ledger.drawn import Busy
from tests.nets import LongWait, Nesting, SlowOptimizer, Step, Trained, Wait, image, net, slow_loss


def learn(model, *inputs, phase="forward", loss=F.sum, optimizer=None):
    step = make_step(phase, model, inputs or (image(),), loss=loss, optimizer=optimizer)
    with step.configured():
        return learned(step)


def rows(structure, phase):
    return ", ".join(f"{a.path} {a.function}" for a in structure.layers if a.phase == phase)


def linears(*names):
    return {name: L.Linear(2, 2) for name in names}


CLEARGRADS = "cleargrads cleargrads"


def test_paths_of_links_losses_and_what_has_no_backward(clock):
    link, linear = Step(clock, 1), L.Linear(2, 2)
    # Sequential numbers its links only.
    found = learn(chainer.Sequential(linear, F.relu, chainer.Sequential(linear.copy())))
    assert rows(found, "forward") == "/0 LinearFunction, / ReLU, /1/0 LinearFunction"
    found = learn(chainer.Sequential(chainer.Sequential(lambda x: link(x), linear)))
    # A link of no network is one below where it is called.
    assert rows(found, "forward") == "/0/Step Wait, /0/0 LinearFunction"
    model = net(lambda self, x: (F.argmax(x), self.fc(F.relu(x)))[1], fc=L.Linear(2, 3))
    found = learn(model, phase="train")
    assert rows(found, "forward") == "/ ArgMax, / ReLU, /fc LinearFunction, loss Sum"
    assert rows(found, "backward") == f"{CLEARGRADS}, loss Sum, /fc LinearFunction"
    found = learn(net(lambda self, x: F.relu(x)), phase="forward-backward")
    assert rows(found, "backward") == CLEARGRADS
    # The loss of a classifier, and one with a link of its own.
    model = L.Classifier(net(lambda self, x: F.relu(self.fc(x)), fc=L.Linear(2, 3)))
    labels = np.array([0, 1, 2, 1], np.int32)
    found = learn(model, image(4, 2), labels, phase="train", loss="auto")
    network = "/predictor/fc LinearFunction, /predictor ReLU"
    assert rows(found, "forward") == f"{network}, / SoftmaxCrossEntropy, / Accuracy"
    back = "/ SoftmaxCrossEntropy, /predictor ReLU, /predictor/fc LinearFunction"
    assert rows(found, "backward") == f"{CLEARGRADS}, {back}"
    critic, model = L.Linear(2, 1), net(lambda self, x: self.a(x), **linears("a"))
    found = learn(model, phase="forward-backward", loss=lambda y: F.sum(critic(y)))
    assert rows(found, "forward") == "/a LinearFunction, loss/Linear LinearFunction, loss Sum"


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


def test_what_rows_know(clock):
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
    found = learn(net(lambda self, x: F.linear(self.a.forward(x), self.b.W), **linears("a", "b")))
    assert rows(found, "forward") == "/a LinearFunction, /b LinearFunction"
    assert {link.path: link.calls for link in found.links} == {"/": 1, "/a": 0, "/b": 0}


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


# -- unusual graphs


def test_a_graph_from_before_is_not_taken_for_a_call_of_this_pass():
    h, kept = L.Linear(2, 2)(image()), []

    def remembering(self, x):
        if not kept:
            kept.append(F.tanh(self.a(x)))
        return F.relu(self.b(x)) + kept[0]

    before = net(lambda self, x: self.a(x) + h, **linears("a"))
    earlier = net(remembering, **linears("a", "b"))
    for _ in range(2):
        (row,) = [
            a
            for a in learn(before, phase="forward-backward").layers
            if a.phase == "backward" and a.forward is None and a.function == "LinearFunction"
        ]
        assert (row.path, row.input_shapes, row.calls) == ("/", ((1, 2),), 1)
        structure = learn(earlier, phase="forward-backward")
    found = {(a.path, a.function): a.forward for a in structure.layers if a.phase == "backward"}
    assert found["/b", "LinearFunction"] == 0
    assert found["/", "Tanh"] is found["/", "LinearFunction"] is None
    assert ("/a", "LinearFunction") not in found


# -- failures


def fails(*_):
    raise ValueError("oh")


Breaking = type("Breaking", (Wait,), {"forward": fails})
Back = type("Back", (Nesting,), {"backward": fails})


def catching(self, x):
    with suppress(TypeError):
        self.a()  # it takes an input
    fails()


class Before(ForwardStep):
    def __call__(self):
        fails()


class Behind(ForwardStep):
    def __call__(self):
        super().__call__()
        fails()


def training(clock, kind=Nesting, core=None, loss=None):
    model = Trained(clock)
    model.second._cls = kind
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(nets.SlowHook(clock, 1))
    if core is not None:
        model.second.W.update_rule.update_core = core
    return make_step("train", model, (image(),), loss=loss or slow_loss(clock), optimizer=optimizer)


def forward_of(*calls, kind=ForwardStep):
    return kind(chainer.Sequential(*calls), (image(),))


FAILURES = {
    "in Linear at /1": lambda clock: forward_of(L.Linear(2, 3), L.Linear(4, 2)),
    "in layer 0_Breaking at /": lambda clock: forward_of(Step(clock, 1, Breaking).forward),
    "after layer 0_LinearFunction at /0": lambda clock: forward_of(L.Linear(2, 2), kind=Behind),
    "before its first layer": lambda clock: forward_of(L.Linear(2, 2), kind=Before),
    "in Net at /0": lambda clock: forward_of(net(catching, **linears("a"))),
    "in the backward of layer 6_Back at /second": lambda clock: training(clock, Back),
    "in the update of layer 12_SlowOptimizer at /second": lambda clock: training(clock, core=fails),
    "after layer 2_Nesting at /second": lambda clock: training(clock, loss=fails),
}


def test_a_failure_says_where(clock):
    found = {}
    for where, build in FAILURES.items():
        with pytest.raises(StepError) as caught:
            learned(build(clock))
        found[where] = caught.value.where
        message = str(caught.value.with_input((4, 2)))
        assert message.startswith(f"the network fails with an input of 4x2, {where}: "), message
        assert "\n" not in message
        assert not chainer.get_function_hooks()
        assert not chainer._get_link_hooks()
    assert found == {where: where for where in FAILURES}
    for value in (3.0, None, image()):  # a loss that is none
        with pytest.raises(StepError) as caught:
            learned(training(clock, loss=lambda y, value=value: value))
        assert "\n" not in str(caught.value.with_input((1, 2)))


# -- how trials differ


def alike(*models, inputs=None):
    """Whether trials of these networks, one behind the other, make the same calls."""
    x = image(3, 2)
    given = inputs or [x] * len(models)
    steps = [ForwardStep(model, (array,)) for model, array in zip(models, given, strict=True)]
    taped, current = TapedStep(steps[0]), iter(steps)
    taped._step = lambda: next(current)()
    with steps[0].configured():
        for _ in steps:
            taped.learn()
    return taped.order is not None


def waits(clock, *kinds):
    def forward(x):
        for kind in kinds:
            (x,) = kind(clock, 1).apply((x,))
        return x

    return chainer.Sequential(forward)


def test_trials_of_other_calls_shapes_and_links_differ(clock):
    calls = Wait, LongWait, LongWait
    assert alike(*[waits(clock, *calls)] * 3)
    for others in ([Wait, Wait, LongWait], [Wait, LongWait], [*calls, Wait], [*calls[::-1]]):
        assert not alike(waits(clock, *calls), waits(clock, *others)), others
    # The same calls nested otherwise.
    nested = net(lambda self, x: Busy(clock, inner=[Wait(clock, 1)]).apply((x,))[0])
    flat = waits(clock, Wait, partial(Busy))
    assert not alike(nested, flat)
    same = waits(clock, Wait)
    assert not alike(same, same, inputs=[image(3, 2), image(2, 3)])
    links = linears("a", "b")
    turn = iter("aaaab")
    model = net(lambda self, x: getattr(self, next(turn))(x), **links)
    assert alike(model, model)
    assert not alike(model, model, model)


def test_a_parameter_may_get_another_array_or_one_where_another_s_was():
    """As an update in mixed16 gives all of them new ones, behind the trial."""
    model = net(lambda self, x: self.b.forward(self.a.forward(x)), **linears("a", "b"))
    first, second = model.a.b, model.b.b
    taped = TapedStep(ForwardStep(model, (image(3, 2),)))
    taped.learn()
    kept = first.array, second.array  # so that nothing else gets their places
    first.array, second.array = (array.copy() for array in kept)
    taped.learn()
    first.array, second.array = second.array, first.array
    taped.learn()
    assert [layer.path for layer in taped.layers] == ["/a", "/b"]
    assert taped.order is not None


def test_a_backward_is_that_of_its_call_in_whatever_order_they_come(clock):
    """Calls of one function with the same shapes: their backwards are no mirror image of them."""

    def forward(self, x):
        return F.relu(self.a(x)) + F.relu(self.a(x))

    taped = learn(net(forward, **linears("a")), phase="forward-backward")
    calls = {layer.index: layer for layer in taped.layers if layer.phase == "forward"}
    backs = [layer for layer in taped.layers if layer.phase == "backward"]
    of = [layer.forward for layer in backs if layer.function == "ReLU"]
    assert sorted(of) == [at for at, layer in calls.items() if layer.function == "ReLU"]
    # What was called last and is not needed by others need not come back first.
    assert of != sorted(of, reverse=True)
    assert all(calls[at].function == "ReLU" for at in of)
