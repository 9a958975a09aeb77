"""Which of several ranks this process is, and how its clock stands to that of rank 0."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import numpy as np

from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.windows import communicator_of
from chainer_profile.record.parts import UNKNOWN_NS, Rank

_ROUND_TRIPS = 50
#: How long ranks wait for one another, and for the next answer of one that has come.
_WAIT_NS = 30_000_000_000
_ANSWER_NS = 1_000_000_000
#: ChainerMN's own messages have lower ones.
_TAG = 27_182


def rank_of(optimizers: Iterable[Any], now_ns: NowNs) -> Rank | None:
    """Which rank this process is for the first of the optimizers that is ChainerMN's; or None."""
    found = (communicator_of(optimizer) for optimizer in optimizers)
    communicator = next((one for one in found if one is not None), None)
    if communicator is None:
        return None
    # Of one host there is one clock: on Linux perf_counter_ns reads CLOCK_MONOTONIC.
    clock = (
        (0, 0) if communicator.inter_size == 1 else compare_clocks(communicator.mpi_comm, now_ns)
    )
    return Rank(communicator.rank, communicator.size, socket.gethostname(), *clock)


def compare_clocks(comm: Any, now_ns: NowNs) -> tuple[int, int]:
    """What to add to this rank's clock to have that of rank 0, and how far that may be wrong."""
    # Every rank sends a message to rank 0, which answers with its time, again and again: rank 0
    # read it within the shortest round trip. None waits for ever for one that does not call this.
    until_ns = now_ns() + _WAIT_NS
    if comm.rank == 0:
        for other in range(1, comm.size):
            patience_ns = until_ns
            for _ in range(_ROUND_TRIPS):
                if _receive(comm, other, patience_ns, now_ns) is None:
                    break
                comm.Isend(np.array([now_ns()], np.int64), other, _TAG).Wait()
                patience_ns = now_ns() + _ANSWER_NS
        return 0, 0
    shortest_ns, offset_ns = UNKNOWN_NS, 0
    # Rank 0 may wait for another one first.
    until_ns += _WAIT_NS
    for _ in range(_ROUND_TRIPS):
        sent_ns = now_ns()
        message = comm.Isend(np.zeros(1, np.int64), 0, _TAG)
        theirs_ns = _receive(comm, 0, until_ns, now_ns)
        trip_ns = now_ns() - sent_ns
        if theirs_ns is None:
            break
        message.Wait()
        until_ns = now_ns() + _ANSWER_NS
        if trip_ns < shortest_ns:
            shortest_ns, offset_ns = trip_ns, theirs_ns - sent_ns - trip_ns // 2
    return offset_ns, shortest_ns if shortest_ns == UNKNOWN_NS else (shortest_ns + 1) // 2


def _receive(comm: Any, source: int, until_ns: int, now_ns: NowNs) -> int | None:
    """The next message of a rank; None where none has come in time."""
    value = np.zeros(1, np.int64)
    request = comm.Irecv(value, source, _TAG)
    while not request.Test():
        if now_ns() > until_ns:
            request.Cancel()
            request.Wait()
            return None
    return int(value[0])
