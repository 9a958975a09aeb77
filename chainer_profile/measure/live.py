"""Trials that a program makes anyway: chosen ones are learned from, traced or profiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from struct import pack
from typing import TYPE_CHECKING, Protocol

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import plural
from chainer_profile.measure import environment
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.devices import device_of
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.finite import not_finite
from chainer_profile.measure.iteration_memory import IterationMemory
from chainer_profile.measure.learner import learning
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.variants import PASSES, Known, Variants
from chainer_profile.measure.windows import Trial
from chainer_profile.record.journal import Journal, JournalError, Kind
from chainer_profile.record.recording import COMPLETE, Conditions, Recording, Settings

if TYPE_CHECKING:
    from chainer_profile.measure.clock import Clock
    from chainer_profile.measure.structure import Structure
    from chainer_profile.record.recording import Calibration, Layer, MemoryUse, Rank


#: How a trial is run.
PLAIN, LEARNING, TRACING, PROFILING = "plain", "learning", "tracing", "profiling"


class LiveTrial(Trial, Protocol):
    """What a trial of a running program is; it is the program that runs it."""

    @property
    def noting(self) -> bool:
        """Whether a trial runs that is to be described, by its batch for instance."""

    @noting.setter
    def noting(self, on: bool) -> None: ...

    @property
    def input_nbytes(self) -> int:
        """Bytes of the inputs of the last trial that was described."""

    def settings(self, structure: Structure) -> Settings:
        """What the last trial that was described was, with these windows."""

    def difference(self, first: Settings) -> str:
        """How it differs from the first one in what windows do not tell, in words; or empty."""


class LiveTrials:
    """Measures chosen trials of a program that runs anyway, and leaves the others as they are.

    The first chosen one teaches the layers, and the one behind it shows what each layer allocates;
    allocations are counted from the first on. Those behind them are profiled, and those next to
    these are timed as a whole. After one that nothing is known of, the next teaches again.

    Args:
        step: What a trial is.
        clock: The clock that measures.
        journal: Gives the journal of the trials, when the first was learned from; what it raises
            is told, and the trials are kept in memory.
        warn: Is told of what goes wrong; nothing is raised into the program.
        memory: Make the memory pass.
        rank: Which rank of several this process is.

    Attributes:
        iteration: Number of the trial that runs, or ran last, from 1.
        wanted: Whether the next trial is to be measured.
        teaches: Whether trials may teach of others that nothing is known of, beside the first.
        profiled: Number of profiled trials.
        mode: How the last trial ran: plain, learning, tracing or profiling.
        last: The last trial, where it was profiled and its kind is known.
    """

    def __init__(
        self,
        step: LiveTrial,
        clock: Clock,
        journal: Callable[[], Journal] = Journal,
        warn: Callable[[str], None] = lambda problem: None,
        memory: bool = True,
        rank: Rank | None = None,
    ) -> None:
        self.iteration = 0
        self.wanted = False
        self.teaches = True
        self.profiled = 0
        self.mode = PLAIN
        self.last: Known | None = None
        self._step, self._clock = step, clock
        self._open, self._warn, self._rank = journal, warn, rank
        events = None if clock.device is None else EventPool(clock.device)
        self._variants = Variants()
        self._recorder = Recorder(clock.now_ns, step, events, self._variants.raising)
        self._memory = IterationMemory(step) if memory else None
        self._journal = Journal()
        self._settings = Settings()
        # Measured before the first trial that teaches, whether that one succeeds or not.
        self._conditions: Conditions | None = None
        # Whether the next wanted trial is to teach a structure, and how many did so.
        self._learns = True
        self._passes, self._most_passes = 0, 1
        self._learned: list[Known] = []
        # Start, wall and CPU time of the last trial that ran as it is, and whether the next such
        # one stands behind a profiled one.
        self._last: tuple[int, int, bytes] | None = None
        self._behind = False

    def times(self) -> dict[Layer | str, float]:
        """Seconds of the last trial's layers, and of the framework of its phases; empty if none."""
        if self.last is None:
            return {}
        structure = self._variants.structures[self.last.variant]
        owners: tuple[Layer | str, ...] = (*structure.layers, *structure.phases)
        return {one: ns * NS for one, ns in zip(owners, self.last.times_ns.tolist(), strict=False)}

    @property
    def seen(self) -> bool:
        """Whether anything is known of its trials."""
        return bool(self._variants.structures)

    def want(self) -> None:
        """Measure the next trial."""
        self.wanted = True
        if self._variants.structures:
            # Before it, one that may teach of those that wait.
            taught = not self.teaches or self._passes >= self._most_passes
            self._learns = not taught and self._variants.wants_pass()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A trial runs within this; one that ends in an exception counts for nothing."""
        self.iteration += 1
        self.last = None
        if not self.wanted:
            self.mode, trial = PLAIN, self._plain()
        elif self._learns:
            self.mode, trial = LEARNING, self._learning()
        elif self._memory is not None and self._memory.is_on:
            self.mode, trial = TRACING, self._tracing(self._memory)
        else:
            self.wanted = False
            self.mode, trial = PROFILING, self._profiling()
        with trial:
            yield

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """A trial as it is, timed as a whole.

        On a GPU only those behind a profiled one are timed: waiting for the device in all of them
        would slow the program down.
        """
        clock = self._clock
        if clock.device is not None and not self._behind:
            yield
            return
        now_ns, cpu_ns = clock.waiting().now_ns, clock.cpu_ns
        begin_ns, start_ns = cpu_ns(), now_ns()
        yield
        wall_ns = now_ns() - start_ns
        self._last = start_ns, wall_ns, pack("<q", cpu_ns() - begin_ns)
        if self._behind:
            self._behind = False
            self._add_plain()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        self._step.noting = True
        try:
            yield
        finally:
            self._step.noting = False

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """A trial that teaches the structure."""
        first = not self._variants.structures
        memory = self._memory if first else None
        if self._conditions is None:
            # Counting of memory would make the windows longer.
            self._conditions = Conditions(
                clock_resolution_ns=float(self._clock.resolution_ns()),
                window_ns=self._recorder.window_ns(),
                calibrations=self._calibrations(),
            )
        if memory is not None:
            memory.begin()
        try:
            with self._noting(), learning(self._step, self._clock.now_ns) as learned:
                yield
        except BaseException:
            if memory is not None:
                memory.end()
            raise
        structure = learned.structure()
        self._learns = False
        self._passes += 1
        before = len(self._variants.structures)
        waiting = self._variants.learn(structure)
        if memory is not None:
            self._tell(memory.problem)
        if first:
            self._begin(structure)
        elif len(self._variants.structures) > before:
            seen = structure.layers, structure.phases, structure.links
            settings = self._step.settings(structure)
            self._try_to_write(partial(self._journal.add_variant, *seen, settings))
        if self._clock.device is None and learned.trial is not None:
            trial = learned.trial._replace(iteration=self.iteration)
            known = self._variants.add(trial, structure.log)
            self._learned += [known] if known is not None else []
        self._keep(waiting)

    @contextmanager
    def _tracing(self, memory: IterationMemory) -> Iterator[None]:
        """A trial in which allocations are counted."""
        differs = partial(self._step.difference, self._settings)
        with self._noting(), memory.tracing(self._variants.watched(), differs):
            yield
        self._tell(memory.problem)

    @contextmanager
    def _profiling(self) -> Iterator[None]:
        recorder, variants = self._recorder, self._variants
        recorder.clear()
        if self._clock.device is not None:
            self._clock.device.synchronize()
        with recorder:
            recorder.begin()
            yield
            trial = recorder.end()._replace(iteration=self.iteration)
        known = self.last = variants.add(trial, recorder.log.copy())
        recorder.clear()
        self._add_plain()
        self._behind = True
        if known is not None:
            self._keep([known])
        else:
            self.profiled += 1
            self._most_passes += PASSES
            if not variants.waits(trial):
                self._add(Kind.LEFT_OUT, trial.start_ns, trial.wall_ns)

    def _keep(self, trials: Sequence[Known]) -> None:
        """Write profiled trials."""
        for number, trial, times_ns in trials:
            record = trial.start_ns, trial.wall_ns, times_ns.tobytes()
            self._try_to_write(partial(self._journal.add_group, Kind.PROFILED, [record], number))
            self.profiled += 1

    def _add_plain(self) -> None:
        """Keep the last trial that ran as it is."""
        if self._last is not None:
            self._add(Kind.CLEAN, *self._last)
        self._last = None

    def _add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        self._try_to_write(partial(self._journal.add, kind, start_ns, wall_ns, more))

    def _try_to_write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except JournalError as error:
            # What could not be written is kept in memory, and written at the end if it can be.
            self._warn(f"the trials cannot be written: {error}")

    def _tell(self, problem: str) -> None:
        if problem:
            self._warn(problem)

    def _begin(self, structure: Structure) -> None:
        """Begin the journal."""
        self._settings = self._step.settings(structure)
        try:
            self._journal = self._open()
            self._begin_journal(structure)
        except JournalError as error:
            self._warn(f"the trials cannot be written: {error}")
            self._journal = Journal()
            self._begin_journal(structure)

    def _begin_journal(self, structure: Structure) -> None:
        self._journal.begin(
            structure.layers,
            self._settings,
            environment.collect(self._settings.device),
            phases=structure.phases,
            links=structure.links,
            on_device=self._clock.device is not None,
            cpu=True,
            iterations=True,
            rank=self._rank,
        )

    # -- what came out

    def end(self) -> None:
        """Measure no more."""
        if self._memory is not None:
            self._memory.end()

    def recording(self) -> Recording | None:
        """The trials so far; None without any.

        A trial that taught a structure counts where no other was profiled.
        """
        # Of several ranks it tells of no times that others have too: its clock stood still.
        if self.profiled <= len(self._variants.unknown) and self._rank is None:
            self._keep(self._learned)
            self._learned.clear()
        if self.profiled <= len(self._variants.unknown):
            return None
        conditions = self._conditions or Conditions()
        calibrations = (*conditions.calibrations, *self._calibrations())
        odd = not_finite(self._step.roots)
        conditions = replace(conditions, calibrations=calibrations, not_finite=odd)
        recording = self._journal.recording(conditions, COMPLETE)
        unknown = len(self._variants.unknown)
        recording = replace(recording, left_out=recording.left_out + unknown)
        settings = replace(
            recording.settings, trials=recording.all_trials, clean_trials=len(recording.clean_ns)
        )
        recording = replace(recording, settings=settings)
        if recording.layers == self._variants.structures[0].layers:
            recording = replace(recording, memory=self._memory_use())
        if recording.left_out:
            self._warn(
                f"{plural(recording.left_out, 'profiled iteration')} of a kind that no other one "
                f"taught: left out; {self._variants.difference}"
            )
        return recording

    def _calibrations(self) -> tuple[Calibration, ...]:
        """How fast the machine is now; nothing where that cannot be measured."""
        xp = device_of(self._step.roots[0][1]).xp if self._step.roots else np
        try:
            return (calibrate(self._clock.waiting().now_ns, xp),)
        except Exception:  # such as a full GPU: nothing of the program depends on it
            return ()

    def _memory_use(self) -> MemoryUse | None:
        """What the memory pass found, if there was one."""
        if self._memory is None or self._memory.use is None:
            return None
        return replace(self._memory.use, input_nbytes=self._step.input_nbytes)
