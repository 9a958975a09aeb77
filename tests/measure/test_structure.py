"""What a forward pass teaches: rows, link paths, shapes, nesting; and how trials differ from it."""

from __future__ import annotations

from dataclasses import replace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.calls import BACKWARD as BACKWARD_SIZE
from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.links import LinkStack
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.measure.windows import BACKWARD, FORWARD, UPDATE, Mark
from chainer_profile.record.recording import LinkCalls
from tests.nets import Chain, LongWait, Outer, Step, Wait, image


def learn(model, *inputs):
    step = ForwardStep(model, inputs)
    with step.configured():
        return learn_structure(step)


class Using(chainer.Chain):
    """A network of which a trial calls one link."""

    def __init__(self, model, name):
        super().__init__()
        self.name_of_link = name
        with self.init_scope():
            for child in model.children():
                setattr(self, child.name, child)

    def forward(self, x):
        return getattr(self, self.name_of_link)(x)


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
        # Before each function its link is called, which has no parameters to be known by.
        assert structure.owners.tolist() == [-1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1]

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


def log_of(structure, *whats):
    """The log of a trial that enters and leaves these, with inputs as the structure's."""
    sizes = [size for _, size in structure.windows] + [0] * len(whats)
    pairs = zip(whats, sizes, strict=False)
    return [item for what, size in pairs for item in (what, size, 0, 5, 9)]


class TestDifference:
    @pytest.fixture
    def structure(self, clock):
        def forward(x):
            for function in (Wait(clock, 1), LongWait(clock, 2), LongWait(clock, 3)):
                (x,) = function.apply((x,))
            return x

        return learn(chainer.Sequential(forward), image())

    def test_none(self, structure):
        log = log_of(structure, Wait, LongWait, LongWait)
        assert structure.difference(log) == ""
        assert structure.stamps(log) == (5, 9) * 3

    def test_another_function(self, structure):
        text = structure.difference(log_of(structure, Wait, Wait, LongWait))
        assert text == "call 1 was Wait, and LongWait in the first trial"

    @pytest.mark.parametrize("count", [2, 4])
    def test_another_number(self, structure, count):
        log = log_of(structure, *[Wait, LongWait, LongWait, Wait][:count])
        assert structure.stamps(log) is None
        text = f"it made {count} function calls, and 3 in the first trial"
        assert structure.difference(log) == text

    def test_another_size(self, structure):
        log = log_of(structure, Wait, LongWait, LongWait)
        log[6] = 1000
        assert structure.stamps(log) is None
        assert structure.difference(log) == (
            "call 1 was LongWait with an input of 1000 B, and of 8 B in the first trial"
        )

    def test_a_forward_is_no_backward(self, structure):
        log = log_of(structure, Wait, LongWait, LongWait)
        log[6] = BACKWARD_SIZE
        assert structure.difference(log) == (
            "call 1 was LongWait, once in forward and once in backward"
        )

    def test_the_same_calls_nested_otherwise(self, structure):
        first, second, third = (
            log_of(structure, Wait, LongWait, LongWait)[5 * n :][:5] for n in range(3)
        )
        log = first[:4] + second + first[4:] + third
        assert structure.stamps(log) is None
        assert structure.difference(log) == "its windows are nested otherwise"

    def test_another_link_with_the_same_calls(self):
        model = chainer.Chain()
        with model.init_scope():
            model.a, model.b = L.Linear(2, 2), L.Linear(2, 2)
        first, second = (learn(Using(model, name), image()) for name in "ab")
        assert first.stamps(second.log) is None
        assert second.difference(first.log) == (
            "call 0 was LinearFunction, and a call of /b in the first trial"
        )

    def test_links_that_their_parameters_tell_of_need_no_marks(self):
        """Noting the calls of all links would take more time than all else of a recorder."""
        model = chainer.Sequential(
            L.Linear(2, 2), L.BatchNormalization(2), chainer.Sequential(L.Linear(2, 2), F.relu)
        )
        first = learn(model, image(3, 2))
        second = learn(model, image(3, 2))
        for structure in (first, second):
            assert [what.__name__ for what, _ in structure.windows] == [
                "LinearFunction",
                "FixedBatchNormalization",
                "LinearFunction",
                "ReLU",
            ]
        assert first.stamps(second.log) is not None
        other = chainer.Sequential(L.Linear(2, 2), L.BatchNormalization(2), model[2])
        assert first.stamps(learn(other, image(3, 2)).log) is None

    def test_a_parameter_may_get_another_array(self):
        model = L.Linear(2, 2)
        structure = learn(model, image())
        model.W.array = model.W.array.copy()
        assert structure.stamps(learn(model, image()).log) is not None

    def test_a_parameter_may_get_an_array_where_another_s_was(self):
        """As an update in mixed16 gives all of them new ones, behind the trial."""
        model = chainer.Sequential(L.Linear(2, 2), L.Linear(2, 2))
        structure = learn(model, image())
        first, second = model[0].b, model[1].b
        kept = first.array, second.array  # so that nothing else gets their places
        first.array, second.array = (array.copy() for array in kept)
        log = learn(model, image()).log
        first.array, second.array = second.array.copy(), first.array
        assert structure.stamps(log) is not None

    def test_other_windows_have_names(self, structure):
        known = replace(structure, windows=tuple((what, 0) for what in (UPDATE, FORWARD, Wait)))
        assert known.difference(log_of(known, UPDATE, BACKWARD, Wait)) == (
            "call 1 was the backward phase, and the forward phase in the first trial"
        )
        assert known.difference(log_of(known, UPDATE, FORWARD, Mark("update", "/a", "Adam"))) == (
            "call 2 was Adam, and Wait in the first trial"
        )

    def test_place_is_the_last_row_that_was_entered(self, structure):
        assert [structure.place(n) for n in range(5)] == [
            "",
            "0_Wait",
            "1_LongWait",
            "2_LongWait",
            "",  # there are no more
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
