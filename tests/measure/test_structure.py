"""What a forward pass teaches: rows, link paths, shapes, nesting; and how trials differ from it."""

from __future__ import annotations

from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.steps import ForwardStep
from chainer_profile.measure.structure import LinkStack, StructureError, learn_structure
from chainer_profile.measure.windows import BACKWARD, FORWARD, UPDATE, Mark
from chainer_profile.record.recording import LinkCalls
from tests.nets import Chain, LongWait, Outer, Step, Wait, image


def learn(model, *inputs):
    step = ForwardStep(model, inputs)
    with step.configured():
        return learn_structure(step)


class TestLearnStructure:
    def test_layers_of_a_chain(self, clock):
        layers = learn(Chain(clock), image(3, 2)).layers
        assert [(a.index, a.path, a.function) for a in layers] == [
            (0, "/first", "Wait"),
            (1, "/second", "LongWait"),
            (2, "/second", "LongWait"),
        ]
        assert {(a.input_shapes, a.output_shapes, a.dtype) for a in layers} == {
            (((3, 2),), ((3, 2),), "float32")
        }
        assert {(a.phase, a.parent, a.forward, a.calls) for a in layers} == {
            ("forward", None, None, 1)
        }

    def test_a_forward_pass_has_no_phases(self, clock):
        structure = learn(Chain(clock), image())
        assert structure.phases == ()
        assert structure.backwards == []
        assert structure.owners.tolist() == [0, -1, 1, -1, 2, -1]

    def test_functions_outside_any_child_belong_to_the_network(self):
        class Net(chainer.Chain):
            def forward(self, x):
                return F.relu(x) + x

        assert [(a.path, a.function) for a in learn(Net(), image()).layers] == [
            ("/", "ReLU"),
            ("/", "Add"),
        ]

    def test_parameters_name_the_link_where_no_link_hook_fires(self):
        class Net(chainer.Chain):
            def __init__(self):
                super().__init__()
                with self.init_scope():
                    self.a = L.Linear(2, 2)
                    self.b = L.Linear(2, 2)

            def forward(self, x):
                return F.linear(self.a.forward(x), self.b.W)

        structure = learn(Net(), image())
        assert [a.path for a in structure.layers] == ["/a", "/b"]
        assert [(link.path, link.calls) for link in structure.links] == [
            ("/", 1),
            ("/a", 0),
            ("/b", 0),
        ]

    def test_a_link_in_a_list_has_its_number_in_the_path(self):
        model = chainer.Sequential(L.Linear(2, 2), F.relu, chainer.Sequential(L.Linear(2, 2)))
        paths = [a.path for a in learn(model, image()).layers]
        assert paths == ["/0", "/", "/1/0"]  # Sequential numbers its links only

    def test_a_shared_link_goes_by_its_first_path(self):
        shared = L.Linear(2, 2)

        class Block(chainer.Chain):
            def __init__(self):
                super().__init__()
                with self.init_scope():
                    self.fc = shared

            def forward(self, x):
                return self.fc(x)

        model = chainer.Sequential(Block(), Block())
        structure = learn(model, image())
        assert [a.path for a in structure.layers] == ["/0/fc", "/0/fc"]
        assert {link.path: link.calls for link in structure.links} == {
            "/": 1,
            "/0": 1,
            "/0/fc": 2,
            "/1": 1,
        }

    def test_a_link_in_a_loop_has_a_row_for_every_call(self, clock):
        class Net(chainer.Chain):
            def __init__(self):
                super().__init__()
                with self.init_scope():
                    self.step = Step(clock, 1)

            def forward(self, x):
                for _ in range(4):
                    x = self.step(F.relu(x))
                return x

        structure = learn(Net(), image())
        assert [(a.path, a.function) for a in structure.layers] == [
            ("/", "ReLU"),
            ("/step", "Wait"),
        ] * 4
        assert [link.calls for link in structure.links] == [1, 4]

    def test_a_link_of_somebody_else_goes_by_the_link_that_calls_it(self, clock):
        stranger = Step(clock, 1)
        model = chainer.Sequential(chainer.Sequential(lambda x: stranger(x), L.Linear(2, 2)))
        assert [a.path for a in learn(model, image()).layers] == ["/0", "/0/0"]

    def test_links_know_their_class_calls_and_own_parameters(self):
        class Net(chainer.ChainList):
            def forward(self, x):
                for link in self:
                    x = link(x)
                return x

        model = Net(L.Linear(2, 3), L.Linear(None, 5), L.BatchNormalization(5))
        assert [link.parameters for link in learn(model, image(4, 2)).links] == [0, 9, 20, 10]
        assert learn(model, image()).links == (
            LinkCalls("/", "Net", 1, 0),
            LinkCalls("/0", "Linear", 1, 9),
            LinkCalls("/1", "Linear", 1, 20),
            LinkCalls("/2", "BatchNormalization", 1, 10),
        )

    def test_parameters_of_the_network_itself_are_its_own(self):
        model = L.Linear(2, 3)
        assert learn(model, image()).links == (LinkCalls("/", "Linear", 1, 9),)

    def test_a_parameter_that_links_share_counts_for_the_first_alone(self):
        tied = L.Linear(2, 2)
        model = chainer.Sequential(L.Linear(2, 2), chainer.Sequential(tied))
        tied.W = model[0].W
        links = learn(model, image()).links
        assert [(link.path, link.parameters) for link in links] == [
            ("/", 0),
            ("/0", 6),
            ("/1", 0),
            ("/1/0", 2),
        ]

    def test_nested_calls_know_their_parent(self, clock):
        structure = learn(Step(clock, 10, Outer), image())
        assert [(a.function, a.parent) for a in structure.layers] == [("Outer", None), ("Wait", 0)]
        assert structure.owners.tolist() == [0, 1, 0, -1]

    def test_old_style_functions_go_by_their_own_name(self):
        class Twice(chainer.Function):
            def forward(self, inputs):
                return (inputs[0] * 2,)

        class Net(chainer.Chain):
            def forward(self, x):
                return Twice()(x)

        (layer,) = learn(Net(), image(1, 2)).layers
        assert (layer.function, layer.output_shapes) == ("Twice", ((1, 2),))

    def test_functions_are_left_as_they_were(self, clock):
        nodes = []

        class Net(chainer.Chain):
            def forward(self, x):
                nodes.append(Wait(clock, 1))
                return nodes[-1].apply((x,))[0]

        learn(Net(), image())
        assert "forward" not in vars(nodes[0])


class TestFailures:
    def test_a_failure_says_where(self):
        model = chainer.Sequential(L.Linear(2, 3), L.Linear(4, 2))
        with pytest.raises(StructureError) as caught:
            learn(model, image())
        assert caught.value.where == "in Linear at /1"
        assert not chainer.get_function_hooks()
        assert not chainer._get_link_hooks()

    def test_a_failure_within_a_function_says_its_layer(self, clock):
        class Breaking(Wait):
            def forward(self, inputs):
                raise ValueError("oh")

        with pytest.raises(StructureError) as caught:
            learn(Step(clock, 1, Breaking), image())
        assert caught.value.where == "in layer 0_Breaking at /"
        assert isinstance(caught.value.cause, ValueError)

    def test_a_failure_between_functions_names_the_last_one(self):
        class Failing(ForwardStep):
            def __call__(self):
                super().__call__()
                raise ValueError("oh")

        with pytest.raises(StructureError) as caught:
            learn_structure(Failing(L.Linear(2, 2), (image(),)))
        assert caught.value.where == "after layer 0_LinearFunction at /"

    def test_a_failure_before_anything_else(self):
        class Failing(ForwardStep):
            def __call__(self):
                raise ValueError("oh")

        with pytest.raises(StructureError) as caught:
            learn_structure(Failing(L.Linear(2, 2), (image(),)))
        assert caught.value.where == "before its first layer"

    def test_the_user_learns_the_input_in_one_line(self):
        with pytest.raises(StructureError) as caught:
            learn(L.Linear(3, 2), image(4, 2))
        message = str(caught.value.with_input((4, 2)))
        assert message.startswith("the network fails with an input of 4x2, in Linear at /: Invalid")
        assert "\n" not in message


class TestDifference:
    @pytest.fixture
    def structure(self, clock):
        return learn(Chain(clock), image())

    def test_none(self, structure):
        assert structure.difference([Wait, LongWait, LongWait], [], 6) == ""

    def test_another_function(self, structure):
        text = structure.difference([Wait, Wait, LongWait], [], 6)
        assert text == "call 1 was Wait, and LongWait in the first trial"

    @pytest.mark.parametrize("count", [2, 4])
    def test_another_number(self, structure, count):
        text = structure.difference([Wait, LongWait, LongWait, Wait][:count], [], 2 * count)
        assert text == f"it made {count} function calls, and 3 in the first trial"

    def test_another_backward(self, structure):
        known = SimpleNamespace(**vars(structure) | {"backwards": [LongWait, Wait]})
        entries = structure.entries
        difference = type(structure).difference
        assert difference(known, entries, [LongWait, Wait], 6) == ""
        assert difference(known, entries, [LongWait, LongWait], 6) == (
            "backward call 1 was LongWait, and Wait in the first trial"
        )
        assert difference(known, entries, [LongWait], 4) == (
            "it made 4 function calls, and 5 in the first trial"
        )

    def test_other_windows_have_names(self, structure):
        known = SimpleNamespace(**vars(structure) | {"entries": [UPDATE, FORWARD, Wait]})
        difference = type(structure).difference
        assert difference(known, [UPDATE, BACKWARD, Wait], [], 6) == (
            "call 1 was the backward phase, and the forward phase in the first trial"
        )
        assert difference(known, [UPDATE, FORWARD, Mark("update", "/a", "Adam")], [], 6) == (
            "call 2 was Adam, and Wait in the first trial"
        )

    def test_place_is_the_last_row_that_was_entered(self, structure):
        # After 6 clock reads all rows are done; there are no more than those.
        assert [structure.place(n) for n in range(8)] == [
            "",
            *["0_Wait"] * 2,
            *["1_LongWait"] * 2,
            *["2_LongWait"] * 2,
            "",
        ]


class TestLinkStack:
    def test_links_and_calls(self):
        stack = LinkStack()
        seen = []

        class Net(chainer.Chain):
            def __init__(self):
                super().__init__()
                with self.init_scope():
                    self.fc = L.Linear(2, 2)

            def forward(self, x):
                seen.append(list(stack.links))
                return self.fc(self.fc(x))

        model = Net()
        with stack:
            model(np.zeros((1, 2), np.float32))
        assert seen == [[model]]
        assert stack.links == []
        assert stack.calls == {id(model): 1, id(model.fc): 2}
