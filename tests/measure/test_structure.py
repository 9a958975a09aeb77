"""What a forward pass teaches: rows, link paths, shapes, nesting; and how trials differ from it."""

from __future__ import annotations

from contextlib import suppress

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.measure.calls import BACKWARD as BACKWARD_SIZE
from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.links import LinkStack
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.record.recording import LinkCalls
from tests.nets import Chain, LongWait, Outer, Step, Wait, image, net


def learn(model, *inputs):
    step = ForwardStep(model, inputs)
    with step.configured():
        return learn_structure(step)


class TestLearnStructure:
    def test_layers_of_a_chain(self, clock):
        structure = learn(Chain(clock), image(3, 2))
        assert [(a.index, a.path, a.function) for a in structure.layers] == [
            (0, "/first", "Wait"),
            (1, "/second", "LongWait"),
            (2, "/second", "LongWait"),
        ]
        assert {(a.input_shapes, a.output_shapes, a.dtype) for a in structure.layers} == {
            (((3, 2),), ((3, 2),), "float32")
        }
        assert {(a.phase, a.parent, a.forward, a.calls) for a in structure.layers} == {
            ("forward", None, None, 1)
        }
        assert structure.phases == ()
        # Before each function its link is called, which has no parameters to be known by.
        assert structure.owners.tolist() == [-1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1]

    def test_parameters_name_the_link_where_no_link_hook_fires(self):
        model = net(
            lambda self, x: F.linear(self.a.forward(x), self.b.W),
            **{name: L.Linear(2, 2) for name in "ab"},
        )
        structure = learn(model, image())
        assert [a.path for a in structure.layers] == ["/a", "/b"]
        assert [(link.path, link.calls) for link in structure.links] == [
            ("/", 1),
            ("/a", 0),
            ("/b", 0),
        ]

    def test_paths_of_links_in_lists_and_of_links_of_somebody_else(self, clock):
        model = chainer.Sequential(L.Linear(2, 2), F.relu, chainer.Sequential(L.Linear(2, 2)))
        # Sequential numbers its links only.
        assert [a.path for a in learn(model, image()).layers] == ["/0", "/", "/1/0"]
        stranger = Step(clock, 1)
        model = chainer.Sequential(chainer.Sequential(lambda x: stranger(x), L.Linear(2, 2)))
        assert [a.path for a in learn(model, image()).layers] == ["/0", "/0/0"]

    def test_links_know_their_class_calls_and_own_parameters(self):
        class Net(chainer.ChainList):
            def forward(self, x):
                for link in self:
                    x = link(x)
                return x

        first, tied = L.Linear(2, 5), L.Linear(5, 5)
        model = Net(first, L.Linear(None, 5), L.BatchNormalization(5), Net(tied))
        tied.b = first.b  # counts for the first of them alone
        assert [one.parameters for one in learn(model, image(4, 2)).links] == [0, 15, 30, 10, 0, 25]
        assert learn(model, image(4, 2)).links == (
            LinkCalls("/", "Net", 1, 0),
            LinkCalls("/0", "Linear", 1, 15),
            LinkCalls("/1", "Linear", 1, 30),
            LinkCalls("/2", "BatchNormalization", 1, 10),
            LinkCalls("/3", "Net", 1, 0),
            LinkCalls("/3/0", "Linear", 1, 25),
        )
        assert learn(first, image()).links == (LinkCalls("/", "Linear", 1, 15),)

    def test_nested_calls_know_their_parent(self, clock):
        structure = learn(Step(clock, 10, Outer), image())
        assert [(a.function, a.parent) for a in structure.layers] == [("Outer", None), ("Wait", 0)]
        assert structure.owners.tolist() == [0, 1, 0, -1]


class Breaking(Wait):
    def forward(self, inputs):
        raise ValueError("oh")


def catching(self, x):
    with suppress(TypeError):
        self.a()  # it takes an input
    raise ValueError("oh")


class Before(ForwardStep):
    def __call__(self):
        raise ValueError("oh")


class Behind(ForwardStep):
    def __call__(self):
        super().__call__()
        raise ValueError("oh")


@pytest.mark.parametrize(
    ("kind", "build", "where"),
    [
        (
            ForwardStep,
            lambda clock: chainer.Sequential(L.Linear(2, 3), L.Linear(4, 2)),
            "in Linear at /1",
        ),
        (ForwardStep, lambda clock: Step(clock, 1, Breaking), "in layer 0_Breaking at /"),
        (Behind, lambda clock: L.Linear(2, 2), "after layer 0_LinearFunction at /"),
        (Before, lambda clock: L.Linear(2, 2), "before its first layer"),
        (ForwardStep, lambda clock: net(catching, a=L.Linear(2, 2)), "in Net at /"),
    ],
)
def test_a_failure_says_where(clock, kind, build, where):
    with pytest.raises(StructureError) as caught:
        learn_structure(kind(build(clock), (image(),)))
    assert caught.value.where == where
    message = str(caught.value.with_input((4, 2)))
    assert message.startswith(f"the network fails with an input of 4x2, {where}: ")
    assert "\n" not in message
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


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
        assert structure.stamps(log) == (5, 9) * 3

    @pytest.mark.parametrize(
        ("calls", "size"),
        [
            ([Wait, Wait, LongWait], None),
            ([Wait, LongWait], None),
            ([Wait, LongWait, LongWait, Wait], None),
            ([Wait, LongWait, LongWait], 1000),
            ([Wait, LongWait, LongWait], BACKWARD_SIZE),
        ],
    )
    def test_it_is_seen(self, structure, calls, size):
        log = log_of(structure, *calls)
        if size is not None:
            log[6] = size
        assert structure.stamps(log) is None

    def test_the_same_calls_nested_otherwise(self, structure):
        first, second, third = (
            log_of(structure, Wait, LongWait, LongWait)[5 * n :][:5] for n in range(3)
        )
        log = first[:4] + second + first[4:] + third
        assert structure.stamps(log) is None

    def test_another_link_with_the_same_calls(self):
        links = {name: L.Linear(2, 2) for name in "ab"}
        first, second = (
            learn(net(lambda self, x, name=name: getattr(self, name)(x), **links), image())
            for name in "ab"
        )
        assert first.stamps(second.log) is None

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

    def test_place_is_the_last_row_that_was_entered(self, structure):
        assert [structure.place(n) for n in range(5)] == [
            "",
            "0_Wait",
            "1_LongWait",
            "2_LongWait",
            "",  # there are no more
        ]


def test_link_stack():
    stack, seen = LinkStack(), []

    def forward(self, x):
        seen.append(list(stack.links))
        return self.fc(self.fc(x))

    model = net(forward, fc=L.Linear(2, 2))
    with stack:
        model(image())
    assert seen == [[model]]
    assert stack.links == []
    assert stack.calls == {id(model): 1, id(model.fc): 2}
