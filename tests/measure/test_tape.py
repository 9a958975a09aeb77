"""Rows by link: calls, work and shapes of whatever iterations do.

That each row has what its calls took, of any program, is in tests/ledger.
"""

from contextlib import nullcontext
from threading import Thread

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.entries import Entries
from chainer_profile.measure.owners import Paths
from chainer_profile.measure.readings import Readings
from chainer_profile.measure.row import MOST_SHAPES
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.taped_step import as_it_is
from chainer_profile.measure.windows import BACKWARD, FORWARD, UPDATE
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


def test_a_graph_that_was_made_while_memory_was_read_has_no_paths(clock):
    """Functions that are first seen then have each its own backward."""
    model = Net(lambda x: F.tanh(Busy(clock, 3, 5).apply((x,))[0]))
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


class Phases:
    """A trial of phases with a function in each, and time between functions."""

    roots, inputs = (), ()

    def timed(self, enter, leave):
        self.enter, self.leave = enter, leave
        return nullcontext()

    def run(self, clock, between_ns):
        for mark, ns in between_ns.items():
            self.enter(mark)
            clock.time_ns += ns
            Busy(clock, 500).apply((batch(),))
            self.leave()


@pytest.mark.parametrize(
    ("call_ns", "added_ns"), [(0.0, [0, 0, 0]), (3.0, [2, 4, 3]), (1e6, [20, 40, 30])]
)
def test_what_recording_adds_to_calls_is_taken_off_between_functions(clock, call_ns, added_ns):
    between_ns = dict(zip((FORWARD, BACKWARD, UPDATE), (20, 40, 30), strict=True))
    trial, entries = Phases(), Entries(as_it_is)
    tape = Tape(clock.now_ns, trial, entries)
    with entries, tape.recording():
        for _ in range(3):
            tape.start()
            trial.run(clock, between_ns)
            assert tape.stop() == 6  # three phases, and a function in each
    *_, iteration = tape.fold(call_ns)  # the first one has the looking up of rows
    assert iteration.rows_ns.tolist() == [500, 500, 500]
    assert iteration.calls.sum() == 3
    left_ns = np.subtract([*between_ns.values()], added_ns)
    assert iteration.phases_ns.tolist() == left_ns.tolist()
    assert iteration.wall_ns == iteration.rows_ns.sum() + left_ns.sum()


def test_a_shared_parameter_is_the_first_links():
    model = chainer.Sequential(L.Linear(3, 3), L.Linear(3, 3))
    model[1].W = model[0].W
    paths = Paths([("", model)])
    paths.know_parameters()
    assert paths.owner("/", (model[0].W.array,)) == "/0"
    assert paths.owner("/", (model[1].b.array,)) == "/1"
