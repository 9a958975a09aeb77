from __future__ import annotations

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.recorder import (
    Recorder,
    StructureError,
    inference,
    learn_structure,
)
from tests.conftest import FakeClock
from tests.networks import Chain, LongWait, Outer, Step, Wait, image


def learn(model, x):
    with inference():
        return learn_structure(model, lambda: model(x))


def record(model, x, clock, structure):
    recorder = Recorder(clock.now_ns)
    with inference(), recorder:
        model(x)
    return recorder, structure.self_ns(recorder.stamps)


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

        assert [a.path for a in learn(Net(), image()).layers] == ["/a", "/b"]

    def test_a_link_in_a_list_has_its_number_in_the_path(self):
        model = chainer.Sequential(L.Linear(2, 2), F.relu, chainer.Sequential(L.Linear(2, 2)))
        paths = [a.path for a in learn(model, image()).layers]
        assert paths == ["/0", "/", "/1/0"]  # Sequential numbers its links only

    def test_nested_calls_know_their_parent(self, clock):
        structure = learn(Step(clock, 10, Outer), image())
        assert [(a.function, a.parent) for a in structure.layers] == [("Outer", None), ("Wait", 0)]
        assert structure.enters.tolist() == [0, 1]
        assert structure.leaves.tolist() == [3, 2]

    def test_old_style_functions_go_by_their_own_name(self):
        class Twice(chainer.Function):
            def forward(self, inputs):
                return (inputs[0] * 2,)

        class Net(chainer.Chain):
            def forward(self, x):
                return Twice()(x)

        (layer,) = learn(Net(), image(1, 2)).layers
        assert (layer.function, layer.output_shapes) == ("Twice", ((1, 2),))

    def test_a_failure_says_where(self):
        model = chainer.Sequential(L.Linear(2, 3), L.Linear(4, 2))
        with pytest.raises(StructureError) as caught:
            learn(model, image())
        assert caught.value.where == "in Linear at /1"
        assert not chainer.get_function_hooks()
        assert not chainer._get_link_hooks()

    def test_functions_are_left_as_they_were(self, clock):
        nodes = []

        class Net(chainer.Chain):
            def forward(self, x):
                nodes.append(Wait(clock, 1))
                return nodes[-1].apply((x,))[0]

        learn(Net(), image())
        assert "forward" not in vars(nodes[0])


class TestRecorder:
    def test_times_are_exact(self, clock):
        model = Chain(clock)
        structure = learn(model, image())
        _, times = record(model, image(), clock, structure)
        assert times.tolist() == [100, 40, 40]

    def test_nested_time_is_counted_once(self, clock):
        model = Step(clock, 10, Outer)
        start = clock.time_ns
        structure = learn(model, image())
        trial_ns = clock.time_ns - start
        _, times = record(model, image(), clock, structure)
        assert times.tolist() == [20, 30]
        assert trial_ns - times.sum() == 7  # the link's own time

    def test_each_clock_read_falls_into_one_window(self):
        clock = FakeClock(read_ns=1)
        model = Chain(clock)
        structure = learn(model, image())
        _, times = record(model, image(), clock, structure)
        assert times.tolist() == [101, 41, 41]

    def test_functions_are_not_kept_alive(self, clock):
        nodes: list[weakref.ref] = []

        class Net(chainer.Chain):
            def forward(self, x):
                node = Wait(clock, 1)
                nodes.append(weakref.ref(node))
                return node.apply((x,))[0]

        model = Net()
        recorder, _ = record(model, image(), clock, learn(model, image()))
        gc.collect()
        assert recorder.classes == [Wait]
        assert len(nodes) == 2
        assert all(node() is None for node in nodes)

    def test_clear_forgets_an_unfinished_trial(self, clock):
        class Net(chainer.Chain):
            fail = True

            def forward(self, x):
                y = Wait(clock, 3).apply((x,))[0]
                if self.fail:
                    raise RuntimeError
                return y

        model, recorder = Net(), Recorder(clock.now_ns)
        with pytest.raises(RuntimeError), recorder:
            model(image())
        assert not chainer.get_function_hooks()
        assert len(recorder.stamps) == 2
        recorder.clear()
        model.fail = False
        with recorder:
            model(image())
        assert (len(recorder.stamps), recorder.classes) == (2, [Wait])

    def test_window_is_what_an_empty_function_shows(self):
        assert Recorder(FakeClock(read_ns=7).now_ns).window_ns(11) == 7


class TestDifference:
    @pytest.fixture
    def structure(self, clock):
        return learn(Chain(clock), image())

    def test_none(self, structure):
        assert structure.difference([Wait, LongWait, LongWait], 6) == ""

    def test_another_function(self, structure):
        text = structure.difference([Wait, Wait, LongWait], 6)
        assert text == "call 1 was Wait, and LongWait in the first trial"

    @pytest.mark.parametrize("count", [2, 4])
    def test_another_number(self, structure, count):
        text = structure.difference([Wait, LongWait, LongWait, Wait][:count], 2 * count)
        assert text == f"it made {count} function calls, and 3 in the first trial"


class TestInference:
    def test_test_mode_without_a_graph(self):
        with inference():
            assert chainer.config.train is False
            assert chainer.config.enable_backprop is False

    def test_train_mode(self):
        with inference(train_mode=True):
            assert chainer.config.train is True

    def test_batch_normalisation_is_fixed_only_in_test_mode(self):
        model = chainer.Sequential(L.BatchNormalization(2))
        x = np.ones((2, 2), np.float32)
        with inference():
            (fixed,) = learn_structure(model, lambda: model(x)).layers
        with inference(train_mode=True):
            (batch,) = learn_structure(model, lambda: model(x)).layers
        assert (fixed.function, batch.function) == ("FixedBatchNormalization", "BatchNormalization")
