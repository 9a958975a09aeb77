"""Watches a program that uses Chainer: counts its time by account, and measures its trials."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Lock, get_ident
from typing import Any

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.integrations.counted_functions import CountedFunctions
from chainer_profile.integrations.extensions import (
    describe_extensions,
    fraction_done,
    progress_of,
    wrap_extensions,
)
from chainer_profile.integrations.live_trials import LiveTrials
from chainer_profile.integrations.networks import Training
from chainer_profile.integrations.program_kinds import ProgramKinds
from chainer_profile.integrations.program_trials import ProgramTrials
from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.integrations.units import UNIT_KINDS, TimedUnit, calls_in_test_mode
from chainer_profile.measure import observers, patches
from chainer_profile.measure.accounts import Accounts
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.event_log import EventLog, Position
from chainer_profile.measure.loop import Batch
from chainer_profile.measure.operations import converter_name
from chainer_profile.measure.patterns import NETWORK_CALLS, UnitKind
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording

#: Parts of the budget in which the program's own code runs.
OWN_PARTS = (budget.REST, budget.IMPORTS)
_COUNTING = Lock()
_LOG_BEGIN = Position(0, 0, 0)


class Program:
    """Counts a program's time by account, and measures its trials, in a ``with`` block.

    Each outermost operation of the thread is a unit. From time to time, :class:`.ProgramTrials`
    finds the iterations among the units.

    Args:
        accounts: The program's time.
        journal: Opens the journal of a kind of trials.
        command: How the program was called.
        warn: Called with the name of a kind of trials, and a problem that the user should know.
        save: Called after the log was read, to save the results so far.
        is_save_due: Whether something should be saved, so that the log should be read.
        layers: Measure trials by row.
        memory: Count allocations in two trials.
        tries: Try changes in the iterations.
    """

    def __init__(
        self,
        accounts: Accounts,
        journal: Callable[[str], Journal],
        command: str = "",
        warn: Callable[[str, str], None] = lambda name, problem: None,
        save: Callable[[], None] = lambda: None,
        is_save_due: Callable[[], bool] = lambda: False,
        layers: bool = True,
        memory: bool = False,
        tries: bool = False,
    ) -> None:
        self.accounts, self._warn = accounts, warn
        self._save, self._is_save_due = save, is_save_due
        log = EventLog(Clock(accounts.now_ns), functools.partial(warn, "run"))
        self.trials = ProgramTrials(accounts, ProgramKinds(log, journal, command, warn), layers)
        #: Tries changes, or counts memory; None if neither is wanted.
        self.live = LiveTrials(self.trials, memory, tries) if memory or tries else None
        self.extensions: tuple[
            budget.Extension, ...
        ] = ()  #: Extensions of the Trainers that have ended.
        self._called_chainer = self._is_reading = self._has_begun = False
        self.thread, self._process = 0, 0
        self._open_operations: set[str] = set()
        self._elsewhere: Counter[str] = Counter()
        self._counted = CountedFunctions(
            accounts, self._runs_own_code, self.trials.pause, self._note_chainer
        )
        self._replacements = Replacements()
        # The unit that runs; and by updater, the training of a Trainer that runs, and a function to
        # call when its iterations begin.
        self._unit: TimedUnit | None = None
        self._trainers: dict[int, tuple[Training, Callable[[], None]]] = {}
        # The number of open accounts at the begin of the program's units.
        self._depth = sys.maxsize

    # -- results

    @property
    def called_chainer(self) -> bool:
        """Whether the program called anything in Chainer."""
        return self._called_chainer or bool(self.untimed)

    @property
    def untimed(self) -> dict[str, int]:
        """Number of calls of networks, and of updates, in other threads, which are not timed."""
        counts = self._elsewhere
        names = {observers.NETWORK: budget.CALLS, observers.UPDATE: budget.UPDATES}
        return {name: counts[operation] for operation, name in names.items() if counts[operation]}

    def what_runs(self) -> str:
        """The code that the main thread runs now: a network, data loading, or other code."""
        opened = self._open_operations
        if not opened.isdisjoint((observers.NETWORK, observers.BACKWARD, observers.UPDATE)):
            return budget.NETWORK
        loads = observers.LOAD in opened or observers.CONVERT in opened
        return budget.LOADING if loads else budget.OTHER

    @property
    def kinds(self) -> list[TrialKind]:
        """The kinds of trials."""
        return self.trials.kinds.every

    def recordings(self) -> dict[str, Recording]:
        """The recordings by kind: a training first, then the others by their time."""
        return self.trials.kinds.recordings()

    # -- begin and end

    def __enter__(self) -> Program:
        self._counted.wrap_chainers(self._replacements)
        self.thread, self._process = get_ident(), os.getpid()
        self._open_operations = observers.open_operations()
        patches.add_observer(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_own_thread and self.live is not None:
            self.live.close()  # removes the patch that it made after the observers'
        patches.remove_observer(self)
        self._replacements.undo()
        if self._is_own_thread:
            self.read(is_last=True)
            self.trials.close()

    @property
    def _is_own_thread(self) -> bool:
        """Whether this is the thread, and the process, that is watched."""
        return get_ident() == self.thread and os.getpid() == self._process

    def _runs_own_code(self) -> bool:
        """Whether the program's own code runs in the watched thread, outside of units."""
        return self._unit is None and self.accounts.part in OWN_PARTS and self._is_own_thread

    def pause_in_unit(self) -> AbstractContextManager[None]:
        """Exclude the time within the context from trials if a unit runs."""
        return self.trials.pause() if self._unit is not None else nullcontext()

    # -- the interface of observers.Observer

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        if self._is_reading or os.getpid() != self._process:
            return None
        if operation == observers.BACKWARD and self.live is not None:
            self.live.note_loss(owner.array)
        if operation == observers.SETUP:
            return lambda error, result: self._set_up(owner)
        if operation == observers.RUN and self._unit is None:
            return self._run(owner)
        kind = UNIT_KINDS.get(operation)
        if kind is None:
            return None
        if operation == observers.BACKPROP and self.trials.networks.trainings:
            return None  # chainer.grad may be a step of an iteration before its backward
        if self._unit is None:
            return self._begin_unit(kind, owner)
        if self._unit.batch is not None:
            if operation == observers.LOAD:
                return self._unit.batch.add_loaded
            if operation == observers.CONVERT:
                return self._unit.batch.add_converted
        return None

    def begin_elsewhere(self, operation: str) -> None:
        with _COUNTING:
            self._elsewhere[operation] += 1

    def fail(self, error: Exception) -> None:
        """Stop measuring, after a failure of the profiler."""
        with suppress(Exception):
            self.trials.stop()
            if self.live is not None:
                self.live.close()
        self._warn("run", f"measuring stopped: {one_line(error)}")

    # -- units

    def _begin_unit(self, kind: UnitKind, owner: Any) -> observers.End | None:
        """Begin a unit; returns a function to end it, or None if the operation is not a unit.

        While a module is imported, operations are no units. In an extension, only calls of networks
        are units.
        """
        if not self._has_begun:
            self._start_trials()
        account = self.accounts.account
        is_in_extension = account[0] not in OWN_PARTS
        is_unit = kind is UnitKind.CALL if is_in_extension else self._is_at_depth()
        if not is_unit:
            return None
        if kind is UnitKind.CALL and calls_in_test_mode():
            kind = UnitKind.TEST
        unit = TimedUnit(kind, account, 0, 0, _LOG_BEGIN, is_in_extension=is_in_extension)
        self._identify(unit, owner)
        if self.live is not None:
            self._begin_live(self.live, unit)
        if self.trials.wants_batches:
            unit.batch = Batch()
        self.trials.prepare(unit, owner)
        self._unit = unit
        self._note_begin(unit)
        return functools.partial(self._end_unit, unit)

    def _start_trials(self) -> None:
        """Start to record, as the program calls Chainer for the first time."""
        self._has_begun = True
        self._note_chainer()
        with self.accounts.within(budget.PROFILER, READING, count=0):
            self.trials.start()

    def _is_at_depth(self) -> bool:
        """Whether as many accounts are open as at the program's other units.

        More are open while the program imports a module, whose operations are no units.
        """
        depth = len(self.accounts.opened)
        if depth < self._depth:
            if self._depth < sys.maxsize:
                self.read(is_last=True)
            self._depth = depth
        return depth == self._depth

    def _note_begin(self, unit: TimedUnit) -> None:
        """Note the end of the log, and the time, when a unit begins."""
        unit.begin = self.trials.position()
        unit.begin_own_ns = self.accounts.own_ns()
        unit.begin_ns = self.accounts.at_ns

    def _note_end(self, unit: TimedUnit) -> None:
        """Note the time, and the end of the log, when a unit has ended."""
        unit.end_own_ns = self.accounts.own_ns()
        unit.end_ns = self.accounts.at_ns
        unit.end = self.trials.position()

    def _identify(self, unit: TimedUnit, owner: Any) -> None:
        """Set the owner of a unit, and the training that it belongs to."""
        networks, kind = self.trials.networks, unit.kind
        if kind in NETWORK_CALLS:
            unit.network = networks.known_network(owner)
            unit.owner, unit.training = unit.network.number, unit.network.training
            unit.is_trained = bool(networks.trainings)
        elif kind is UnitKind.UPDATE:
            found = networks.training_of(owner)
            if found is None:  # it was unpickled, so its setup was not observed
                self._set_up(owner)
                found = networks.training_of(owner)
            assert found is not None
            training, unit.owner = found
            if not training.has_updated:
                training.has_own_loop = True
                self.trials.kinds.begin_training(training)
            unit.training = training.number
        elif kind is UnitKind.ITERATION:
            of_trainer = None
            if id(owner) in self._trainers:
                of_trainer, begins = self._trainers[id(owner)]
                begins()
            unit.owner = networks.number_of(owner)
            unit.training = self.trials.kinds.training_of_updater(owner, of_trainer).number
        elif kind in (UnitKind.LOAD, UnitKind.CONVERT):
            is_load = kind is UnitKind.LOAD
            unit.name = type(owner).__name__ if is_load else converter_name(owner)
            unit.owner = networks.number_of(owner)

    def _end_unit(self, unit: TimedUnit, error: BaseException | None, result: Any) -> None:
        trials = self.trials
        if unit.kind in (UnitKind.UPDATE, UnitKind.ITERATION, UnitKind.TEST):
            trials.wait()
        self._note_end(unit)
        unit.raised = error is not None
        self._unit = None
        if unit.batch is not None and unit.kind is UnitKind.LOAD:
            unit.batch.add_loaded(error, result)
        elif unit.batch is not None and unit.kind is UnitKind.CONVERT:
            unit.batch.add_converted(error, result)
        if self.live is not None:
            self.live.end(unit)
        trials.add(unit)
        if trials.is_due(unit.end_ns) or self._is_save_due():
            self.read()

    def _begin_live(self, live: LiveTrials, unit: TimedUnit) -> None:
        """Begin a unit in :class:`.LiveTrials`, or switch changes off in an extension."""
        with self.accounts.within(budget.PROFILER, READING, count=0), self.trials.pause():
            if unit.is_in_extension:
                live.pause()
            else:
                live.begin(unit)

    def read(self, is_last: bool = False) -> None:
        """Find the trials among the units so far, and write them.

        Args:
            is_last: No later unit belongs to the trials of these units.
        """
        self._is_reading = True
        try:
            with self.accounts.within(budget.PROFILER, READING, count=0):
                self.trials.read(is_last)
            if not is_last:
                self._save()
        except Exception as error:  # a fault of the profiler must not end the program
            patches.remove_observer(self)
            self.fail(error)
        finally:
            self._is_reading = False

    def _note_chainer(self) -> None:
        """Note, and save, that the program uses Chainer."""
        if not self._called_chainer:
            self._called_chainer = True
            self._save()

    # -- trainings

    def _set_up(self, optimizer: Any) -> None:
        """Note an optimizer that was set up, which may begin another training."""
        self._note_chainer()
        if self.trials.networks.begins_training(optimizer):
            self.read(is_last=True)
            self.trials.wants_batches = True
        self.trials.set_up(optimizer)
        # ChainerMN's optimizers wrap an optimizer of Chainer, and have another base class.
        patches.patch_multi_node_optimizers()

    def _run(self, trainer: Any) -> observers.End:
        """Begin a Trainer's run: its extensions get accounts, and its iterations a training."""
        self._note_chainer()
        patches.observe_class(observers.ITERATION, type(trainer.updater))
        training = self.trials.networks.new_training()
        # The progress at the begin of the first iteration: a snapshot may be loaded before it.
        before: dict[str, int] = {}
        if self.live is not None:
            self.live.progress = functools.partial(fraction_done, trainer, before)

        def begin_iteration() -> None:
            before.update({} if before else progress_of(trainer))

        self._trainers[id(trainer.updater)] = training, begin_iteration
        replacements = Replacements()
        wrap_extensions(replacements, trainer, self._counted.wrap)

        def end_run(error: BaseException | None, result: Any) -> None:
            replacements.undo()
            del self._trainers[id(trainer.updater)]
            self.extensions += tuple(describe_extensions(trainer, before or progress_of(trainer)))
            if self.live is not None:
                self.live.progress = lambda: None
            self.read(is_last=True)
            self.trials.end_training(training)

        return end_run


#: Name of the profiler's work of reading the log.
READING = "reading the log"
