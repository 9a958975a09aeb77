"""Patterns: how the iterations of a training repeat among a program's outermost operations.

An operation is a :class:`Unit`. The pattern of a training is found in the sequence of its units:

- The loads of one iterator alternate with updates: an iteration begins with each load. It ends with
  the last update before the next load.
- Otherwise an iteration has one cycle of updates. It ends with the update of the optimizer that has
  the fewest updates. If several optimizers have the fewest, the last one in the cycle counts.

The second rule makes the first iteration too short if the cycle does not end with that optimizer.
If a generator's update is followed by two of the critic (G, C, C, G, C, C), the rule gives G; C, C,
G; C, C. Then an iteration begins with that optimizer's update instead: G, C, C; G, C, C. In a cycle
such as C, G, C, an iteration has as many updates as the cycle.

Optimizers that follow one another in long runs (A 100 times, then B 100 times) form no cycle: each
update ends an iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain, groupby

#: The training of a unit that belongs to none.
NO_TRAINING = -1
#: Loads of an iterator that show whether they alternate with updates.
_ENOUGH_LOADS = 3
#: Equal cycles of updates that show a pattern after an irregular start.
_ENOUGH_CYCLES = 3
#: The most successive updates that all optimizers of a cycle may have.
_MOST_IN_CYCLE = 10

Optimizers = tuple[int, ...]


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


class Limit(Enum):
    """The update that limits an iteration."""

    #: Every update ends an iteration.
    EACH = auto()
    #: The last of successive updates of one optimizer ends it.
    LAST = auto()
    #: The first of successive updates of one optimizer begins it.
    FIRST = auto()
    #: An iteration has as many updates as the cycle.
    COUNT = auto()


@dataclass(frozen=True)
class Cycle:
    """The updates of an iteration.

    Attributes:
        optimizers: The optimizer of each update.
        optimizer: The optimizer whose updates limit an iteration.
        run: Its successive updates in an iteration.
    """

    limit: Limit
    optimizers: Optimizers
    optimizer: int = 0
    run: int = 1

    def n_updates(self, optimizers: Sequence[int], is_last: bool = False) -> int | None:
        """The number of updates of the next iteration; None while it is incomplete.

        Args:
            optimizers: The optimizers of the next updates.
            is_last: No updates follow.
        """
        n = len(self.optimizers)
        if self.limit in (Limit.EACH, Limit.COUNT):
            return n if len(optimizers) >= n else None
        run = 0
        for at, optimizer in enumerate(optimizers):
            if optimizer == self.optimizer:
                if self.limit is Limit.FIRST and at and not run:
                    return at
                run += 1
                if self.limit is Limit.LAST and run == self.run:
                    return at + 1
            else:
                if self.limit is Limit.LAST and run:
                    return at
                run = 0
        is_complete = is_last and self.limit is Limit.FIRST and len(optimizers) >= n
        return len(optimizers) if is_complete else None

    def learned(self, optimizers: Sequence[int]) -> Cycle:
        """The cycle after an iteration with other numbers of updates."""
        if self.limit in (Limit.EACH, Limit.COUNT):
            return self
        return replace(self, optimizers=tuple(optimizers))


@dataclass(frozen=True)
class Pattern:
    """The iterations of a training.

    Attributes:
        iterator: Its loads begin the iterations; None if no iterator's loads do.
        n_updates: Updates between two loads of that iterator.
        cycle: The updates of an iteration, if no loads begin it.
        loads: Loads in an iteration, by iterator, as far as their numbers are constant.
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
        must: Choose by the units so far.
    """
    clears_first = any(unit.kind is UnitKind.CLEARGRADS for unit in units[: updates[0]])
    loads = _loads(units)
    found, is_clear = _alternating(loads, updates, units, must)
    if found is not None:
        iterator, n_updates = found
        following = [at for at in [*loads[iterator], len(units)] if at > updates[0]]
        ends = sorted({max(at for at in updates if at < end) for end in following})
        return Pattern(iterator, n_updates, loads=_constant(loads, ends), clears_first=clears_first)
    if not is_clear and not must:
        return None
    raised = raised_units(units)
    optimizers = [
        tuple(units[at].owner for at in updates if begin < at < end)
        for begin, end in zip([-1, *raised], [*raised, len(units)], strict=True)
    ]
    cycle = find_cycle(optimizers, must)
    if cycle is None:
        return None
    ends, begin = [], 0
    for part in _iterations(cycle, [*chain(*optimizers)]):
        begin += len(part)
        ends.append(updates[begin - 1])
    return Pattern(cycle=cycle, loads=_constant(loads, ends), clears_first=clears_first)


def raised_units(units: Sequence[Unit]) -> list[int]:
    """Indices of the units that an exception left, without loads: these end with the data."""
    return [at for at, unit in enumerate(units) if unit.raised and unit.kind is not UnitKind.LOAD]


# -- loads


def _loads(units: Sequence[Unit]) -> dict[int, list[int]]:
    """Indices of loads by iterator."""
    loads: dict[int, list[int]] = {}
    for at, unit in enumerate(units):
        if unit.kind is UnitKind.LOAD and not unit.raised:
            loads.setdefault(unit.owner, []).append(at)
    return loads


def _alternating(
    loads: Mapping[int, Sequence[int]], updates: Sequence[int], units: Sequence[Unit], must: bool
) -> tuple[tuple[int, int] | None, bool]:
    """Find the iterator whose loads alternate with updates.

    Returns:
        The iterator and the updates between two of its loads, or None; and whether later units
        cannot show such an iterator.
    """
    is_clear, raised = True, raised_units(units)
    for iterator, all_ats in loads.items():
        before = [at for at in all_ats if at < updates[0]]
        if not before:
            continue
        ats = [before[-1], *(at for at in all_ats if at > updates[0])]
        between = [
            Counter(units[at].owner for at in updates if begin < at < end)
            for begin, end in zip(ats, [*ats[1:], len(units)], strict=True)
            if end == len(units) or not any(begin < at < end for at in raised)
        ]
        *complete, last = between
        usual = _usual(complete or [last])
        if usual is None or not last <= usual or min(usual.values()) > _MOST_IN_CYCLE:
            continue
        if len(ats) >= _ENOUGH_LOADS or (must and complete):
            return (iterator, usual.total()), True
        is_clear = False
    return None, is_clear


def _usual(updated: Sequence[Counter[int]]) -> Counter[int] | None:
    """The updates that follow nearly all loads; None if others follow a load, or none."""
    usual, times = max(((each, updated.count(each)) for each in updated), key=lambda one: one[1])
    # The program may have left an iteration before its end.
    is_usual = 4 * times >= 3 * len(updated)
    return usual if is_usual and all(each and each <= usual for each in updated) else None


def _constant(loads: Mapping[int, Sequence[int]], ends: Sequence[int]) -> dict[int, int]:
    """Loads in an iteration by iterator, if most iterations have equally many.

    Args:
        loads: Indices of loads by iterator.
        ends: Indices of the last updates of iterations.
    """
    constant: dict[int, int] = {}
    for iterator, ats in loads.items():
        first, *others = (
            sum(begin < at <= end for at in ats)
            for begin, end in zip([-1, *ends], ends, strict=False)
        )
        ((n, times),) = Counter(others or [0]).most_common(1)
        if 0 < n <= first and 2 * times > len(others):
            constant[iterator] = n
    return constant


# -- cycles of updates


def find_cycle(parts: Sequence[Optimizers], must: bool = True) -> Cycle | None:
    """Find the updates of an iteration; None if more updates may show other ones.

    Args:
        parts: The optimizers of all updates so far, divided by the exceptions that left iterations.
        must: Choose by these if no cycle was repeated.
    """
    optimizers, longest = [*chain(*parts)], max(parts, key=len)
    n, period = len(longest), _periods(longest)[-1]
    cycle = longest[:period]
    # Each part begins with the cycle if the program begins again after an exception.
    begins = all(part == (cycle * len(part))[: len(part)] for part in parts)
    is_enough = 2 * period <= n or (must and (period < n or len(parts) > 1))
    if is_enough and begins and {*cycle} == {*optimizers}:
        found = _regular_cycle(cycle)
        if found.limit is not Limit.COUNT or (2 * period <= n and len(parts) == 1):
            return found
    recent = _recent_cycle(optimizers)
    if recent is None and not must:
        return None
    return _irregular_cycle(optimizers, recent)


def _periods(optimizers: Sequence[int]) -> list[int]:
    """The least period of each beginning of a sequence; its length if nothing repeats."""
    # The prefix function of Knuth, Morris and Pratt.
    borders = [0]
    for at in range(1, len(optimizers)):
        border = borders[-1]
        while border and optimizers[at] != optimizers[border]:
            border = borders[border - 1]
        borders.append(border + (optimizers[at] == optimizers[border]))
    return [n - border for n, border in enumerate(borders, 1)]


def _recent_cycle(optimizers: Sequence[int]) -> Optimizers | None:
    """The last updates that were repeated often enough and include all optimizers."""
    latest = optimizers[::-1]
    for n, period in enumerate(_periods(latest), 1):
        is_repeated = n == _ENOUGH_CYCLES * period
        if is_repeated and {*latest[:period]} == {*optimizers}:
            return tuple(optimizers[-period:])
    return None


def _regular_cycle(cycle: Sequence[int]) -> Cycle:
    """The updates of an iteration, if a program begins with this cycle and repeats it."""
    fewest = _fewest(cycle)
    if len({*cycle}) == 1 or min(n for _, n in _runs(cycle)) > _MOST_IN_CYCLE:
        return Cycle(Limit.EACH, (cycle[0],))
    if cycle[-1] in fewest:
        return _limited(Limit.LAST, cycle, cycle[-1])
    if cycle[0] in fewest:
        return _limited(Limit.FIRST, cycle, cycle[0])
    return Cycle(Limit.COUNT, tuple(cycle))


def _irregular_cycle(optimizers: Sequence[int], recent: Optimizers | None) -> Cycle:
    """The updates of an iteration in a sequence that does not begin with repeated cycles.

    Args:
        optimizers: The optimizers of all updates so far.
        recent: The optimizers of the last cycle, if it was repeated.
    """
    runs = _runs(optimizers)
    is_in_turn = recent is None and len(runs) == len({*optimizers})
    if is_in_turn and min(n for _, n in runs) > 1:
        return Cycle(Limit.EACH, (optimizers[0],))
    fewest = _fewest(recent or optimizers)
    in_order = [each for each in dict.fromkeys(optimizers) if each in fewest]
    begins = optimizers[0] in fewest and {*optimizers} != fewest
    limit = Limit.FIRST if begins else Limit.LAST
    return _limited(limit, optimizers, in_order[0 if begins else -1])


def _fewest(optimizers: Sequence[int]) -> set[int]:
    """The optimizers with the fewest updates."""
    counts = Counter(optimizers)
    return {optimizer for optimizer, n in counts.items() if n == min(counts.values())}


def _runs(optimizers: Sequence[int]) -> list[tuple[int, int]]:
    """Optimizers and the numbers of their successive updates."""
    return [(each, len([*group])) for each, group in groupby(optimizers)]


def _limited(limit: Limit, optimizers: Sequence[int], optimizer: int) -> Cycle:
    """A cycle that the updates of an optimizer begin or end."""
    run = max(n for each, n in _runs(optimizers) if each == optimizer)
    cycle = Cycle(limit, (), optimizer, run)
    parts = _iterations(cycle, optimizers) or [tuple(optimizers)]
    # An iteration that an exception left is longer, with the next one, or it is shorter.
    typical = max(parts, key=len) if limit is Limit.FIRST else min(parts, key=len)
    return replace(cycle, optimizers=typical)


def _iterations(cycle: Cycle, optimizers: Sequence[int]) -> list[Optimizers]:
    """The updates of each iteration."""
    parts: list[Optimizers] = []
    begin = 0
    while n := cycle.n_updates(optimizers[begin:], is_last=True):
        parts.append(tuple(optimizers[begin : begin + n]))
        begin += n
    return parts
