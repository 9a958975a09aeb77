"""Iterations of a program's own loop: each is recorded, by link and function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.measure import patches
from chainer_profile.measure.aggregate import TrialTimes
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import device_of
from chainer_profile.measure.iteration_writer import IterationWriter
from chainer_profile.measure.loop import Loop
from chainer_profile.measure.memory import IterationMemory
from chainer_profile.measure.readings import ReadingSession
from chainer_profile.measure.session import GROUP_NS, Session
from chainer_profile.record.journal import Header, Journal
from chainer_profile.record.recording import Layer, Recording

#: Modes of an iteration: times are recorded, allocations are traced by row, or only counted.
RECORDING, TRACING, COUNTING = "recording", "tracing", "counting"


class Iterations:
    """Records the iterations of a program, each from :meth:`begin` to :meth:`finish`.

    Args:
        loop: The networks, optimizers and batches of the iterations.
        clock: The clock that times them.
        journal: Opens the journal when the first iteration has ended.
        warn: Called with a problem that the user should know.
        memory: Count allocations in two iterations, which have no times then.
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        journal: Callable[[], Journal] = Journal,
        warn: Callable[[str], None] = lambda problem: None,
        memory: bool = False,
    ) -> None:
        self.iteration = 0
        self.added_ns = 0  # time that profiling added to the last iteration
        self.mode = RECORDING
        self._loop, self._clock = loop, clock
        self._warn = warn
        self._session = Session(loop.roots, clock, network_is_phase=True, warn=warn)
        self._memory = IterationMemory(loop, is_due=memory)
        self._writer = IterationWriter(
            self._session.target, clock, loop.settings, journal, warn, rank=loop.rank
        )
        self._read_ns = 0
        self._last: TrialTimes | None = None
        # The open contexts while allocations are traced by row.
        self._tracing = ExitStack()

    @property
    def header(self) -> Header | None:
        """The first record of the journal; None until an iteration is written."""
        return self._writer.header

    def times(self) -> dict[Layer | str, float]:
        """Seconds of the last iteration by row, and its framework time by phase.

        Empty if no times of it were recorded.
        """
        self._read()
        if self._last is None or self.mode != RECORDING:
            return {}
        aggregator = self._session.target.aggregator
        owners: tuple[Layer | str, ...] = (*aggregator.layers(), *aggregator.phases)
        times = np.concatenate([self._last.rows_ns, self._last.phases_ns])
        return {owner: ns * NS for owner, ns in zip(owners, times.tolist(), strict=False)}

    def wait(self) -> None:
        """Wait for the device, before or after an iteration that is not measured."""
        if self._clock.device is not None:
            self._clock.device.synchronize()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Record the block as an iteration, unless it raises."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self.finish(error)
            raise
        self.finish(None)

    def begin(self) -> None:
        """Begin an iteration."""
        self.iteration += 1
        self.added_ns = 0
        memory = self._memory
        if memory.is_on:
            self.mode = TRACING
            self._tracing.enter_context(memory.tracing(ReadingSession(self._session)))
        elif memory.is_due and self._writer.has_begun:
            self.mode = COUNTING
            memory.begin()
            self._report(memory.problem)
        else:
            self.mode = RECORDING
            self._prepare()
            self._session.roots = self._loop.roots
            self._session.start()
            self._session.begin_trial()

    def finish(self, error: BaseException | None) -> None:
        """End an iteration; it is discarded if an exception left it."""
        if self.mode == RECORDING:
            self._finish_recorded(is_complete=error is None)
        elif self.mode == TRACING:
            raised = (None,) * 3 if error is None else (type(error), error, error.__traceback__)
            self._tracing.__exit__(*raised)
            self._report(self._memory.problem)
        elif error is not None:
            self._memory.end()

    def _finish_recorded(self, is_complete: bool) -> None:
        session = self._session
        if not is_complete:
            session.discard_trial()
            session.stop()
            return
        session.end_trial(self.iteration)
        session.stop()
        patches.remove_observer(self._loop)
        last = session.last
        self.added_ns = last.paused_ns + int(last.n_spans * session.call_ns)
        now_ns = self._clock.now_ns()
        if now_ns - self._read_ns >= GROUP_NS or session.is_long or not self._writer.has_begun:
            self._read_ns = now_ns
            self._read()

    def _prepare(self) -> None:
        """Measure the conditions once, wait for the device, and learn the size of a batch."""
        self._session.call_ns = self._writer.prepare(self._xp)
        if self._clock.device is not None:
            self._clock.device.synchronize()
        if not self._writer.has_begun:  # the loop learns the size of a batch
            self._loop.clear()
            patches.add_observer(self._loop)

    @property
    def _xp(self) -> Any:
        """NumPy or CuPy, whichever the network uses."""
        roots = self._loop.roots
        return device_of(roots[0][1]).xp if roots else np

    def _read(self) -> None:
        """Read the log, and write the iterations that have ended since the last call."""
        written = self._writer.add(self._session.read_own())
        self._last = written[-1] if written else self._last

    def _report(self, problem: str) -> None:
        if problem:
            self._warn(problem)

    # -- results

    def end(self) -> None:
        """Stop recording; an iteration that runs is discarded."""
        self._tracing.close()
        self._session.discard_trial()
        self._session.stop()
        self._memory.end()
        patches.remove_observer(self._loop)

    def pause(self) -> None:
        """Stop counting memory until the next iteration, because none may follow."""
        self._memory.pause()

    def recording(self) -> Recording | None:
        """The iterations so far; None without any."""
        self._read()
        recording = self._writer.recording(self._xp, self._loop.roots)
        if recording is None:
            return None
        memory = self._memory.use_of_rows(len(recording.layers))
        if memory is not None:
            memory = replace(memory, input_nbytes=self._loop.batch.input_nbytes)
        return replace(recording, memory=memory)
