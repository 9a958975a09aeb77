"""Patterns of a training: what its iterations begin or end with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

#: The training of a unit that belongs to none.
NO_TRAINING = -1
#: Loads of an iterator that show whether they alternate with updates.
_ENOUGH_LOADS = 3


class UnitKind(Enum):
    """What an outermost operation is."""

    LOAD = auto()
    CONVERT = auto()
    #: A call of a network in training mode.
    CALL = auto()
    #: A call of a network in test mode, or without a graph.
    TEST = auto()
    CLEARGRADS = auto()
    BACKWARD = auto()
    UPDATE = auto()
    #: An updater's ``update``.
    ITERATION = auto()


@dataclass(frozen=True)
class Unit:
    """One outermost operation.

    Attributes:
        owner: Number of the iterator, converter, network, optimizer or updater.
        training: Number of the training that an update, an iteration, or a call of a network with
            the training's parameters belongs to.
        raised: Whether an exception left it.
    """

    kind: UnitKind
    owner: int = 0
    training: int = NO_TRAINING
    raised: bool = False


def alternating_loads(
    units: Sequence[Unit], updates: Sequence[int], must: bool
) -> tuple[tuple[int, int] | None, bool]:
    """The iterator whose loads alternate with updates, and the updates between two loads.

    Args:
        units: Those so far.
        updates: Indices of the updates of a training.
        must: Choose by what is known so far.

    Returns:
        These, if there is such an iterator; and whether more units cannot show another one.
    """
    is_clear = True
    loads: dict[int, list[int]] = {}
    for at, unit in enumerate(units):
        if unit.kind is UnitKind.LOAD and not unit.raised:
            loads.setdefault(unit.owner, []).append(at)
    for iterator, all_ats in loads.items():
        before = [at for at in all_ats if at < updates[0]]
        if not before:
            continue
        ats = [before[-1], *(at for at in all_ats if at > updates[0])]
        between = [
            Counter(units[at].owner for at in updates if begin < at < end)
            for begin, end in zip(ats, [*ats[1:], len(units)], strict=True)
        ]
        *complete, last = between
        if any(updated != between[0] or not updated for updated in complete):
            continue
        if complete and not last <= complete[0]:
            continue
        if len(ats) >= _ENOUGH_LOADS or (must and complete):
            return (iterator, complete[0].total()), True
        is_clear = False
    return None, is_clear


def last_of_cycle(optimizers: Sequence[int], must: bool = True) -> int | None:
    """The optimizer whose update ends a cycle of updates.

    Args:
        optimizers: The optimizers of all updates so far.
        must: Choose by all updates if there are no two equal cycles yet.
    """
    n = len(optimizers)
    periods = (p for p in range(1, n // 2 + 1) if [*optimizers[p:]] == [*optimizers[:-p]])
    period = next(periods, None)
    if period is None and not must:
        return None
    cycle = optimizers if period is None else optimizers[:period]
    counts = Counter(cycle)
    fewest = [optimizer for optimizer, n in counts.items() if n == min(counts.values())]
    if period is None:
        return fewest[-1]  # that which came first last
    return max(fewest, key=lambda each: max(at for at, one in enumerate(cycle) if one == each))
