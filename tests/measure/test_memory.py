"""The memory pass: exact bytes of small networks, and restored state.

tests/ledger checks that each byte of any network counts once.
"""

import gc
import tracemalloc

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.memory import HostCounter, PoolCounter, counter_of
from chainer_profile.measure.memory import measure_memory as measure_by
from chainer_profile.measure.readings import ReadingSession
from chainer_profile.measure.step_session import learned
from chainer_profile.measure.steps import make_step
from tests.nets import MLP, Wait, image, net

# Upper limit of the bytes of a call's Python objects: variables, graph nodes, tuples.
OBJECTS = 8_000
MB = 1_000_000


def measure_memory(step, session, counter=None):
    return measure_by(step, ReadingSession(session), len(session.layers), counter)


def measure(model, *inputs, phase="forward", loss="auto", optimizer=None):
    step = make_step(phase, model, inputs, loss=loss, optimizer=optimizer)
    with step.configured():
        learned(step)
        return measure_memory(step, learned(step))


def by_phase(use):
    return {phase.phase: phase for phase in use.phases}


def ones(*shape):
    return np.ones(shape, np.float32)


def about(nbytes):
    """Expected bytes, with a tolerance for the Python objects of a call."""
    return pytest.approx(nbytes, abs=OBJECTS)


class Workspace(Wait):
    """Allocates and frees 3 MB, and returns its input."""

    def forward(self, inputs):
        np.empty(3 * MB, np.uint8)
        return super().forward(inputs)


class Around(Wait):
    """Calls a Workspace in its forward."""

    def forward(self, inputs):
        (y,) = Workspace(self._clock, 1).apply(inputs)
        return (y.array,)


def test_rows_have_peak_and_retained_bytes(clock):
    def workspace(x):
        return Workspace(clock, 1).apply((x,))[0]

    def outside_layers(x):
        np.empty(5 * MB, np.uint8)
        return F.relu(x)

    for function, rows, high_water, layer in (
        (F.relu, [(MB, MB)], MB, 0),
        (F.identity, [(0, 0)], 0, None),
        # The workspace is freed before the output is allocated, and is not retained.
        (workspace, [(3 * MB, MB)], 3 * MB, 0),
        # A nested call adds to the peak of the outer one, but not to its retained bytes.
        (lambda x: Around(clock, 1).apply((x,))[0], [(3 * MB, 0), (3 * MB, MB)], 3 * MB, 1),
        (lambda x: F.relu(workspace(F.relu(x))), [(MB, MB), (3 * MB, MB), (MB, MB)], 4 * MB, 1),
        (outside_layers, [(MB, MB)], 5 * MB, None),
    ):
        use = measure(net(lambda self, x, function=function: function(x)), ones(1, MB // 4))
        peaks, retained = zip(*rows, strict=True)
        assert use.peak_nbytes == tuple(map(about, peaks))
        assert use.retained_nbytes == tuple(map(about, retained))
        assert min(use.peak_nbytes) >= 0
        assert use.high_water_nbytes == about(high_water)
        if high_water > MB:
            assert use.high_water_layer == layer
        assert use.kept_for_backward_nbytes is None


def test_parameters_persistent_arrays_and_inputs_count_once():
    norm, x = L.BatchNormalization(10), ones(3, 10)
    model = net(lambda self, x, y: self.b(self.a(x)) + y, a=norm, b=norm)
    for inputs, count in (((x, x), 1), ((chainer.Variable(x), ones(3, 10)), 2)):
        use = measure(model, *inputs, phase="train", loss=F.sum)
        # gamma, beta, running mean and variance; the number of batches is a plain integer.
        assert (use.parameter_nbytes, use.input_nbytes) == (4 * 10 * 4, count * 3 * 10 * 4)


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [(None, 1), (chainer.optimizers.Adam, 2), (chainer.optimizers.SGD, 0)],
)
def test_memory_before_a_training_trial_is_the_sum_of_its_arrays(optimizer, states):
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        model = net(lambda self, x: F.relu(self.a(x)), a=L.Linear(1000, 1000))
        x = ones(50, 1000)
        used_optimizer = optimizer().setup(model) if optimizer else None
        use = measure(model, x, phase="train", loss=F.sum, optimizer=used_optimizer)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    weights = 4 * (1000 * 1000 + 1000)
    assert use.parameter_nbytes == use.gradient_nbytes == weights
    assert use.state_nbytes == states * weights
    assert use.initial_nbytes == (2 + states) * weights + use.input_nbytes
    # The trial allocates no memory beyond these arrays.
    assert after - before == pytest.approx(use.initial_nbytes, abs=60 * OBJECTS)


def test_only_activations_needed_by_backward_count_as_kept():
    def dropping(self, x):
        with chainer.no_backprop_mode():
            total = F.sum(F.relu(x)).array
        return F.get_item(self.W, (0, slice(1))) + total

    def keeping(self, x):
        """Keep the output as Classifier keeps its loss: 2 MB of activations."""
        self.y = None
        self.y = F.tanh(F.relu(x + self.W))
        return self.y

    for forward, kept in ((dropping, 0), (keeping, 2 * MB)):
        model = net(forward, W=chainer.Parameter(ones(1, MB // 4)))
        use = measure(model, ones(1, MB // 4), phase="train", loss=F.sum)
        assert use.kept_for_backward_nbytes == pytest.approx(kept, abs=30_000)
        # The previous trial kept as much.
        assert by_phase(use)["forward"].retained_nbytes == pytest.approx(0, abs=30_000)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("failing_call", [2, 3])
def test_exception_restores_hooks_and_tracing(traced, failing_call):
    def fails(y, calls):
        if calls == failing_call:
            raise ValueError("broken")
        return y

    step = make_step("train", MLP(fails), (image(1, 3),), loss=F.sum)
    if traced:
        tracemalloc.start()
    try:
        with step.configured():
            session = learned(step)
            with pytest.raises(ValueError, match="broken"):
                measure_memory(step, session)
        assert tracemalloc.is_tracing() == traced
    finally:
        tracemalloc.stop()
    assert not chainer.get_function_hooks()
    assert gc.isenabled()


def test_pool_counter_counts_blocks_of_the_pool(cupy, monkeypatch):
    assert isinstance(counter_of([]), HostCounter)
    monkeypatch.setattr(chainer.backend, "get_array_module", lambda *arrays: cupy)
    counter, before = counter_of([ones(1)]), cupy.empty(2048, np.uint8)
    assert isinstance(counter, PoolCounter)
    with counter.counting():
        cupy.empty(4096, np.uint8)
        first, second = cupy.empty(1000, np.uint8), cupy.empty(512, np.uint8)
        assert counter.read() == (1536, 4096)
        del first
        assert counter.read() == (512, 1536)
        del before
        assert counter.read() == (-1536, 512)
        cupy.memory_nbytes = 0
        with pytest.raises(MemoryError):  # a failed allocation does not count
            cupy.empty(10_000, np.uint8)
        assert counter.read() == (-1536, -1536)
    del second
    assert counter.read() == (-1536, -1536)
