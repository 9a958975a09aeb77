"""Cycles: the updates of an iteration, found in the sequence of all updates of a training.

An iteration ends with the update of the optimizer that has the fewest updates. If several
optimizers have the fewest, the last one in the cycle counts; its successive updates count once.

This rule makes the first iteration too short if the cycle does not end with that optimizer. If a
generator's update is followed by two of the critic (G, C, C, G, C, C), the rule gives G; C, C, G;
C, C. Then an iteration begins with that optimizer's update instead: G, C, C; G, C, C. In a cycle
such as C, G, C, an iteration has as many updates as the cycle.

Optimizers that follow one another in long runs (A 100 times, then B 100 times) form no cycle: each
update ends an iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain, groupby

#: Equal cycles of updates that show a pattern after an irregular start.
_ENOUGH_CYCLES = 3
#: The most successive updates that all optimizers of a cycle may have.
MAX_IN_CYCLE = 10

Optimizers = tuple[int, ...]


class Limit(Enum):
    """How the updates of a training are divided into iterations."""

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
        limit: How updates are divided into iterations.
        optimizers: The optimizer of each update.
        optimizer: The optimizer that begins or ends an iteration (``FIRST`` and ``LAST``).
        run: The number of its successive updates in an iteration.
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
        for index, optimizer in enumerate(optimizers):
            if optimizer == self.optimizer:
                if self.limit is Limit.FIRST and index and not run:
                    return index
                run += 1
                if self.limit is Limit.LAST and run == self.run:
                    return index + 1
            else:
                if self.limit is Limit.LAST and run:
                    return index
                run = 0
        is_complete = is_last and self.limit is Limit.FIRST and len(optimizers) >= n
        return len(optimizers) if is_complete else None

    def with_updates(self, optimizers: Sequence[int]) -> Cycle:
        """Return the cycle with the updates of a later iteration, unless their number is fixed."""
        if self.limit in (Limit.EACH, Limit.COUNT):
            return self
        return replace(self, optimizers=tuple(optimizers))


def find_cycle(parts: Sequence[Optimizers], must: bool = True) -> Cycle | None:
    """Find the updates of an iteration; None if that needs more updates.

    Args:
        parts: The optimizers of all updates so far. An exception that leaves an iteration begins a
            new part.
        must: Never return None, even if no cycle was repeated.
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
    """The least period of each prefix of a sequence; the prefix's length if nothing repeats."""
    # The prefix function of Knuth, Morris and Pratt.
    borders = [0]
    for index in range(1, len(optimizers)):
        border = borders[-1]
        while border and optimizers[index] != optimizers[border]:
            border = borders[border - 1]
        borders.append(border + (optimizers[index] == optimizers[border]))
    return [n - border for n, border in enumerate(borders, 1)]


def _recent_cycle(optimizers: Sequence[int]) -> Optimizers | None:
    """The cycle that the last updates repeat and that has all optimizers; None without one."""
    latest = optimizers[::-1]
    for n, period in enumerate(_periods(latest), 1):
        is_repeated = n == _ENOUGH_CYCLES * period
        if is_repeated and {*latest[:period]} == {*optimizers}:
            return tuple(optimizers[-period:])
    return None


def _regular_cycle(cycle: Sequence[int]) -> Cycle:
    """The updates of an iteration in a program that only repeats this cycle."""
    fewest = _fewest(cycle)
    if len({*cycle}) == 1 or min(n for _, n in _runs(cycle)) > MAX_IN_CYCLE:
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
    """Divide updates into runs by one optimizer: the optimizer and length of each run."""
    return [(each, len([*group])) for each, group in groupby(optimizers)]


def _limited(limit: Limit, optimizers: Sequence[int], optimizer: int) -> Cycle:
    """Make a cycle with iterations that the updates of one optimizer begin or end."""
    run = max(n for each, n in _runs(optimizers) if each == optimizer)
    cycle = Cycle(limit, (), optimizer, run)
    parts = iterations(cycle, optimizers) or [tuple(optimizers)]
    # An exception that leaves an iteration makes it shorter (FIRST) or joins it to the next (LAST).
    typical = max(parts, key=len) if limit is Limit.FIRST else min(parts, key=len)
    return replace(cycle, optimizers=typical)


def iterations(cycle: Cycle, optimizers: Sequence[int]) -> list[Optimizers]:
    """Divide updates into iterations; updates after the last complete one are left out."""
    parts: list[Optimizers] = []
    begin = 0
    while n := cycle.n_updates(optimizers[begin:], is_last=True):
        parts.append(tuple(optimizers[begin : begin + n]))
        begin += n
    return parts
