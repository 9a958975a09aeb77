"""The timed part of a run: blocks of trials, and the trials of the passes beside them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from chainer_profile.basics.describe import NS, PreciseEnough
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.free_memory import describe_memory_error, free_nbytes
from chainer_profile.basics.parsing import gpu_number
from chainer_profile.basics.units import format_count, format_nbytes, plural
from chainer_profile.measure.clock import WARMUP_PART, WARMUP_SECONDS, Clock, TimeLimit
from chainer_profile.measure.environment import CpuWatch, gpu_state
from chainer_profile.measure.interrupts import INTERRUPTED
from chainer_profile.measure.journal_writer import JournalWriter, int64
from chainer_profile.measure.recorder_cost import cost_of_a_call, window_ns
from chainer_profile.measure.session import GROUP_NS
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepSession
from chainer_profile.record.journal import (
    CLEAN,
    HELD,
    HELD_TRIALS,
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

#: Called ten times a second, or after every trial that takes longer, with the trials done, those
#: wanted, and the mean trial in seconds.
Progress = Callable[[int, int, float], None]
#: Asked after every trial: why to stop now, or an empty text.
Stop = Callable[[], str]
#: Called with a line that the user should read while the run goes on.
Say = Callable[[str], None]

#: A first block of profiled trials is long that takes so many seconds, or part of a time limit.
_LONG_BLOCK_S = 1.0
_LONG_PART_OF_LIMIT = 0.1
#: A function of Chainer's takes at least so long.
_LEAST_ROW_S = 5e-6
_HOLD_FACTOR = 2
_LEAST_HOLD_NS = 1_000_000
_MOST_HOLD_NS = 1_000_000_000
_MOST_HOLDS = 6
#: About how long held trials take together.
HELD_SECONDS = 2.0
_LEAST_HELD = 3
#: Trials are slow that take so many times the fastest, for so long, and at least so many of them.
_SLOW_FACTOR = 5.0
_LEAST_SLOW_S = 2.0
_LEAST_SLOW_TRIALS = 5
#: Others keep at least so many cores busy where they are to blame.
_BUSY_CORES = 0.25


def cycles(trials: int, clean_trials: int) -> Iterator[tuple[int, int, int]]:
    """How many profiled, clean and again profiled trials each cycle of a run makes."""
    # Clean blocks stand in the middle of their cycle: a slow drift hits both kinds alike.
    count = max(1, min(50, clean_trials // 5), trials // 200)
    ends = ((-(-trials * n // count), -(-clean_trials * n // count)) for n in range(count + 1))
    for (begin, clean_begin), (end, clean_end) in pairwise(ends):
        profiled = end - begin
        yield (profiled + 1) // 2, clean_end - clean_begin, profiled // 2


def opening(before: int, clean: int, after: int) -> Iterator[tuple[int, int, int]]:
    """A first cycle in parts that double, so that a run cut short has trials of both kinds."""
    profiled, done, done_clean = before + after, 0, 0
    ends = [1 << n for n in range(clean.bit_length()) if 1 << n < clean]
    for end in [*ends, clean]:
        part = -(-profiled * end // clean) - done if clean else profiled
        first = (part + 1) // 2 if done else min(part, 1)
        yield first, end - done_clean, part - first
        done, done_clean = done + part, end


def check_samples(settings: Settings, rows: int) -> None:
    """Refuse so many trials that memory does not hold their samples."""
    # Beside its rows a profiled trial has a start, a wall time twice and a place in the journal's
    # buffer; a clean one a start, a wall time and a CPU time.
    profiled, clean = settings.trials, settings.clean_trials
    if settings.max_seconds is not None:  # then their number is what a run makes at most
        most = int(settings.max_seconds / (_LEAST_ROW_S * max(1, rows))) + 1
        profiled, clean = min(profiled, most), min(clean, most)
    needed, free = 8 * (profiled * (rows + 4) + clean * 3), free_nbytes()
    if free is not None and needed > free:
        raise ProfileError(
            f"{plural(settings.trials, 'trial')} need {format_nbytes(needed)} of memory for their "
            f"samples, but {format_nbytes(free)} are free: use fewer trials"
        )


def memory_full(
    error: BaseException, clock: Clock, settings: Settings, free: int | None = None
) -> str:
    """What to say where an exception is that of a full memory; else an empty text."""
    # Of those of CuPy's some are MemoryError too.
    if isinstance(error, MemoryError) and clock.device is None:
        batch = format_count(settings.batchsize)
        return f"a batch of {batch} {describe_memory_error(error, free)}: use a smaller --batchsize"
    # CuPy's own exception types cannot be named without CuPy.
    if clock.device is None or type(error).__name__ != "OutOfMemoryError":
        return ""
    try:
        free, total = clock.device.memory_nbytes()
        left = f"{format_nbytes(free)} of {format_nbytes(total)} are free; "
    except Exception:  # the error to tell of is the other one
        left = ""
    return (
        f"the GPU's memory is full with a batch of {format_count(settings.batchsize)} "
        f"({left}{one_line(error)}): use a smaller --batchsize"
    )


class SlowTrials:
    """Takes the times of trials as they are made."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say: Callable[[str], None] | None = say
        self._fastest_ns = 0
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()

    def add(self, walls_ns: Iterable[int]) -> None:
        if self._say is None:
            return
        for wall_ns in walls_ns:
            self._fastest_ns = min(self._fastest_ns or wall_ns, wall_ns)
            self._count += 1
            self._sum_ns += wall_ns
            self._slowest_ns = max(self._slowest_ns, wall_ns)
        if self._count < _LEAST_SLOW_TRIALS or self._sum_ns * NS < _LEAST_SLOW_S:
            return
        # One slow trial is chance: the mean is that of the others.
        mean_ns = (self._sum_ns - self._slowest_ns) / (self._count - 1)
        if self._fastest_ns and mean_ns >= _SLOW_FACTOR * self._fastest_ns:
            other = self._watch.other_cpu()
            why = (
                "another program keeps the cores busy"
                if other is not None and other >= _BUSY_CORES
                else "something else slows this machine"
            )
            self._say(
                f"trials take {mean_ns / self._fastest_ns:.0f} times as long as the fastest: {why}"
            )
            self._say = None
        self._count, self._sum_ns, self._slowest_ns = 0, 0, 0
        self._watch = CpuWatch()


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
    trial_s: float = 0.0
    reserve_s: float = 0.0  # of the limit, for what follows

    def __post_init__(self) -> None:
        self.ended = COMPLETE
        self._now_ns, self._device = self.clock.now_ns, self.clock.device
        self._limit = self.limit or TimeLimit(self._now_ns)
        self._writer = JournalWriter(self.journal, self.session.target, lambda: self.settings)
        self._conditions = Conditions()
        self._watch = CpuWatch()
        self._walls = array("q")
        wanted = self.settings.until_ci
        self._enough = None if wanted is None else PreciseEnough(wanted)
        self._total_ns = self._launch_ns = self._read_ns = 0
        self._slow, self._seen = SlowTrials(self.say), 0
        self._place = ""  # where a trial failed
        # Whether there are trials of both kinds.
        self._opened = False

    @property
    def total_s(self) -> float:
        return self._total_ns * NS

    def begin(self) -> None:
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
        """Warm-up, then the cycles of profiled and unprofiled trials."""
        self.begin()
        self._watch = CpuWatch()
        if not self._warm_up():
            return
        long_s = self._limit.at_most_s(_LONG_BLOCK_S, _LONG_PART_OF_LIMIT)
        for cycle in cycles(self.settings.trials, self.settings.clean_trials):
            long = not self._opened and cycle[0] * self.trial_s > long_s
            for before, clean, after in opening(*cycle) if long else [cycle]:
                if not (self.profiled(before) and self.plain(CLEAN, clean)):
                    return
                self._opened = True
                if self._ends() or not self.profiled(after):
                    return
            if self._precise_enough():
                self.ended = INTERVAL
                return

    def _warm_up(self) -> bool:
        """The warm-up trials, fewer where they are long. False: stop."""
        most_s = self._limit.at_most_s(WARMUP_SECONDS, WARMUP_PART)
        begin_ns = self._now_ns()
        for _ in range(self.settings.warmups):
            if not self.plain(WARMUP, 1):
                return False
            if (self._now_ns() - begin_ns) * NS >= most_s:
                break
        return True

    def plain(self, kind: str, count: int) -> bool:
        """Make trials that are not recorded. Returns False to stop."""
        cpu_ns = self.clock.cpu_ns
        for _ in range(count):
            # Outside of the wall time: reading it is a call of the system.
            begin_ns = cpu_ns()
            start_ns = self._now_ns()
            self.step()
            if self._device is not None:
                self._device.synchronize()
            wall_ns = self._now_ns() - start_ns
            used = {"cpu_ns": int64(cpu_ns() - begin_ns)} if kind == CLEAN else {}
            self.journal.add(Trial(kind, start_ns, wall_ns, used))
            if self._ends():
                return False
        return True

    def profiled(self, count: int) -> bool:
        """Make trials that are recorded. Returns False to stop."""
        session = self.session
        try:
            with session.recording():
                for _ in range(count):
                    session.begin_trial()
                    self.step()
                    session.end_trial()
                    last = session.last
                    # Work between two trials makes the second one slower: it is done for a group.
                    takes_long = last.start_ns + last.wall_ns - self._read_ns >= GROUP_NS
                    if takes_long or session.is_long:
                        self._read()
                    if self._ends():
                        return False
        except Exception as error:
            self._place = session.place(error)
            session.discard_trial()
            raise
        finally:
            self._read()
        return True

    def _read(self) -> None:
        """Write the trials of a group at once."""
        trials = self.session.read_own()
        for trial in trials:
            self._walls.append(trial.wall_ns)
            self._total_ns += trial.wall_ns
            self._launch_ns += trial.launch_ns
        self._writer.add(trials)
        self._read_ns, count = self._now_ns(), len(self._walls)
        if count:
            self.progress(count, self.settings.trials, self._total_ns / count * NS)

    def _ends(self) -> bool:
        reason = self.stop()
        if len(self._walls) > self._seen:
            self._slow.add(self._walls[self._seen :])
            self._seen = len(self._walls)
        if reason:
            self.ended = reason
        elif self._opened and self._limit.left_s() <= self.reserve_s:
            self.ended = TIME_LIMIT
        return self.ended != COMPLETE

    def _precise_enough(self) -> bool:
        if self._enough is None or not self._enough.due(len(self._walls)):
            return False
        return self._enough.reached(np.array(self._walls, np.int64))

    def hold(self) -> None:
        """On a GPU, a few trials that the device begins when the host has launched all of them."""
        # So they are its own times, without waiting. There are none of a network that waits for it
        # in the middle, of more launches than a queue holds, or by link.
        if self._device is None or not self._walls or self._writer.by_link:
            return
        hold_ns = max(_LEAST_HOLD_NS, _HOLD_FACTOR * self._launch_ns // len(self._walls))
        each_s = (hold_ns + self._total_ns // len(self._walls)) * NS
        in_a_row = 0
        for _ in range(min(HELD_TRIALS, max(_LEAST_HELD, int(HELD_SECONDS / each_s)))):
            while not self._held_trial(hold_ns):
                in_a_row += 1
                hold_ns *= _HOLD_FACTOR
                if in_a_row == _MOST_HOLDS or hold_ns > _MOST_HOLD_NS:
                    return
            in_a_row = 0
            if self.stop() or self._limit.left_s() <= 0:
                return

    def _held_trial(self, hold_ns: int) -> bool:
        """Make such a trial; False if the device began before all was launched."""
        assert self._device is not None
        session = self.session
        with session.recording():
            self._device.hold(hold_ns)
            session.begin_trial()
            try:
                self.step()
            except Exception as error:
                self._place = session.place(error)
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
            # What known calls take longer is measured beside unprofiled trials.
            call_ns=cost_of_a_call(self._now_ns) if self._writer.by_link else None,
            other_cpu=self._watch.other_cpu(),
            gpu_after=self._gpu_state(),
        )
        return self._writer.recording(conditions, self.ended)

    def _gpu_state(self) -> GpuState | None:
        gpu = gpu_number(self.settings.device)
        return None if gpu is None else gpu_state(gpu)

    def interrupted(self) -> Recording | None:
        """What a KeyboardInterrupt leaves; None before the first profiled trial."""
        if not self._walls:
            return None
        if self.ended == COMPLETE and len(self._walls) < self.settings.trials:
            self.ended = INTERRUPTED
        try:
            return self.recording()
        except Exception:  # the interrupt came at any place
            return None

    def failure(self, error: Exception) -> tuple[str, Recording]:
        """The message of a failure during the trials, and what had been measured."""
        done = plural(len(self._walls), "trial")
        if isinstance(error, JournalError):
            message = f"the samples cannot be written after {done}: {error}"
        else:
            why = memory_full(error, self.clock, self.settings) or one_line(error)
            place = f", {self._place}" if self._place else ""
            message = f"the network fails after {done}{place}: {why}"
        self.ended = f"failed: {message}"
        return message, self.recording()
