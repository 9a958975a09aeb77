"""Segments: which units of a program form its iterations.

A unit is one outermost operation of the program, such as a call of a network. Which units form an
iteration is decided after the fact, from the whole pattern of loads, calls, backwards and updates:

- an updater's ``update`` is an iteration of its own;
- if the loads of one iterator alternate with updates, an iteration begins with each load and ends
  with the last update before the next one;
- otherwise an iteration ends with the update that completes a cycle: that of the optimizer with the
  fewest updates, and of several with as many, the one that comes last in the cycle.

Calls in test mode between the first and the last training unit of an iteration belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from chainer_profile.measure.patterns import (
    NO_TRAINING,
    Unit,
    UnitKind,
    alternating_loads,
    last_of_cycle,
)

_MARKS = (UnitKind.UPDATE, UnitKind.ITERATION)
#: Units that may be undecided; then they are decided by what is known.
MAX_UNDECIDED = 4000


class SegmentKind(Enum):
    """What units are together."""

    ITERATION = auto()
    #: An iteration that has no end.
    INTERRUPTED = auto()
    #: A call of a network outside of iterations.
    CALL = auto()
    #: Another operation outside of iterations.
    OTHER = auto()


@dataclass(frozen=True)
class Segment:
    """Successive units; ``begin`` and ``end`` count all units of the program."""

    kind: SegmentKind
    begin: int
    end: int
    training: int = NO_TRAINING


@dataclass
class _Training:
    """What is known of a training.

    Attributes:
        optimizers: Those that were set up.
        loads: The iterator whose loads alternate with updates, once that is known.
        ends: The optimizer whose update ends an iteration, where there is no such iterator.
        n_updates: Updates from one load to the next.
        clears_first: Whether gradients are cleared before the first update.
    """

    optimizers: set[int] = field(default_factory=set)
    loads: int | None = None
    ends: int | None = None
    n_updates: int = 0
    clears_first: bool = False

    @property
    def is_known(self) -> bool:
        return self.loads is not None or self.ends is not None


class Segmenter:
    """Finds the segments of units that are added in their order."""

    def __init__(self, max_undecided: int = MAX_UNDECIDED) -> None:
        self.units: list[Unit] = []  #: Those that are undecided.
        #: The number of units that are decided.
        self.n_decided = 0
        self._trainings: dict[int, _Training] = {}
        self._max_undecided = max_undecided

    def set_up(self, training: int, optimizer: int) -> None:
        """An optimizer of a training was set up."""
        self._training(training).optimizers.add(optimizer)

    def forget(self, optimizer: int) -> None:
        """An optimizer no longer exists."""
        for training in self._trainings.values():
            training.optimizers.discard(optimizer)

    def add(self, unit: Unit) -> None:
        """The next unit."""
        self.units.append(unit)

    def decide(self, is_last: bool = False, is_full: bool = False) -> list[Segment]:
        """The segments of the units that can be decided.

        Args:
            is_last: No more units follow: all are decided.
            is_full: Decide by what is known.
        """
        segments: list[Segment] = []
        while self.units:
            is_full = is_full or len(self.units) > self._max_undecided
            found = list(self._next(is_last, is_full))
            if not found:
                break
            segments += found
            del self.units[: found[-1].end - self.n_decided]
            self.n_decided = found[-1].end
        return segments

    # -- private: indices are those of undecided units

    def _training(self, number: int) -> _Training:
        return self._trainings.setdefault(number, _Training())

    def _find(self, fits: Callable[[Unit], bool], begin: int = 0) -> int | None:
        units = enumerate(self.units[begin:], begin)
        return next((at for at, unit in units if fits(unit)), None)

    def _next(self, is_last: bool, is_full: bool) -> Iterator[Segment]:
        """The next segments; none if more units must be seen."""
        mark = self._find(lambda unit: unit.kind in _MARKS)
        if mark is None:
            end = len(self.units) if is_last or is_full else self._end_of_calls()
            yield from self._outside(0, end)
            return
        number = self.units[mark].training
        if self.units[mark].kind is UnitKind.ITERATION:
            kind = SegmentKind.INTERRUPTED if self.units[mark].raised else SegmentKind.ITERATION
            yield from self._outside(0, mark)
            yield self._segment(kind, mark, mark + 1, number)
            return
        training = self._training(number)
        if not training.is_known:
            self._find_pattern(number, is_last or is_full)
        found = self._iteration(number, is_last) if training.is_known else None
        if found is not None:
            begin, end = found
            yield from self._outside(0, begin)
            yield self._segment(SegmentKind.ITERATION, begin, end, number)
        elif is_last:
            yield from self._outside(0, len(self.units))
        elif is_full:  # the pattern has changed
            training.loads = training.ends = None
            yield from self._outside(0, mark + 1)

    def _segment(self, kind: SegmentKind, begin: int, end: int, training: int) -> Segment:
        return Segment(kind, self.n_decided + begin, self.n_decided + end, training)

    def _end_of_calls(self) -> int:
        """Where the units end that belong to no iteration, while no update has followed."""
        if not any(training.optimizers or training.is_known for training in self._known()):
            return len(self.units)
        loads = {training.loads for training in self._known()}
        end = 0
        for at, unit in enumerate(self.units):
            if unit.kind is UnitKind.LOAD and unit.owner in loads:
                break
            if unit.kind is UnitKind.BACKWARD or (
                unit.kind is UnitKind.CALL and unit.training != NO_TRAINING
            ):
                break
            if unit.kind is UnitKind.TEST and (at == end or self._is_known(unit.training)):
                end = at + 1
        return end

    def _known(self) -> list[_Training]:
        return list(self._trainings.values())

    def _is_known(self, number: int) -> bool:
        return number in self._trainings and self._trainings[number].is_known

    # -- one iteration

    def _iteration(self, number: int, is_last: bool) -> tuple[int, int] | None:
        """Begin and end of the next iteration of a training; None if it is not complete."""
        training = self._training(number)
        if training.loads is not None:
            found = self._from_load_to_load(number, training, training.loads)
        else:
            ends = Unit(UnitKind.UPDATE, training.ends or 0, number)
            last = self._find(lambda unit: unit == ends)
            found = None if last is None else (self._begin(number, 0, last), last + 1)
        if found is None or training.clears_first:
            return found
        begin, end = found
        if end == len(self.units) and not is_last:  # gradients may be cleared now
            return None
        while end < len(self.units) and self.units[end].kind is UnitKind.CLEARGRADS:
            end += 1
        return begin, end

    def _from_load_to_load(
        self, number: int, training: _Training, iterator: int
    ) -> tuple[int, int] | None:
        updates = self._updates(number)
        if not updates:
            return None
        load = Unit(UnitKind.LOAD, iterator)
        loads = [at for at, unit in enumerate(self.units) if unit == load]
        before = [at for at in loads if at < updates[0]]
        if not before:  # of another loop
            return self._begin(number, 0, updates[0]), updates[0] + 1
        following = next((at for at in loads if at > updates[0]), None)
        if following is None:
            n = training.n_updates
            return None if len(updates) < n else (before[-1], updates[n - 1] + 1)
        own = [at for at in updates if at < following]
        return before[-1], own[-1] + 1

    def _updates(self, number: int) -> list[int]:
        return [
            at
            for at, unit in enumerate(self.units)
            if unit.kind is UnitKind.UPDATE and unit.training == number and not unit.raised
        ]

    def _is_training(self, unit: Unit, number: int) -> bool:
        """Whether a unit cannot be missing from an iteration of a training."""
        if unit.kind is UnitKind.BACKWARD:
            return True
        return unit.kind in (UnitKind.CALL, UnitKind.UPDATE) and unit.training == number

    def _begin(self, number: int, least: int, last: int) -> int:
        """Where the iteration begins that ends with unit ``last``, from unit ``least`` on.

        Loads, conversions and calls of other networks before its first training unit belong to it;
        the program's acting, by calls of the network in test mode, does not.
        """
        units = self.units
        raised = [at for at in range(least, last) if units[at].raised]
        least = raised[-1] + 1 if raised else least
        first = next(at for at in range(least, last + 1) if self._is_training(units[at], number))
        begin, seen = first, set[tuple[UnitKind, int]]()
        for at in range(first - 1, least - 1, -1):
            unit = units[at]
            if unit.kind is UnitKind.TEST:
                if unit.training == number:
                    break
                continue
            key = unit.kind, unit.owner
            is_repeated = key in seen and key != (units[at + 1].kind, units[at + 1].owner)
            if unit.kind is UnitKind.CLEARGRADS and not self._training(number).clears_first:
                break
            if unit.kind in _MARKS or (is_repeated and unit.kind is not UnitKind.CONVERT):
                break
            begin = at
            seen.add(key)
        return begin

    # -- units outside of iterations

    def _outside(self, begin: int, end: int) -> Iterator[Segment]:
        """The segments of units that belong to no complete iteration."""
        while begin < end:
            first, last, number = self._interrupted(begin, end)
            for at in range(begin, first):
                is_call = self.units[at].kind in (UnitKind.CALL, UnitKind.TEST)
                kind = SegmentKind.CALL if is_call else SegmentKind.OTHER
                yield self._segment(kind, at, at + 1, self.units[at].training)
            if first < last:
                yield self._segment(SegmentKind.INTERRUPTED, first, last, number)
            begin = last

    def _interrupted(self, begin: int, end: int) -> tuple[int, int, int]:
        """Begin, end and training of the next iteration that was interrupted; else the end."""
        units = self.units
        for first in range(begin, end):
            number = units[first].training
            if units[first].kind is UnitKind.BACKWARD:
                later = (
                    unit.training for unit in units[first:end] if self._is_known(unit.training)
                )
                number = next(later, self._last_known())
            if not self._is_known(number) or not self._is_training(units[first], number):
                continue
            raised = [at for at in range(first, end) if units[at].raised]
            stop = raised[0] + 1 if raised else end
            own = [at for at in range(first, stop) if self._is_training(units[at], number)]
            loads = Unit(UnitKind.LOAD, self._training(number).loads or 0)
            if (
                self._training(number).loads is None
                or raised
                or loads in units[begin:first]
                or any(units[at].kind is not UnitKind.CALL for at in own)
            ):
                return self._begin(number, begin, first), own[-1] + 1, number
        return end, end, NO_TRAINING

    def _last_known(self) -> int:
        known = [number for number in self._trainings if self._is_known(number)]
        return known[-1] if known else NO_TRAINING

    # -- the pattern of a training

    def _find_pattern(self, number: int, must: bool) -> None:
        """Find out what begins or ends an iteration; unless it ``must`` be, only if it is clear."""
        training, units, updates = self._training(number), self.units, self._updates(number)
        owners = [units[at].owner for at in updates]
        if not owners or not (must or training.optimizers <= {*owners}):
            return
        cleared = (unit.kind is UnitKind.CLEARGRADS for unit in units[: updates[0]])
        training.clears_first = any(cleared)
        found, is_clear = alternating_loads(units, updates, must)
        if found is not None:
            training.loads, training.n_updates = found
        elif is_clear or must:
            training.ends = last_of_cycle(owners, must)
