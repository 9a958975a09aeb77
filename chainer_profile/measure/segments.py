"""Segments: the units of a program that form its iterations.

A unit is one outermost operation of the program, such as a call of a network. An updater's
``update`` is an iteration of its own. The iterations of other trainings are found after the fact,
by the pattern of all units (:mod:`.patterns`).

Calls in test mode between the first and the last training unit of an iteration belong to it. So do
calls in training mode whose graphs have no backward, once the log shows that. An iteration that the
program left before its end is a segment of its own. Without an optimizer, a call and the backwards
that follow it are a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from chainer_profile.measure.cycles import Cycle
from chainer_profile.measure.patterns import (
    NETWORK_CALLS,
    NO_TRAINING,
    Pattern,
    Unit,
    UnitKind,
    end_of_backward,
    find_pattern,
    first_load,
    raised_units,
    with_loads,
)

#: If more units than this are undecided, they are decided without waiting for others.
MAX_UNDECIDED = 4000


class SegmentKind(Enum):
    """The kind of a segment."""

    ITERATION = auto()
    #: An iteration that has no end.
    INTERRUPTED = auto()
    #: A call of a network outside of iterations.
    CALL = auto()
    #: Another operation outside of iterations.
    OTHER = auto()


@dataclass(frozen=True)
class Segment:
    """Successive units, from number ``begin`` up to but without ``end``, of the whole program."""

    kind: SegmentKind
    begin: int
    end: int
    training: int = NO_TRAINING


@dataclass
class _Training:
    """A training: the optimizers that were set up, and its pattern once that is known."""

    optimizers: set[int] = field(default_factory=set)
    pattern: Pattern | None = None


class Segmenter:
    """Finds the segments of units that are added in their order."""

    def __init__(self, max_undecided: int = MAX_UNDECIDED) -> None:
        self.units: list[Unit] = []  #: The undecided units.
        #: The number of units that are decided.
        self.n_decided = 0
        self._trainings: dict[int, _Training] = {}
        self._max_undecided = max_undecided

    def set_up(self, training: int, optimizer: int) -> None:
        """Note that an optimizer of a training was set up."""
        self._training(training).optimizers.add(optimizer)

    def add(self, unit: Unit) -> None:
        """Add the next unit."""
        self.units.append(unit)

    def change_kind(self, at: int, kind: UnitKind) -> None:
        """Give an undecided unit another kind."""
        self.units[at] = replace(self.units[at], kind=kind)

    def decide(self, is_last: bool = False, is_full: bool = False) -> list[Segment]:
        """Return the next segments that are certain, and forget their units.

        Args:
            is_last: No units follow: decide all.
            is_full: Too many units or events are kept: decide all, even if the units that follow
                could show other segments.
        """
        segments: list[Segment] = []
        units, self.units = self.units, []
        for unit in units:
            if unit.kind is UnitKind.ITERATION:  # units before it belong to no later one
                segments += self._decide(True, is_full)
                kind = SegmentKind.INTERRUPTED if unit.raised else SegmentKind.ITERATION
                segments.append(self._segment(kind, 0, 1, unit.training))
                self.n_decided += 1
            else:
                self.units.append(unit)
        return segments + self._decide(is_last, is_full)

    def _decide(self, is_last: bool, is_full: bool) -> list[Segment]:
        segments: list[Segment] = []
        while self.units:
            is_full = is_full or len(self.units) > self._max_undecided
            found = self._among_few() or list(self._next(is_last, is_full))
            if not found:
                break
            segments += found
            del self.units[: found[-1].end - self.n_decided]
            self.n_decided = found[-1].end
        return segments

    # -- private: indices count the undecided units

    @property
    def _is_without_training(self) -> bool:
        """Whether no optimizer was set up, and no updates were found."""
        return not any(one.pattern or one.optimizers for one in self._trainings.values())

    def _training(self, number: int) -> _Training:
        return self._trainings.setdefault(number, _Training())

    def _pattern(self, number: int) -> Pattern | None:
        known = self._trainings.get(number)
        return None if known is None else known.pattern

    def _among_few(self) -> list[Segment]:
        """Return the next segments if the first 50 or 500 units show them, to save time."""
        units = self.units
        for n_units in (50, 500):
            few = units[:n_units]
            numbers = {unit.training for unit in few if unit.kind is UnitKind.UPDATE}
            if n_units >= len(units) or not all(self._pattern(number) for number in numbers):
                break
            self.units = few
            found = list(self._next(is_last=False, is_full=False))
            self.units = units
            if found:
                return found
        return []

    def _next(self, is_last: bool, is_full: bool) -> Iterator[Segment]:
        """Yield the next segments; none if that needs more units."""
        updates = [at for at, unit in enumerate(self.units) if unit.kind is UnitKind.UPDATE]
        if not updates:
            end = len(self.units) if is_last or is_full else self._end_of_calls()
            yield from self._outside(0, end)
            return
        must = is_last or is_full
        numbers = [*dict.fromkeys(self.units[at].training for at in updates)]
        found = self._first_iteration(numbers if must else numbers[:1], must)
        if found is None and must:
            changed = [number for number in numbers if self._has_changed(number, is_full)]
            for number in changed:
                self._training(number).pattern = None
            found = self._first_iteration(changed, must)
        if found is not None:
            begin, end, number = found
            yield from self._outside(0, begin)
            yield self._segment(SegmentKind.ITERATION, begin, end, number)
        elif is_last:
            yield from self._outside(0, len(self.units))
        elif is_full:
            yield from self._outside(0, updates[0] + 1)

    def _has_changed(self, number: int, is_full: bool) -> bool:
        """Whether a training no longer follows its pattern: it has too many updates.

        With ``is_full``, any training with a pattern counts.
        """
        pattern = self._pattern(number)
        if pattern is None:
            return False
        typical = pattern.n_updates or len(pattern.cycle.optimizers)
        return is_full or len(self._updates(number)) > 2 * typical

    def _segment(self, kind: SegmentKind, begin: int, end: int, training: int) -> Segment:
        return Segment(kind, self.n_decided + begin, self.n_decided + end, training)

    def _end_of_calls(self) -> int:
        """Return how many of the first units belong to no iteration, if no unit is an update."""
        if self._is_without_training:
            return self._last_call()
        known = [training.pattern for training in self._trainings.values() if training.pattern]
        iterators = {iterator for pattern in known for iterator in pattern.iterators}
        end = 0
        for index, unit in enumerate(self.units):
            if unit.kind is UnitKind.LOAD and unit.owner in iterators:
                break
            if unit.kind is UnitKind.BACKWARD or (
                unit.kind is UnitKind.CALL and unit.training != NO_TRAINING
            ):
                break
            if unit.kind is UnitKind.TEST and (index == end or self._pattern(unit.training)):
                end = index + 1
        return end

    def _last_call(self) -> int:
        """Index of the last call if a backward may follow it; else the number of units."""
        for index in range(len(self.units) - 1, -1, -1):
            if self.units[index].kind in NETWORK_CALLS:
                return index
            if self.units[index].kind not in (UnitKind.CLEARGRADS, UnitKind.BACKWARD):
                break
        return len(self.units)

    # -- one iteration

    def _first_iteration(self, numbers: Sequence[int], must: bool) -> tuple[int, int, int] | None:
        """Begin, end and training of the next iteration of the first training that has one."""
        found = ((self._iteration(number, must), number) for number in numbers)
        return next(((*units, number) for units, number in found if units is not None), None)

    def _iteration(self, number: int, must: bool) -> tuple[int, int] | None:
        """Begin and end of the next iteration of a training; None if it is not complete.

        The training's pattern is found first if it is unknown, and its cycle is brought up to date.
        """
        training, updates = self._training(number), self._updates(number)
        if training.pattern is None and updates:
            owners = {self.units[at].owner for at in updates}
            if must or training.optimizers <= owners:
                training.pattern = find_pattern(self.units, updates, must)
        pattern = training.pattern
        if pattern is None or not updates:
            return None
        if pattern.iterator is not None:
            found = self._from_load_to_load(pattern, pattern.iterator, updates)
        else:
            found = self._by_cycle(pattern.cycle, updates, must)
        if found is None:
            return None
        begin, found_updates = found
        end = found_updates[-1] + 1
        if not pattern.clears_first:
            while end < len(self.units) and self.units[end].kind is UnitKind.CLEARGRADS:
                end += 1
            if end == len(self.units) and not must:  # gradients may be cleared now
                return None
        if pattern.iterator is None:
            begin = self._begin(number, pattern, begin, found_updates[0])
            if not any(unit.raised for unit in self.units[begin : found_updates[-1]]):
                cycle = pattern.cycle.with_updates([self.units[at].owner for at in found_updates])
                training.pattern = replace(pattern, cycle=cycle)
        else:
            begin = first_load(self.units, begin)
        return with_loads(self.units, pattern, begin, found_updates[-1]), end

    def _updates(self, number: int) -> list[int]:
        """Indices of the updates of a training that did not raise."""
        return [
            index
            for index, unit in enumerate(self.units)
            if unit.kind is UnitKind.UPDATE and unit.training == number and not unit.raised
        ]

    def _from_load_to_load(
        self, pattern: Pattern, iterator: int, updates: Sequence[int]
    ) -> tuple[int, Sequence[int]] | None:
        """Begin and updates of the iteration from a load of an iterator to the next load."""
        load = Unit(UnitKind.LOAD, iterator)
        loads = [at for at, unit in enumerate(self.units) if unit == load]
        while updates:
            before = [at for at in loads if at < updates[0]]
            if not before:  # an iteration of another loop
                return updates[0], updates[:1]
            following = next((at for at in loads if at > updates[0]), None)
            if following is None:
                n = pattern.n_updates
                return None if len(updates) < n else (before[-1], updates[:n])
            found = [at for at in updates if at < following]
            is_whole = len(found) >= pattern.n_updates
            if is_whole or not raised_units(self.units[found[-1] : following]):
                return before[-1], found
            updates = updates[len(found) :]  # an exception has ended this one
        return None

    def _by_cycle(
        self, cycle: Cycle, updates: Sequence[int], must: bool
    ) -> tuple[int, Sequence[int]] | None:
        """Find the updates of the next iteration: one cycle. None if it is not complete.

        Returns:
            The first unit at which it may begin, and the indices of its updates.
        """
        owners = [self.units[at].owner for at in updates]
        typical = list(cycle.optimizers)
        raised = raised_units(self.units)
        begin = start = 0
        while True:
            n = cycle.n_updates(owners[start:], must)
            if n is None:
                return None
            again = None
            for at in raised:
                n_before = sum(update < at for update in updates[start:])
                if not 0 < n_before <= n or (n_before == n >= len(typical)):
                    continue
                # If a whole cycle follows, the program begins again; else it repeats what failed.
                following = owners[start + n_before :][: len(typical)]
                if following == typical or n_before == n:
                    again = at, start + n_before
                    break
                if not must and following == typical[: len(following)]:
                    return None
            if again is None:
                return begin, updates[start : start + n]
            begin, start = again[0] + 1, again[1]

    def _is_training(self, unit: Unit, number: int) -> bool:
        """Whether a unit is a backward, or a call or update of this training."""
        if unit.kind is UnitKind.BACKWARD:
            return True
        return unit.kind in (UnitKind.CALL, UnitKind.UPDATE) and unit.training == number

    def _begin(self, number: int, pattern: Pattern, lowest: int, update: int) -> int:
        """Find the begin of an iteration between unit ``lowest`` and its first update.

        Loads, conversions and calls of other networks before its first training unit belong to it.
        Calls of its own network in test mode, such as by an agent that acts, do not.
        """
        units = self.units
        others = [
            i for i in range(lowest, update) if units[i].raised or units[i].kind is UnitKind.UPDATE
        ]
        lowest = others[-1] + 1 if others else lowest
        first = next(i for i in range(lowest, update + 1) if self._is_training(units[i], number))
        begin, seen = first, set[tuple[UnitKind, int]]()
        for i in range(first - 1, lowest - 1, -1):
            unit = units[i]
            if unit.kind is UnitKind.TEST:
                if unit.training == number:
                    break
                continue
            key = unit.kind, unit.owner
            is_repeated = key in seen and key != (units[i + 1].kind, units[i + 1].owner)
            if unit.kind is UnitKind.CLEARGRADS and not pattern.clears_first:
                break
            if unit.kind is UnitKind.UPDATE or (is_repeated and unit.kind is not UnitKind.CONVERT):
                break
            begin = i
            seen.add(key)
        return begin

    # -- units outside of iterations

    def _outside(self, begin: int, end: int) -> Iterator[Segment]:
        """The segments of units that belong to no complete iteration."""
        has_backwards = self._is_without_training  # then calls are segments with their backwards
        while begin < end:
            first, last, number = self._interrupted(begin, end)
            while begin < first:
                is_call, stop = self.units[begin].kind in NETWORK_CALLS, begin + 1
                if is_call and has_backwards:
                    stop = end_of_backward(self.units, begin, first)
                kind = SegmentKind.CALL if is_call else SegmentKind.OTHER
                yield self._segment(kind, begin, stop, self.units[begin].training)
                begin = stop
            if first < last:
                yield self._segment(SegmentKind.INTERRUPTED, first, last, number)
            begin = last

    def _interrupted(self, begin: int, end: int) -> tuple[int, int, int]:
        """Begin, end and training of the next interrupted iteration; ``end`` twice without one."""
        units = self.units
        for first in range(begin, end):
            number = units[first].training
            if units[first].kind is UnitKind.BACKWARD:
                later = (unit.training for unit in units[first:end] if self._pattern(unit.training))
                number = next(later, self._last_known())
            pattern = self._pattern(number)
            if pattern is None or not self._is_training(units[first], number):
                continue
            raised = raised_units(units[first:end])
            stop = first + raised[0] + 1 if raised else end
            members = [at for at in range(first, stop) if self._is_training(units[at], number)]
            if (
                pattern.iterator is None
                or raised
                or Unit(UnitKind.LOAD, pattern.iterator) in units[begin:first]
                or any(units[at].kind is not UnitKind.CALL for at in members)
            ):
                at = self._begin(number, pattern, begin, first)
                return with_loads(units, pattern, at, first), members[-1] + 1, number
        return end, end, NO_TRAINING

    def _last_known(self) -> int:
        """The newest training with a known pattern."""
        known = [number for number, one in self._trainings.items() if one.pattern is not None]
        return known[-1] if known else NO_TRAINING
