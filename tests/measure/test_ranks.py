"""Which rank a process is, and how its clock stands to that of rank 0."""

import socket
from types import SimpleNamespace

import chainer
from chainermn import create_multi_node_optimizer

from chainer_profile.measure.ranks import compare_clocks, rank_of
from chainer_profile.record.parts import UNKNOWN_NS, Rank
from tests.measure.ranked import MS, Made

S = 1_000 * MS


class Request:
    """A message on its way: it arrives so long after it is asked for."""

    def __init__(self, clock, takes_ns, arrives):
        self.clock, self.takes_ns, self.arrives = clock, takes_ns, arrives
        self.cancelled = False

    def Test(self):  # noqa: N802  (MPI's names)
        self.clock.advance(min(self.takes_ns, S))
        self.takes_ns -= min(self.takes_ns, S)
        if not self.takes_ns:
            self.arrives()
        return not self.takes_ns

    def Cancel(self):  # noqa: N802
        self.cancelled = True

    def Wait(self):  # noqa: N802
        assert self.cancelled or not self.takes_ns


class Comm:
    """MPI's communicator: rank 0's clock is ``ahead_ns`` ahead, and a message takes so long.

    Of each round trip the first half is the message's way there, and the second its way back.
    """

    def __init__(self, clock, rank, size, trips, ahead_ns=0):
        self.clock, self.rank, self.size = clock, rank, size
        self.trips, self.ahead_ns = trips, ahead_ns
        self.sent, self.requests = [], []

    def Isend(self, value, other, tag):  # noqa: N802
        self.sent.append((other, int(value[0])))
        return Request(self.clock, 0, lambda: None)

    def Irecv(self, value, other, tag):  # noqa: N802
        there_ns, back_ns = self.trips.pop(0)
        begin_ns = self.clock.time_ns

        def arrives():
            value[0] = begin_ns + there_ns + self.ahead_ns

        self.requests.append(Request(self.clock, there_ns + back_ns, arrives))
        return self.requests[-1]


NEVER = (10**6 * S, 0)


def test_the_shortest_round_trip_tells_the_offset(clock):
    # The first one waits for rank 0's turn.
    trips = [(20 * S, MS), *[(5 * MS, 9 * MS)] * 20, (MS, 2 * MS), *[(7 * MS, 7 * MS)] * 28]
    comm = Comm(clock, 1, 2, trips, ahead_ns=-123 * S)
    assert compare_clocks(comm, clock.now_ns) == (-123 * S - MS // 2, 3 * MS // 2)
    assert [other for other, _ in comm.sent] == [0] * 50
    # What was compared counts where rank 0 goes.
    comm = Comm(clock, 1, 2, [(3 * MS, 3 * MS), NEVER], ahead_ns=7)
    assert compare_clocks(comm, clock.now_ns) == (7, 3 * MS)


def test_rank_0_answers_each_with_its_time(clock):
    comm, begin_ns = Comm(clock, 0, 3, [(MS, 0)] * 100), clock.time_ns
    assert compare_clocks(comm, clock.now_ns) == (0, 0)
    times = [begin_ns + (number + 1) * MS for number in range(100)]
    assert comm.sent == list(zip([1] * 50 + [2] * 50, times, strict=True))


def test_nobody_waits_for_ever(clock):
    comm, begin_ns = Comm(clock, 1, 2, [NEVER]), clock.time_ns
    assert compare_clocks(comm, clock.now_ns) == (0, UNKNOWN_NS)
    assert comm.requests[-1].cancelled
    assert clock.time_ns - begin_ns <= 61 * S
    # Rank 0 answers those who came.
    comm, begin_ns = Comm(clock, 0, 5, [NEVER, NEVER, *[(0, 0)] * 50, NEVER]), clock.time_ns
    compare_clocks(comm, clock.now_ns)
    assert [other for other, _ in comm.sent] == [3] * 50
    assert sum(request.cancelled for request in comm.requests) == 3
    assert clock.time_ns - begin_ns <= 35 * S


def test_which_rank_a_process_is(clock):
    plain = chainer.optimizers.SGD().setup(chainer.links.Linear(2, 2))
    host = socket.gethostname()
    for optimizers in ([plain], []):
        assert rank_of(optimizers, clock.now_ns) is None
    # The ranks of one host compare nothing; those of several hosts do.
    optimizer = create_multi_node_optimizer(plain, Made(clock))
    assert rank_of([plain, optimizer], clock.now_ns) == Rank(1, 2, host)
    comm = Comm(clock, 1, 2, [(MS, MS)] * 50, ahead_ns=5 * S)
    communicator = SimpleNamespace(rank=1, size=2, inter_size=2, mpi_comm=comm)
    found = rank_of([create_multi_node_optimizer(plain, communicator)], clock.now_ns)
    assert found == Rank(1, 2, host, 5 * S, MS)
