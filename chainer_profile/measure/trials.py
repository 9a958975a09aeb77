"""The timed part of a run: warm-up, profiled and unprofiled trials, and held GPU trials."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from chainer_profile.basics.describe import MIN_TRIALS, NS, PreciseEnough
from chainer_profile.basics.errors import one_line
from chainer_profile.basics.parsing import gpu_number
from chainer_profile.basics.units import plural
from chainer_profile.measure.clock import WARMUP_PART, WARMUP_SECONDS, Clock, TimeLimit
from chainer_profile.measure.environment import CpuWatch, gpu_state
from chainer_profile.measure.interrupts import INTERRUPTED
from chainer_profile.measure.journal_writer import JournalWriter, int64
from chainer_profile.measure.recorder_cost import cost_of_a_call, window_ns
from chainer_profile.measure.session import GROUP_NS
from chainer_profile.measure.slow_trials import SlowTrials
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepSession
from chainer_profile.measure.too_large import memory_full
from chainer_profile.record.journal import (
    CLEAN,
    HELD,
    PROBE,
    WARMUP,
    Header,
    Journal,
    JournalError,
    Trial,
)
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Conditions,
    Environment,
    GpuState,
    Recording,
    Settings,
)

#: Called ten times a second, or after every trial that takes longer, with the number of trials done
#: and planned, and the mean time of a trial in seconds.
Progress = Callable[[int, int, float], None]
#: Called after every trial. Returns the reason to stop the run, or an empty text to continue.
Stop = Callable[[], str]
#: Shows a line to the user during the run.
Say = Callable[[str], None]

#: The first cycle is divided if its first block takes longer: seconds, or part of a time limit.
_LONG_BLOCK_SECONDS = 1.0
_LONG_BLOCK_PART = 0.1
#: A held GPU waits for this multiple of the launch time. If that was too short, the next wait is
#: this multiple of it.
_HOLD_FACTOR = 2
_MIN_HOLD_NS, _MAX_HOLD_NS = 1_000_000, 1_000_000_000
_MAX_FAILED_HOLDS = 6
#: Held trials of a run on a device, and their approximate time together.
HELD_TRIALS, HELD_SECONDS = 20, 2.0
_MIN_HELD_TRIALS = 3
#: Short trials before each block of unprofiled ones, and their time at most.
_SETTLING_TRIALS, _SETTLING_NS = 8, 20_000_000


class ProgressError(Exception):
    """The caller's function for the progress has raised an exception."""


def cycles(trials: int, clean_trials: int) -> Iterator[tuple[int, int, int]]:
    """Yield, for each cycle of a run, the numbers of profiled, clean, and more profiled trials."""
    # The clean block is in the middle of its cycle, so a slow drift affects both kinds equally.
    count = max(1, min(50, clean_trials // 5), trials // 200)
    ends = ((-(-trials * n // count), -(-clean_trials * n // count)) for n in range(count + 1))
    for (begin, clean_begin), (end, clean_end) in pairwise(ends):
        profiled = end - begin
        yield (profiled + 1) // 2, clean_end - clean_begin, profiled // 2


def split_first_cycle(before: int, clean: int, after: int) -> Iterator[tuple[int, int, int]]:
    """Divide the first cycle into cycles of doubling size: a short run has trials of both kinds."""
    profiled, done, done_clean = before + after, 0, 0
    ends = [1 << n for n in range(clean.bit_length()) if 1 << n < clean]
    for end in [*ends, clean]:
        part = -(-profiled * end // clean) - done if clean else profiled
        first = (part + 1) // 2 if done else min(part, 1)
        yield first, end - done_clean, part - first
        done, done_clean = done + part, end


@dataclass(eq=False)
class Trials:
    """The timed part of a run: rows are single calls until a trial differs, then by link."""

    step: Step
    session: StepSession
    settings: Settings
    where: Environment
    journal: Journal
    clock: Clock
    progress: Progress = lambda done, total, mean_s: None
    stop: Stop = lambda: ""
    say: Say = lambda text: None
    limit: TimeLimit | None = None
    probe: Sequence[tuple[int, int, int]] = ()  # start and wall time in ns, and BLAS threads
    trial_s: float = 0.0  # estimate of a profiled trial's time
    reserve_s: float = 0.0  # the part of the limit that is reserved for the passes after the trials

    def __post_init__(self) -> None:
        self.ended = COMPLETE
        self._now_ns, self._device = self.clock.now_ns, self.clock.device
        self._limit = self.limit or TimeLimit(self._now_ns)
        self._writer = JournalWriter(self.journal, self.session.target, lambda: self.settings)
        self._conditions = Conditions()
        self._watch = CpuWatch()
        self._walls = array("q")
        self._n_clean = 0
        wanted = self.settings.until_ci
        self._enough = None if wanted is None else PreciseEnough(wanted)
        self._total_ns = self._launch_ns = self._read_ns = 0
        self._slow, self._n_checked = SlowTrials(self.say), 0
        self._failed_at = ""  # the layer that raised an exception, in words
        self._progress_failed = False
        self._has_both_kinds = False  # profiled and clean; the time limit applies from then on

    @property
    def total_s(self) -> float:
        """Wall time of all profiled trials."""
        return self._total_ns * NS

    def begin(self) -> None:
        """Write the journal's header, the expected rows and the trials of the BLAS probe.

        The session forgets the trials of the structure passes.
        """
        self._conditions = Conditions(
            clock_resolution_ns=float(self.clock.resolution_ns()),
            window_ns=window_ns(self._now_ns, self._device),
            gpu_before=self._gpu_state(),
        )
        on_device = self._device is not None
        self.journal.add(Header(self.settings, self.where, on_device=on_device))
        self._writer.begin()
        self.session.forget()
        probes = (
            Trial(PROBE, start_ns, wall_ns, {"threads": int64(threads)})
            for start_ns, wall_ns, threads in self.probe
        )
        self.journal.add(*probes)

    def run(self) -> None:
        """Make the warm-up trials, then the cycles of profiled and unprofiled trials."""
        self.begin()
        self._watch = CpuWatch()
        if not self._warm_up():
            return
        long_s = self._limit.at_most_s(_LONG_BLOCK_SECONDS, _LONG_BLOCK_PART)
        for cycle in cycles(self.settings.trials, self.settings.clean_trials):
            long = not self._has_both_kinds and cycle[0] * self.trial_s > long_s
            for before, clean, after in split_first_cycle(*cycle) if long else [cycle]:
                if not (self.profiled(before) and self.unprofiled(CLEAN, clean)):
                    return
                self._has_both_kinds = True
                if self._ends() or not self.profiled(after):
                    return
            if self._precise_enough():
                # Users quote the latency of unprofiled trials, so it needs an interval as well.
                wanted = min(MIN_TRIALS, self.settings.clean_trials)
                if self.unprofiled(CLEAN, wanted - self._n_clean):
                    self.ended = INTERVAL
                return

    def _warm_up(self) -> bool:
        """Make the warm-up trials, fewer if they take long. Return False to end the run."""
        max_s = self._limit.at_most_s(WARMUP_SECONDS, WARMUP_PART)
        begin_ns = self._now_ns()
        for _ in range(self.settings.warmups):
            if not self.unprofiled(WARMUP, 1):
                return False
            if (self._now_ns() - begin_ns) * NS >= max_s:
                break
        return True

    def unprofiled(self, kind: str, count: int) -> bool:
        """Make trials without recording their calls. Return False to end the run.

        ``kind`` is :data:`WARMUP`, or :data:`CLEAN` for trials that are counted.
        """
        cpu_ns = self.clock.cpu_ns
        if kind == CLEAN and count > 0 and self._device is None and not self._settle():
            return False
        for _ in range(count):
            # Reading the CPU time is a system call, so it is outside the wall time.
            begin_ns = cpu_ns()
            start_ns = self._now_ns()
            self.step()
            if self._device is not None:
                self._device.synchronize()
            wall_ns = self._now_ns() - start_ns
            used = {"cpu_ns": int64(cpu_ns() - begin_ns)} if kind == CLEAN else {}
            self.journal.add(Trial(kind, start_ns, wall_ns, used))
            self._n_clean += kind == CLEAN
            if self._ends():
                return False
        return True

    def _settle(self) -> bool:
        """Make short trials that do not count, after profiled ones. Return False to end the run."""
        # Classes were patched, so Python's caches of their attributes are empty, and the profiler
        # has used the processor's. The first trials would take up to half as long again.
        begin_ns = self._now_ns()
        for _ in range(_SETTLING_TRIALS):
            if self._now_ns() - begin_ns + self.trial_s / NS > _SETTLING_NS:
                break
            self.step()
            if self._ends():
                return False
        return True

    def profiled(self, count: int) -> bool:
        """Make trials and record their calls. Return False to end the run."""
        session = self.session
        try:
            with session.recording():
                for _ in range(count):
                    session.begin_trial()
                    self.step()
                    session.end_trial()
                    last = session.last
                    # Reading the log makes the next trial slower, so read it once for a group.
                    takes_long = last.start_ns + last.wall_ns - self._read_ns >= GROUP_NS
                    if takes_long or session.is_long:
                        self._read()
                    if self._ends():
                        return False
        except Exception as error:
            self._failed_at = session.describe_location(error)
            session.discard_trial()
            raise
        finally:
            self._read()
        return True

    def _read(self) -> None:
        """Read the log, and write the group of trials since the last reading to the journal."""
        trials = self.session.read_own()
        for trial in trials:
            self._walls.append(trial.wall_ns)
            self._total_ns += trial.wall_ns
            self._launch_ns += trial.launch_ns
        self._writer.add(trials)
        self._read_ns = self._now_ns()
        self._report_progress()

    def _report_progress(self) -> None:
        """Call the caller's function, unless it has failed.

        Raises:
            ProgressError: It fails.
        """
        count = len(self._walls)
        if not count or self._progress_failed:
            return
        try:
            self.progress(count, self.settings.trials, self._total_ns / count * NS)
        except Exception as error:
            self._progress_failed = True
            raise ProgressError(f"progress= fails: {one_line(error)}") from error

    def _ends(self) -> bool:
        """Whether to stop, because of the user or the time limit; sets ``ended`` to the reason."""
        reason = self.stop()
        if len(self._walls) > self._n_checked:
            self._slow.add(self._walls[self._n_checked :])
            self._n_checked = len(self._walls)
        if reason:
            self.ended = reason
        elif self._has_both_kinds and self._limit.left_s() <= self.reserve_s:
            self.ended = TIME_LIMIT
        return self.ended != COMPLETE

    def _precise_enough(self) -> bool:
        if self._enough is None or not self._enough.due(len(self._walls)):
            return False
        return self._enough.reached(np.array(self._walls, np.int64))

    def hold(self) -> None:
        """On a GPU, make a few trials that the device begins after the host has launched all work.

        There are fewer or none if the device begins too early again and again.
        """
        # The device then never waits for the host, so the times are its own. This fails if the
        # network waits for the device during a trial, or launches more work than a queue holds.
        if self._device is None or not self._walls or self._writer.by_link:
            return
        hold_ns = max(_MIN_HOLD_NS, _HOLD_FACTOR * self._launch_ns // len(self._walls))
        each_s = (hold_ns + self._total_ns // len(self._walls)) * NS
        in_a_row = 0
        for _ in range(min(HELD_TRIALS, max(_MIN_HELD_TRIALS, int(HELD_SECONDS / each_s)))):
            while not self._held_trial(hold_ns):
                in_a_row += 1
                hold_ns *= _HOLD_FACTOR
                if in_a_row == _MAX_FAILED_HOLDS or hold_ns > _MAX_HOLD_NS:
                    return
            in_a_row = 0
            if self.stop() or self._limit.left_s() <= 0:
                return

    def _held_trial(self, hold_ns: int) -> bool:
        """Make a held trial. Return False if the device began before the last launch."""
        assert self._device is not None
        session = self.session
        with session.recording():
            self._device.hold(hold_ns)
            session.begin_trial()
            try:
                self.step()
            except Exception as error:
                self._failed_at = session.describe_location(error)
                session.discard_trial()
                raise
            has_begun = session.device_has_begun
            session.end_trial()
        for trial in session.read_own():
            if not has_begun and session.has_single_calls:
                times = {"self_ns": trial.rows_ns.tobytes()}
                self.journal.add(Trial(HELD, trial.start_ns, trial.span_ns, times))
        return not has_begun

    def recording(self) -> Recording:
        conditions = replace(
            self._conditions,
            # With single calls, the comparison with unprofiled trials shows the overhead.
            call_ns=cost_of_a_call(self._now_ns) if self._writer.by_link else None,
            other_cpu=self._watch.other_cpu(),
            gpu_after=self._gpu_state(),
        )
        return self._writer.recording(conditions, self.ended)

    def _gpu_state(self) -> GpuState | None:
        gpu = gpu_number(self.settings.device)
        return None if gpu is None else gpu_state(gpu)

    def interrupted(self) -> Recording | None:
        """The recording after a KeyboardInterrupt; None before the first profiled trial."""
        if not self._walls:
            return None
        if self.ended == COMPLETE and len(self._walls) < self.settings.trials:
            self.ended = INTERRUPTED
        try:
            return self.recording()
        except Exception:  # the interrupt may have left the journal inconsistent
            return None

    def failure(self, error: Exception) -> tuple[str, Recording]:
        """Return the message of a failure in the trials, and the recording of those before it."""
        done = plural(len(self._walls), "trial")
        if isinstance(error, ProgressError):
            message = f"{error}, after {done}"
        elif isinstance(error, JournalError):
            message = f"the samples cannot be written after {done}: {error}"
        else:
            why = memory_full(error, self.clock, self.settings) or one_line(error)
            where = f", {self._failed_at}" if self._failed_at else ""
            message = f"the network fails after {done}{where}: {why}"
        self.ended = f"failed: {message}"
        return message, self.recording()
