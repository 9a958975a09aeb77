"""Iterations that a program makes anyway: chosen ones are profiled, by link and function."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.measure import environment
from chainer_profile.measure.by_link import ToldRows, cost_of_a_call
from chainer_profile.measure.calibration import calibrated
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.finite import not_finite
from chainer_profile.measure.link_recorder import LinkRecorder
from chainer_profile.measure.link_rows import Iteration
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.memory import IterationMemory
from chainer_profile.measure.readings import ByLinks
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

#: How a trial is run: as it is, while allocations are counted, while each row's are read, and
#: profiled.
PLAIN, COUNTING, TRACING, PROFILING = "plain", "counting", "tracing", "profiling"
#: Times of plain trials are written together when so much time has passed.
_GROUP_NS = 100_000_000
#: A machine may have another speed after so long.
_LONG_NS = 30_000_000_000


class LiveTrials:
    """Profiles chosen trials of a program that runs anyway, and leaves the others as they are."""

    def __init__(
        self,
        trial: LoopTrial,
        clock: Clock,
        entries: Entries,
        journal: Callable[[], Journal] = Journal,
        warn: Callable[[str], None] = lambda problem: None,
        memory: bool = True,
        rank: Rank | None = None,
        calibrates: bool = True,
    ) -> None:
        self.iteration = 0
        self.wanted = False
        self.counts = True  # the memory pass may begin
        self.profiled = self.calls = 0  # the calls are those of the last profiled trial
        self.added_ns = 0  # by profiling, within the last trial
        self.mode = PLAIN
        self.cpu_ns = clock.cpu_ns
        self._trial, self._clock = trial, clock
        self._open, self._warn, self._rank = journal, warn, rank
        events = None if clock.device is None else EventPool(clock.device)
        self._recorder = LinkRecorder(clock.now_ns, trial, entries, events)
        self._rows = self._recorder.rows
        self._memory = IterationMemory(trial, is_due=memory)
        self._journal: Journal | None = None
        self._conditions: Conditions | None = None
        self._call_ns = 0.0
        # Since when the fixed work was timed; None where it is not.
        self._calibrated_ns: int | None = clock.now_ns() if calibrates else None
        self._last: Iteration | None = None
        self._told: ToldRows | None = None
        #: Start, wall and CPU time (-1 where it was not read) of plain trials that are not written
        #: yet, one after the other.
        self.plain_trials = array("q")
        # Whether the next one stands behind a profiled one.
        self._behind = False

    def times(self) -> dict[Layer | str, float]:
        """Seconds of the last trial's rows, and of the framework of its phases; empty if none."""
        if self._last is None:
            return {}
        owners: tuple[Layer | str, ...] = (*self._rows.layers(), *self._rows.phases)
        times = np.concatenate([self._last.rows_ns, self._last.phases_ns])
        return {one: ns * NS for one, ns in zip(owners, times.tolist(), strict=False)}

    @property
    def remembers(self) -> bool:
        """Whether the memory pass takes the next trials."""
        return self._memory.is_on or (self._memory.is_due and self._journal is not None)

    @property
    def looks(self) -> bool:
        """Whether the next trial does not run as it is: its entries are to be known."""
        return self.wanted or (self.counts and self.remembers)

    @property
    def is_plain(self) -> bool:
        """Whether the next trial runs as it is, and :attr:`plain_trials` may get it: no GPU."""
        return self._clock.device is None and not self.looks

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A trial runs within this; one that ends in an exception counts for nothing."""
        if self._memory.is_on:
            self.mode, run = TRACING, self._tracing()
        elif self.counts and self.remembers:
            self.mode, run = COUNTING, self._counting()
        elif self.wanted:
            self.wanted = False
            self.mode, run = PROFILING, self._profiling()
        else:
            self.mode, run = PLAIN, self._plain()
        self.iteration += 1
        self.added_ns, self._last = 0, None
        with run:
            yield

    def write_group(self, now_ns: int) -> None:
        """Write the plain trials, where the first of them is some time ago."""
        if self.plain_trials and now_ns - self.plain_trials[0] >= _GROUP_NS:
            self._write_plain()

    @contextmanager
    def _plain(self) -> Iterator[None]:
        # On a GPU only those behind a profiled one: waiting for it would slow the program down.
        clock = self._clock
        if clock.device is not None and not self._behind:
            yield
            return
        self._behind = False
        now_ns, cpu_ns = clock.waiting().now_ns, clock.cpu_ns
        begin_ns, start_ns = cpu_ns(), now_ns()
        yield
        wall_ns = now_ns() - start_ns
        self.plain_trials.extend((start_ns, wall_ns, cpu_ns() - begin_ns))
        self.write_group(start_ns)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self._memory.begin()
        self._tell(self._memory.problem)
        try:
            yield
        except BaseException:
            self._memory.end()
            raise

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        with self._memory.tracing(ByLinks(self._recorder)):
            yield
        self._tell(self._memory.problem)

    @contextmanager
    def _profiling(self) -> Iterator[None]:
        recorder, clock = self._recorder, self._clock
        first = self._journal is None
        if self._conditions is None:
            window_ns, self._call_ns = cost_of_a_call(clock.now_ns)
            self._conditions = Conditions(
                clock_resolution_ns=float(clock.resolution_ns()),
                window_ns=window_ns,
                call_ns=self._call_ns,
                calibrations=self._calibrations(),
            )
        if clock.device is not None:
            clock.device.synchronize()
        self._trial.note(first)
        try:
            with recorder.recording():
                recorder.start()
                yield
                self._last = recorder.end(self.iteration)
        finally:
            self._trial.note(False)
        self._behind = True
        self.calls = int(self._last.calls.sum())
        self.added_ns = self._last.paused_ns + int(self.calls * self._call_ns)
        if self.calls:
            self.profiled += 1
            self._keep(self._last)

    def _keep(self, one: Iteration) -> None:
        if self._told is None:
            journal, settings = self._open(), self._settings()
            self._journal = journal
            self._told = ToldRows(journal, self._recorder, self._settings)
            header = Header(
                (),
                settings,
                environment.collect(settings.device),
                on_device=self._clock.device is not None,
                cpu=True,
                iterations=True,
                rank=self._rank,
                by_link=True,
            )
            self._try_to_write(partial(journal.begin, header))
        self._try_to_write(partial(self._told.add, one))

    def _write_plain(self) -> None:
        if self._journal is not None and self.plain_trials:
            trials = self.plain_trials[:]
            del self.plain_trials[:]
            self._try_to_write(partial(self._journal.add_clean, trials))

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
        self._memory.end()

    def pause(self) -> None:
        """Measure nothing between trials: it is not known whether more are to come."""
        self._memory.pause()

    def recording(self) -> Recording | None:
        """The trials so far; None without any."""
        if self._told is None:
            return None
        self._write_plain()
        conditions = self._conditions or Conditions()
        calibrations = conditions.calibrations
        since_ns = self._calibrated_ns
        if since_ns is not None and self._clock.now_ns() - since_ns >= _LONG_NS:
            calibrations += self._calibrations()
        odd = not_finite(self._trial.roots)
        conditions = replace(conditions, calibrations=calibrations, not_finite=odd)
        recording = self._told.recording(conditions, COMPLETE)
        settings = replace(
            self._settings(), trials=recording.n_trials, clean_trials=len(recording.clean_ns)
        )
        memory = self._memory.use_of_rows(len(recording.layers))
        if memory is not None:
            memory = replace(memory, input_nbytes=self._trial.input_nbytes)
        return replace(recording, settings=settings, memory=memory)

    def _calibrations(self) -> tuple[Calibration, ...]:
        """How fast the machine is now; nothing where that cannot be measured."""
        if self._calibrated_ns is None:
            return ()
        xp = device_of(self._trial.roots[0][1]).xp if self._trial.roots else np
        found = calibrated(self._clock, xp)
        return () if found is None else (found,)
