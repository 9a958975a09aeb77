"""The phase of communication: a row for each collective of ChainerMN's optimizers."""

import ctypes
import socket
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainermn import create_multi_node_optimizer

from chainer_profile.basics.replacements import Replacements
from chainer_profile.costs.work import ArraySpec
from chainer_profile.measure.ranks import rank_of
from chainer_profile.measure.taped_step import TapedStep
from chainer_profile.measure.windows import Mark, time_optimizer
from chainer_profile.record.parts import Rank
from tests.nets import net

X = np.ones((2, 3), np.float32)
MS = 1_000_000


class MadeMpi:
    """MPI's communicator, whose collectives take a ms each, and two for every further one."""

    def __init__(self, clock):
        self.clock = clock
        self.calls = []

    def _take(self, name):
        self.calls.append(name)
        self.clock.advance((2 * len(self.calls) - 1) * MS)

    def Allreduce(self, sent, received):  # noqa: N802  (MPI's name)
        self._take("Allreduce")

    def Bcast(self, buffer, root=0):  # noqa: N802
        self._take("Bcast")

    def gather(self, value):
        return [value]


class Made:
    """As ChainerMN's naive communicator on rank 1 of 2: each parameter is moved by itself."""

    rank, size = 1, 2

    def __init__(self, clock):
        self.mpi_comm = MadeMpi(clock)

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


class Packed(Made):
    """As its flat one: all gradients are one buffer of single precision on a device."""

    def multi_node_mean_grad(self, model, zero_fill=False):
        nbytes = 4 * sum(param.size for param in model.params() if param.data is not None)
        buffer = (ctypes.c_ubyte * nbytes)(), "MPI.FLOAT"
        self.mpi_comm.Allreduce(buffer, buffer)


class MadeNccl:
    """NCCL's communicator, which knows addresses and no arrays."""

    def allReduce(self, *args):  # noqa: N802
        assert args == (11, 12, 5, 6, 0, 13)


class WithNccl(Made):
    """As its pure_nccl one, which connects within the first call."""

    nccl_comm: Any = None

    def _init_comms(self):
        self.nccl_comm = vars(self).get("nccl_comm") or MadeNccl()

    def multi_node_mean_grad(self, model, zero_fill=False):
        self._multi_node_mean_grad_async(model, zero_fill, None)

    def _multi_node_mean_grad_async(self, model, zero_fill, stream):
        self._init_comms()
        self.nccl_comm.allReduce(11, 12, 5, 6, 0, 13)


class Step:
    """An update by ChainerMN's optimizer, as the step of a trial.

    The network has two layers; two more are not used, of which one has no array yet.
    """

    inputs = ()

    def __init__(self, communicator, **options):
        links = {"a": L.Linear(3, 4, nobias=True), "b": L.Linear(4, 2)}
        links |= {"aa": L.Linear(2, 2, nobias=True), "lazy": L.Linear(None, 2, nobias=True)}
        self.model = net(lambda self, x: F.sum(self.b(self.a(x))), **links)
        inner = chainer.optimizers.SGD()
        self.optimizer = create_multi_node_optimizer(inner, communicator, **options)
        self.optimizer.setup(self.model)
        self.roots = [("", self.model)]

    def __call__(self):
        self.optimizer.update(self.model, X)

    def timed(self, enter, leave):
        replacements = Replacements()
        time_optimizer(replacements, self.optimizer, enter, leave, "")
        return replacements

    def moves(self):
        """The marks that an update enters within its communication."""
        entered = []
        with self.timed(entered.append, lambda: None):
            self()
        within = entered[entered.index(Mark("communication")) + 1 :]
        return [mark for mark in within if mark.phase == "communication"]


def spec(*shape, dtype="float32"):
    return ArraySpec(shape, dtype)


@pytest.mark.parametrize("zero_fill", [False, True])
def test_a_row_for_each_parameter(clock, zero_fill):
    step = Step(Made(clock), zero_fill=zero_fill)
    moved = {"/a/W": spec(4, 3), "/aa/W": spec(2, 2), "/b/W": spec(2, 4), "/b/b": spec(2)}
    for function in ("Bcast", "Allreduce"):
        assert step.moves() == [
            Mark("communication", path, function, buffer) for path, buffer in moved.items()
        ]
        if not zero_fill:  # a parameter without a gradient is not moved
            moved.pop("/aa/W", None)


@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        (Packed, spec(12 + 8 + 2 + 4)),  # a bucket is one row
        (WithNccl, spec(5, dtype="float16")),  # which tells a number and a type
    ],
)
def test_buffers_of_other_kinds(clock, kind, moved):
    step = Step(kind(clock))
    step()
    assert step.moves() == [Mark("communication", "/", "Allreduce", moved)]


@pytest.mark.parametrize("kind", [Made, Packed, WithNccl])
@pytest.mark.parametrize("fails", [False, True])
def test_all_is_left_as_it_was_found(kind, fails, clock):
    communicator = kind(clock)
    step = Step(communicator)
    step()
    step()
    objects = communicator, step.optimizer, step.optimizer.actual_optimizer, step.model
    channels = dict(vars(communicator))
    if fails:
        channel = channels.get("nccl_comm", channels["mpi_comm"])
        channel.allReduce = channel.Allreduce = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        step.moves()
    # Methods and communicators, which others took the place of; an update changes all else.
    names = ("update", "call_hook", "cleargrads", "bcast_data", "multi_node_mean_grad")
    assert not any(name in vars(owner) for owner in objects for name in names)
    assert vars(communicator) == channels


def test_times_of_an_update_add_up_and_stamps_are_those_of_the_clock(clock):
    communicator = Made(clock)
    step = Step(communicator)
    step()
    taped = TapedStep(step, clock.now_ns)
    taped.learn()
    communicator.mpi_comm.calls.clear()
    with taped.recording():
        taped.tape.start()
        step()
        trial = taped.tape.end()
    moves = [layer for layer in taped.layers if layer.phase == "communication"]
    assert [(layer.path, layer.input_shapes, layer.input_nbytes) for layer in moves] == [
        *(("/a/W", ((4, 3),), 48), ("/aa/W", ((2, 2),), 16)),
        *(("/b/W", ((2, 4),), 32), ("/b/b", ((2,),), 8)),
    ]
    own = [int(trial.rows_ns[layer.index]) for layer in moves]
    assert own == [1 * MS, 3 * MS, 5 * MS, 7 * MS]
    framework = dict(zip(taped.phases, trial.phases_ns.tolist(), strict=True))
    assert framework["communication"] == 4 * 7
    assert trial.rows_ns.sum() + trial.phases_ns.sum() == trial.wall_ns == 16 * MS + 28
    arrived = (trial.arrived_ns - trial.start_ns).tolist()
    assert arrived == [7, MS + 14, 4 * MS + 21, 9 * MS + 28]
    assert (trial.left_ns - trial.arrived_ns).tolist() == own


def test_which_rank_a_process_is(clock):
    plain = chainer.optimizers.SGD().setup(L.Linear(2, 2))
    assert rank_of([plain]) is rank_of([]) is None
    optimizer = create_multi_node_optimizer(plain, Made(clock))
    assert rank_of([plain, optimizer]) == Rank(1, 2, socket.gethostname())
