"""Trials of one kind in a program: each is measured, and its time has an account."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import one_line
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.live import TAPING, LiveTrials
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.budget import ITERATIONS, PROFILER
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Environment, Recording, Settings

if TYPE_CHECKING:
    from chainer_profile.advice.turns import Turns

#: Nanoseconds that the memory pass takes for each call, about: tracemalloc sees all of Python's
#: allocations. Those that it may add whatever the trials take, and else of their own time.
_MEMORY_CALL_NS, _MEMORY_NS, _MEMORY_PART = 500_000, 300_000_000, 0.03
#: Its two trials have no rows: they may take so long whatever the others take, or such a part.
_UNTIMED_TRIALS, _UNTIMED_NS, _UNTIMED_PART = 2, 100_000_000, 0.1
#: Ends a trial, with the exception that it ended in, if any.
End = Callable[[BaseException | None], None]
#: What the profiler does around trials, and within those that are profiled.
AROUND, WITHIN = "around trials", "in trials"
_AROUND: Account = (PROFILER, AROUND)


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
        self.turns: Turns | None = None  #: What tries cures in them, if anything is to.
        self.recording: Recording | None = None  #: What was measured, at the end.
        self.spent: Account = (ITERATIONS, "")  #: What the time of a trial goes to.
        #: Trials so far, and their time without that of other accounts within.
        self.count = self.own_ns = 0
        # The time of the last trial on the tape, without what that added.
        self._usual_ns = 0

    def measure(
        self, entries: Entries, journal: Callable[[], Journal], memory: bool, calibrates: bool
    ) -> None:
        """Measure these trials from now on; see :class:`LiveTrials`."""
        assert self.trial is not None
        clock = clock_of(device_of(self.trial.roots[0][1]))
        rank = rank_of(self.trial.optimizers)
        self.live = LiveTrials(
            *(self.trial, clock, entries, journal, self.warn, memory, rank),
            calibrates=calibrates,
        )

    def end(self) -> None:
        """No more are to come."""
        if self.turns is not None:
            self.turns.close()
        if self.trial is not None:
            try:
                self._stop()
            except Exception as error:
                self._fail(error)
            self.trial = None  # its network may go

    def _stop(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            live.end()
            self.recording = live.recording()

    def described(self) -> tuple[Settings, Environment] | None:
        """Settings and machine of the trials so far, as their recording has them; None of none."""
        if self.recording is not None and self.recording.n_trials:
            return self.recording.settings, self.recording.environment
        header = None if self.live is None else self.live.header
        return None if header is None else (header.settings, header.environment)

    # -- a trial

    def run(self, call: Callable[[], Any], count: int = 1) -> Any:
        """What a call gives, which is the next trial."""
        end = self.begin(count, ends=True)
        try:
            result = call()
        except BaseException as error:
            end(error)
            raise
        end(None)
        return result

    def begin(self, count: int = 1, ends: bool = False) -> End:
        """The next trial begins; what the profiler does around it is kept apart.

        ``ends`` says that it is known where it ends: with a call.
        """
        self.saved()
        accounts, live = self.accounts, self.live
        # A trial that is tried is timed as a whole: the tape would be a part of what is compared.
        is_tried = False
        # Of several optimizers it is not known yet which one's update ends an iteration.
        optimizers = len(self.trial.optimizers) if self.trial is not None else 1
        if optimizers > 1 and self.count < optimizers and not ends:
            live = None
        if live is None:
            accounts.open(self.spent)
        else:
            accounts.open(_AROUND)
            try:
                live.counts = live.memory_is_due and self._may_count(live)
                is_tried = self.turns is not None and self._is_tried(live, self.turns)
                if is_tried:
                    live.iteration += 1
                    live.wait()
                else:
                    live.begin()
            except Exception as error:
                self._fail(error)
            accounts.turn_to(self.spent)

        def end(error: BaseException | None) -> None:
            into = error.into if isinstance(error, Abandoned) else None
            counted = count if error is None else 0
            if live is None:
                ns = accounts.close(into, counted)
            else:
                if is_tried:
                    live.wait()
                ns = accounts.turn_to(_AROUND, into, counted)
                try:
                    ns = self._finish(live, is_tried, ns, error)
                except Exception as failure:
                    self._fail(failure)
                accounts.close()
                live.iteration -= into is not None
            if error is None:
                self.count += 1
                self.own_ns += ns

        return end

    def _finish(
        self, live: LiveTrials, is_tried: bool, ns: int, error: BaseException | None
    ) -> int:
        """A trial has ended; gives its own time."""
        if not is_tried:
            if self.live is not None:
                live.finish(error)
            if error is None:
                ns = self._without_added(live, ns)
        if self.turns is not None:
            if error is None and (is_tried or live.mode == TAPING):
                self.turns.end(ns)
            else:
                self.turns.abandon()
        return ns

    def _may_count(self, live: LiveTrials) -> bool:
        """Whether the memory pass takes little of what trials took so far."""
        added_ns, untimed_ns = live.calls * _MEMORY_CALL_NS, _UNTIMED_TRIALS * self._usual_ns
        return added_ns <= max(_MEMORY_NS, _MEMORY_PART * self.own_ns) and untimed_ns <= max(
            _UNTIMED_NS, _UNTIMED_PART * self.own_ns
        )

    def _is_tried(self, live: LiveTrials, turns: Turns) -> bool:
        """Switch on what is tried in the next trial; gives whether it is for that alone."""
        if live.is_counting_next:
            turns.pause()
            return False
        return turns.begin()

    def _without_added(self, live: LiveTrials, ns: int) -> int:
        """A trial's own time; what profiling added to it is the profiler's."""
        added_ns = live.added_ns
        if live.mode != TAPING and self._usual_ns:
            added_ns = ns - self._usual_ns
        added_ns = max(0, min(ns, added_ns))
        if live.mode == TAPING:
            self._usual_ns = ns - added_ns
        if added_ns:
            self.accounts.move(self.spent, (PROFILER, WITHIN), added_ns)
        return ns - added_ns

    def _fail(self, error: Exception) -> None:
        """What goes wrong in measuring ends that, and not the program."""
        self.warn(f"measuring stopped: {one_line(error)}")
        with suppress(Exception):
            self._stop()
