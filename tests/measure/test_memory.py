"""The memory pass: bytes that are known by hand, and that all of them add up."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.memory import (
    HostCounter,
    PoolCounter,
    Trace,
    counter_of,
    measure_memory,
    trace_memory,
)
from chainer_profile.measure.steps import make_step
from tests.nets import Chain, Nesting, Outer, Trained, Wait, image, net, slow_loss

# What Python objects of a call may take: variables, nodes of the graph, tuples.
OBJECTS = 8_000
MB = 1_000_000


def measure(model, *inputs, phase="forward", loss="auto", optimizer=None):
    step = make_step(phase, model, inputs, loss=loss, optimizer=optimizer)
    with step.configured():
        learn_structure(step)
        structure = learn_structure(step)
        return structure, measure_memory(step, structure)


def by_phase(use):
    return {part.phase: part for part in use.phases}


def ones(*shape):
    return np.ones(shape, np.float32)


def about(nbytes):
    """These bytes and the objects of a call."""
    return pytest.approx(nbytes, abs=OBJECTS)


class Workspace(Wait):
    """Allocates 3 MB that it frees, and hands on its input."""

    def forward(self, inputs):
        np.empty(3 * MB, np.uint8)
        return super().forward(inputs)


class TestLayers:
    # Forward of Chainer's Convolution2D: first the padded image with im2col's array, then that one
    # with the output (of at least the padded image's size here). Of a batch of several images
    # tensordot transposes im2col's array by a copy; of a single image it needs none.
    @pytest.mark.parametrize(("batch", "copies"), [(1, 1), (4, 2)])
    @pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 2)])
    def test_im2col_of_a_convolution(self, batch, copies, kernel, stride):
        conv = L.Convolution2D(16, 16 * 2 * stride**2, kernel, stride, kernel // 2)
        structure, use = measure(conv, ones(batch, 16, 64, 64))
        ((_, _, out_h, out_w),) = structure.layers[0].output_shapes
        assert out_h == out_w == 64 // stride
        col_nbytes = batch * 16 * kernel * kernel * out_h * out_w * 4
        output_nbytes = batch * conv.out_channels * out_h * out_w * 4
        workspace_nbytes = use.peak_nbytes[0] - output_nbytes
        assert workspace_nbytes == pytest.approx(copies * col_nbytes, rel=0.05)
        assert use.retained_nbytes[0] == about(output_nbytes)

    @pytest.mark.parametrize("function", [F.relu, F.tanh, lambda x: F.add(x, x)])
    def test_without_a_workspace_the_peak_is_the_output(self, function):
        _, use = measure(net(lambda self, x: function(x)), ones(4, MB // 4))
        assert use.peak_nbytes == (about(4 * MB),)
        assert use.retained_nbytes == (about(4 * MB),)

    def test_a_function_that_allocates_nothing(self):
        _, use = measure(net(lambda self, x: F.identity(x)), ones(1, MB))
        assert 0 <= use.peak_nbytes[0] < 1000
        assert abs(use.retained_nbytes[0]) < 300

    def test_a_workspace_is_not_retained(self, clock):
        model = net(lambda self, x: Workspace(clock, 1).apply((x,))[0])
        _, use = measure(model, ones(1, MB // 4))
        assert use.peak_nbytes == (about(3 * MB),)  # freed before the output
        assert use.retained_nbytes == (about(MB),)

    def test_a_nested_call_is_in_the_peak_and_retains_for_itself(self, clock):
        structure, use = measure(
            net(lambda self, x: Outer(clock, 1).apply((x,))[0]), ones(1, MB // 4)
        )
        assert [layer.function for layer in structure.layers] == ["Outer", "Wait"]
        assert use.peak_nbytes == (about(MB), about(MB))
        assert use.retained_nbytes == (about(0), about(MB))

    def test_of_several_calls_the_highest_peak_and_all_that_was_retained(self):
        model = net(lambda self, x: self.a(x), a=L.Linear(500, 2000))
        _, use = measure(model, ones(1, 500), phase="train", loss=F.sum)
        # The last row is the update of W, 4 MB, and b.
        assert use.peak_nbytes[-1] >= 4 * MB
        assert use.peak_nbytes[-1] < 9 * MB
        assert use.retained_nbytes[-1] == about(0)

    def test_zero_size_arrays(self):
        _, use = measure(net(lambda self, x: F.relu(x)), ones(0, 3))
        assert use.peak_nbytes[0] < 1000
        assert (use.parameter_nbytes, use.input_nbytes) == (0, 0)


class TestTotals:
    def test_the_high_water_and_its_layer(self, clock):
        def forward(self, x):
            x = F.relu(x)
            (x,) = Workspace(clock, 1).apply((x,))
            return F.relu(x)

        structure, use = measure(net(forward), ones(1, MB // 8))
        assert structure.layers[use.high_water_layer].function == "Workspace"
        assert use.high_water_nbytes == about(3 * MB + MB // 2)

    def test_a_high_water_outside_of_all_layers(self):
        def forward(self, x):
            np.empty(5 * MB, np.uint8)
            return F.relu(x)

        _, use = measure(net(forward), ones(1, MB // 4))
        assert use.high_water_layer is None
        assert use.high_water_nbytes == about(5 * MB)

    def test_parameters_persistent_arrays_and_inputs_count_once(self):
        norm = L.BatchNormalization(10)
        model = net(lambda self, x, y: self.b(self.a(x)) + y, a=norm, b=norm)
        x = ones(3, 10)
        _, use = measure(model, x, x)
        # gamma, beta, running mean and variance; the count of batches is no array.
        assert use.parameter_nbytes == 4 * 10 * 4
        assert use.input_nbytes == 3 * 10 * 4
        _, use = measure(model, chainer.Variable(x), ones(3, 10), phase="train", loss=F.sum)
        assert use.parameter_nbytes == 4 * 10 * 4  # no gradients
        assert use.input_nbytes == 2 * 3 * 10 * 4

    def test_forward_keeps_nothing(self):
        _, use = measure(net(lambda self, x: F.relu(x)), ones(1, MB))
        assert use.kept_for_backward_nbytes is None


class TestTraining:
    @pytest.mark.parametrize("phase", ["forward-backward", "train"])
    def test_activations_are_kept_for_backward(self, phase):
        def forward(self, x):
            for _ in range(3):  # both retain their outputs, and the first needs no input
                x = F.tanh(F.relu(self.a(x)))
            return x

        model = net(forward, a=L.Linear(500, 500))
        structure, use = measure(model, ones(500, 500), phase=phase, loss=F.sum)
        # Of Linear the input is kept, which is Tanh's output; its own output is freed.
        assert use.kept_for_backward_nbytes == pytest.approx(6 * MB, abs=30_000)
        kinds = {(a.phase, a.function): use.retained_nbytes[a.index] for a in structure.layers}
        assert kinds["forward", "Tanh"] == about(MB)
        assert kinds["backward", "cleargrads"] == about(-MB - 2000)

    @pytest.mark.parametrize("optimizer", [None, chainer.optimizers.Adam, chainer.optimizers.SGD])
    def test_all_that_is_there_at_the_peak_is_told(self, optimizer):
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            model = net(lambda self, x: F.relu(self.a(x)), a=L.Linear(1000, 1000))
            x = ones(50, 1000)
            made = optimizer().setup(model) if optimizer else None
            structure, use = measure(model, x, phase="train", loss=F.sum, optimizer=made)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(structure.layers) == len(use.peak_nbytes)
        weights = 4 * (1000 * 1000 + 1000)
        states = {None: 1, chainer.optimizers.Adam: 2, chainer.optimizers.SGD: 0}[optimizer]
        assert use.parameter_nbytes == use.gradient_nbytes == weights
        assert use.state_nbytes == states * weights
        there = (2 + states) * weights + use.input_nbytes
        assert use.there_nbytes == there
        # The trial leaves what it found, so what is traced now was there at its begin.
        assert after - before == pytest.approx(there, abs=60 * OBJECTS)

    def test_what_needs_no_backward_is_not_kept(self):
        def forward(self, x):
            with chainer.no_backprop_mode():
                total = F.sum(F.relu(x)).array
            return F.sum(self.a(ones(1, 2))) + total

        _, use = measure(
            net(forward, a=L.Linear(2, 2)), ones(1, MB), phase="train", loss=lambda y: y
        )
        assert use.kept_for_backward_nbytes == pytest.approx(0, abs=30_000)

    def test_a_step_leaves_what_was_there(self):
        model = net(lambda self, x: F.relu(self.a(x)), a=L.Linear(500, 500))
        step = make_step("train", model, (ones(9, 500),), loss=F.sum)
        with step.configured():
            learn_structure(step)
            structure = learn_structure(step)
            trace = trace_memory(step, structure, HostCounter())
        # Gradients and momentum of the step before are known, so new ones are no growth.
        assert trace.values[-1] == about(trace.values[0])


class Failing(Chain):
    """Raises in a call, counted from 1."""

    fails_at = 0

    def forward(self, x):
        y = super().forward(x)
        if self.calls == self.fails_at:
            raise ValueError("broken")
        return Wait(self.clock, 1).apply((y,))[0] if self.fails_at < 0 else y


class Script:
    """A counter whose reads are drawn beforehand."""

    def __init__(self, values, extras):
        self.reads = [(value, value + extra) for value, extra in zip(values, extras, strict=True)]
        self.at = 0
        self.resets = 0

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        self.at += 1
        return self.reads[self.at - 1]

    def reset(self):
        self.resets += 1


class TestAfterwards:
    @pytest.mark.parametrize("traced", [False, True])
    @pytest.mark.parametrize("call", [2, 3])
    def test_after_a_failure_all_is_as_it_was(self, clock, traced, call):
        model = Failing(clock)
        step = make_step("forward-backward", model, (image(),), loss=slow_loss(clock))
        with step.configured():
            structure = learn_structure(step)
            model.fails_at = call
            before = set(vars(model)), set(vars(step))
            if traced:
                tracemalloc.start()
            try:
                with pytest.raises(ValueError, match="broken"):
                    measure_memory(step, structure)
                assert tracemalloc.is_tracing() == traced
            finally:
                tracemalloc.stop()
        assert (set(vars(model)), set(vars(step))) == before
        assert not chainer.get_function_hooks()
        assert gc.isenabled()

    def test_tracing_of_the_user_goes_on(self, clock):
        tracemalloc.start()
        try:
            kept = np.zeros(MB, np.uint8)
            measure(Chain(clock), image())
            assert tracemalloc.is_tracing()
            assert tracemalloc.get_traced_memory()[0] >= kept.nbytes
        finally:
            tracemalloc.stop()

    def test_tracing_and_hooks_end(self, clock):
        model = Trained(clock)
        step = make_step("train", model, (image(),), loss=slow_loss(clock))
        with step.configured():
            learn_structure(step)
            structure = learn_structure(step)
            before = set(vars(model)), set(vars(step)), set(vars(step.optimizer))
            calls = model.calls
            measure_memory(step, structure)
        assert model.calls == calls + 2
        assert (set(vars(model)), set(vars(step)), set(vars(step.optimizer))) == before
        assert not tracemalloc.is_tracing()
        assert not chainer.get_function_hooks()

    def test_a_collector_that_is_off_stays_off(self, clock):
        seen = []
        model = net(lambda self, x: (seen.append(gc.isenabled()), F.relu(x))[1])
        measure(model, image())
        assert seen == [True, True, True, False]
        assert gc.isenabled()
        gc.disable()
        try:
            measure(model, image())
            assert not gc.isenabled()
        finally:
            gc.enable()

    def test_no_function_node_is_kept_alive(self, clock):
        alive = weakref.WeakSet()

        class Known(Nesting):
            def forward(self, inputs):
                alive.add(self)
                return super().forward(inputs)

        model = Trained(clock)
        model.second._cls = Known
        step = make_step("train", model, (image(),), loss=slow_loss(clock))
        with step.configured():
            structure = learn_structure(step)
            use = measure_memory(step, structure)
        gc.collect()
        assert len(use.peak_nbytes) == len(structure.layers)
        assert not alive

    def test_other_calls_than_the_structures(self, clock):
        model = Failing(clock)
        step = make_step("forward", model, (image(),))
        with step.configured():
            structure = learn_structure(step)
            model.fails_at = -1
            with pytest.raises(
                ProfileError, match="made 14 calls and returns, and the first trial 12"
            ):
                measure_memory(step, structure)
        assert not tracemalloc.is_tracing()

    def test_other_functions_than_the_structures(self, clock):
        function = [F.relu]
        step = make_step("forward", net(lambda self, x: function[0](x)), (image(),))
        with step.configured():
            structure = learn_structure(step)
            function[0] = F.tanh
            with pytest.raises(ProfileError, match="differs: call 0 was Tanh, and ReLU in the"):
                measure_memory(step, structure)

    def test_a_trace_keeps_no_more_than_it_has_room_for(self):
        trace = Trace(Script(range(9), [0] * 9), 2)
        trace.read()
        for _ in range(2):
            trace.enter(Wait)
            trace.enter(Wait, True)
            trace.leave()
        trace.read()
        assert trace.values.tolist() == [0, 1, 2, 3]
        assert trace.count == 8

    def test_a_counter_that_the_network_stops(self):
        step = make_step(
            "forward", net(lambda self, x: (tracemalloc.stop(), F.relu(x))[1]), (image(),)
        )
        with step.configured():
            structure = learn_structure(step)
            with pytest.raises(ProfileError, match="tracemalloc was stopped meanwhile"):
                measure_memory(step, structure)


class TestPool:
    def test_blocks_of_the_pool(self, cupy):
        counter, before = PoolCounter(cupy), cupy.empty(2048, np.uint8)
        with counter.counting():
            first, second = cupy.empty(1000, np.uint8), cupy.empty(512, np.uint8)
            assert counter.read() == (1536, 1536)
            del first
            assert counter.read() == (512, 1536)
            counter.reset()
            assert counter.read() == (512, 512)
            del before
            assert counter.read() == (-1536, 512)
            cupy.memory_nbytes = 0
            with pytest.raises(MemoryError):  # nobody will free it
                cupy.empty(10_000, np.uint8)
            assert counter.read() == (-1536, 512)
        del second
        assert counter.read() == (-1536, 512)

    def test_the_counter_of_a_device(self, cupy, monkeypatch):
        assert isinstance(counter_of([ones(1)]), HostCounter)
        assert isinstance(counter_of([]), HostCounter)
        monkeypatch.setattr(chainer.backend, "get_array_module", lambda *arrays: cupy)
        assert isinstance(counter_of([ones(1)]), PoolCounter)
