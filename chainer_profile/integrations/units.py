"""Units: the outermost operations of a program, with the times at which each begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import chainer

from chainer_profile.integrations.networks import Network
from chainer_profile.measure import observers
from chainer_profile.measure.accounts import Account
from chainer_profile.measure.event_log import Position
from chainer_profile.measure.loop import Batch
from chainer_profile.measure.patterns import UnitKind

#: The kinds of operations that are units; a call of a network is :attr:`.UnitKind.TEST` or CALL.
UNIT_KINDS = {
    observers.LOAD: UnitKind.LOAD,
    observers.CONVERT: UnitKind.CONVERT,
    observers.NETWORK: UnitKind.CALL,
    observers.CLEARGRADS: UnitKind.CLEARGRADS,
    observers.BACKWARD: UnitKind.BACKWARD,
    observers.BACKPROP: UnitKind.BACKWARD,
    observers.UPDATE: UnitKind.UPDATE,
    observers.ITERATION: UnitKind.ITERATION,
}


@dataclass(eq=False)
class TimedUnit:
    """One outermost operation, with its times.

    Attributes:
        account: The account that was open.
        begin_ns: The clock when it began; ``end_ns`` when it ended.
        begin_own_ns: Time in the account when the unit began; ``end_own_ns`` when it ended.
        begin: The position in the log where it began; ``end`` where it ended.
        name: The class of its iterator or converter.
        network: The network that it calls.
        is_trained: Whether the program had set up an optimizer when it called the network.
        batch: The batch that it loads or converts; None if its size is not needed.
        is_changed: Whether a change is tried in it.
        is_counted: Whether its memory is counted, so that its time is not measured.
    """

    kind: UnitKind
    account: Account
    begin_ns: int
    begin_own_ns: int
    begin: Position
    owner: int = 0
    training: int = -1
    name: str = ""
    network: Network | None = None
    is_trained: bool = False
    end_ns: int = 0
    end_own_ns: int = 0
    end: Position = Position(0, 0, 0)  # noqa: RUF009
    batch: Batch | None = None
    is_changed: bool = False
    is_counted: bool = False
    raised: bool = False
    #: Whether an extension, or a function with an account, calls the network.
    is_in_extension: bool = False


def calls_in_test_mode() -> bool:
    """Whether networks are called in test mode, or without a graph."""
    # This takes a quarter of the time of chainer.config.train.
    here, elsewhere = chainer.config._local.__dict__, chainer.global_config
    train: Any = here.get("train", elsewhere.train)
    return not (train and here.get("enable_backprop", elsewhere.enable_backprop))
