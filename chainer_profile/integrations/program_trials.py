"""The trials of a program: found among its units, read from the log and added up by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any

from chainer_profile.basics.errors import one_line
from chainer_profile.integrations.networks import Networks, Training
from chainer_profile.integrations.program_kinds import ProgramKinds
from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.integrations.units import TimedUnit
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.aggregate import LoggedTrial
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.event_log import EventLog, Position
from chainer_profile.measure.loop import Batch
from chainer_profile.measure.patterns import Unit, UnitKind
from chainer_profile.measure.segments import Segment, Segmenter, SegmentKind
from chainer_profile.measure.session import GROUP_NS
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal

#: Events that are kept while it is unknown which iterations they belong to.
_MOST_EVENTS = 2_000_000
#: Calls of a network, or updates of an optimizer, after each of which the log is read: a program
#: that is killed early keeps trials of each kind.
_FIRST_UNITS = 30
#: Calls within extensions after which the log is read.
_MOST_CALLS = 1000
#: Name of the profiler's work within trials.
WITHIN = "in trials"


class ProgramTrials:
    """The units of a program that are undecided, and the kinds of its trials.

    Args:
        accounts: The program's time.
        journal: Opens the journal of a kind of trials.
        command: How the program was called.
        warn: Called with the name of a kind of trials, and a problem that the user should know.
        layers: Measure trials by row.
    """

    def __init__(
        self,
        accounts: Accounts,
        journal: Callable[[str], Journal],
        command: str,
        warn: Callable[[str, str], None],
        layers: bool,
    ) -> None:
        self._accounts, self._warn = accounts, warn
        self.clock: Clock = HOST_CLOCK
        self.log = EventLog(Clock(accounts.now_ns), partial(warn, "run"))
        self.networks = Networks(self.log.links)
        #: The kinds of trials.
        self.kinds = ProgramKinds(self.networks, journal, command, warn)
        self._layers, self._is_started = layers, False
        self._segmenter = Segmenter()
        self._units: list[TimedUnit] = []
        # Calls of networks within extensions, whose trials need not be found.
        self._calls: list[TimedUnit] = []
        self._read_ns = 0
        # Units by kind and owner; of networks that are alike, together.
        self._n_units: Counter[tuple[UnitKind, Any]] = Counter()
        self._is_first = False
        #: Whether parameters may have other arrays, or another device, than before.
        self._has_changed = True
        #: Whether the sizes of batches are wanted.
        self.wants_batches = True
        #: Called with the begin and the end of a segment in ns, and the account of its time.
        self.on_decided: Callable[[int, int, Account], None] = lambda begin, end, account: None
        #: Called with the units of an iteration.
        self.on_iteration: Callable[[list[TimedUnit]], None] = lambda units: None

    # -- recording

    def start(self) -> None:
        """Record from now on."""
        if self._layers:
            self.log.start()
            self._is_started = True

    def stop(self) -> None:
        """Record no more."""
        if self._is_started:
            self.log.stop()
            self._is_started = False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within this, nothing is recorded."""
        was_started = self._is_started
        self.stop()
        try:
            yield
        finally:
            if was_started:
                self.start()

    def pause(self) -> AbstractContextManager[None]:
        """The time within this context belongs to no trial."""
        return self.log.recorder.pause() if self._is_started else nullcontext()

    def position(self) -> Position:
        """The end of the log."""
        return self.log.position()

    def warn(self, problem: str) -> None:
        """Warn of a problem of the whole program."""
        self._warn("run", problem)

    def now_ns(self) -> int:
        """The clock."""
        return self._accounts.now_ns()

    def wait(self) -> None:
        """Wait for the device, if there is one."""
        self.log.wait()

    def prepare(self, unit: TimedUnit, owner: Any) -> None:
        """A unit is about to begin."""
        kind = unit.kind
        if kind in (UnitKind.LOAD, UnitKind.CONVERT, UnitKind.CLEARGRADS) or not self._layers:
            return
        if self._has_changed:
            self._has_changed = False
            self._use_device(kind, owner)
            self.log.links.update_parameters()
        if kind in (UnitKind.ITERATION, UnitKind.TEST):
            self.wait()
        self._has_changed = kind in (UnitKind.UPDATE, UnitKind.ITERATION)

    def _use_device(self, kind: UnitKind, owner: Any) -> None:
        """Measure the device that networks are on by now."""
        if self.log.on_device:
            return
        network = owner
        if kind is UnitKind.UPDATE:
            network = owner.target
        elif kind is UnitKind.ITERATION:
            network = next(iter(owner.get_all_optimizers().values())).target
        if kind is UnitKind.BACKWARD or network is None:
            return
        clock = clock_of(device_of(network))
        if clock.device is not None:
            with self.pause():
                self.read(is_last=True)
                self.clock = clock
                self.log.use_device(clock)

    # -- trainings and kinds

    def set_up(self, optimizer: Any) -> bool:
        """Note an optimizer; returns whether it begins another training."""
        training, number, is_new = self.networks.set_up(optimizer)
        self._segmenter.set_up(training.number, number)
        self._has_changed = True
        self.wants_batches |= is_new
        return is_new

    def end_training(self, training: Training) -> None:
        """No more iterations of a training follow."""
        kind = self.kinds.kind_of_training(training.number)
        if kind.count:
            for each in self.kinds.alike(kind):
                self._end(each)

    # -- units

    def add(self, unit: TimedUnit) -> None:
        """A unit has ended."""
        self._is_first = self._is_among_first(unit)
        if unit.network is not None and unit.network.subject is None:
            self.networks.note_end(unit.network)
        if unit.is_elsewhere:
            self._calls.append(unit)
            return
        self._units.append(unit)
        self._segmenter.add(Unit(unit.kind, unit.owner, unit.training, unit.raised))

    def undecided_since(self) -> int:
        """The clock at the first unit that is undecided."""
        units = self._units  # another thread asks
        return units[0].begin_ns if units else self._accounts.now_ns()

    def _is_among_first(self, unit: TimedUnit) -> bool:
        """Whether a unit may end one of the first trials of a kind."""
        if unit.network is None and unit.kind not in (UnitKind.UPDATE, UnitKind.ITERATION):
            return False
        alike = unit.kind, unit.owner if unit.network is None else unit.network.likeness
        self._n_units[alike] += 1
        return self._n_units[alike] <= _FIRST_UNITS

    def is_due(self, now_ns: int) -> bool:
        """Whether the log should be read, after a unit was added."""
        takes_long = now_ns - self._read_ns >= GROUP_NS
        return self._is_first or takes_long or len(self._calls) > _MOST_CALLS

    def read(self, is_last: bool = False) -> None:
        """Find the trials among the units so far, and add them to their kinds."""
        self._read_ns = self._accounts.at_ns
        log = self.log
        with self.pause():
            log.take()
            is_full = log.n_kept > _MOST_EVENTS
            trials: list[tuple[TrialKind, Account, list[TimedUnit]]] = []
            for unit in self._calls:
                if unit.network is not None:
                    kind = self.kinds.kind_of_calls(unit.network, unit.account)
                    trials.append((kind, unit.account, [unit]))
            for segment in self._segmenter.decide(is_last, is_full):
                trials += self._found(segment)
            self._calls = []
            for _, group in groupby(trials, key=lambda trial: id(trial[0])):
                alike = list(group)
                self._add(alike[0][0], [(account, units) for _, account, units in alike])
            log.forget(self._units[0].begin if self._units else log.position())

    def _found(self, segment: Segment) -> Iterator[tuple[TrialKind, Account, list[TimedUnit]]]:
        """The trial that a segment is, if it is one; else its time goes to its account."""
        n_units = segment.end - segment.begin
        units, self._units = self._units[:n_units], self._units[n_units:]
        first = units[0]
        if segment.kind is SegmentKind.ITERATION:
            kind = self.kinds.kind_of_training(segment.training)
            if not kind.is_measured:
                for unit in units:
                    kind.batch.add(unit.batch or Batch())
            self.on_iteration(units)
            yield kind, first.account, units
        elif segment.kind is SegmentKind.INTERRUPTED:
            self._move(units, (budget.INTERRUPTED, ""), 1)
        elif segment.kind is SegmentKind.CALL and first.network is not None:
            yield self.kinds.kind_of_own_call(first), first.account, units
        elif not first.raised and first.name:
            self._move(units, (budget.DATA, first.name), 1)
        elif first.kind is UnitKind.BACKWARD:
            self._move(units, (budget.CALLS, ""), 0)

    def _move(self, units: list[TimedUnit], account: Account, count: int) -> int:
        """Move the time of units to an account; returns it."""
        first, last = units[0], units[-1]
        own_ns = last.end_own_ns - first.begin_own_ns
        if first.account != account:
            self._accounts.move(first.account, account, own_ns, count)
            self.on_decided(first.begin_ns, last.end_ns, account)
        return own_ns

    def _add(self, kind: TrialKind, trials: list[tuple[Account, list[TimedUnit]]]) -> None:
        """Add trials to a kind, and their time to its account."""
        logged: dict[TrialKind, list[tuple[int, LoggedTrial, Counter[str]]]] = {}
        for account, units in trials:
            first, last = units[0], units[-1]
            kind.count += 1
            ns = self._move(units, kind.spent, 1 if account != kind.spent else 0)
            kind.own_ns += ns
            is_changed = any(unit.is_changed for unit in units)
            of_rows = self.kinds.with_changes(kind) if is_changed else kind
            if self._layers:
                clock = Clock(self._accounts.now_ns, self.clock.device)
                self.kinds.measure(of_rows, self.log, clock)
            if of_rows.writer is not None and not any(unit.is_counted for unit in units):
                cut = self.log.cut(first.begin, last.end, first.begin_ns, last.end_ns, kind.count)
                logged.setdefault(of_rows, []).append((ns, *cut))
        for of_rows, cuts in logged.items():
            for added_ns in self._added_ns(of_rows, cuts):
                kind.own_ns -= added_ns
                self._accounts.move(kind.spent, (budget.PROFILER, WITHIN), added_ns)
        self.wants_batches &= not kind.is_measured

    def _added_ns(
        self, kind: TrialKind, cuts: list[tuple[int, LoggedTrial, Counter[str]]]
    ) -> list[int]:
        """Add trials to the rows of a kind; returns what recording added to each."""
        try:
            with self.stopped() if not kind.is_measured else nullcontext():
                times = kind.add([(trial, calls) for _, trial, calls in cuts])
        except Exception as error:
            self._warn(kind.name, f"measuring stopped: {one_line(error)}")
            kind.writer, kind.has_failed = None, True
            return []
        return [max(0, ns - trial.wall_ns) for (ns, *_), trial in zip(cuts, times, strict=True)]

    # -- the end

    def _end(self, kind: TrialKind) -> None:
        with self.stopped():
            try:
                kind.end()
            except Exception as error:
                self._warn(kind.name, f"measuring stopped: {one_line(error)}")

    def close(self) -> None:
        """The program has ended."""
        self.stop()
        for kind in self.kinds.every:
            self._end(kind)
