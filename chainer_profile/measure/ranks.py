"""The rank of this process in a training with ChainerMN."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

from chainer_profile.measure.operations import communicator_of
from chainer_profile.record.parts import Rank


def rank_of(optimizers: Iterable[Any]) -> Rank | None:
    """Return the rank of this process from the first optimizer of ChainerMN; None without one."""
    communicators = map(communicator_of, optimizers)
    communicator = next((other for other in communicators if other is not None), None)
    if communicator is None:
        return None
    return Rank(communicator.rank, communicator.size, socket.gethostname())
