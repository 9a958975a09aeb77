"""The memory pass: exact bytes of small networks, and that it leaves everything as it was.

That all bytes of any network are found, and each once, is in tests/ledger.
"""

import gc
import tracemalloc
from contextlib import nullcontext

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.memory import HostCounter, PoolCounter, counter_of
from chainer_profile.measure.memory import measure_memory as measure_by
from chainer_profile.measure.readings import ReadTrials
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import learned
from tests.nets import MLP, Outer, Wait, image, net

# Bytes that Python objects of a call may take: variables, nodes of the graph, tuples.
OBJECTS = 8_000
MB = 1_000_000


def measure_memory(step, taped, counter=None):
    with taped.entries:
        traced = ReadTrials(taped.tape)
        return measure_by(step, traced, len(taped.layers), counter)


def measure(model, *inputs, phase="forward", loss="auto", optimizer=None):
    step = make_step(phase, model, inputs, loss=loss, optimizer=optimizer)
    with step.configured():
        learned(step)
        taped = learned(step)
        return taped, measure_memory(step, taped)


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


class TestRows:
    def test_outputs_workspaces_and_nested_calls(self, clock):
        """For each forward, the peak and the retained bytes of each row, with an input of 1 MB."""
        for does, expected in (
            (F.relu, [(MB, MB)]),
            (F.identity, [(0, 0)]),
            # Freed before the output, and not retained.
            (lambda x: Workspace(clock, 1).apply((x,))[0], [(3 * MB, MB)]),
            # A nested call is in the peak and retains for itself.
            (lambda x: Outer(clock, 1).apply((x,))[0], [(MB, 0), (MB, MB)]),
        ):
            _, use = measure(net(lambda self, x, does=does: does(x)), ones(1, MB // 4))
            peaks, retained = zip(*expected, strict=True)
            assert use.peak_nbytes == tuple(map(about, peaks))
            assert use.retained_nbytes == tuple(map(about, retained))
            assert min(use.peak_nbytes) >= 0
        _, use = measure(net(lambda self, x: F.relu(x)), ones(0, 3))
        assert use.peak_nbytes[0] < 1000
        assert (use.parameter_nbytes, use.input_nbytes) == (0, 0)


class TestTotals:
    def test_the_high_water_and_its_layer(self, clock):
        def within(self, x):
            (x,) = Workspace(clock, 1).apply((F.relu(x),))
            return F.relu(x)

        def outside(self, x):
            np.empty(5 * MB, np.uint8)
            return F.relu(x)

        for forward, size, nbytes, layer in (
            (within, MB // 8, 3 * MB + MB // 2, 1),
            (outside, MB // 4, 5 * MB, None),
        ):
            _, use = measure(net(forward), ones(1, size))
            assert (use.high_water_nbytes, use.high_water_layer) == (about(nbytes), layer)
            assert use.kept_for_backward_nbytes is None

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


class TestTraining:
    @pytest.mark.parametrize(
        ("optimizer", "states"),
        [(None, 1), (chainer.optimizers.Adam, 2), (chainer.optimizers.SGD, 0)],
    )
    def test_memory_before_a_trial_is_the_sum_of_its_parts(self, optimizer, states):
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            model = net(lambda self, x: F.relu(self.a(x)), a=L.Linear(1000, 1000))
            x = ones(50, 1000)
            made = optimizer().setup(model) if optimizer else None
            taped, use = measure(model, x, phase="train", loss=F.sum, optimizer=made)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(taped.layers) == len(use.peak_nbytes)
        weights = 4 * (1000 * 1000 + 1000)
        assert use.parameter_nbytes == use.gradient_nbytes == weights
        assert use.state_nbytes == states * weights
        there = (2 + states) * weights + use.input_nbytes
        assert use.there_nbytes == there
        # The trial changes nothing, so the memory that is traced now was there at its begin.
        assert after - before == pytest.approx(there, abs=60 * OBJECTS)

    def test_only_activations_for_the_backward_are_kept(self):
        def forward(self, x):
            with chainer.no_backprop_mode():
                total = F.sum(F.relu(x)).array
            return F.sum(self.a(ones(1, 2))) + total

        model = net(forward, a=L.Linear(2, 2))
        _, use = measure(model, ones(1, MB), phase="train", loss=lambda y: y)
        assert use.kept_for_backward_nbytes == pytest.approx(0, abs=30_000)

        def keeping(self, x):
            """Keeps its output, as Classifier keeps its loss: 2 MB of activations."""
            self.y = None
            self.y = F.tanh(F.relu(x + self.W))
            return self.y

        model = net(keeping, W=chainer.Parameter(ones(1, MB // 4)))
        _, use = measure(model, ones(1, MB // 4), phase="train", loss=F.sum)
        assert use.kept_for_backward_nbytes == pytest.approx(2 * MB, abs=30_000)
        # It was there when the trial began.
        assert by_phase(use)["forward"].retained_nbytes == pytest.approx(0, abs=30_000)


class TestAfterwards:
    @pytest.mark.parametrize("traced", [False, True])
    @pytest.mark.parametrize("call", [0, 2, 3])
    def test_all_is_as_it_was_after_a_failure_too(self, traced, call):
        def fails(y, calls):
            if calls == (call if learned_steps else None):
                raise ValueError("broken")
            return y

        learned_steps, model = [], MLP(fails)
        step = make_step("train", model, (image(1, 3),), loss=F.sum)
        if traced:
            tracemalloc.start()
        try:
            kept = np.zeros(MB, np.uint8)
            with step.configured():
                taped = learned(step)
                learned_steps.append(taped)
                before = [set(vars(owner)) for owner in (model, step, step.optimizer)]
                with pytest.raises(ValueError, match="broken") if call else nullcontext():
                    measure_memory(step, taped)
            assert model.calls == (call or 3)
            assert tracemalloc.is_tracing() == traced
            assert tracemalloc.get_traced_memory()[0] >= kept.nbytes * traced
        finally:
            tracemalloc.stop()
        assert [set(vars(owner)) for owner in (model, step, step.optimizer)] == before
        assert not chainer.get_function_hooks()
        assert gc.isenabled()


def test_blocks_of_the_pool(cupy, monkeypatch):
    assert all(isinstance(counter_of(arrays), HostCounter) for arrays in ([ones(1)], []))
    monkeypatch.setattr(chainer.backend, "get_array_module", lambda *arrays: cupy)
    assert isinstance(counter_of([ones(1)]), PoolCounter)
    counter, before = PoolCounter(cupy), cupy.empty(2048, np.uint8)
    with counter.counting():
        first, second = cupy.empty(1000, np.uint8), cupy.empty(512, np.uint8)
        assert counter.read() == (1536, 1536)
        del first
        assert counter.read() == (512, 1536)
        assert counter.read() == (512, 512)
        del before
        assert counter.read() == (-1536, 512)
        cupy.memory_nbytes = 0
        with pytest.raises(MemoryError):  # nobody will free it
            cupy.empty(10_000, np.uint8)
        assert counter.read() == (-1536, -1536)
    del second
    assert counter.read() == (-1536, -1536)
