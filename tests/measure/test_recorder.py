"""Rows by link: calls, work and shapes.

tests/ledger checks the times of rows for any program.
"""

from contextlib import suppress
from threading import Thread

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profiling
from chainer_profile.measure.recorder import MAX_SHAPES, Recorder
from tests.command import raising
from tests.nets import Wait, image, net
from tests.queues import PlannedNet, calls, device_clock, kernel


def batch(size=2):
    return np.ones((size, 3), np.float32)


def linear(function=F.identity):
    """Make a network that calls its layer ``times`` times, and then the function."""

    def forward(self, x, times=1):
        for _ in range(times):
            x = self.fc(x)
        return function(x)

    return net(forward, fc=L.Linear(3, 3))


def profiled(clock, model, *blocks):
    """Profile each function of a network in its own block; return the recording and its rows."""
    block = profiling(memory=False, clock=clock)
    for run in blocks:
        with block:
            run(model)
    recording = block.recording()
    return recording, {(row.path, row.function, row.phase): row for row in recording.layers}


def times_of(recording):
    """The times of the last trial, by row."""
    rows = [(row.path, row.function, row.phase) for row in recording.layers]
    times = zip(rows, recording.self_ns[-1].tolist(), strict=True)
    return {row: ns for row, ns in times if ns}


def test_row_has_mean_calls_and_work_of_a_link_with_varying_calls(clock):
    model = linear()
    row = ("/model/fc", "LinearFunction", "forward")
    _, single_call = profiled(clock, model, lambda model: model(batch()))
    lengths = (1, 30, 5)
    blocks = [lambda model, n=n: model(batch(), n) for n in lengths]
    recording, rows = profiled(clock, model, *blocks)
    assert recording.calls[:, list(rows).index(row)].tolist() == [*lengths]
    assert rows[row].calls == 12
    for name in ("flops", "macs", "nbytes_read", "output_nbytes"):
        assert getattr(rows[row], name) == 12 * getattr(single_call[row], name)
    assert {link.path: link.calls for link in recording.links} == {"/model": 1, "/model/fc": 12}


def test_call_belongs_to_the_link_with_its_parameter(clock):
    weight, uses = np.ones((3, 3), np.float32), [1, 1, 0, 1]
    model = net(
        lambda self, x, uses_parameter: F.linear(x, self.fc.W if uses_parameter else weight),
        fc=L.Linear(3, 3),
    )
    blocks = [
        lambda model, uses_parameter=uses_parameter: model(batch(), uses_parameter)
        for uses_parameter in uses
    ]
    recording, rows = profiled(clock, model, *blocks)
    assert [path for path, _, _ in rows] == ["/model/fc", "/model"]
    assert recording.calls.T.tolist() == [uses, [1 - uses_parameter for uses_parameter in uses]]


def test_row_keeps_shapes_of_many_calls(clock):
    model = linear(lambda x: Wait(clock, len(x)).apply((x,))[0])
    sizes = range(1, 3 * MAX_SHAPES)

    def run(model):
        sum(F.sum(model(batch(size))) for size in sizes).backward()

    recording, rows = profiled(clock, model, run)
    assert times_of(recording) == {("/model", "Wait", "forward"): sum(sizes)}
    assert rows["/model", "Wait", "forward"].flops is None  # it has no formula
    # All shapes beyond the limit share a call site, with the work of its first call.
    for phase, size in (("forward", MAX_SHAPES + 1), ("backward", len(sizes))):
        row = rows["/model/fc", "LinearFunction", phase]
        assert (row.calls, row.work_is_about) == (len(sizes), True)
        assert row.macs == 9 * sum(n if n <= MAX_SHAPES else size for n in sizes)


def test_work_of_a_broadcast_shape_is_approximate_in_backward(clock):
    def run(model):
        for shape in ((2, 3), (2, 2, 3)):  # the second one is broadcast
            F.sum(model(np.ones(shape, np.float32))).backward()

    model = net(lambda self, x: F.matmul(x, self.fc.W), fc=L.Linear(3, 3))
    _, rows = profiled(clock, model, run)
    is_about = [
        rows["/model/fc", "MatMul", phase].work_is_about for phase in ("forward", "backward")
    ]
    assert is_about == [False, True]


def test_functions_called_in_a_backward_count_in_its_time_with_their_backwards(clock):
    class Outer(Wait):
        def backward(self, indexes, grads):
            return Wait(clock, 5, 7).apply(grads)

    def run(model, double=True):
        x = chainer.Variable(batch())
        y = F.sum(model(x) ** 2)
        y.backward(enable_double_backprop=double)
        if double:
            F.sum(x.grad_var).backward()

    model = linear(lambda x: Outer(clock, 3).apply((x,))[0])
    begin_ns = clock.time_ns
    recording, rows = profiled(clock, model, run)
    assert times_of(recording) == {
        ("/model", "Outer", "forward"): 3,
        ("/model", "Outer", "backward"): clock.time_ns - begin_ns - 3,
    }
    assert times_of(recording)["/model", "Outer", "backward"] >= 5 + 7
    forward, backward = (rows["/model", "Outer", phase] for phase in ("forward", "backward"))
    assert (forward.forward, backward.forward) == (None, forward.index)
    # A call without known work counts with the mean work of the others.
    _, once = profiled(clock, model, lambda model: run(model, double=False))
    row = ("/", "PowVarConst", "backward")
    assert rows[row].work_is_about
    assert rows[row].flops == rows[row].calls * once[row].flops > once[row].flops


def test_backward_that_raises_ends_at_the_exception(clock):
    class Fails(Wait):
        def backward(self, indexes, grads):
            clock.advance(5)
            raise ZeroDivisionError

    def run(model):
        with suppress(ZeroDivisionError):
            F.sum(model(batch())).backward()
        clock.advance(100)
        Wait(clock, 7).apply((batch(),))

    recording, _ = profiled(clock, linear(lambda x: Fails(clock, 3).apply((x,))[0]), run)
    assert times_of(recording) == {
        ("/model", "Fails", "forward"): 3,
        ("/model", "Fails", "backward"): 5,
        ("/", "Wait", "forward"): 7,
    }


def test_other_threads_are_not_recorded(clock):
    model = linear(lambda x: Wait(clock, 3).apply((x,))[0])
    optimizer = chainer.optimizers.SGD().setup(model)
    thread = Thread(target=lambda: optimizer.update(lambda: F.sum(model(batch()))))
    block = profiling(memory=False, clock=clock)
    with block:
        thread.start()
        thread.join()
        model(batch())
    recording = block.recording()
    assert (recording.phases, recording.calls.sum()) == (("forward",), 2)
    assert times_of(recording) == {("/model", "Wait", "forward"): 3}


@pytest.fixture
def slow_lookup(monkeypatch):
    """Function that makes the lookup of a new call site take 1,000 ns on a clock."""
    add_site = Recorder.add_site

    def slow_on(clock):
        def slow(*args, **kwargs):
            clock.advance(1000)
            return add_site(*args, **kwargs)

        monkeypatch.setattr(Recorder, "add_site", slow)

    return slow_on


def test_lookup_of_call_sites_is_excluded_from_device_times(slow_lookup):
    clock = device_clock()
    plan = calls((*kernel(500, 100), ("wait", 0)), kernel(300, 200), between_ns=40)
    model, block = PlannedNet(clock, plan), profiling(memory=False, clock=clock)
    slow_lookup(clock)
    for _ in range(2):
        with block:
            model(image())
    recording = block.recording()
    assert recording.launch_ns.tolist() == [40 + 500 + 100 + 40 + 300] * 2
    for name in ("self_ns", "host_ns", "gap_ns", "span_ns", "trial_ns"):
        first, second = getattr(recording, name).tolist()
        assert first == second, name


def test_input_may_be_none(clock):
    """LSTM passes such inputs to functions in its backward."""

    class Old(chainer.Function):
        def check_type_forward(self, in_types):
            pass

        def forward(self, inputs):
            clock.advance(4)
            return (inputs[0].copy(),)

        def backward(self, inputs, grads):
            clock.advance(6)
            return grads[0], None

    def run(model):
        F.sum(Old()(model(batch()), chainer.Variable(None))).backward()

    recording, rows = profiled(clock, linear(), run, run)
    assert times_of(recording) == {("/", "Old", "forward"): 4, ("/", "Old", "backward"): 6}
    assert rows["/", "Old", "forward"].input_shapes == ((2, 3),)


@pytest.mark.parametrize("name", ["_event_id", "_backward_id", "begin_operation", "add_site"])
def test_failed_recorder_warns_once_and_the_program_continues(clock, monkeypatch, name):
    def run(model, x):
        y = F.sum(F.tanh(model(x)))
        y.backward()
        return y.array

    model, fail = linear(), raising(OSError("none"))
    expected = run(model, batch())
    block = profiling(clock=clock)
    with block:
        run(model, batch())
    monkeypatch.setattr(Recorder, name, fail)

    def blocks():
        for size in (2, 3, 4):  # new call sites
            with block:
                F.sigmoid(chainer.Variable(batch(size)))
                assert run(model, batch()) == expected
                F.sum(F.cos(model(batch(size)))).backward()

    with pytest.warns(UserWarning, match="measuring stopped: OSError: none") as caught:
        blocks()
    assert len(caught) == 1
    monkeypatch.undo()
    assert block.recording().n_trials == 1
    assert not chainer.get_function_hooks()
