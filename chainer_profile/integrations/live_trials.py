"""Trials that are changed while they run: changes are tried in them, or their memory is counted.

The trials of a program are found after they have ended, so their begin is predicted here: an
iteration begins with a unit of the same kind and owner as the iteration before, and has as many
updates. An updater's iteration is a trial; without any training, so is a call of a network.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from chainer_profile.integrations.program_trials import ProgramTrials
from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.integrations.units import TimedUnit
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.memory import IterationMemory
from chainer_profile.measure.patterns import NETWORK_CALLS, NO_TRAINING, UnitKind
from chainer_profile.measure.readings import ReadingSession
from chainer_profile.measure.session import Session

if TYPE_CHECKING:
    from chainer_profile.integrations.trying import Trying


class LiveTrials:
    """Predicts the trials of a program, tries changes in them and counts their memory.

    Args:
        trials: The program's trials.
        memory: Count allocations in two trials.
        tries: Try changes.
    """

    def __init__(self, trials: ProgramTrials, memory: bool, tries: bool) -> None:
        self._trials, self._tries = trials, tries
        trials.on_iteration = self._learn
        self.trying: Trying | None = None
        #: Returns the fraction of the program that has passed; None if it is unknown.
        self.progress: Callable[[], float | None] = lambda: None
        #: Returns whether other programs keep a core busy.
        self.is_busy: Callable[[], bool] = lambda: False
        self._memory = MemoryOfTrials(trials) if memory else None
        # By training: kind and owner of the unit that begins an iteration, and its updates.
        self._begins: dict[int, tuple[UnitKind, int, int]] = {}
        # The trial that runs: its kind, first unit, training, and updates until its end.
        self._kind: TrialKind | None = None
        self._first: TimedUnit | None = None
        self._training, self._updates_left = NO_TRAINING, 0
        self._is_counted = False

    def _learn(self, units: list[TimedUnit]) -> None:
        """Note the unit that begins an iteration, and its updates, to predict the next one."""
        first, training = units[0], units[-1].training
        updates = [unit for unit in units if unit.kind is UnitKind.UPDATE]
        if updates:
            training = updates[-1].training
            self._begins[training] = first.kind, first.owner, len(updates)

    # -- trials

    def begin(self, unit: TimedUnit) -> None:
        """Begin a trial if one is predicted to begin with this unit; set the flags of the unit."""
        if self._kind is None:
            found = self._predicted(unit)
            if found is not None:
                self._first = unit
                self._begin_trial(*found)
            elif unit.kind in NETWORK_CALLS:
                self.pause()
        unit.is_changed = self.trying is not None and self.trying.interleaved.is_changed
        unit.is_counted = self._is_counted

    def _predicted(self, unit: TimedUnit) -> tuple[TrialKind, int, int] | None:
        """Predict the trial that begins with a unit: its kind, training and number of updates."""
        if unit.kind is UnitKind.ITERATION:
            return self._trials.kinds.kind_of_training(unit.training), unit.training, 0
        for training, (kind, owner, updates) in reversed(self._begins.items()):
            if (unit.kind, unit.owner) == (kind, owner):
                return self._trials.kinds.kind_of_training(training), training, updates
        if unit.network is not None and not self._trials.networks.trainings:
            return self._trials.kinds.kind_of_own_call(unit), NO_TRAINING, 0
        return None

    def _begin_trial(self, kind: TrialKind, training: int, updates: int) -> None:
        self._kind, self._training, self._updates_left = kind, training, updates
        if self._memory is not None and self._memory.begin(kind):
            self._is_counted = True
            self.pause()
        elif self._tries:
            trying = self._trying_in(kind)
            if trying is not None:
                trying.interleaved.begin()

    def _trying_in(self, kind: TrialKind) -> Trying | None:
        """Return the experiment in trials of a kind, or begin one; None if another kind is better.

        Changes are tried in one kind of trials: the first training, or else the first network
        that calls functions.
        """
        if self.trying is not None and self.trying.kind is kind:
            return self.trying
        if self.trying is not None:
            if not _is_better(kind, self.trying.kind):
                self.pause()
                return None
            self.trying.close()
        # It imports pandas and the findings, so only a program with changes waits for them.
        from chainer_profile.integrations.trying import Trying

        self.trying = Trying(kind, lambda: self.progress(), lambda: self.is_busy())
        return self.trying

    def end(self, unit: TimedUnit) -> None:
        """End a unit. It ends its trial if it is the last update, or if it raised."""
        kind = self._kind
        if kind is None or unit.is_in_extension:
            return
        if unit.raised:
            self._end_trial(kind, None)
            return
        if unit.kind is UnitKind.UPDATE and unit.training == self._training:
            self._updates_left -= 1
        if self._updates_left <= 0:
            first = self._first or unit
            self._end_trial(kind, unit.end_own_ns - first.begin_own_ns)

    def _end_trial(self, kind: TrialKind, ns: int | None) -> None:
        """End a trial that took ``ns``; with None it raised, and does not count."""
        self._kind = None
        if self._is_counted and self._memory is not None:
            self._is_counted = False
            self._memory.end()
        elif self.trying is not None and self.trying.kind is kind:
            if ns is None:
                self.trying.interleaved.abandon()
            else:
                self.trying.interleaved.end(ns)

    def note_loss(self, loss: Any) -> None:
        """Note the array of the loss, from which a backward begins."""
        if self.trying is not None and self._kind is self.trying.kind:
            self.trying.interleaved.note_loss(loss)

    def pause(self) -> None:
        """Switch off the change that is tried, because no trial runs."""
        if self.trying is not None:
            self.trying.interleaved.pause()

    def close(self) -> None:
        """Undo all changes, at the end of the program."""
        if self._memory is not None:
            self._memory.close()
        if self.trying is not None:
            self.trying.close()


def _is_better(kind: TrialKind, tried: TrialKind) -> bool:
    """Whether to try changes in trials of ``kind``, and no longer in trials of ``tried``."""
    if kind.is_training != tried.is_training:
        return kind.is_training
    # A change cannot help a network that calls no functions.
    return not kind.is_training and kind.n_rows > 0 and tried.n_rows == 0


class MemoryOfTrials:
    """Counts the allocations of two trials of one kind, and assigns the second's to rows."""

    def __init__(self, trials: ProgramTrials) -> None:
        self._trials = trials
        self._memory: IterationMemory | None = None
        self._kind: TrialKind | None = None
        self._tracing = ExitStack()
        self._is_done = False

    def begin(self, kind: TrialKind) -> bool:
        """Begin a trial; returns whether its memory is counted."""
        if self._is_done or not kind.is_measured or self._kind not in (None, kind):
            return False
        if self._memory is None:
            self._kind, self._memory = kind, IterationMemory(kind.loop())
            self._memory.begin()
            return self._report(self._memory)
        session = self._session(kind)
        self._tracing.enter_context(self._trials.stopped())
        self._tracing.enter_context(self._memory.tracing(ReadingSession(session)))
        self._is_done = True
        return True

    def _session(self, kind: TrialKind) -> Session:
        """Make a session that knows the rows of a kind."""
        clock = Clock(self._trials.now_ns)
        session = Session(kind.roots(), clock, network_is_phase=True)
        assert kind.target is not None
        session.target.aggregator.index = kind.target.aggregator.index
        session.max_events = kind.max_events
        return session

    def end(self) -> None:
        """End the trial; after the second one its kind gets the use of memory."""
        memory, kind = self._memory, self._kind
        if not self._is_done or memory is None or kind is None:
            return
        self._tracing.close()
        self._report(memory)
        kind.memory = memory.use_of_rows(kind.n_rows)
        self._memory = self._kind = None

    def _report(self, memory: IterationMemory) -> bool:
        """Warn of a problem, if any; returns False if there is one."""
        if memory.problem:
            self._is_done = True
            self._trials.warn(memory.problem)
        return not memory.problem

    def close(self) -> None:
        """Stop counting."""
        self._tracing.close()
        if self._memory is not None:
            self._memory.end()
