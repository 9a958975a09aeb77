"""Trials of one kind in a program: each is measured, and its time has an account."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import one_line
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.iterations import RECORDING, Iterations
from chainer_profile.measure.loop import Loop
from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.budget import ITERATIONS, PROFILER
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Environment, Recording, Settings

if TYPE_CHECKING:
    from chainer_profile.advice.turns import Turns

#: Ends a trial, with the exception that ended it, if any.
End = Callable[[BaseException | None], None]
#: Names of the profiler's work around trials, and within those that are profiled.
AROUND, WITHIN = "around trials", "in trials"
_AROUND: Account = (PROFILER, AROUND)


class Abandoned(BaseException):
    """What began is no trial: it is not counted, and its time belongs to another account."""

    def __init__(self, into: Account) -> None:
        self.into = into


@dataclass(eq=False)
class Watched:
    """Trials of one kind of a program."""

    name: str
    trial: Loop | None
    accounts: Accounts
    warn: Callable[[str], None]
    saved: Callable[[], None]

    def __post_init__(self) -> None:
        self.live: Iterations | None = None  #: Measures them; None if nothing is to be measured.
        self.turns: Turns | None = None  #: Tries cures in them; None if nothing is tried.
        self.recording: Recording | None = None  #: The measured trials, at the end.
        self.spent: Account = (ITERATIONS, "")  #: The account of a trial's time.
        #: Trials so far, and their time without that of accounts within them.
        self.count = self.own_ns = 0
        # The time of the last trial on the tape, without what the tape added.
        self._usual_ns = 0

    def measure(self, journal: Callable[[], Journal], memory: bool, calibrates: bool) -> None:
        """Measure these trials from now on; see :class:`.Iterations`."""
        assert self.trial is not None
        clock = clock_of(device_of(self.trial.roots[0][1]))
        rank = rank_of(self.trial.optimizers)
        self.live = Iterations(
            *(self.trial, clock, journal, self.warn, memory, rank), calibrates=calibrates
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
        """Settings and machine of the trials so far, as in their recording; None without trials."""
        if self.recording is not None and self.recording.n_trials:
            return self.recording.settings, self.recording.environment
        header = None if self.live is None else self.live.header
        return None if header is None else (header.settings, header.environment)

    # -- a trial

    def begin(self, count: int = 1, ends: bool = False) -> End:
        """Begin the next trial, and keep the profiler's work around it apart.

        ``ends`` says that it is known where it ends: with a call.
        """
        self.saved()
        accounts, live = self.accounts, self.live
        # A trial with a cure is timed as a whole, as the tape's cost would be compared too.
        is_tried = False
        # It is not known yet which of several optimizers' updates ends an iteration.
        optimizers = len(self.trial.optimizers) if self.trial is not None else 1
        if optimizers > 1 and self.count < optimizers and not ends:
            live = None
        if live is None:
            accounts.open(self.spent)
        else:
            accounts.open(_AROUND)
            try:
                is_tried = self.turns is not None and self._is_tried(live, self.turns)
                if is_tried:
                    live.iteration += 1
                    live.wait()
                else:
                    live.begin()
            except Exception as error:
                self._fail(error)
            accounts.switch_to(self.spent)

        def end(error: BaseException | None) -> None:
            into = error.into if isinstance(error, Abandoned) else None
            counted = count if error is None else 0
            if live is None:
                ns = accounts.close(into, counted)
            else:
                if is_tried:
                    live.wait()
                ns = accounts.switch_to(_AROUND, into, counted)
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
        self, live: Iterations, is_tried: bool, ns: int, error: BaseException | None
    ) -> int:
        """Finish a trial that has ended; returns its own time."""
        if not is_tried:
            if self.live is not None:
                live.finish(error)
            if error is None:
                ns = self._without_added(live, ns)
        if self.turns is not None:
            if error is None and (is_tried or live.mode == RECORDING):
                self.turns.end(ns)
            else:
                self.turns.abandon()
        return ns

    def _is_tried(self, live: Iterations, turns: Turns) -> bool:
        """Switch on what the next trial tries; returns whether that trial is for this alone."""
        if live.is_counting_next:
            turns.pause()
            return False
        return turns.begin()

    def _without_added(self, live: Iterations, ns: int) -> int:
        """A trial's own time; the time that profiling added moves to the profiler's account."""
        added_ns = live.added_ns
        if live.mode != RECORDING and self._usual_ns:
            added_ns = ns - self._usual_ns
        added_ns = max(0, min(ns, added_ns))
        if live.mode == RECORDING:
            self._usual_ns = ns - added_ns
        if added_ns:
            self.accounts.move(self.spent, (PROFILER, WITHIN), added_ns)
        return ns - added_ns

    def _fail(self, error: Exception) -> None:
        """An error in measuring ends the measuring, and not the program."""
        self.warn(f"measuring stopped: {one_line(error)}")
        with suppress(Exception):
            self._stop()
