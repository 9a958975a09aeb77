"""Watches a program that uses Chainer: where its whole time goes, and the rows of its trials."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Lock, get_ident
from typing import Any

import chainer

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.integrations.extensions import (
    counted_extensions,
    described,
    part_of,
    progress_of,
)
from chainer_profile.integrations.live_trials import LiveTrials
from chainer_profile.integrations.networks import Training
from chainer_profile.integrations.program_trials import ProgramTrials
from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.integrations.units import KINDS, TimedUnit, calls_in_test_mode
from chainer_profile.measure import observers, patches
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.event_log import Position
from chainer_profile.measure.loop import Batch
from chainer_profile.measure.operations import converter_name
from chainer_profile.measure.patterns import UnitKind
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording

#: Parts of the budget in which the program's own code runs.
OWN_PARTS = (budget.REST, budget.IMPORTS)
_COUNTING = Lock()
_NOWHERE = Position(0, 0, 0)


class Program:
    """Within ``with``, a program's time is counted by account, and its trials are measured.

    All outermost operations of the thread are noted as units. From time to time
    :class:`.ProgramTrials` finds out which of them are iterations.

    Args:
        accounts: The program's time.
        journal: Opens the journal of a kind of trials.
        command: How the program was called.
        warn: Called with the name of a kind of trials, and a problem that the user should know.
        saved: Called after the log was read, to save what is known so far.
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
        saved: Callable[[], None] = lambda: None,
        is_save_due: Callable[[], bool] = lambda: False,
        layers: bool = True,
        memory: bool = False,
        tries: bool = False,
    ) -> None:
        self.accounts, self._warn = accounts, warn
        self._saved, self._is_save_due = saved, is_save_due
        self.trials = ProgramTrials(accounts, journal, command, warn, layers)
        #: Tries changes, or counts memory; None if neither is wanted.
        self.live = LiveTrials(self.trials, memory, tries) if memory or tries else None
        self.extensions: tuple[budget.Extension, ...] = ()  #: Those of Trainers that have ended.
        self._called_chainer = self._is_reading = self._has_begun = False
        self.thread, self._process = 0, 0
        self._open_operations: set[str] = set()
        self._elsewhere: Counter[str] = Counter()
        self._replacements = Replacements()
        # The unit that runs, and the updaters of the Trainers that run.
        self._unit: TimedUnit | None = None
        self._trainers: dict[int, tuple[Training, Callable[[], None]]] = {}
        # The depth of accounts at which the program's units are.
        self._depth = sys.maxsize

    # -- what is known

    @property
    def called_chainer(self) -> bool:
        """Whether the program called anything in Chainer."""
        return self._called_chainer or bool(self.untimed)

    @property
    def untimed(self) -> dict[str, int]:
        """How often other threads called what."""
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
        for owner, begins, part in (
            (chainer.serializers, ("save_", "load_"), budget.SNAPSHOTS),
            (chainer.datasets, ("get_",), budget.DATA),
        ):
            for name in dir(owner):
                if name.startswith(begins):
                    account = _save_npz if name == budget.SAVE_NPZ else (part, name)
                    counted = functools.partial(self._counted, account)
                    self._replacements.wrap(owner, name, counted)
        self.thread, self._process = get_ident(), os.getpid()
        self._open_operations = patches.open_operations()
        patches.add_observer(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_own_thread and self.live is not None:
            self.live.close()  # its patch is above those of the observers
        patches.remove_observer(self)
        self._replacements.undo()
        if self._is_own_thread:
            self.read(is_last=True)
            self.trials.close()

    @property
    def _is_own_thread(self) -> bool:
        """Whether this is the thread, and the process, that is watched."""
        return get_ident() == self.thread and os.getpid() == self._process

    def _counted(
        self, account: Account | Callable[..., Account | None], function: Any, count: int = 1
    ) -> Any:
        """The same function; its time goes to an account, which may depend on its arguments."""

        @functools.wraps(function)
        def in_account(*args: Any, **kwargs: Any) -> Any:
            own = account if isinstance(account, tuple) else account(*args, **kwargs)
            is_free = self._unit is None and self.accounts.part in OWN_PARTS
            if own is None or not is_free or not self._is_own_thread:
                return function(*args, **kwargs)
            return in_own_account(own, args, kwargs)

        # For the sampler, this frame differs from the one that passes a call on.
        def in_own_account(own: Account, args: Any, kwargs: Any) -> Any:
            self._note_chainer()
            with self.accounts.within(*own, count), self._left_out(own):
                return function(*args, **kwargs)

        return in_account

    @contextmanager
    def _left_out(self, account: Account) -> Iterator[None]:
        """The time within belongs to no trial, if no trials are in this account."""
        if account[0] in (budget.SNAPSHOTS, budget.DATA):
            with self.trials.pause():
                yield
        else:
            yield

    def pause_in_unit(self) -> AbstractContextManager[None]:
        """While a unit runs, the time within this context belongs to no trial."""
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
        kind = KINDS.get(operation)
        if kind is None:
            return None
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
        """Watch no more."""
        with suppress(Exception):
            self.trials.stop()
            if self.live is not None:
                self.live.close()
        self._warn("run", f"measuring stopped: {one_line(error)}")

    # -- units

    def _begin_unit(self, kind: UnitKind, owner: Any) -> observers.End | None:
        accounts, trials = self.accounts, self.trials
        if not self._has_begun:
            self._has_begun = True
            self._note_chainer()
            with accounts.within(budget.PROFILER, READING, count=0):
                trials.start()
        account = accounts.account
        is_own = account[0] in OWN_PARTS
        if is_own and not self._is_at_depth(account):
            return None
        if not is_own and kind is not UnitKind.CALL:  # of an extension
            return None
        if kind is UnitKind.CALL and calls_in_test_mode():
            kind = UnitKind.TEST
        unit = TimedUnit(kind, account, 0, 0, _NOWHERE)
        self._identify(unit, owner)
        unit.is_elsewhere = not is_own
        if self.live is not None:
            self._begin_live(unit, is_own)
        if trials.wants_batches:
            unit.batch = Batch()
        trials.prepare(unit, owner)
        self._unit = unit
        unit.begin = trials.position()
        unit.begin_own_ns = accounts.own_ns()
        unit.begin_ns = accounts.at_ns
        return functools.partial(self._end_unit, unit)

    def _is_at_depth(self, account: Account) -> bool:
        """Whether a unit is the program's own, and not of a module that it imports meanwhile."""
        depth = len(self.accounts.opened)
        if depth < self._depth:
            if self._depth < sys.maxsize:
                self.read(is_last=True)
            self._depth = depth
        return depth == self._depth

    def _identify(self, unit: TimedUnit, owner: Any) -> None:
        """Note what a unit belongs to."""
        networks, kind = self.trials.networks, unit.kind
        if kind in (UnitKind.CALL, UnitKind.TEST):
            unit.network = networks.of(owner)
            unit.owner, unit.training = unit.network.number, unit.network.training
            unit.is_trained = bool(networks.trainings)
        elif kind is UnitKind.UPDATE:
            found = networks.training_of(owner)
            if found is None:  # it was not set up here, but unpickled
                self._set_up(owner)
                found = networks.training_of(owner)
            assert found is not None
            training, unit.owner = found
            if not training.has_updated:
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
        accounts, trials = self.accounts, self.trials
        if unit.kind in (UnitKind.UPDATE, UnitKind.ITERATION, UnitKind.TEST):
            trials.wait()
        unit.end_own_ns = accounts.own_ns()
        unit.end_ns = accounts.at_ns
        unit.end = trials.position()
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

    def _begin_live(self, unit: TimedUnit, is_own: bool) -> None:
        assert self.live is not None
        with self.accounts.within(budget.PROFILER, READING, count=0), self.trials.pause():
            if is_own:
                self.live.begin(unit)
            else:
                self.live.pause()

    def read(self, is_last: bool = False) -> None:
        """Find the trials among the units so far, and write them.

        Args:
            is_last: No units follow that belong to these.
        """
        self._is_reading = True
        try:
            with self.accounts.within(budget.PROFILER, READING, count=0):
                self.trials.read(is_last)
            if not is_last:
                self._saved()
        except Exception as error:  # of ours: the program goes on
            patches.remove_observer(self)
            self.fail(error)
        finally:
            self._is_reading = False

    def _note_chainer(self) -> None:
        if not self._called_chainer:
            self._called_chainer = True
            self._saved()

    # -- trainings

    def _set_up(self, optimizer: Any) -> None:
        self._note_chainer()
        if self.trials.set_up(optimizer):
            self.read(is_last=True)
        # ChainerMN's wrap an optimizer of Chainer's, and have another base class.
        patches.patch_multi_node_optimizers()

    def _run(self, trainer: Any) -> observers.End:
        """A Trainer runs: its extensions have accounts, its iterations are a training."""
        self._note_chainer()
        patches.observe_class(observers.ITERATION, type(trainer.updater))
        training = self.trials.networks.new_training()
        # When the first iteration begins: a snapshot may be loaded before.
        before: dict[str, int] = {}
        if self.live is not None:
            self.live.progress = functools.partial(part_of, trainer, before)

        def begin_iteration() -> None:
            before.update({} if before else progress_of(trainer))

        self._trainers[id(trainer.updater)] = training, begin_iteration
        replacements = Replacements()
        counted_extensions(replacements, trainer, self._counted)

        def end_run(error: BaseException | None, result: Any) -> None:
            replacements.undo()
            del self._trainers[id(trainer.updater)]
            self.extensions += tuple(described(trainer, before or progress_of(trainer)))
            if self.live is not None:
                self.live.progress = lambda: None
            self.read(is_last=True)
            self.trials.end_training(training)

        return end_run


#: Name of the profiler's work of reading the log.
READING = "reading the log"


def _save_npz(file: Any, obj: Any, compression: bool = True) -> Account:
    return budget.SNAPSHOTS, budget.SAVE_NPZ if compression else budget.SAVE_NPZ_PLAIN
