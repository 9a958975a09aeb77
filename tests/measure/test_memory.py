"""The memory pass: bytes that are known by hand, and that all is left as it was found.

That all bytes of any network are found, and each once, is in tests/ledger.
"""

import gc
import time
import tracemalloc
from contextlib import nullcontext

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.memory import HostCounter, PoolCounter, counter_of
from chainer_profile.measure.memory import measure_memory as measure_by
from chainer_profile.measure.readings import Readings, ReadTrials
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import TapedStep, learned
from tests.nets import MLP, Outer, Wait, image, net

# What Python objects of a call may take: variables, nodes of the graph, tuples.
OBJECTS = 8_000
MB = 1_000_000


def measure_memory(step, taped, counter=None):
    with taped.entries:
        traced = ReadTrials(taped.tape)
        return measure_by(step, traced, len(taped.layers), counter)


def trace_memory(step, taped, counter):
    traced = ReadTrials(taped.tape)
    log = Readings(counter.read, 2, traced.most_reads)
    with counter.counting(), taped.entries:
        step()
        with traced.recording(log):
            step()
    return log


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
        """By a function's forward: the peak and what is retained of each row, with 1 MB given."""
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
    def test_all_that_is_there_at_the_peak_is_told(self, optimizer, states):
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
        # The trial leaves what it found, so what is traced now was there at its begin.
        assert after - before == pytest.approx(there, abs=60 * OBJECTS)

    def test_what_needs_no_backward_or_was_left_before_is_not_kept(self):
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


class Script:
    """A counter whose reads are drawn beforehand."""

    def __init__(self, values, extras):
        self.reads = [(value, value + extra) for value, extra in zip(values, extras, strict=True)]
        self.at = 0

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        self.at += 1
        return self.reads[self.at - 1]


class TestAfterwards:
    @pytest.mark.parametrize("traced", [False, True])
    @pytest.mark.parametrize("call", [0, 2, 3])
    def test_all_is_as_it_was_after_a_failure_too(self, traced, call):
        def fails(y, calls):
            if calls == (call if known else None):
                raise ValueError("broken")
            return y

        known, model = [], MLP(fails)
        step = make_step("train", model, (image(1, 3),), loss=F.sum)
        if traced:
            tracemalloc.start()
        try:
            kept = np.zeros(MB, np.uint8)
            with step.configured():
                taped = learned(step)
                known.append(taped)
                before = [set(vars(one)) for one in (model, step, step.optimizer)]
                with pytest.raises(ValueError, match="broken") if call else nullcontext():
                    measure_memory(step, taped)
            assert model.calls == (call or 3)
            assert tracemalloc.is_tracing() == traced
            assert tracemalloc.get_traced_memory()[0] >= kept.nbytes * traced
        finally:
            tracemalloc.stop()
        assert [set(vars(one)) for one in (model, step, step.optimizer)] == before
        assert not chainer.get_function_hooks()
        assert gc.isenabled()

    def test_a_collector_that_is_off_stays_off_and_a_counter_that_stops_is_said(self):
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
        model = net(lambda self, x: (tracemalloc.stop(), F.relu(x))[1])
        with pytest.raises(ProfileError, match="the program stopped tracemalloc"):
            measure(model, image())

    def test_the_calls_are_the_order_s_and_all_have_ended(self):
        step = make_step("forward", net(lambda self, x: F.relu(x)), (image(),))
        with step.configured():
            taped = learned(step)
        (layer,) = taped.layers
        enter = int(taped.order.codes[1])
        for codes, same in (
            ([0, enter, ~enter, ~0], True),
            ([0, enter, ~0], False),
            ([0, enter, ~enter, enter, ~enter, ~0], False),
        ):
            log = Readings(Script(range(9), [0] * 9).read, 2, 20)
            for code in codes:
                log.note((code, log.now_ns()) if code >= 0 else (log.now_ns(), code))
            with nullcontext() if same else pytest.raises(ProfileError, match="different calls"):
                assert ReadTrials(taped.tape).owned(log).layers == (layer,)

    def test_a_log_keeps_no_more_than_it_has_room_for_and_ends_where_its_counter_fails(self):
        log = Readings(Script(range(9), [0] * 9).read, 2, 3)
        for code in (0, 5, 7, ~7, ~5):
            log.note((code, log.now_ns()) if code >= 0 else (log.now_ns(), code))
        assert log.values[:, 0].tolist() == [0, 1, 2]
        assert (log.count, log.is_full, log.codes.tolist()) == (5, True, [0, 5, 7])
        calls = []

        def fail():
            calls.append("asked")
            raise OSError("no counter")

        log = Readings(fail, 2, 4)
        assert [log.now_ns() for _ in range(3)] == [0, 0, 0]
        assert (log.failure, calls, log.count) == ("OSError: no counter", ["asked"], 3)

    def test_the_log_of_a_trial_by_link_is_no_rows_memory(self):
        def forward(self, x):
            for _ in range(1000):
                x = F.identity(x)
            return x

        step = make_step("forward", net(forward), (ones(1, 1),))
        by_link = TapedStep(step, time.perf_counter_ns, single_calls=False)
        with step.configured():
            by_link.learn()
            use = measure_memory(step, by_link)
        assert use.peak_nbytes[0] < 1000


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
