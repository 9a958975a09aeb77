"""The trials of a program: found among its units, read from the log and added up by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from typing import Any

from chainer_profile.basics.errors import one_line
from chainer_profile.integrations.networks import Training
from chainer_profile.integrations.program_kinds import ProgramKinds, account_of_own_call
from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.integrations.units import TimedUnit
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.aggregate import LoggedTrial
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.event_log import Position
from chainer_profile.measure.loop import Batch
from chainer_profile.measure.patterns import Unit, UnitKind
from chainer_profile.measure.segments import MAX_UNDECIDED, Segment, Segmenter, SegmentKind
from chainer_profile.measure.session import GROUP_NS
from chainer_profile.record import budget

#: At most this many events are stored until their iterations are known.
_MAX_EVENTS = 2_000_000
#: After these calls of a network, or updates of an optimizer, the log is read: a program that is
#: killed early keeps trials of each kind.
_FIRST_UNITS = (1, 2, 4, 8, 16, 32)
#: The program runs at least this many times as long as the reading of the log before took.
_READ_SHARE = 20
#: Calls within extensions after which the log is read.
_MAX_CALLS = 1000
#: Name of the profiler's work within trials.
WITHIN = "in trials"


class ProgramTrials:
    """Finds the trials among the units of a program, and adds them to their kinds.

    Args:
        accounts: The program's time.
        kinds: The kinds of the trials, with the log.
        layers: Measure trials by row.
    """

    def __init__(self, accounts: Accounts, kinds: ProgramKinds, layers: bool) -> None:
        self._accounts = accounts
        self.clock: Clock = HOST_CLOCK
        self.kinds, self.log, self.networks = kinds, kinds.log, kinds.networks
        self._layers, self._is_started = layers, False
        self._segmenter = Segmenter()
        self._units: list[TimedUnit] = []
        # Calls of networks within extensions: each is a trial.
        self._extension_calls: list[TimedUnit] = []
        # When the log was read last, and how long to wait since then.
        self._read_ns, self._wait_ns = 0, GROUP_NS
        # The number of units by kind, and by owner or signature of the network.
        self._n_units: Counter[tuple[UnitKind, Any]] = Counter()
        # The largest number of calls with a backward before an update, by training.
        self._max_used_calls: Counter[int] = Counter()
        self._wants_reading = False
        #: Whether parameters may have other arrays, or another device, than before.
        self._has_changed = True
        #: Whether units should have the sizes of their batches.
        self.wants_batches = True
        #: Called with the begin and the end of a segment in ns, and the account of its time.
        self.on_decided: Callable[[int, int, Account], None] = lambda begin, end, account: None
        #: Called with the units of an iteration.
        self.on_iteration: Callable[[list[TimedUnit]], None] = lambda units: None

    # -- recording

    def start(self) -> None:
        """Start to record."""
        if self._layers:
            self.log.start()
            self._is_started = True

    def stop(self) -> None:
        """Stop recording."""
        if self._is_started:
            self.log.stop()
            self._is_started = False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Record nothing within the context."""
        was_started = self._is_started
        self.stop()
        try:
            yield
        finally:
            if was_started:
                self.start()

    def pause(self) -> AbstractContextManager[None]:
        """Exclude the time within the context from trials."""
        return self.log.recorder.pause() if self._is_started else nullcontext()

    def position(self) -> Position:
        """The end of the log."""
        return self.log.position()

    def warn(self, problem: str) -> None:
        """Warn of a problem of the whole program."""
        self.kinds.warn("run", problem)

    def now_ns(self) -> int:
        """The clock."""
        return self._accounts.now_ns()

    def wait(self) -> None:
        """Wait for the device, if there is one."""
        self.log.wait()

    def prepare(self, unit: TimedUnit, owner: Any) -> None:
        """Prepare the log for a unit: note its device and parameters that have changed.

        Wait for the device before an iteration or a call in test mode.
        """
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
        """Read the device's clock as well once the network of a unit is on a device."""
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

    def set_up(self, optimizer: Any) -> None:
        """Note an optimizer."""
        training, number = self.networks.set_up(optimizer)
        self._segmenter.set_up(training.number, number)
        self._has_changed = True

    def end_training(self, training: Training) -> None:
        """Make the recordings of a training after its last iteration."""
        kind = self.kinds.kind_of_training(training.number)
        if kind.count:
            for each in self.kinds.kind_and_changed(kind):
                self._end(each)

    # -- units

    def add(self, unit: TimedUnit) -> None:
        """Add a unit that has ended."""
        self._wants_reading = self._is_early(unit)
        if unit.network is not None and unit.network.subject is None:
            self.networks.note_end(unit.network)
        if unit.is_in_extension:
            self._extension_calls.append(unit)
            return
        self._units.append(unit)
        self._segmenter.add(Unit(unit.kind, unit.owner, unit.training, unit.raised))

    def undecided_since(self) -> int:
        """The clock at the begin of the first unit whose account is not decided yet."""
        units = self._units  # the sampler's thread calls this
        return units[0].begin_ns if units else self._accounts.now_ns()

    def _is_early(self, unit: TimedUnit) -> bool:
        """Count a unit, and return whether the log should be read, as its kind has few trials."""
        if unit.network is None and unit.kind not in (UnitKind.UPDATE, UnitKind.ITERATION):
            return False
        key = unit.kind, unit.owner if unit.network is None else unit.network.signature
        self._n_units[key] += 1
        return self._n_units[key] in _FIRST_UNITS

    def is_due(self, now_ns: int) -> bool:
        """Whether the log should be read, after a unit was added."""
        is_old = now_ns - self._read_ns >= self._wait_ns
        return self._wants_reading or is_old or len(self._extension_calls) > _MAX_CALLS

    def read(self, is_last: bool = False) -> None:
        """Find the trials among the units so far, and add them to their kinds.

        Args:
            is_last: No later unit belongs to the trials of these units.
        """
        began_ns = self._accounts.now_ns()
        with self.pause():
            self._read(is_last)
        self._read_ns = self._accounts.now_ns()
        self._wait_ns = max(GROUP_NS, _READ_SHARE * (self._read_ns - began_ns))

    def _read(self, is_last: bool) -> None:
        log = self.log
        log.take()
        is_full = log.n_stored > _MAX_EVENTS
        trials: list[tuple[TrialKind, Account, list[TimedUnit]]] = []
        for unit in self._extension_calls:
            if unit.network is not None and self._calls_functions(unit):
                kind = self.kinds.kind_of_calls(unit.network, unit.account)
                trials.append((kind, unit.account, [unit]))
        must_decide = is_last or is_full or len(self._units) > MAX_UNDECIDED
        self._note_calls_without_backward(must_decide)
        for segment in self._segmenter.decide(is_last, is_full):
            trials += self._trials_of(segment)
        self._extension_calls = []
        for _, group in groupby(trials, key=lambda trial: id(trial[0])):
            same_kind = list(group)
            self._add_trials(same_kind[0][0], [(account, units) for _, account, units in same_kind])
        log.forget(self._units[0].begin if self._units else log.position())

    def _note_calls_without_backward(self, must_decide: bool) -> None:
        """Treat calls whose graphs have no backward as calls in test mode.

        An evaluation in training mode makes such calls. This may change while units are undecided,
        because a backward may follow.

        Args:
            must_decide: Whether to decide for the calls that no update follows yet.
        """
        begin = 0
        for at, unit in enumerate(self._units):
            if unit.kind is UnitKind.UPDATE and not unit.raised:
                self._note_calls_before_update(begin, at)
            elif not unit.raised or unit.kind is UnitKind.LOAD:
                continue
            begin = at + 1
        if must_decide:
            self._note_last_calls(begin)

    def _note_calls_before_update(self, begin: int, update: int) -> None:
        """Decide for the calls before an update, if any function before it has a backward."""
        units, training = self._units, self._units[update].training
        if not self.log.has_backward(units[begin].begin, units[update].end):
            return
        n_used = 0
        for at, unit in enumerate(units[begin:update], begin):
            if unit.kind is UnitKind.CALL and unit.training == training:
                is_used = self.log.has_backward(unit.begin, unit.end)
                n_used += is_used
                self._segmenter.change_kind(at, UnitKind.CALL if is_used else UnitKind.TEST)
        self._max_used_calls[training] = max(n_used, self._max_used_calls[training])

    def _note_last_calls(self, begin: int) -> None:
        """Decide for the calls that no update follows.

        An interrupted iteration calls its network at most as often as iterations before.
        """
        units = self._units[begin:]
        if not units or self.log.has_backward(units[0].begin, units[-1].end):
            return
        n_calls = Counter(unit.training for unit in units if unit.kind is UnitKind.CALL)
        for at, unit in enumerate(units, begin):
            are_too_many = 0 < self._max_used_calls[unit.training] < n_calls[unit.training]
            if unit.kind is UnitKind.CALL and are_too_many:
                self._segmenter.change_kind(at, UnitKind.TEST)

    def _trials_of(self, segment: Segment) -> Iterator[tuple[TrialKind, Account, list[TimedUnit]]]:
        """Yield the trial of a segment, if it is one; else move its time to its account."""
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
            self._move_time(units, (budget.INTERRUPTED, ""), 1)
        elif segment.kind is SegmentKind.CALL and first.network is not None:
            if self._calls_functions(first):
                yield self.kinds.kind_of_own_call(first), first.account, units
            else:
                part, _ = account_of_own_call(first)
                self._move_time(units, (part, budget.WITHOUT_FUNCTIONS), 1)
        elif not first.raised and first.name:
            self._move_time(units, (budget.DATA, first.name), 1)
        elif first.kind is UnitKind.BACKWARD:
            self._move_time(units, (budget.CALLS, ""), 0)

    def _calls_functions(self, unit: TimedUnit) -> bool:
        """Whether a call of a network calls any function; true if that is unknown."""
        is_known = self._is_started and not unit.is_counted
        return not is_known or self.log.calls_functions(unit.begin, unit.end)

    def _move_time(self, units: list[TimedUnit], account: Account, count: int) -> int:
        """Move the time of units to an account; returns the time in ns."""
        first, last = units[0], units[-1]
        own_ns = last.end_own_ns - first.begin_own_ns
        if first.account != account:
            self._accounts.move(first.account, account, own_ns, count)
            self.on_decided(first.begin_ns, last.end_ns, account)
        return own_ns

    def _add_trials(self, kind: TrialKind, trials: list[tuple[Account, list[TimedUnit]]]) -> None:
        """Add trials to a kind, and their time to its account."""
        logged: dict[TrialKind, list[tuple[int, LoggedTrial, Counter[str]]]] = {}
        for account, units in trials:
            first, last = units[0], units[-1]
            kind.count += 1
            ns = self._move_time(units, kind.account, 1 if account != kind.account else 0)
            kind.own_ns += ns
            is_changed = any(unit.is_changed for unit in units)
            measured = self.kinds.with_changes(kind) if is_changed else kind
            if self._layers:
                self.kinds.measure(measured, Clock(self._accounts.now_ns, self.clock.device))
            if measured.writer is not None and not any(unit.is_counted for unit in units):
                cut = self.log.cut(first.begin, last.end, first.begin_ns, last.end_ns, kind.count)
                logged.setdefault(measured, []).append((ns, *cut))
        for measured, cuts in logged.items():
            for added_ns in self._add_to_rows(measured, cuts):
                kind.own_ns -= added_ns
                self._accounts.move(kind.account, (budget.PROFILER, WITHIN), added_ns)
        self.wants_batches &= not (kind.is_training and kind.is_measured)

    def _add_to_rows(
        self, kind: TrialKind, cuts: list[tuple[int, LoggedTrial, Counter[str]]]
    ) -> list[int]:
        """Add trials to the rows of a kind; return the time that recording added to each, in ns."""
        try:
            with self.stopped() if not kind.is_measured else nullcontext():
                times = kind.add([(trial, calls) for _, trial, calls in cuts])
        except Exception as error:
            self.kinds.warn(kind.name, f"measuring stopped: {one_line(error)}")
            kind.writer, kind.has_failed = None, True
            return []
        return [max(0, ns - trial.wall_ns) for (ns, *_), trial in zip(cuts, times, strict=True)]

    # -- the end

    def _end(self, kind: TrialKind) -> None:
        """Make the recording of a kind."""
        with self.stopped():
            try:
                kind.end()
            except Exception as error:
                self.kinds.warn(kind.name, f"measuring stopped: {one_line(error)}")

    def close(self) -> None:
        """Stop recording, and end all kinds, at the end of the program."""
        self.stop()
        for kind in self.kinds.every:
            self._end(kind)
