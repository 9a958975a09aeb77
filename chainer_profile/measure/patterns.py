"""Patterns: how the iterations of a training repeat among a program's outermost operations.

An operation is a :class:`Unit`. The pattern of a training is found in the sequence of its units:

- The loads of one iterator alternate with updates: an iteration begins with each load. It ends with
  the last update before the next load.
- Otherwise an iteration has one cycle of updates (:mod:`.cycles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain

from chainer_profile.measure.cycles import MAX_IN_CYCLE, Cycle, Limit, find_cycle, iterations

#: The training of a unit that belongs to none.
NO_TRAINING = -1
#: Loads of an iterator that show whether they alternate with updates.
_ENOUGH_LOADS = 3


class UnitKind(Enum):
    """The kind of an outermost operation."""

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


#: The kinds of calls of a network.
NETWORK_CALLS = (UnitKind.CALL, UnitKind.TEST)


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


@dataclass(frozen=True)
class Pattern:
    """The iterations of a training.

    Attributes:
        iterator: Its loads begin the iterations; None if no iterator's loads do.
        n_updates: Updates between two loads of that iterator.
        cycle: The updates of an iteration, if no loads begin it.
        loads: Number of loads in an iteration, by iterator, where that is constant.
        clears_first: Whether gradients are cleared before the first update.
    """

    iterator: int | None = None
    n_updates: int = 0
    cycle: Cycle = field(default_factory=lambda: Cycle(Limit.EACH, (0,)))
    loads: Mapping[int, int] = field(default_factory=dict)
    clears_first: bool = False

    @property
    def iterators(self) -> set[int]:
        """The iterators whose loads are in every iteration."""
        return {*self.loads} | (set() if self.iterator is None else {self.iterator})


def find_pattern(units: Sequence[Unit], updates: Sequence[int], must: bool) -> Pattern | None:
    """Find the pattern of a training; None if more units may show another one.

    Args:
        units: The units so far.
        updates: Indices of the training's updates; one at least.
        must: Never return None: choose by the units so far.
    """
    raised = raised_units(units)
    clears_first = any(unit.kind is UnitKind.CLEARGRADS for unit in units[: updates[0]])
    loads, tests = _loads(units, units[updates[0]].training)
    found, is_certain = _alternating(loads, tests, updates, units, must)
    if found is not None:
        iterator, n_updates = found
        following = [at for at in [*loads[iterator], len(units)] if at > updates[0]]
        ends = sorted({max(at for at in updates if at < end) for end in following})
        constant = _constant(loads, ends, raised)
        return Pattern(iterator, n_updates, loads=constant, clears_first=clears_first)
    if not is_certain and not must:
        return None
    optimizers = [
        tuple(units[at].owner for at in updates if begin < at < end)
        for begin, end in zip([-1, *raised], [*raised, len(units)], strict=True)
    ]
    cycle = find_cycle(optimizers, must)
    if cycle is None:
        return None
    ends, begin = [], 0
    for part in iterations(cycle, [*chain(*optimizers)]):
        begin += len(part)
        ends.append(updates[begin - 1])
    return Pattern(cycle=cycle, loads=_constant(loads, ends, raised), clears_first=clears_first)


def raised_units(units: Sequence[Unit]) -> list[int]:
    """Indices of the units that an exception left, without loads: it only ends their data."""
    return [i for i, unit in enumerate(units) if unit.raised and unit.kind is not UnitKind.LOAD]


def end_of_backward(units: Sequence[Unit], call: int, end: int) -> int:
    """Return the end of a call of a network with the backwards that follow it directly.

    Args:
        units: The units.
        call: The index of the call.
        end: The end of the units to search.
    """
    last = call
    for index in range(call + 1, end):
        if units[index].kind is UnitKind.BACKWARD:
            last = index
        elif units[index].kind is not UnitKind.CLEARGRADS:
            break
    return last + 1


# -- loads


def _loads(units: Sequence[Unit], training: int) -> tuple[dict[int, list[int]], set[int]]:
    """Return the indices of loads by iterator, and the iterators of test data.

    After each load of test data, the next unit is a call of the training's network in test mode.
    These loads are left out unless all iterators have test data.
    """
    loads: dict[int, list[int]] = {}
    trains, tests = set[int](), set[int]()
    following: UnitKind | None = None
    for index in range(len(units) - 1, -1, -1):
        unit = units[index]
        if unit.kind is UnitKind.LOAD and not unit.raised:
            loads.setdefault(unit.owner, []).append(index)
            if following is not None:
                (tests if following is UnitKind.TEST else trains).add(unit.owner)
        is_of_another = unit.kind is UnitKind.TEST and unit.training != training
        if unit.kind is not UnitKind.CONVERT and not is_of_another:
            following = unit.kind
    tests -= trains
    kept = loads.keys() - tests or tests
    return {iterator: loads[iterator][::-1] for iterator in loads if iterator in kept}, tests


def first_load(units: Sequence[Unit], begin: int) -> int:
    """The first of the loads that come directly before an iteration, one of each iterator."""
    seen = {units[begin].owner}
    for index in range(begin - 1, -1, -1):
        unit = units[index]
        if unit.kind is UnitKind.LOAD and unit.owner not in seen and not unit.raised:
            begin = index
            seen.add(unit.owner)
        elif unit.kind is not UnitKind.CONVERT:
            break
    return begin


def with_loads(units: Sequence[Unit], pattern: Pattern, begin: int, last: int) -> int:
    """Move an iteration's begin back to its pattern's loads; ``last`` is its last update."""
    raised = [index for index in range(begin) if units[index].raised]
    lowest = raised[-1] + 1 if raised else 0
    for iterator, n in pattern.loads.items():
        load = Unit(UnitKind.LOAD, iterator)
        ats = [index for index in range(lowest, last) if units[index] == load]
        begin = min([begin, *ats[-n:]])
    return begin


def _alternating(
    loads: Mapping[int, Sequence[int]],
    tests: set[int],
    updates: Sequence[int],
    units: Sequence[Unit],
    must: bool,
) -> tuple[tuple[int, int] | None, bool]:
    """Find the iterator whose loads alternate with updates.

    Returns:
        The iterator and the number of updates between two of its loads, or None; and whether this
        is certain, so that later units cannot show another result.
    """
    is_certain, raised = True, raised_units(units)
    found: list[tuple[int, int, int]] = []
    for iterator, all_ats in loads.items():
        before = [at for at in all_ats if at < updates[0]]
        if not before:
            continue
        ats = [before[-1], *(at for at in all_ats if at > updates[0])]
        *updated, last = (
            Counter(units[at].owner for at in updates if begin < at < end)
            for begin, end in zip(ats, [*ats[1:], len(units)], strict=True)
        )
        complete = [
            each
            for each, begin, end in zip(updated, ats, ats[1:], strict=False)
            if not any(begin < at < end for at in raised)
        ]
        usual = _usual(complete or [last])
        if usual is None or not last <= usual or min(usual.values()) > MAX_IN_CYCLE:
            continue
        if any(units[at].owner not in usual for at in updates):  # after an exception
            continue
        if iterator in tests and max(usual.values()) > 1:
            continue
        # With an exception, a step that was repeated may complete the usual updates.
        if usual in updated and (must or len(ats) >= _ENOUGH_LOADS):
            found.append((usual.total(), -before[-1], iterator))
        is_certain = False
    if not found:
        return None, is_certain
    # Prefer the iterator with the most loads, then the iterator that loads last.
    n_updates, _, iterator = min(found)
    return (iterator, n_updates), True


def _usual(updated: Sequence[Counter[int]]) -> Counter[int] | None:
    """Return the updates that follow at least three in four loads, as a count by optimizer.

    None without such updates, or if another load has no update or an unusual one.
    """
    usual, times = max(((each, updated.count(each)) for each in updated), key=lambda one: one[1])
    # The program may have left an iteration before its end.
    is_usual = 4 * times >= 3 * len(updated)
    return usual if is_usual and all(each and each <= usual for each in updated) else None


def _constant(
    loads: Mapping[int, Sequence[int]], ends: Sequence[int], raised: Sequence[int]
) -> dict[int, int]:
    """Number of loads in an iteration, by iterator, where most iterations have the same number.

    Args:
        loads: Indices of loads by iterator.
        ends: Indices of the last updates of iterations.
        raised: Indices of the units that an exception left, where an iteration may begin again.
    """
    begins = [
        max([begin, *(at for at in raised if at < end)])
        for begin, end in zip([-1, *ends], ends, strict=False)
    ]
    constant: dict[int, int] = {}
    for iterator, ats in loads.items():
        first, *others = (
            sum(begin < at <= end for at in ats) for begin, end in zip(begins, ends, strict=True)
        )
        ((n, times),) = Counter(others or [0]).most_common(1)
        if n and first and 2 * times > len(others):
            constant[iterator] = n
    return constant
