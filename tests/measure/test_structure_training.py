"""What a training step teaches: the rows of backward and update, and whose links they go to."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.steps import BackwardStep, Loss, TrainStep, make_step
from tests.nets import (
    Nesting,
    SlowHook,
    SlowOptimizer,
    Sum,
    Total,
    Trained,
    Wait,
    Weighted,
    image,
    slow_loss,
)


def learn(model, *inputs, phase="forward-backward", loss="auto", optimizer=None):
    step = make_step(phase, model, inputs, loss=loss, optimizer=optimizer)
    with step.configured():
        return learn_structure(step)


def rows(structure, phase):
    return [(a.path, a.function) for a in structure.layers if a.phase == phase]


def net(forward, **links):
    """A network of these links, by the function that is its forward."""

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                for name, link in links.items():
                    setattr(self, name, link)

        def forward(self, *inputs):
            return forward(self, *inputs)

    return Net()


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

    def test_functions_within_a_convolutions_backward_belong_to_it(self):
        model = net(lambda self, x: F.relu(self.b(self.a(x))), a=L.Convolution2D(2, 3, 3))
        with model.init_scope():
            model.b = L.Convolution2D(3, 4, 3)
        structure = learn(model, image(2, 2, 8, 8), loss=F.sum)
        assert rows(structure, "backward") == [
            ("cleargrads", "cleargrads"),
            ("loss", "Sum"),
            ("/", "ReLU"),
            ("/b", "Convolution2DFunction"),
            ("/a", "Convolution2DFunction"),
        ]
        called = [what.__name__ for what, _ in structure.windows if isinstance(what, type)]
        assert called.count("Deconvolution2DFunction") == 1
        assert called.count("Convolution2DGradW") == 2

    def test_old_style_functions(self):
        class Twice(chainer.Function):
            def forward(self, inputs):
                return (inputs[0] * 2,)

            def backward(self, inputs, grads):
                return (grads[0] * 2,)

        model = net(lambda self, x: Twice()(self.fc(x)), fc=L.Linear(2, 3))
        structure = learn(model, image(), loss=F.sum)
        assert ("/", "Twice") in rows(structure, "backward")

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

    def test_a_link_in_a_loop(self):
        def forward(self, x):
            for _ in range(3):
                x = self.fc(F.tanh(x))
            return x

        structure = learn(net(forward, fc=L.Linear(2, 2)), image(), loss=F.sum)
        backs = [a for a in structure.layers if a.phase == "backward" and a.forward is not None]
        forwards = [structure.layers[a.forward] for a in backs]
        assert [(a.path, a.function) for a in backs] == [(a.path, a.function) for a in forwards]
        # Tanh of the input itself needs no gradient; the rest goes back in the opposite order.
        assert [a.forward for a in backs] == [6, 5, 4, 3, 2, 1]

    def test_parameters_name_the_link_in_backward_too(self):
        model = net(lambda self, x: self.fc.forward(x), fc=L.Linear(2, 2))
        assert ("/fc", "LinearFunction") in rows(learn(model, image(), loss=F.sum), "backward")

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

    def test_lazily_they_are_added_outside_of_any_window(self, clock):
        def forward(self, x):
            h = self.first(x)
            a, b, c = (Wait(clock, 1).apply((h,))[0] for _ in range(3))
            return Sum(clock, 1).apply((a, b, c))[0]

        model = net(forward, first=Weighted(clock, 1, 2))
        with chainer.using_config("lazy_grad_sum", True):
            structure = learn(model, image(), loss=slow_loss(clock))
        (row,) = [a for a in structure.layers if a.function == "gradient_accumulation"]
        assert (row.phase, row.path, len(row.input_shapes)) == ("backward", "/", 3)
        backward = len(structure.layers) + structure.phases.index("backward")
        at = structure.owners.tolist().index(row.index)
        assert structure.owners[at - 1] == structure.owners[at + 1] == backward

    def test_an_add_of_the_network_is_none(self):
        model = net(lambda self, x: F.add(self.fc(x), self.fc(x)), fc=L.Linear(2, 2))
        structure = learn(model, image(), loss=F.sum)
        assert ("/", "Add") in rows(structure, "forward")
        assert ("/", "Add") in rows(structure, "backward")

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

    def test_two_backwards_of_one_call_are_one_row(self, clock):
        def loss(y):
            first = Total(clock, 1, 1).apply((y,))[0]
            chainer.grad([first], [model.first.W])
            return first

        model = Trained(clock)
        structure = learn(model, image(), loss=loss)
        backs = [a for a in structure.layers if a.forward is not None]
        assert [a.forward for a in backs] == [3, 2, 1, 0]
        assert [a.calls for a in backs] == [2, 2, 2, 2]

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
        class Remembering(chainer.Chain):
            def __init__(self):
                super().__init__()
                self.h = None
                with self.init_scope():
                    self.a = L.Linear(2, 2)
                    self.b = L.Linear(2, 2)

            def forward(self, x):
                if self.h is None:
                    self.h = F.tanh(self.a(x))
                    self.calls = 0
                return F.relu(self.b(x)) + self.h

        model = Remembering()
        with chainer.using_config("train", True):
            learn_structure(BackwardStep(model, (image(),), Loss("sum", F.sum)))
            structure = learn_structure(BackwardStep(model, (image(),), Loss("sum", F.sum)))
        found = {(a.path, a.function): a.forward for a in structure.layers if a.phase == "backward"}
        assert found["/b", "LinearFunction"] == 0
        assert found["/", "Tanh"] is None
        assert found["/", "LinearFunction"] is None
        assert ("/a", "LinearFunction") not in found

    def test_two_losses(self):
        model = net(lambda self, x: (self.a(x), self.b(x)), a=L.Linear(2, 2), b=L.Linear(2, 3))
        structure = learn(model, image(), loss=lambda ys: F.sum(ys[0]) + F.mean(ys[1]))
        found = rows(structure, "backward")
        assert ("/a", "LinearFunction") in found
        assert ("/b", "LinearFunction") in found
        assert ("loss", "Add") in found

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

    def test_a_loss_that_calls_the_network_again(self):
        model = net(lambda self, x: self.fc(x), fc=L.Linear(2, 2))
        structure = learn(model, image(), loss=lambda y: F.sum(model(y)))
        assert rows(structure, "forward")[:2] == [("/fc", "LinearFunction")] * 2


class TestUpdate:
    def test_one_row_for_each_link_with_its_parameters(self):
        model = net(lambda self, x: self.b(self.a(x)), a=L.Linear(2, 3))
        with model.init_scope():
            model.b = L.Linear(3, 2, nobias=True)
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

    def test_the_row_is_named_after_the_optimizer(self):
        model = L.Linear(2, 2)
        adam = chainer.optimizers.Adam().setup(model)
        structure = learn(model, image(), loss=F.sum, phase="train", optimizer=adam)
        assert rows(structure, "update") == [("/", "Adam")]

    def test_a_rule_that_is_disabled_or_missing(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        model.first.disable_update()
        model.second.W.update_rule = None
        structure = learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=optimizer)
        assert rows(structure, "update") == [("/first", "SlowOptimizer")]

    def test_optimizer_hooks_have_rows_of_their_own(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.add_hook(SlowHook(clock, 1, "before"))
        optimizer.add_hook(SlowHook(clock, 1, "each", call_for_each_param=True))
        optimizer.add_hook(SlowHook(clock, 1, "after", timing="post"))
        structure = learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=optimizer)
        assert rows(structure, "update") == [
            ("optimizer", "before"),
            ("optimizer", "each"),
            ("/first", "SlowOptimizer"),
            ("/second", "SlowOptimizer"),
            ("optimizer", "after"),
        ]

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

    def test_loss_scaling(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.loss_scaling(scale=8)
        plain, scaled = (
            learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=o)
            for o in (SlowOptimizer(clock).setup(model), optimizer)
        )
        assert plain.layers == scaled.layers


class TestFailures:
    def test_in_a_backward(self, clock):
        class Breaking(Nesting):
            def backward(self, indexes, grads):
                raise ValueError("oh")

        model = Trained(clock)
        model.second._cls = Breaking
        with pytest.raises(StructureError) as caught:
            learn(model, image(), loss=slow_loss(clock))
        assert caught.value.where == "in the backward of layer 6_Breaking at /second"

    def test_in_an_update(self, clock):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.add_hook(SlowHook(clock, 1))
        model.second.W.update_rule.update_core = None
        with pytest.raises(StructureError) as caught:
            learn(model, image(), loss=slow_loss(clock), phase="train", optimizer=optimizer)
        assert caught.value.where == "in the update of layer 12_SlowOptimizer at /second"

    def test_in_the_loss_function(self, clock):
        def loss(y):
            raise ValueError("oh")

        with pytest.raises(StructureError) as caught:
            learn(Trained(clock), image(), loss=loss)
        assert caught.value.where == "after layer 2_Nesting at /second"

    @pytest.mark.parametrize("loss", [lambda y: 3.0, lambda y: None, lambda y: y])
    def test_a_loss_that_is_none(self, clock, loss):
        with pytest.raises(StructureError) as caught:
            learn(Trained(clock), image(), loss=loss)
        assert "\n" not in str(caught.value.with_input((1, 2)))


def test_the_update_of_an_optimizer_is_the_step(clock):
    model = Trained(clock)
    step = TrainStep(model, (image(),), Loss("slow", slow_loss(clock)))
    before = step.optimizer.t
    with step.configured():
        learn_structure(step)
    assert step.optimizer.t == before + 1
