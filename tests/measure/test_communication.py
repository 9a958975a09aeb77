"""The communication phase has a row for each collective of ChainerMN's optimizers."""

import ctypes
import socket
from contextlib import nullcontext
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainermn import create_multi_node_optimizer

from chainer_profile.costs.work import ArraySpec
from chainer_profile.measure.communication import collectives
from chainer_profile.measure.ranks import rank_of
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.step_session import StepSession
from chainer_profile.record.parts import Rank
from tests.measure.recording import record_trial
from tests.nets import net

X = np.ones((2, 3), np.float32)
MS = 1_000_000


class FakeMpi:
    """A fake MPI communicator: the n-th collective takes 2 n - 1 ms."""

    def __init__(self, clock):
        self.clock, self.n_calls, self.entered = clock, 0, []

    def Allreduce(self, *_):  # noqa: N802  (MPI's name)
        self.entered.append(self.clock.time_ns)
        self.n_calls += 1
        self.clock.advance((2 * self.n_calls - 1) * MS)

    Bcast = Allreduce

    def gather(self, value):
        return [value]


class FakeCommunicator:
    """Like ChainerMN's naive communicator on rank 1 of 2: one collective per parameter."""

    rank, size = 1, 2

    def __init__(self, clock):
        self.mpi_comm = FakeMpi(clock)

    def bcast_data(self, model):
        for _, param in sorted(model.namedparams()):
            if param.data is not None:
                self.mpi_comm.Bcast(param.data)

    def multi_node_mean_grad(self, model, zero_fill=False):
        for _, param in sorted(model.namedparams()):
            if param.data is None:
                continue
            if zero_fill and param.grad is None:
                param.grad = np.zeros_like(param.data)
            if param.grad is not None:
                self.mpi_comm.clock.advance(7)  # as a cast would
                assert self.mpi_comm.gather(param) == [param]
                self.mpi_comm.Allreduce(None, param.grad)


class Step:
    """The step of a trial that updates with ChainerMN's optimizer.

    The network uses two of its four layers. One unused layer is not initialized.
    """

    inputs = ()
    network_is_phase = False

    def __init__(self, communicator, **options):
        links = {"a": L.Linear(3, 4, nobias=True), "b": L.Linear(4, 2)}
        links |= {"aa": L.Linear(2, 2, nobias=True), "lazy": L.Linear(None, 2, nobias=True)}
        self.model = net(lambda self, x: F.sum(self.b(self.a(x))), **links)
        inner, self.communicator = chainer.optimizers.SGD(), communicator
        self.optimizer = create_multi_node_optimizer(inner, communicator, **options)
        self.optimizer.setup(self.model)
        self.roots = [("", self.model)]

    def __call__(self):
        self.optimizer.update(self.model, X)

    def collectives_of_update(self):
        """Function, path, shapes and data type of each collective in an update."""
        session = StepSession(self)
        session.learn()
        rows = [layer for layer in session.layers if layer.phase == "communication"]
        return [(row.function, row.path, row.input_shapes, row.dtype) for row in rows]


def spec(*shape, dtype="float32"):
    return ArraySpec(shape, dtype)


@pytest.mark.parametrize("zero_fill", [False, True])
def test_each_parameter_has_a_row_per_collective(clock, zero_fill):
    step = Step(FakeCommunicator(clock), zero_fill=zero_fill)
    optimizers = step.optimizer, step.optimizer.actual_optimizer
    moved = {"/a/W": (4, 3), "/aa/W": (2, 2), "/b/W": (2, 4), "/b/b": (2,)}
    for function in ("Bcast", "Allreduce"):
        assert step.collectives_of_update() == [
            (function, path, (shape,), "float32") for path, shape in moved.items()
        ]
        if not zero_fill:  # a parameter without a gradient is not moved
            moved.pop("/aa/W", None)
    names = {"update", "call_hook", "bcast_data", "multi_node_mean_grad"}
    assert all(names.isdisjoint(vars(owner)) for owner in (step.communicator, *optimizers))


@pytest.mark.parametrize(
    ("channel", "method", "args", "moved"),
    [
        # MPI moves a bucket of parameters as one device buffer.
        ("mpi_comm", "Allreduce", [((ctypes.c_ubyte * 104)(), "MPI.FLOAT")] * 2, spec(26)),
        # NCCL takes addresses, a number of items and a type.
        ("nccl_comm", "allReduce", [11, 12, 5, 6, 0, 13], spec(5, dtype="float16")),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_buckets_and_nccl_buffers_have_rows(channel, method, args, moved, fails):
    calls, begun = [], []

    def collective(*args):
        calls.append(args)
        if fails:
            raise ZeroDivisionError

    communicator = type("Communicator", (), {})()
    inner = SimpleNamespace(**{method: collective})
    communicator._init_comms = lambda: setattr(communicator, channel, inner)
    with (
        pytest.raises(ZeroDivisionError) if fails else nullcontext(),
        collectives(
            communicator,
            L.Linear(3, 2),
            "grad",
            lambda *collective: begun.append(collective),
            lambda: None,
        ),
    ):
        getattr(getattr(communicator, channel), method)(*args)
    assert (calls, begun) == ([tuple(args)], [("Allreduce", "/", moved)])
    assert getattr(communicator, channel) is inner
    assert channel not in vars(type(communicator))


def test_other_communicators_of_the_class_are_not_patched(clock):
    first, second = FakeCommunicator(clock), FakeCommunicator(clock)
    channel = second.mpi_comm
    with collectives(first, L.Linear(3, 2), "grad", lambda *collective: None, lambda: None):
        assert first.mpi_comm is not vars(first)["mpi_comm"]
        assert second.mpi_comm is channel
        del vars(second)["mpi_comm"]
        assert not hasattr(second, "mpi_comm")


def test_times_of_an_update_add_up_and_arrivals_equal_the_clock(clock):
    communicator = FakeCommunicator(clock)
    step = Step(communicator)
    step()
    session = StepSession(step, clock)
    session.learn()
    communicator.mpi_comm.n_calls = 0
    trial = record_trial(session, step)
    assert session.has_single_calls
    collective_rows = [layer for layer in session.layers if layer.phase == "communication"]
    assert [(layer.path, layer.input_shapes, layer.input_nbytes) for layer in collective_rows] == [
        *(("/a/W", ((4, 3),), 48), ("/aa/W", ((2, 2),), 16)),
        *(("/b/W", ((2, 4),), 32), ("/b/b", ((2,),), 8)),
    ]
    self_ns = [int(trial.rows_ns[layer.index]) for layer in collective_rows]
    assert self_ns == [1 * MS, 3 * MS, 5 * MS, 7 * MS]
    framework = dict(zip(session.phases, trial.phases_ns.tolist(), strict=True))
    assert framework["communication"] == 4 * 7
    assert trial.rows_ns.sum() + trial.phases_ns.sum() == trial.wall_ns == 16 * MS + 28
    arrived = (trial.arrived_ns - trial.start_ns).tolist()
    assert arrived == [7, MS + 14, 4 * MS + 21, 9 * MS + 28]
    assert (trial.left_ns - trial.arrived_ns).tolist() == self_ns


def test_arrivals_exclude_lookup_of_new_call_sites(clock, monkeypatch):
    add_site = Recorder.add_site

    def slow(*args, **kwargs):
        clock.advance(1000)
        return add_site(*args, **kwargs)

    communicator = FakeCommunicator(clock)
    step, mpi = Step(communicator), communicator.mpi_comm
    step()
    monkeypatch.setattr(Recorder, "add_site", slow)
    session = StepSession(step, clock)
    for _ in range(2):
        mpi.entered.clear()
        trial = record_trial(session, step)
        assert trial.arrived_ns.tolist() == mpi.entered
        first, *_, last = (trial.left_ns - trial.arrived_ns).tolist()
        assert last - first == 6 * MS


def test_rank_of_optimizers(clock):
    plain = chainer.optimizers.SGD().setup(L.Linear(2, 2))
    assert rank_of([plain]) is rank_of([]) is None
    optimizer = create_multi_node_optimizer(plain, FakeCommunicator(clock))
    assert rank_of([plain, optimizer]) == Rank(1, 2, socket.gethostname())
