"""Which rank a process is."""

import socket

import chainer
from chainermn import create_multi_node_optimizer

from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.parts import Rank
from tests.measure.ranked import Made


def test_which_rank_a_process_is(clock):
    plain = chainer.optimizers.SGD().setup(chainer.links.Linear(2, 2))
    for optimizers in ([plain], []):
        assert rank_of(optimizers) is None
    optimizer = create_multi_node_optimizer(plain, Made(clock))
    assert rank_of([plain, optimizer]) == Rank(1, 2, socket.gethostname())
