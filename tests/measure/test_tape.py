"""Rows by link: calls, work and shapes of whatever iterations do.

That each row has what its calls took, of any program, is in tests/ledger.
"""

from threading import Thread

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.measure.readings import Readings
from chainer_profile.measure.row import MOST_SHAPES
from chainer_profile.measure.rows import Iteration
from tests.ledger.drawn import Busy
from tests.ledger.test_links import iteration_of, recorder_of, rows_of, times_by_row


class Net(chainer.Chain):
    def __init__(self, function=F.identity):
        super().__init__()
        self.function = function
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x, times=1):
        for _ in range(times):
            x = self.fc(x)
        return self.function(x)


def batch(size=2):
    return np.ones((size, 3), np.float32)


def layers_of(recorder):
    return {(layer.path, layer.function, layer.phase): layer for layer in recorder.rows.layers()}


def test_a_link_of_changing_length_is_one_row_of_mean_calls_and_work(clock):
    model = Net()
    loop = recorder_of(clock, model)
    iteration_of(loop, lambda: model(batch()))
    alone = layers_of(loop[0])["/fc", "LinearFunction", "forward"]
    for times in (30, 5):
        calls = iteration_of(loop, lambda times=times: model(batch(), times)).calls
        assert rows_of(loop[0], calls)["/fc", "LinearFunction", "forward"] == times
    layers = layers_of(loop[0])
    assert len(layers) == 2
    row = layers["/fc", "LinearFunction", "forward"]
    assert (row.calls, row.flops, row.macs) == (12, 12 * alone.flops, 12 * alone.macs)
    assert {link.path: link.calls for link in loop[0].links()} == {"/": 1, "/fc": 12}


def test_work_is_the_mean_over_shapes(clock):
    model = Net()
    loop = recorder_of(clock, model)

    def run(size):
        y = model(batch(size))
        y.grad = np.ones_like(y.array)
        y.backward()

    flops = {}
    for size in (2, 6):
        alone = recorder_of(clock, model)
        for recording_loop in (loop, alone):
            iteration_of(recording_loop, lambda size=size: run(size))
        for key, layer in layers_of(alone[0]).items():
            flops.setdefault(key, []).append(layer.flops)
    layers = layers_of(loop[0])
    assert set(layers) == set(flops)
    for key, layer in layers.items():
        assert layer.flops == sum(flops[key]) / 2
        assert not layer.work_is_about


def test_there_may_be_any_number_of_shapes(clock):
    model = Net(lambda x: Busy(clock, len(x)).apply((x,))[0])
    loop = recorder_of(clock, model)
    sizes = range(1, 3 * MOST_SHAPES)
    times = times_by_row(loop, iteration_of(loop, lambda: [model(batch(size)) for size in sizes]))
    assert times == {("/", "Busy", "forward"): sum(sizes)}
    rows = layers_of(loop[0])
    assert rows["/", "Busy", "forward"].flops is None  # it has no formula
    row = rows["/fc", "LinearFunction", "forward"]
    assert row.calls == len(sizes)
    assert row.work_is_about
    # Shapes that have no work of their own count as the mean of the others.
    assert row.flops > len(sizes) * 2 * 9


def test_functions_within_a_backward_are_its_own_time_and_so_are_their_backwards(clock):
    class Outer(Busy):
        def backward(self, indexes, grads):
            return Busy(clock, 5, 7).apply(grads)

    model = Net(lambda x: Outer(clock, 3).apply((x,))[0])
    loop = recorder_of(clock, model)

    def run():
        x = chainer.Variable(batch())
        y = F.sum(model(x) ** 2)
        y.backward(enable_double_backprop=True)
        F.sum(x.grad_var).backward()

    times = times_by_row(loop, iteration_of(loop, run))
    assert times["/", "Outer", "forward"] == 3
    assert times["/", "Outer", "backward"] == clock.time_ns - 1_000_000 - 3
    assert times["/", "Outer", "backward"] >= 12
    # Work that is known of some calls only is no exact work of all.
    rows = layers_of(loop[0])
    assert rows["/", "Outer", "backward"].flops is None
    assert rows["/", "PowVarConst", "backward"].work_is_about


def test_a_graph_from_before_has_no_paths(clock):
    model = Net(lambda x: Busy(clock, 3, 5).apply((x,))[0])
    loop = recorder_of(clock, model)
    y = F.sum(model(batch()))
    times = times_by_row(loop, iteration_of(loop, y.backward))
    assert times == {("/", "Busy", "backward"): 5}
    assert {layer.path for layer in loop[0].rows.layers()} == {"/"}
    # One that was recorded has them in later iterations.
    iteration_of(loop, lambda: setattr(model, "kept", F.sum(model(batch()))))
    iteration_of(loop, model.kept.backward)
    assert layers_of(loop[0])["/fc", "LinearFunction", "backward"].calls == 1 / 3
    # So has one while memory was read; functions first seen then have each its own backward.
    model.function = lambda x: F.tanh(Busy(clock, 3, 5).apply((x,))[0])
    recorder, entries = loop = recorder_of(clock, model)
    with entries, recorder.recording(Readings(lambda: (0,), 1, 1000)):
        y = F.sum(model(batch()))
    assert not any(layer.calls for layer in recorder.links())
    assert times_by_row(loop, iteration_of(loop, y.backward)) == {("/", "Busy", "backward"): 5}


def test_other_threads_have_no_part_in_it(clock):
    model = Net(lambda x: Busy(clock, 3).apply((x,))[0])
    optimizer = chainer.optimizers.SGD().setup(model)
    loop = recorder_of(clock, model, optimizer)

    def elsewhere():
        optimizer.update(lambda: F.sum(model(batch())))

    def run():
        thread = Thread(target=elsewhere)
        thread.start()
        thread.join()
        model(batch())

    iteration = iteration_of(loop, run)
    assert iteration.calls.sum() == 2
    assert {layer.phase for layer in loop[0].rows.layers()} == {"forward"}
    assert times_by_row(loop, iteration)["/", "Busy", "forward"] == 3


def test_time_of_recording_is_subtracted_between_functions():
    # 6 calls of 5 ns: of the phases' 40 and 20 ns between functions each loses a part by its time.
    iteration = Iteration(
        *(1, 0, 1000, 0),
        rows_ns=np.array([500, 440]),
        calls=np.array([2, 4]),
        phases_ns=np.array([40, 20]),
        arrived_ns=np.zeros(0, np.int64),
        left_ns=np.zeros(0, np.int64),
    )
    less = iteration.without_recording(5.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (970, [20, 10])
    assert less.rows_ns is iteration.rows_ns
    # No more than there is.
    less = iteration.without_recording(1000.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (940, [0, 0])
    less = iteration.without_recording(0.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (1000, [40, 20])
