"""Writes the iterations of a program to a journal, and makes their recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from chainer_profile.measure import environment
from chainer_profile.measure.aggregate import TrialTimes
from chainer_profile.measure.calibration import calibrated
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.journal_writer import JournalWriter
from chainer_profile.measure.recorder_cost import cost_of_a_call, window_ns
from chainer_profile.measure.session import Target
from chainer_profile.measure.values import find_denormals, not_finite
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

#: After this time the machine may run at another speed, so the fixed work is timed again.
_LONG_NS = 30_000_000_000


class IterationWriter:
    """Writes iterations, and the conditions in which they were measured.

    Args:
        target: The links and rows of the iterations.
        clock: The clock that the iterations were timed by.
        settings: Returns the settings of iterations with these rows.
        journal: Opens the journal when the first iteration is written.
        warn: Called with a problem that the user should know.
        rank: The rank of the process in a training with ChainerMN.
        calibrates: Whether to time fixed work, to measure the machine's speed.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        settings: Callable[[Sequence[Layer]], Settings],
        journal: Callable[[], Journal],
        warn: Callable[[str], None],
        *,
        rank: Rank | None = None,
        calibrates: bool = True,
    ) -> None:
        self._target, self._clock, self._open, self._warn = target, clock, journal, warn
        self._settings_of, self._rank = settings, rank
        #: The first record of the journal; None until an iteration is written.
        self.header: Header | None = None
        self._conditions: Conditions | None = None
        # When the fixed work was timed first; None if it is not timed.
        self._calibrated_ns: int | None = clock.now_ns() if calibrates else None
        self._writer: JournalWriter | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an iteration was written."""
        return self._writer is not None

    def prepare(self, xp: Any) -> float:
        """Measure the conditions at the first call; return the ns that the recorder adds to a call.

        Args:
            xp: NumPy or CuPy, whichever the iterations use.
        """
        if self._conditions is None:
            clock = self._clock
            self._conditions = Conditions(
                clock_resolution_ns=float(clock.resolution_ns()),
                window_ns=window_ns(clock.now_ns, clock.device),
                call_ns=cost_of_a_call(clock.now_ns),
                calibrations=self._calibrations(xp),
            )
        return self._conditions.call_ns or 0.0

    def add(self, read: Sequence[TrialTimes]) -> list[TrialTimes]:
        """Write the iterations that call functions, and return them; others do not count."""
        iterations = [times for times in read if times.calls.any()]
        self._target.aggregator.trials -= len(read) - len(iterations)
        if not iterations:
            return []
        if self._writer is None:
            journal, settings = self._open(), self._settings()
            self._writer = JournalWriter(journal, self._target, self._settings)
            self.header = Header(
                settings,
                environment.collect(settings.device),
                on_device=self._clock.device is not None,
                iterations=True,
                rank=self._rank,
            )
            self._try_to_write(partial(journal.add, self.header))
        self._try_to_write(partial(self._writer.add, iterations))
        return iterations

    def _try_to_write(self, write: Callable[[], object]) -> None:
        """Write to the journal, or warn if that fails."""
        try:
            write()
        except JournalError as error:
            # The journal keeps these trials in memory, and tries to write them at the end.
            self._warn(f"the trials cannot be written: {error}")

    def _settings(self) -> Settings:
        return self._settings_of(self._target.aggregator.layers())

    def recording(self, xp: Any, roots: Sequence[tuple[str, Any]]) -> Recording | None:
        """The iterations so far; None without any.

        Args:
            xp: NumPy or CuPy, whichever the iterations use.
            roots: Pairs of a path's prefix and a network, to look for values that are not finite or
                denormal.
        """
        if self._writer is None:
            return None
        conditions = self._conditions or Conditions()
        calibrations, since_ns = conditions.calibrations, self._calibrated_ns
        if since_ns is not None and self._clock.now_ns() - since_ns >= _LONG_NS:
            calibrations += self._calibrations(xp)
        conditions = replace(
            conditions,
            calibrations=calibrations,
            not_finite=not_finite(roots),
            denormals=find_denormals(roots, self._target.aggregator.rows),
        )
        recording = self._writer.recording(conditions, COMPLETE)
        settings = replace(self._settings(), trials=recording.n_trials, clean_trials=0)
        return replace(recording, settings=settings)

    def _calibrations(self, xp: Any) -> tuple[Calibration, ...]:
        """Time fixed work; empty if it is not to be timed, or if that fails."""
        if self._calibrated_ns is None:
            return ()
        calibration = calibrated(self._clock, xp)
        return () if calibration is None else (calibration,)
