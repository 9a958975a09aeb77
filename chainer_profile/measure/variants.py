"""Which kind of trial each one is: trials that differ in their calls are never mixed.

Two trials are of one kind where they enter and leave the same windows in the same order, each with
a first input of as many bytes, and with the same link's parameter as its last one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from chainer_profile.measure.calls import read
from chainer_profile.measure.events import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from chainer_profile.measure.calls import Log
    from chainer_profile.measure.events import TimedTrial
    from chainer_profile.measure.structure import Structure

#: Kinds of trials that are told apart, and trials that wait for a structure pass to see theirs.
MOST_VARIANTS = 32
MOST_WAITING = 200


class Known(NamedTuple):
    """A trial whose kind is known.

    Attributes:
        variant: Number of its structure.
        trial: The trial.
        times_ns: Its times as the journal has them.
    """

    variant: int
    trial: TimedTrial
    times_ns: NDArray[np.int64]


class Variants:
    """The kinds of trials that structure passes saw, and trials of other kinds.

    Attributes:
        structures: The kinds, in the order in which they were learned.
        waiting: Trials of no known kind, with their logs.
        raising: Classes of functions that raised in a structure pass.
        lost: Trials that no pass can teach of: a function raised before it was known to.
        difference: How the first trial of no known kind differed, in words; empty without one.
    """

    def __init__(self, structures: Sequence[Structure] = ()) -> None:
        self.structures: list[Structure] = []
        self.waiting: list[tuple[TimedTrial, Log]] = []
        self.raising: set[type] = set()
        self.lost: list[TimedTrial] = []
        self.difference = ""
        self._timelines: list[Timeline] = []
        self._last = 0
        for structure in structures:
            self.learn(structure)

    @property
    def unknown(self) -> list[TimedTrial]:
        """The trials of no known kind."""
        return [*self.lost, *(trial for trial, _ in self.waiting)]

    @property
    def full(self) -> bool:
        """Whether no more kinds are told apart."""
        return len(self.structures) >= MOST_VARIANTS

    def watched(self, number: int = 0) -> Structure:
        """A kind, with what raised in any of them: where calls are equal, one may raise at last."""
        return replace(self.structures[number], raising=frozenset(self.raising))

    def find(self, log: Log) -> tuple[int, tuple[int, ...]] | None:
        """Number of the kind of a log, and its clock reads; None where it is of none."""
        if not self.structures:
            return None
        # Trials of one kind often follow each other.
        for number in (self._last, *range(len(self.structures))):
            stamps = self.structures[number].stamps(log)
            if stamps is not None:
                self._last = number
                return number, stamps
        return None

    def add(self, trial: TimedTrial, log: Log) -> Known | None:
        """The trial with its kind; None where it has to wait, or is left out.

        Args:
            trial: A trial under a recorder.
            log: Its part of the recorder's log.
        """
        found = self.find(log)
        if found is not None:
            number, stamps = found
            return Known(number, trial, self._timelines[number].times(stamps, trial))
        if not self.difference and self.structures:
            self.difference = self.structures[0].difference(log)
        if len(self.waiting) < MOST_WAITING and not self.full:
            self.waiting.append((trial, log))
        return None

    def waits(self, trial: TimedTrial) -> bool:
        """Whether the trial that was added last waits."""
        return bool(self.waiting) and self.waiting[-1][0] is trial

    def learn(self, structure: Structure) -> list[Known]:
        """Know one more kind; gives the waiting trials of it.

        A kind that is known already is not learned again.
        """
        # Also of a known kind: of calls that are the same, one may raise at its end.
        self.raising |= structure.raising
        if self.find(structure.log) is not None or self.full:
            self._lose()
            return []
        self.structures.append(structure)
        self._timelines.append(Timeline(structure))
        waiting, self.waiting = self.waiting, []
        found = [self.add(trial, log) for trial, log in waiting]
        self._lose()
        return [known for known in found if known is not None]

    def _lose(self) -> None:
        """Wait no more for those that lack the end of a function that is known to raise by now."""
        waiting, self.waiting = self.waiting, []
        for trial, log in waiting:
            calls = read(log)
            if any(log[calls.enters[window]] in self.raising for window in calls.running):
                self.lost.append(trial)
            else:
                self.waiting.append((trial, log))
