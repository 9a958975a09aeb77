"""The timed part of a run: blocks of trials, and the trials of the passes beside them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from struct import pack

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.free_memory import does_not_fit, free_nbytes
from chainer_profile.basics.parsing import gpu_number
from chainer_profile.basics.stopping import PreciseEnough
from chainer_profile.basics.units import format_count, format_nbytes, format_shape, plural
from chainer_profile.measure import environment
from chainer_profile.measure.calls import read
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.events import EventPool, TimedTrial, Timeline
from chainer_profile.measure.gpu_environment import gpu_state
from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.slow_trials import SlowTrials
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.time_limit import WARMUP_PART, WARMUP_SECONDS, TimeLimit
from chainer_profile.measure.variants import Known, Variants
from chainer_profile.measure.windows import Step
from chainer_profile.record.journal import HELD_TRIALS, Journal, JournalError, Kind
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Conditions,
    Environment,
    GpuState,
    Recording,
    Settings,
    Shape,
)

#: Called ten times a second, or after every trial that takes longer, with the trials done, those
#: wanted, and the mean trial in seconds.
Progress = Callable[[int, int, float], None]
#: Asked after every trial: why to stop now, or an empty text.
Stop = Callable[[], str]
#: Told, in a line, what the user should know while the run goes on.
Say = Callable[[str], None]

#: A first block of profiled trials is long that takes so many seconds, or part of a time limit.
_LONG_SECONDS = 1.0
_LONG_PART = 0.1
_GROUP_NS = 100_000_000
#: A function of Chainer's takes at least so long.
_LEAST_ROW_S = 5e-6
_LEARN_NS = 2_000_000_000
_MOST_PASSES = 60
_HOLD_MORE = 2
_LEAST_HOLD_NS = 1_000_000
_MOST_HOLD_NS = 1_000_000_000
_MOST_HOLDS = 6
#: About how long held trials take together.
HELD_SECONDS = 2.0
_LEAST_HELD = 3


class CallsDifferError(Exception):
    """A trial made other calls than the first one did; says which."""

    def __init__(self, difference: str) -> None:
        super().__init__(
            f"the network's calls differ from trial to trial: {difference}; such a network has no "
            "fixed layers to take means of"
        )


def compare(known: Structure, seen: Structure) -> None:
    """Raise unless two structure passes saw the same layers; calls in no common may differ."""
    if known.stamps(seen.log) is None:
        return
    for a, b in zip(known.layers, seen.layers, strict=False):
        # A function that raised gave nothing.
        for did, before, then in (
            ("took", a.input_shapes, b.input_shapes),
            ("gave", a.output_shapes or b.output_shapes, b.output_shapes or a.output_shapes),
        ):
            if before != then:
                raise CallsDifferError(
                    f"layer {a.label} at {a.path} {did} {_listed(before)}, and then {_listed(then)}"
                )
        if a.path != b.path:
            raise CallsDifferError(f"layer {a.label} was called at {a.path} and then at {b.path}")


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(map(format_shape, shapes))


def cycles(trials: int, clean_trials: int) -> Iterator[tuple[int, int, int]]:
    """How many profiled, clean and again profiled trials each cycle of a run makes.

    Clean blocks stand in the middle of their cycle, so that a slow drift hits both kinds alike. The
    first cycle has trials of both.
    """
    count = max(1, min(50, clean_trials // 5), trials // 200)
    ends = ((-(-trials * n // count), -(-clean_trials * n // count)) for n in range(count + 1))
    for (begin, clean_begin), (end, clean_end) in pairwise(ends):
        profiled = end - begin
        yield (profiled + 1) // 2, clean_end - clean_begin, profiled // 2


def opening(before: int, clean: int, behind: int) -> Iterator[tuple[int, int, int]]:
    """A first cycle in parts that double, so that a run cut short has trials of both kinds."""
    profiled, done, done_clean = before + behind, 0, 0
    ends = [1 << n for n in range(clean.bit_length()) if 1 << n < clean]
    for end in [*ends, clean]:
        part = -(-profiled * end // clean) - done if clean else profiled
        first = (part + 1) // 2 if done else min(part, 1)
        yield first, end - done_clean, part - first
        done, done_clean = done + part, end


def check_samples(settings: Settings, rows: int) -> None:
    """Refuse so many trials that memory does not hold their samples.

    Args:
        settings: The numbers of trials, and their time limit.
        rows: Times that are kept of a profiled trial.

    Raises:
        ProfileError: They are too many.
    """
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
            f"samples, and {format_nbytes(free)} are free: make fewer trials"
        )


def memory_full(
    error: BaseException, clock: Clock, settings: Settings, free: int | None = None
) -> str:
    """What to say where an exception is that of a full memory; else an empty text.

    Args:
        error: The exception.
        clock: The run's clock.
        settings: For the size of the batch.
        free: Bytes of the host's memory that were free before, where that is known.
    """
    # Of those of CuPy's some are MemoryError too.
    if isinstance(error, MemoryError) and clock.device is None:
        batch = format_count(settings.batchsize)
        return f"a batch of {batch} {does_not_fit(error, free)}: take a smaller --batchsize"
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
        f"({left}{one_line(error)}): take a smaller --batchsize"
    )


class Trials:
    """The timed part of a run: blocks of trials of either kind."""

    def __init__(
        self,
        step: Step,
        structures: Sequence[Structure],
        settings: Settings,
        where: Environment,
        journal: Journal,
        clock: Clock,
        progress: Progress,
        stop: Stop,
        *,
        probe: Sequence[tuple[int, int, int]] = (),
        trial_s: float = 0.0,
        limit: TimeLimit | None = None,
        reserve_s: float = 0.0,
        say: Say | None = None,
    ) -> None:
        self.step = step
        self.variants = Variants(structures)
        self.settings = settings
        self.journal = journal
        self.ended = COMPLETE
        self._where = where
        self._clock = clock
        self._now_ns = clock.now_ns
        self._device = clock.device
        self._events = None if clock.device is None else EventPool(clock.device)
        self._progress = progress
        self._stop = stop
        self._recorder = Recorder(clock.now_ns, step, self._events, self.variants.raising)
        self._conditions = Conditions()
        self._watch = environment.CpuWatch()
        self._walls = array("q")
        wanted = settings.until_ci
        self._enough = None if wanted is None else PreciseEnough(wanted)
        self._total_ns = 0
        self._launch_ns = 0
        self._passes = self._passes_ns = 0
        # Trials of each kind.
        self._counts: dict[int, int] = {}
        self._probe = probe
        self._trial_s = trial_s
        self._limit = limit or TimeLimit(clock.now_ns)
        self._reserve_s = reserve_s
        self._slow = SlowTrials(say or (lambda text: None))
        self._seen = 0
        self._opened = False

    @property
    def total_s(self) -> float:
        """Wall time of the profiled trials together."""
        return self._total_ns * NS

    @property
    def structure(self) -> Structure:
        """That of the kind of trial that was learned first."""
        return self.variants.structures[0]

    @property
    def commonest(self) -> Structure:
        """That of the kind that most trials are of."""
        # Of several the first, as in the recording.
        kinds = range(len(self.variants.structures))
        return self.variants.watched(max(kinds, key=lambda kind: self._counts.get(kind, 0)))

    def begin(self) -> None:
        """Look at the clock and open the journal."""
        self._conditions = Conditions(
            clock_resolution_ns=float(self._clock.resolution_ns()),
            window_ns=self._recorder.window_ns(),
            gpu_before=self._gpu_state(),
        )
        self.journal.begin(
            self.structure.layers,
            self.settings,
            self._where,
            phases=self.structure.phases,
            links=self.structure.links,
            on_device=self._device is not None,
            cpu=True,
        )
        for other in self.variants.structures[1:]:
            self.journal.add_variant(other.layers, other.phases, other.links)
        for start_ns, wall_ns, threads in self._probe:
            self.journal.add(Kind.PROBE, start_ns, wall_ns, pack("<q", threads))

    def run(self) -> None:
        """Warm-up, then the cycles of profiled and clean trials."""
        self.begin()
        self._watch = environment.CpuWatch()
        if not self._warm_up():
            return
        long_s = self._limit.at_most_s(_LONG_SECONDS, _LONG_PART)
        for cycle in cycles(self.settings.trials, self.settings.clean_trials):
            long = not self._opened and cycle[0] * self._trial_s > long_s
            for before, clean, behind in opening(*cycle) if long else [cycle]:
                if not (self.profiled(before) and self.plain(Kind.CLEAN, clean)):
                    return
                self._opened = True
                if self._ends() or not self.profiled(behind):
                    return
            if self._precise_enough():
                self.ended = INTERVAL
                return

    def _warm_up(self) -> bool:
        """The warm-up trials, fewer where they are long. False: stop."""
        most_s = self._limit.at_most_s(WARMUP_SECONDS, WARMUP_PART)
        begin_ns = self._now_ns()
        for _ in range(self.settings.warmups):
            if not self.plain(Kind.WARMUP, 1):
                return False
            if (self._now_ns() - begin_ns) * NS >= most_s:
                break
        return True

    def plain(self, kind: Kind, count: int) -> bool:
        """Trials without hooks. False: stop."""
        cpu_ns = self._clock.cpu_ns
        for _ in range(count):
            # Outside of the wall time: reading it is a call of the system.
            begin_ns = cpu_ns()
            start_ns, wall_ns = self._time_step()
            used = pack("<q", cpu_ns() - begin_ns) if kind is Kind.CLEAN else b""
            self.journal.add(kind, start_ns, wall_ns, used)
            if self._ends():
                return False
        return True

    def _time_step(self) -> tuple[int, int]:
        """Start and wall time of a trial without hooks."""
        start_ns = self._now_ns()
        self.step()
        if self._device is not None:
            self._device.synchronize()
        return start_ns, self._now_ns() - start_ns

    def profiled(self, count: int) -> bool:
        """Trials under the recorder. False: stop."""
        recorder = self._recorder
        # Work between two trials makes the second one slower, so it is done for a group at once.
        group: list[TimedTrial] = []
        recorder.clear()
        try:
            with recorder:
                for _ in range(count):
                    recorder.begin()
                    self.step()
                    trial = recorder.end()
                    group.append(trial)
                    if trial.start_ns + trial.wall_ns - group[0].start_ns >= _GROUP_NS:
                        self._fold(group)
                    if self._ends():
                        return False
        finally:
            self._fold(group)
        self._learn_waiting()
        return True

    def _fold(self, group: list[TimedTrial]) -> None:
        """Write the trials of a group at once and forget them; calls of an unfinished one stay."""
        log, at = self._recorder.log, 0
        trials, group[:] = group[:], []
        known: list[Known] = []
        for trial in trials:
            found = self.variants.add(trial, log[at : trial.end])
            at = trial.end
            if found is not None:
                known.append(found)
            elif not self.variants.waits(trial):
                self.journal.add(Kind.LEFT_OUT, trial.start_ns, trial.wall_ns)
        del log[:at]
        self._keep(known)
        for trial in trials:
            self._walls.append(trial.wall_ns)
            self._total_ns += trial.wall_ns
            self._launch_ns += trial.launch_ns
        if trials:
            count = len(self._walls)
            self._progress(count, self.settings.trials, self._total_ns / count * NS)

    def _keep(self, trials: Sequence[Known]) -> None:
        """Write trials, those of each kind at once."""
        by_kind: dict[int, list[tuple[int, int, bytes]]] = {}
        for number, trial, times_ns in trials:
            record = trial.start_ns, trial.wall_ns, times_ns.tobytes()
            by_kind.setdefault(number, []).append(record)
        for number, records in by_kind.items():
            self._counts[number] = self._counts.get(number, 0) + len(records)
            self.journal.add_group(Kind.PROFILED, records, number)

    def _learn_waiting(self) -> None:
        """Make structure passes until they have seen the kinds of the trials that wait.

        They take at most half as long as the trials themselves, or two seconds.
        """
        variants = self.variants
        most_ns = max(_LEARN_NS, self._total_ns // 2)
        while variants.waiting and not variants.full:
            if self._passes == _MOST_PASSES or self._passes_ns >= most_ns:
                return
            self._passes += 1
            begin_ns = self._now_ns()
            structure = learn_structure(self.step)
            self._passes_ns += self._now_ns() - begin_ns
            before = len(variants.structures)
            found = variants.learn(structure)
            if len(variants.structures) > before:
                self.journal.add_variant(structure.layers, structure.phases, structure.links)
            self._keep(found)
            if self._ends():
                return

    def end(self) -> None:
        """Leave the trials out whose kind no structure pass saw.

        Raises:
            CallsDifferError: They are the most.
        """
        for trial in self.variants.unknown:
            self.journal.add(Kind.LEFT_OUT, trial.start_ns, trial.wall_ns)
        self.variants.waiting.clear()
        if 2 * sum(self._counts.values()) < len(self._walls):
            raise CallsDifferError(self.variants.difference)

    def _ends(self) -> bool:
        reason = self._stop()
        if len(self._walls) > self._seen:
            self._slow.add(self._walls[self._seen :])
            self._seen = len(self._walls)
        if reason:
            self.ended = reason
        elif self._opened and self._limit.left_s() <= self._reserve_s:
            self.ended = TIME_LIMIT
        return self.ended != COMPLETE

    def _precise_enough(self) -> bool:
        if self._enough is None or not self._enough.due(len(self._walls)):
            return False
        walls = np.frombuffer(self._walls, np.int64)
        reached = self._enough.reached(walls)
        del walls  # an array cannot grow while it is looked into
        return reached

    def hold(self) -> None:
        """On a GPU, a few trials that the device begins when the host has launched all of them.

        The device waits before the trial for longer than launching takes, then works through its
        queue without waiting: these are its own times. They are left out where that cannot be: a
        network that waits for the device in the middle, or more launches than a queue holds. They
        take some two seconds, or three trials where a trial is longer.
        """
        if self._device is None or self._events is None or not self._walls:
            return
        hold_ns = max(_LEAST_HOLD_NS, _HOLD_MORE * self._launch_ns // len(self._walls))
        each_s = (hold_ns + self._total_ns // len(self._walls)) * NS
        in_a_row = 0
        for _ in range(min(HELD_TRIALS, max(_LEAST_HELD, int(HELD_SECONDS / each_s)))):
            while not self._held_trial(hold_ns):
                in_a_row += 1
                hold_ns *= _HOLD_MORE
                if in_a_row == _MOST_HOLDS or hold_ns > _MOST_HOLD_NS:
                    return
            in_a_row = 0
            if self._stop() or self._limit.left_s() <= 0:
                return

    def _held_trial(self, hold_ns: int) -> bool:
        """Make such a trial; False if the device began before all was launched."""
        assert self._device is not None
        assert self._events is not None
        recorder, events = self._recorder, self._events
        recorder.clear()
        with recorder:
            start_ns = self._now_ns()
            self._device.hold(hold_ns)
            events.record()
            self.step()
            events.record()
            begun = events.begun
            events.wait()
        found = self.variants.find(recorder.log)
        if not begun and found is not None and found[0] == 0:
            device = Timeline(self.structure).divide(events.times_ns())
            times = device.times_ns[: len(self.structure.layers)]
            self.journal.add(Kind.HELD, start_ns, device.span_ns, times.tobytes())
        recorder.clear()
        return not begun

    def recording(self) -> Recording:
        """What was measured so far."""
        conditions = replace(
            self._conditions, other_cpu=self._watch.other_cpu(), gpu_after=self._gpu_state()
        )
        return self.journal.recording(conditions, self.ended)

    def _gpu_state(self) -> GpuState | None:
        gpu = gpu_number(self.settings.device)
        return None if gpu is None else gpu_state(gpu)

    def failure(self, error: Exception) -> tuple[str, Recording]:
        """The message of a failure during the trials, and what had been measured."""
        done = plural(len(self._walls), "trial")
        if isinstance(error, CallsDifferError):
            message = str(error)
        elif isinstance(error, StructureError):
            why = memory_full(error.cause, self._clock, self.settings) or one_line(error.cause)
            message = f"the network fails after {done}, {error.where}: {why}"
        elif isinstance(error, JournalError):
            message = f"the samples cannot be written after {done}: {error}"
        else:
            at = self.structure.place(len(read(self._recorder.log).enters))
            at = f", in or after layer {at}" if at else ""
            why = memory_full(error, self._clock, self.settings) or one_line(error)
            message = f"the network fails after {done}{at}: {why}"
        self.ended = f"failed: {message}"
        return message, self.recording()
