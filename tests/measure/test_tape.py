"""Rows by link: calls, work and shapes of whatever iterations do.

That each row has what its calls took, of any program, is in tests/ledger.
"""

import warnings
from contextlib import suppress
from threading import Thread

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.readings import Readings
from chainer_profile.measure.row import MOST_SHAPES
from chainer_profile.measure.rows import Iteration
from tests.ledger.drawn import SUMS, Busy, WorkError, nothing_left
from tests.ledger.test_links import iteration_of, recorder_of, rows_of, told
from tests.nets import net


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
    return {(one.path, one.function, one.phase): one for one in recorder.rows.layers()}


def test_a_link_of_changing_length_is_one_row_of_mean_calls_and_work(clock):
    model = Net()
    loop = recorder_of(clock, model)
    iteration_of(loop, lambda: model(batch()))
    alone = layers_of(loop[0])["/fc", "LinearFunction", "forward"]
    for times in (30, 5):
        calls = iteration_of(loop, lambda times=times: model(batch(), times)).calls
        assert rows_of(loop[0], calls)["/fc", "LinearFunction", "forward"] == times
    found = layers_of(loop[0])
    assert len(found) == 2
    row = found["/fc", "LinearFunction", "forward"]
    assert (row.calls, row.flops, row.macs) == (12, 12 * alone.flops, 12 * alone.macs)
    assert {one.path: one.calls for one in loop[0].links()} == {"/": 1, "/fc": 12}


def test_a_shared_link_goes_by_its_first_path_however_it_is_called(clock):
    fc = L.Linear(3, 3)
    model = net(lambda self, x: x, a=fc, b=chainer.Chain(c=fc))
    loop = recorder_of(clock, model)
    iteration_of(loop, lambda: (model.a.forward(batch()), model.b.c(batch())))
    assert {of: row.calls for of, row in layers_of(loop[0]).items()} == {
        ("/a", "LinearFunction", "forward"): 2
    }


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
        for one in (loop, alone):
            iteration_of(one, lambda size=size: run(size))
        for key, layer in layers_of(alone[0]).items():
            flops.setdefault(key, []).append(layer.flops)
    found = layers_of(loop[0])
    assert set(found) == set(flops)
    for key, layer in found.items():
        assert layer.flops == sum(flops[key]) / 2
        assert not layer.work_is_about


def test_there_may_be_any_number_of_shapes(clock):
    model = Net(lambda x: Busy(clock, len(x)).apply((x,))[0])
    loop = recorder_of(clock, model)
    sizes = range(1, 3 * MOST_SHAPES)
    found = told(loop, iteration_of(loop, lambda: [model(batch(size)) for size in sizes]))
    assert found == {("/", "Busy", "forward"): sum(sizes)}
    rows = layers_of(loop[0])
    assert rows["/", "Busy", "forward"].flops is None  # it has no formula
    row = rows["/fc", "LinearFunction", "forward"]
    assert row.calls == len(sizes)
    assert row.work_is_about
    # Shapes that have no work of their own count as the mean of the others.
    assert row.flops > len(sizes) * 2 * 9


def test_calls_that_share_an_entry_may_have_other_numbers_of_inputs(clock):
    """As a tagger's sentences have, once more shapes were seen than are told apart."""
    model = net(lambda self, *xs: F.vstack(F.transpose_sequence(xs)), fc=L.Linear(3, 3))
    loop = recorder_of(clock, model)

    def run(*counts):
        ys = [model(*(chainer.Variable(batch()) for _ in range(count))) for count in counts]
        for y in reversed(ys):
            y.grad = np.ones_like(y.array)
            y.backward()

    for count in range(1, MOST_SHAPES + 1):
        iteration_of(loop, lambda count=count: run(count))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iteration_of(loop, lambda: run(80, 70))
        iteration_of(loop, lambda: run(70, 90))
    calls = MOST_SHAPES + 4
    for phase in ("forward", "backward"):
        row = layers_of(loop[0])["/", "TransposeSequence", phase]
        assert row.calls == pytest.approx(calls / (MOST_SHAPES + 2))
        assert row.flops is not None


def test_what_a_backward_that_raises_took_is_found(clock):
    model = Net(lambda x: Busy(clock, 11, 13, "backward").apply((x,))[0])
    optimizer = chainer.optimizers.SGD().setup(model)
    optimizer.add_hook(lambda _: clock.advance(17), "planted")
    loop = recorder_of(clock, model, optimizer)

    def run():
        clock.advance(1)
        with suppress(WorkError):
            optimizer.update(lambda: F.sum(model(batch())))
        clock.advance(2)

    for _ in range(3):
        found = told(loop, iteration_of(loop, run))
        assert found == {
            ("/", "Busy", "forward"): 11,
            ("/", "Busy", "backward"): 13,
            ("", "", ""): 3,
        }


def test_what_raises_first_has_work_later(clock):
    model, fails = Net(), [True]

    class Sometimes(type(F.relu(batch()).creator)):
        def forward(self, inputs):
            if fails:
                fails.pop()
                raise WorkError
            return super().forward(inputs)

    model.function = lambda x: Sometimes().apply((x,))[0]
    loop = recorder_of(clock, model)
    for _ in range(2):
        with suppress(WorkError):
            iteration_of(loop, lambda: model(batch()))
    (row,) = (one for one in loop[0].rows.layers() if one.function == "Sometimes")
    assert row.flops
    assert row.output_shapes == ((2, 3),)


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

    found = told(loop, iteration_of(loop, run))
    assert found["/", "Outer", "forward"] == 3
    assert found["/", "Outer", "backward"] == clock.time_ns - 1_000_000 - 3
    assert found["/", "Outer", "backward"] >= 12
    # What only some of its calls are known to do is no exact work of all.
    rows = layers_of(loop[0])
    assert rows["/", "Outer", "backward"].flops is None
    assert rows["/", "PowVarConst", "backward"].work_is_about


def test_a_graph_from_before_has_no_paths(clock):
    model = Net(lambda x: Busy(clock, 3, 5).apply((x,))[0])
    loop = recorder_of(clock, model)
    y = F.sum(model(batch()))
    found = told(loop, iteration_of(loop, y.backward))
    assert found == {("/", "Busy", "backward"): 5}
    assert {one.path for one in loop[0].rows.layers()} == {"/"}
    # One that was recorded has them in later iterations.
    iteration_of(loop, lambda: setattr(model, "kept", F.sum(model(batch()))))
    iteration_of(loop, model.kept.backward)
    assert layers_of(loop[0])["/fc", "LinearFunction", "backward"].calls == 1 / 3
    # So has one while memory was read; functions first seen then have each its own backward.
    model.function = lambda x: F.tanh(Busy(clock, 3, 5).apply((x,))[0])
    recorder, entries = loop = recorder_of(clock, model)
    with entries, recorder.recording(Readings(lambda: (0,), 1, 1000)):
        y = F.sum(model(batch()))
    assert not any(one.calls for one in recorder.links())
    assert told(loop, iteration_of(loop, y.backward)) == {("/", "Busy", "backward"): 5}


def test_sums_of_gradients_have_their_row_behind_an_iteration_in_which_memory_was_read(clock):
    model = Net()
    recorder, entries = loop = recorder_of(clock, model)

    def run():
        F.sum(model(batch(), 2)).backward()

    with entries, recorder.recording(Readings(lambda: (0,), 1, 1000)):  # all functions are new
        run()
    iteration_of(loop, run)
    assert ("/fc", SUMS[1], "backward") in layers_of(recorder)


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
    assert {one.phase for one in loop[0].rows.layers()} == {"forward"}
    assert told(loop, iteration)["/", "Busy", "forward"] == 3


def test_an_iteration_that_raises_leaves_nothing_and_the_next_one_is_right(clock):
    model = Net(lambda x: Busy(clock, 3, raises="forward" if raising else "").apply((x,))[0])
    loop = recorder_of(clock, model)
    for raising in (False, True, False):  # noqa: B007
        with nothing_left(model), suppress(WorkError):
            iteration = iteration_of(loop, lambda: model(batch()))
            assert told(loop, iteration) == {("/", "Busy", "forward"): 3}
            assert rows_of(loop[0], iteration.calls).total() == 2
    assert {one.path: one.calls for one in loop[0].links()} == {"/": 1, "/fc": 1}


def test_what_recording_added_is_taken_off_between_functions():
    # 6 calls of 5 ns: of the phases' 40 and 20 ns between functions each loses a part by its time.
    one = Iteration(
        *(1, 0, 1000, 0),
        rows_ns=np.array([500, 440]),
        calls=np.array([2, 4]),
        phases_ns=np.array([40, 20]),
        arrived_ns=np.zeros(0, np.int64),
        left_ns=np.zeros(0, np.int64),
    )
    less = one.without_recording(5.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (970, [20, 10])
    assert less.rows_ns is one.rows_ns
    # No more than there is.
    less = one.without_recording(1000.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (940, [0, 0])
    less = one.without_recording(0.0)
    assert (less.wall_ns, less.phases_ns.tolist()) == (1000, [40, 20])
