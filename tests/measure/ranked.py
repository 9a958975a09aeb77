"""Communicators of ChainerMN that take no MPI, for several tests."""

from typing import Any

import numpy as np

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
        import ctypes

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
