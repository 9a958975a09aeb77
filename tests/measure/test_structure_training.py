"""What a training step teaches: the rows of backward and update, and whose links they go to."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.steps import make_step
from tests.nets import (
    Nesting,
    SlowHook,
    SlowOptimizer,
    Sum,
    Trained,
    Wait,
    Weighted,
    image,
    net,
    slow_loss,
)


def learn(model, *inputs, phase="forward-backward", loss="auto", optimizer=None):
    step = make_step(phase, model, inputs, loss=loss, optimizer=optimizer)
    with step.configured():
        return learn_structure(step)


def rows(structure, phase):
    return [(a.path, a.function) for a in structure.layers if a.phase == phase]


class TestBackward:
    def test_rows_of_forward_and_backward(self, clock):
        structure = learn(Trained(clock), image(), loss=slow_loss(clock))
        assert structure.phases == ("forward", "backward")
        assert rows(structure, "forward") == [
            ("/first", "Sum"),
            ("/second", "Nesting"),
            ("/second", "Nesting"),
            ("loss", "Total"),
        ]
        assert rows(structure, "backward") == [
            ("cleargrads", "cleargrads"),
            ("loss", "Total"),
            ("/second", "Nesting"),
            ("/second", "Nesting"),
            ("/second", "gradient_accumulation"),
            ("/first", "Sum"),
        ]
        assert [a.forward for a in structure.layers] == [None] * 5 + [3, 2, 1, None, 0]
        assert [a.index for a in structure.layers] == list(range(10))
        assert {a.calls for a in structure.layers} == {1}

    def test_shapes_of_a_backward_are_those_of_its_gradients(self):
        structure = learn(L.Linear(3, 2), image(4, 3), loss=F.sum)
        (back,) = [
            a for a in structure.layers if (a.phase, a.function) == ("backward", "LinearFunction")
        ]
        assert back.input_shapes == ((4, 2),)
        assert back.output_shapes == ((2, 3), (2,))  # the input needs no gradient
        assert back.dtype == "float32"

    def test_a_function_that_nobody_needs_has_no_backward(self):
        def forward(self, x):
            F.argmax(x)
            return self.fc(F.relu(x))

        structure = learn(net(forward, fc=L.Linear(2, 3)), image(), loss=F.sum)
        forward = [name for _, name in rows(structure, "forward")]
        backward = [name for _, name in rows(structure, "backward")]
        assert {"ReLU", "ArgMax"} <= set(forward)
        assert not {"ReLU", "ArgMax"} & set(backward)

    def test_a_shared_link_gets_the_backward_of_all_its_calls(self):
        shared = L.Linear(2, 2)
        model = net(lambda self, x: self.b(F.relu(self.a(x))), a=shared, b=shared)
        structure = learn(model, image(), loss=F.sum, phase="train")
        assert rows(structure, "backward")[2:] == [
            ("/a", "LinearFunction"),
            ("/", "ReLU"),
            ("/a", "LinearFunction"),
            ("/a", "gradient_accumulation"),
            ("/a", "gradient_accumulation"),
        ]
        (update,) = [a for a in structure.layers if a.phase == "update" and a.path.startswith("/")]
        assert (update.path, update.input_shapes) == ("/a", ((2, 2), (2,)))
        # Chainer goes through a shared parameter twice, and updates it twice.
        assert update.calls == len(list(model.params())) == 4

    def test_a_network_without_parameters_has_nothing_to_go_back_to(self, clock):
        model = net(lambda self, x: F.relu(x))
        structure = learn(model, image(), loss=F.sum)
        assert rows(structure, "backward") == [("cleargrads", "cleargrads")]


class TestAccumulation:
    def test_a_variable_that_three_functions_use(self, clock):
        def forward(self, x):
            h = self.first(x)
            a, b, c = (Wait(clock, 1).apply((h,))[0] for _ in range(3))
            return Sum(clock, 1).apply((a, b, c))[0]

        model = net(forward, first=Weighted(clock, 1, 2))
        found = rows(learn(model, image(), loss=slow_loss(clock)), "backward")
        assert found.count(("/", "gradient_accumulation")) == 2
        accumulations = [i for i, row in enumerate(found) if row[1] == "gradient_accumulation"]
        waits = [i for i, row in enumerate(found) if row[1] == "Wait"]
        # The first gradient is alone; each one after it is added at once.
        assert accumulations == [i + 1 for i in waits[1:]]

    def test_an_add_within_a_backward_is_none(self, clock):
        class Adding(Wait):
            def backward(self, indexes, grads):
                return (grads[0] + F.add(grads[0], grads[0]),)

        model = net(lambda self, x: Adding(clock, 1).apply((self.fc(x),))[0], fc=L.Linear(2, 2))
        names = [name for _, name in rows(learn(model, image(), loss=F.sum), "backward")]
        assert names == ["cleargrads", "Sum", "Adding", "LinearFunction"]


class TestUnusualGraphs:
    def test_a_gradient_in_the_loss(self):
        """Double backprop: backward runs in the forward phase, and is gone back through."""

        def loss(y):
            (gx,) = chainer.grad([F.sum(y)], [model.fc.W], enable_double_backprop=True)
            return F.sum(y) + F.sum(gx * gx)

        model = net(lambda self, x: F.tanh(self.fc(x)), fc=L.Linear(2, 3))
        structure = learn(model, np.ones((1, 2), np.float32), loss=loss)
        tanh = [a for a in structure.layers if a.forward == 1]
        assert [(a.path, a.function, a.phase, a.calls) for a in tanh] == [
            ("/", "Tanh", "backward", 2)  # once in the loss, once by the loss's own backward
        ]
        # What the first one called is gone back through as well: to the link where it came from.
        again = [a for a in structure.layers if a.phase == "backward" and a.forward is None]
        assert ("/", "Tanh") in [(a.path, a.function) for a in again]
        assert ("/fc", "LinearFunction") in [(a.path, a.function) for a in again]
        assert structure.owners.tolist().count(-1) == 3

    def test_a_graph_from_before_the_step(self, clock):
        before = L.Linear(2, 2)
        h = before(image())
        model = net(lambda self, x: self.fc(x) + h, fc=L.Linear(2, 2))
        for _ in range(2):
            structure = learn(model, image(), loss=F.sum)
            (row,) = [
                a
                for a in structure.layers
                if a.phase == "backward" and a.forward is None and a.function == "LinearFunction"
            ]
            assert row.path == "/"
            assert (row.input_shapes, row.calls) == (((1, 2),), 1)

    def test_a_graph_from_an_earlier_pass_is_not_taken_for_a_call_of_this_one(self, clock):
        kept = []

        def remembering(self, x):
            if not kept:
                kept.append(F.tanh(self.a(x)))
            return F.relu(self.b(x)) + kept[0]

        model = net(remembering, a=L.Linear(2, 2), b=L.Linear(2, 2))
        for _ in range(2):
            structure = learn(model, image(), loss=F.sum)
        found = {(a.path, a.function): a.forward for a in structure.layers if a.phase == "backward"}
        assert found["/b", "LinearFunction"] == 0
        assert found["/", "Tanh"] is None
        assert found["/", "LinearFunction"] is None
        assert ("/a", "LinearFunction") not in found

    def test_a_classifier_gives_its_own_loss(self):
        model = L.Classifier(net(lambda self, x: F.relu(self.fc(x)), fc=L.Linear(2, 3)))
        structure = learn(model, image(4, 2), np.array([0, 1, 2, 1], np.int32), phase="train")
        assert rows(structure, "forward") == [
            ("/predictor/fc", "LinearFunction"),
            ("/predictor", "ReLU"),
            ("/", "SoftmaxCrossEntropy"),
            ("/", "Accuracy"),
        ]
        assert rows(structure, "backward") == [
            ("cleargrads", "cleargrads"),
            ("/", "SoftmaxCrossEntropy"),
            ("/predictor", "ReLU"),
            ("/predictor/fc", "LinearFunction"),
        ]

    def test_a_loss_with_a_link_of_its_own(self):
        critic = L.Linear(2, 1)
        model = net(lambda self, x: self.fc(x), fc=L.Linear(2, 2))
        structure = learn(model, image(), loss=lambda y: F.sum(critic(y)))
        assert rows(structure, "forward") == [
            ("/fc", "LinearFunction"),
            ("loss", "LinearFunction"),
            ("loss", "Sum"),
        ]


class TestUpdate:
    def test_one_row_for_each_link_with_its_parameters(self):
        links = {"a": L.Linear(2, 3), "b": L.Linear(3, 2, nobias=True)}
        model = net(lambda self, x: self.b(self.a(x)), **links)
        with model.init_scope():
            model.scale = chainer.Parameter(np.ones(5, np.float32))
        structure = learn(model, image(), loss=F.sum, phase="train")
        assert structure.phases == ("update", "forward", "backward")
        updates = [a for a in structure.layers if a.phase == "update"]
        assert [(a.path, a.function, a.input_shapes, a.calls) for a in updates] == [
            ("optimizer", "WeightDecay", (), 1),
            ("/", "MomentumSGD", ((5,),), 1),
            ("/a", "MomentumSGD", ((2, 3)[::-1], (3,)), 2),
            ("/b", "MomentumSGD", ((2, 3),), 1),
        ]
        assert {a.dtype for a in updates} == {"", "float32"}
        assert all(a.output_shapes == a.input_shapes for a in updates)

    def test_a_rule_that_is_disabled_or_missing(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        model.first.disable_update()
        model.second.W.update_rule = None
        structure = learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=optimizer)
        assert rows(structure, "update") == [("/first", "SlowOptimizer")]

    def test_hooks_go_by_the_names_that_they_were_added_by(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.add_hook(lambda opt: None, name="one")
        optimizer.add_hook(lambda opt: None, name="two")
        optimizer.add_hook(SlowHook(clock, 1, "same"), name="three", timing="post")
        structure = learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=optimizer)
        assert [name for path, name in rows(structure, "update") if path == "optimizer"] == [
            "one",
            "two",
            "three",
        ]


def fails(*_):
    raise ValueError("oh")


class Breaking(Nesting):
    backward = fails


@pytest.mark.parametrize(
    ("kind", "core", "loss", "where"),
    [
        (Breaking, None, None, "in the backward of layer 6_Breaking at /second"),
        (Nesting, fails, None, "in the update of layer 12_SlowOptimizer at /second"),
        (Nesting, None, fails, "after layer 2_Nesting at /second"),
        # A loss that is none.
        *((Nesting, None, lambda y, v=v: v, None) for v in (3.0, None, image())),
    ],
)
def test_a_failure_says_where(clock, kind, core, loss, where):
    model = Trained(clock)
    model.second._cls = kind
    optimizer = SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 1))
    if core is not None:
        model.second.W.update_rule.update_core = core
    with pytest.raises(StructureError) as caught:
        learn(model, image(), phase="train", loss=loss or slow_loss(clock), optimizer=optimizer)
    assert "\n" not in str(caught.value.with_input((1, 2)))
    if where is not None:
        assert caught.value.where == where
