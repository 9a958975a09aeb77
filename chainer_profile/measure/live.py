"""Iterations that a program makes anyway: each one is on the tape, by link and function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.measure import environment
from chainer_profile.measure.calibration import calibrated
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.finite import not_finite
from chainer_profile.measure.journal_writer import JournalWriter
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.memory import IterationMemory
from chainer_profile.measure.readings import ReadTrials
from chainer_profile.measure.rows import Iteration
from chainer_profile.measure.tape import GROUP_NS, Tape
from chainer_profile.measure.tape_cost import cost_of_a_call, window_ns
from chainer_profile.record.journal import Header, Journal, JournalError
from chainer_profile.record.recording import (
    COMPLETE,
    Calibration,
    Conditions,
    Layer,
    Rank,
    Recording,
    Settings,
)

#: How a trial is run: while allocations are counted, while each row's are read, and on the tape.
COUNTING, TRACING, TAPING = "counting", "tracing", "taping"
#: A machine may have another speed after so long.
_LONG_NS = 30_000_000_000


class LiveTrials:
    """Has the trials of a program on the tape; with ``memory`` two of them count memory instead.

    Each is between ``begin()`` and ``finish()``.
    """

    def __init__(
        self,
        trial: LoopTrial,
        clock: Clock,
        entries: Entries,
        journal: Callable[[], Journal] = Journal,
        warn: Callable[[str], None] = lambda problem: None,
        memory: bool = False,
        rank: Rank | None = None,
        calibrates: bool = True,
        stays: bool = True,
    ) -> None:
        trial.stays = stays
        self.iteration = 0
        self.added_ns = 0  # by profiling, within the last trial
        self.mode = TAPING
        self._trial, self._clock = trial, clock
        self._open, self._warn, self._rank = journal, warn, rank
        events = None if clock.device is None else EventPool(clock.device)
        self._tape = Tape(clock.now_ns, trial, entries, events)
        self._rows = self._tape.rows
        self._memory = IterationMemory(trial, is_due=memory)
        self._journal: Journal | None = None
        self.header: Header | None = None  #: What the journal begins with, once it does.
        self._conditions: Conditions | None = None
        self._call_ns = 0.0
        # Since when the fixed work was timed; None where it is not.
        self._calibrated_ns: int | None = clock.now_ns() if calibrates else None
        self._folded_ns = 0
        self._last: Iteration | None = None
        self._writer: JournalWriter | None = None
        # What a trial runs within in which allocations are read.
        self._tracing = ExitStack()

    def times(self) -> dict[Layer | str, float]:
        """Seconds of the last trial's rows, and of the framework of its phases; empty if none."""
        self._fold()
        if self._last is None or self.mode != TAPING:
            return {}
        owners: tuple[Layer | str, ...] = (*self._rows.layers(), *self._rows.phases)
        times = np.concatenate([self._last.rows_ns, self._last.phases_ns])
        return {owner: ns * NS for owner, ns in zip(owners, times.tolist(), strict=False)}

    @property
    def is_counting_next(self) -> bool:
        """Whether the next trial is one of those in which memory is counted."""
        return self._memory.is_on or (self._memory.is_due and self._journal is not None)

    def wait(self) -> None:
        """Wait for the device, around a trial that is not measured."""
        if self._clock.device is not None:
            self._clock.device.synchronize()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A trial runs within this; one that ends in an exception counts for nothing."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self.finish(error)
            raise
        self.finish(None)

    def begin(self) -> None:
        """A trial begins."""
        self.iteration += 1
        self.added_ns = 0
        memory = self._memory
        if memory.is_on:
            self.mode = TRACING
            self._tracing.enter_context(memory.tracing(ReadTrials(self._tape)))
        elif memory.is_due and self._journal is not None:
            self.mode = COUNTING
            memory.begin()
            self._tell(memory.problem)
        else:
            self.mode = TAPING
            self._prepare()
            self._tape.attach()
            self._tape.start()

    def finish(self, error: BaseException | None) -> None:
        """It ends, maybe with an exception."""
        if self.mode == TAPING:
            self._finish_on_tape(completed=error is None)
        elif self.mode == TRACING:
            raised = (None,) * 3 if error is None else (type(error), error, error.__traceback__)
            self._tracing.__exit__(*raised)
            self._tell(self._memory.problem)
        elif error is not None:
            self._memory.end()

    def _finish_on_tape(self, completed: bool) -> None:
        tape = self._tape
        if not completed:
            tape.detach()
            return
        calls = tape.stop(self.iteration)
        self.added_ns = tape.paused_ns + int(calls * self._call_ns)
        tape.detach()
        self._trial.note(False)
        now_ns = self._clock.now_ns()
        if now_ns - self._folded_ns >= GROUP_NS or tape.is_long or self._journal is None:
            self._folded_ns = now_ns
            self._fold()

    def _prepare(self) -> None:
        clock = self._clock
        if self._conditions is None:
            self._call_ns = cost_of_a_call(clock.now_ns)
            self._conditions = Conditions(
                clock_resolution_ns=float(clock.resolution_ns()),
                window_ns=window_ns(clock.now_ns, clock.device),
                call_ns=self._call_ns,
                calibrations=self._calibrations(),
            )
        if clock.device is not None:
            clock.device.synchronize()
        self._trial.note(self._journal is None)

    def _fold(self) -> None:
        """Write what is on the tape, without what that added; but for trials without calls."""
        folded = self._tape.fold(self._call_ns)
        iterations = [iteration for iteration in folded if iteration.calls.any()]
        self._rows.iterations -= len(folded) - len(iterations)
        if not iterations:
            return
        self._last = iterations[-1]
        if self._writer is None:
            journal, settings = self._open(), self._settings()
            self._journal = journal
            self._writer = JournalWriter(journal, self._rows, self._tape.links, self._settings)
            header = self.header = Header(
                settings,
                environment.collect(settings.device),
                on_device=self._clock.device is not None,
                iterations=True,
                rank=self._rank,
            )
            self._try_to_write(partial(journal.add, header))
        self._try_to_write(partial(self._writer.add, iterations))

    def _try_to_write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except JournalError as error:
            # What could not be written is kept in memory, and written at the end if it can be.
            self._warn(f"the trials cannot be written: {error}")

    def _tell(self, problem: str) -> None:
        if problem:
            self._warn(problem)

    def _settings(self) -> Settings:
        return self._trial.settings(self._rows.layers())

    # -- what came out

    def end(self) -> None:
        """No more trials are to come, and one that runs is none."""
        self._tracing.close()
        self._tape.detach()
        self._memory.end()
        self._trial.stand_down()

    def pause(self) -> None:
        """Measure nothing between trials: it is not known whether more are to come."""
        self._memory.pause()

    def recording(self) -> Recording | None:
        """The trials so far; None without any."""
        self._fold()
        if self._writer is None:
            return None
        conditions = self._conditions or Conditions()
        calibrations = conditions.calibrations
        since_ns = self._calibrated_ns
        if since_ns is not None and self._clock.now_ns() - since_ns >= _LONG_NS:
            calibrations += self._calibrations()
        odd = not_finite(self._trial.roots)
        conditions = replace(conditions, calibrations=calibrations, not_finite=odd)
        recording = self._writer.recording(conditions, COMPLETE)
        settings = replace(self._settings(), trials=recording.n_trials, clean_trials=0)
        memory = self._memory.use_of_rows(len(recording.layers))
        if memory is not None:
            memory = replace(memory, input_nbytes=self._trial.input_nbytes)
        return replace(recording, settings=settings, memory=memory)

    def _calibrations(self) -> tuple[Calibration, ...]:
        """How fast the machine is now; nothing where that cannot be measured."""
        if self._calibrated_ns is None:
            return ()
        xp = device_of(self._trial.roots[0][1]).xp if self._trial.roots else np
        calibration = calibrated(self._clock, xp)
        return () if calibration is None else (calibration,)
