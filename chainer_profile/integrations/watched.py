"""Trials of one kind in a program: which of them are profiled, and what that may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import log
from random import Random
from typing import Any

from chainer_profile.basics.errors import one_line
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.live import COUNTING, TRACING, LiveTrials
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.budget import ITERATIONS, PROFILER
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Rank, Recording

#: Trials that are all profiled as far as the cost allows, behind which they get ever rarer, and
#: the part of them that is left as it is, to see what profiling adds.
_DENSE, _PLAIN = 400, 0.125
#: First trials that are profiled whatever they cost, and what profiling may cost of the trials' own
#: time behind them, which with the looks' 6 % is a tenth; where it costs more, it is asked again
#: after :data:`_LOOK_NS`, and so many trials at least.
_FIRST, _COST, _UNTIL_ASKED = 2, 0.035, 100
#: Of several ranks all profile the same trials: every second one at first, then every tenth.
_OFTEN, _SELDOM, _OFTEN_TRIALS = 0.5, 0.1, 60
#: Nanoseconds that the memory pass takes for each call, about: tracemalloc sees all of Python's
#: allocations. Those that it may add whatever the trials take, and else of their own time.
_MEMORY_CALL_NS, _MEMORY_NS, _MEMORY_COST = 500_000, 300_000_000, 0.03
#: Trials that are left as they are take few steps so long; then it is asked what is to be done.
_LOOK_NS = 100_000_000
#: Of trials that take less than this the CPU time of one in so many is read, as reading it twice
#: takes 2 us; no number that programs like to repeat their calls by.
_SHORT_NS, _CPU_EVERY = 1_000_000, 7
#: Ends a trial, with the exception that it ended in, if any.
End = Callable[[BaseException | None], None]
#: What the profiler does around trials, and within those that are profiled.
AROUND, WITHIN = "around trials", "in profiled trials"
_SLOWED = (COUNTING, TRACING)


class Abandoned(BaseException):
    """A trial that turned out to be none: its time is another account's, and it is not counted."""

    def __init__(self, into: Account) -> None:
        self.into = into


@dataclass(eq=False)
class Watched:
    """Trials of one kind of a program."""

    name: str
    trial: LoopTrial | None
    accounts: Accounts
    warn: Callable[[str], None]
    saved: Callable[[], None]

    def __post_init__(self) -> None:
        self.live: LiveTrials | None = None  #: What measures them, if any is to be measured.
        self.recording: Recording | None = None  #: What was measured, at the end.
        self.spent: Account = (ITERATIONS, "")  #: What the time of a trial goes to.
        #: Trials so far, and their time without that of other accounts within.
        self.count = self.own_ns = 0
        self._rank: Rank | None = None
        self._coin = Random(0)
        #: Trials that go by until one is profiled, and whether those are left as they are, and
        #: nothing else is to be done before them.
        self.ahead, self.is_settled = 0, False
        # When it is asked again what is to be done.
        self._look_ns = 0
        # What profiling added so far, and the time of the last trial that no counting slowed.
        self._profiling_ns = self._usual_ns = 0
        self.begin_plain = self._plain_trials()

    def measure(
        self, entries: Entries, journal: Callable[[], Journal], memory: bool, calibrates: bool
    ) -> None:
        """Measure some of these trials from now on; see :class:`LiveTrials`."""
        assert self.trial is not None
        clock = clock_of(device_of(self.trial.roots[0][1]))
        self._rank = rank_of(self.trial.optimizers)
        self.ahead = 0
        self.live = LiveTrials(
            *(self.trial, clock, entries, journal, self.warn, memory, self._rank),
            calibrates=calibrates,
        )

    def end(self) -> None:
        """No more are to come."""
        if self.trial is not None:
            with self._excused():
                self._stop()
            self.trial = None  # its network may go

    def _stop(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            live.end()
            self.recording = live.recording()

    # -- a trial

    def run(self, call: Callable[[], Any], count: int = 1) -> Any:
        """What a call gives, which is the next trial."""
        end = self.begin(count)
        try:
            given = call()
        except BaseException as error:
            end(error)
            raise
        end(None)
        return given

    def begin(self, count: int = 1) -> End:
        """The next trial begins; what the profiler does around it is kept apart."""
        goes_by = self.ahead > 0
        if goes_by:
            self.ahead -= 1
            if self.is_settled:
                return self.begin_plain(count)
        self.saved()
        live = self.live
        if live is not None:
            live.write_group(self.accounts.at_ns)
            most_ns = max(_MEMORY_NS, _MEMORY_COST * self.own_ns)
            live.counts = live.calls * _MEMORY_CALL_NS <= most_ns
            if not goes_by and self._chooses():
                live.wanted = True
        else:
            self.ahead = self._until_asked
        self.is_settled = live is None or live.is_plain
        if live is not None and not self.is_settled:
            return self._begin_seen(live, count)
        self._look_ns = self.accounts.at_ns + _LOOK_NS
        return self.begin_plain(count)

    def _plain_trials(self) -> Callable[[int], End]:
        """What begins a trial that is timed as a whole and no more."""
        # As most trials are: it takes few steps, which find what they need in closure cells, and
        # opens and closes its account itself.
        accounts = self.accounts
        opened, own_times, now_ns = accounts.opened, accounts.own_times, accounts.now_ns
        live: LiveTrials | None = None
        start_ns = used_ns = 0
        count = 1

        def begin(counts: int) -> End:
            nonlocal live, start_ns, used_ns, count
            live, count = self.live, counts
            used_ns = -1
            if live is not None and (self._usual_ns >= _SHORT_NS or not self.count % _CPU_EVERY):
                used_ns = live.cpu_ns()
            start_ns = now_ns()
            own_times[-1] += start_ns - accounts.at_ns
            accounts.at_ns = start_ns
            opened.append(self.spent)
            own_times.append(0)
            return end

        def end(error: BaseException | None) -> None:
            if error is not None:
                into = _account_of(error)
                if live is not None and into is None:
                    live.iteration += 1
                accounts.close(into, 0)
                return
            end_ns = now_ns()
            self._usual_ns = ns = own_times.pop() + end_ns - accounts.at_ns
            accounts.at_ns = end_ns
            total = accounts.totals[opened.pop()]
            total[0] += ns
            total[1] += count
            self.own_ns += ns
            self.count += 1
            if live is not None:
                live.iteration += 1
                used = -1 if used_ns < 0 else live.cpu_ns() - used_ns
                live.plain_trials.extend((start_ns, end_ns - start_ns, used))
            if end_ns >= self._look_ns:
                self.is_settled = False

        return begin

    @property
    def _until_asked(self) -> int:
        return max(_UNTIL_ASKED, _LOOK_NS // max(1, self._usual_ns))

    def _chooses(self) -> bool:
        """Whether the next trial is to be profiled: late ones are, too, however long it goes on."""
        optimizers = len(self.trial.optimizers) if self.trial is not None else 1
        if optimizers > 1 and self.count < optimizers:
            return False  # which one's update ends an iteration is not known yet
        chance = min(1 - _PLAIN, _DENSE / (self.count + 1))
        if self._rank is not None:
            chance = _OFTEN if self.count < _OFTEN_TRIALS else _SELDOM
        elif self.count < _FIRST:
            return True
        elif self._profiling_ns > _COST * self.own_ns:
            # Until their own time has paid for what profiling added so far.
            owed_ns = self._profiling_ns / _COST - self.own_ns
            owed = int(owed_ns / max(1, self._usual_ns or owed_ns))
            self.ahead = min(self._until_asked, owed)
            return False
        # How many trials go by until a coin of this chance falls on its head.
        self.ahead = int(log(1 - self._coin.random()) / log(1 - chance))
        return True

    def _begin_seen(self, live: LiveTrials, count: int) -> End:
        """A trial begins that is profiled, or whose memory is counted."""
        accounts, trial = self.accounts, live.trial()
        accounts.open(self.spent)
        with self._around_trial(live), self._excused():
            trial.__enter__()

        def end(error: BaseException | None) -> None:
            raised = (None,) * 3 if error is None else (type(error), error, error.__traceback__)
            with self._around_trial(live), self._excused():
                if self.live is not None:
                    trial.__exit__(*raised)
            if error is not None:
                into = _account_of(error)
                live.iteration -= into is not None
                accounts.close(into, 0)
                return
            ns = accounts.close(None, count)
            self.count += 1
            self.own_ns += self._without_added(live, ns)

        return end

    def _without_added(self, live: LiveTrials, ns: int) -> int:
        """A trial's own time; what profiling added to it is the profiler's."""
        added_ns = live.added_ns
        if live.mode in _SLOWED and self._usual_ns:
            added_ns = ns - self._usual_ns
        added_ns = max(0, min(ns, added_ns))
        if live.mode not in _SLOWED:
            self._usual_ns = ns - added_ns
            self._spend(live, added_ns)
        if added_ns:
            self.accounts.move(self.spent, (PROFILER, WITHIN), added_ns)
        return ns - added_ns

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """What goes wrong in measuring ends that, and not the program."""
        try:
            yield
        except Exception as error:
            self.warn(f"measuring stopped: {one_line(error)}")
            with suppress(Exception):
                self._stop()

    @contextmanager
    def _around_trial(self, live: LiveTrials) -> Iterator[None]:
        self.accounts.open((PROFILER, AROUND))
        try:
            yield
        finally:
            self._spend(live, self.accounts.close())

    def _spend(self, live: LiveTrials, ns: int) -> None:
        """Count what profiling a trial took, but what it takes once: looking up, and memory."""
        if live.mode not in _SLOWED and live.profiled > 1:
            self._profiling_ns += ns


def _account_of(error: BaseException) -> Account | None:
    """Where the time goes of a trial that turned out to be none."""
    return error.into if isinstance(error, Abandoned) else None
