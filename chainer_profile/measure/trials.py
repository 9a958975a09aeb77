"""The timed part of a run: blocks of trials, and the trials of the passes beside them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from struct import pack

import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import one_line
from chainer_profile.basics.parsing import gpu_number
from chainer_profile.basics.stopping import PreciseEnough
from chainer_profile.basics.units import format_count, format_nbytes, format_shape, plural
from chainer_profile.measure import environment
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.events import EventPool, TimedTrial, Timeline
from chainer_profile.measure.gpu_environment import gpu_state
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.structure import Step, Structure, StructureError
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

_GROUP_NS = 100_000_000
_PROBE_ROUNDS = 10
_PROBE_MIN_ROUNDS = 2
_PROBE_TRIALS = 3
_PROBE_SECONDS = 2.0
_PROBE_MIN_TRIALS = 100
_HOLD_MORE = 2
_LEAST_HOLD_NS = 1_000_000
_MOST_HOLD_NS = 1_000_000_000
_MOST_HOLDS = 6
_HELD_SECONDS = 2.0
_LEAST_HELD = 3


class CallsDifferError(Exception):
    """A trial made other calls than the first one did; says which."""

    def __init__(self, difference: str) -> None:
        super().__init__(
            f"the network's calls differ from trial to trial: {difference}; such a network has no "
            "fixed layers to take means of"
        )


def compare(known: Structure, seen: Structure) -> None:
    """Raise unless two structure passes saw the same calls with the same shapes."""
    difference = known.difference(seen.entries, seen.backwards, len(seen.owners))
    for a, b in zip(known.layers, seen.layers, strict=False):
        if not difference and a != b:
            difference = (
                f"layer {a.label} at {a.path} took {_listed(a.input_shapes)}, and then "
                f"{_listed(b.input_shapes)}"
                if a.input_shapes != b.input_shapes
                else f"layer {a.label} was called at {a.path} and then at {b.path}"
            )
    if difference:
        raise CallsDifferError(difference)


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(map(format_shape, shapes))


def cycles(trials: int, clean_trials: int) -> Iterator[tuple[int, int, int]]:
    """How many profiled, clean and again profiled trials each cycle of a run makes.

    Clean blocks stand in the middle of their cycle, so that a slow drift hits both kinds alike.
    """
    count = max(1, min(50, clean_trials // 5), trials // 200)
    for cycle in range(count):
        profiled = trials * (cycle + 1) // count - trials * cycle // count
        clean = clean_trials * (cycle + 1) // count - clean_trials * cycle // count
        yield (profiled + 1) // 2, clean, profiled // 2


def memory_full(error: BaseException, clock: Clock, settings: Settings) -> str:
    """What to say where an exception is that of a GPU whose memory is full; else an empty text."""
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
        structure: Structure,
        settings: Settings,
        where: Environment,
        journal: Journal,
        clock: Clock,
        progress: Progress,
        stop: Stop,
    ) -> None:
        self.step = step
        self.structure = structure
        self.settings = settings
        self.journal = journal
        self.ended = COMPLETE
        self._where = where
        self._clock = clock
        self._now_ns = clock.now_ns
        self._device = clock.device
        self._events = None if clock.device is None else EventPool(clock.device)
        self._timeline = Timeline(structure)
        self._progress = progress
        self._stop = stop
        self._recorder = Recorder(clock.now_ns, step, self._events)
        self._conditions = Conditions()
        self._watch = environment.CpuWatch()
        self._walls = array("q")
        wanted = settings.until_ci
        self._enough = None if wanted is None else PreciseEnough(wanted)
        self._total_ns = 0
        self._launch_ns = 0
        self._begin_ns = 0

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
        )

    def run(self) -> None:
        """Warm-up, then the cycles of profiled and clean trials."""
        self.begin()
        self._watch = environment.CpuWatch()
        if not self.plain(Kind.WARMUP, self.settings.warmups):
            return
        self._begin_ns = self._now_ns()
        for before, clean, behind in cycles(self.settings.trials, self.settings.clean_trials):
            if not (
                self.profiled(before) and self.plain(Kind.CLEAN, clean) and self.profiled(behind)
            ):
                return
            if self._precise_enough():
                self.ended = INTERVAL
                return

    def plain(self, kind: Kind, count: int) -> bool:
        """Trials without hooks. False: stop."""
        for _ in range(count):
            start_ns, wall_ns = self._time_step()
            self.journal.add(kind, start_ns, wall_ns)
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
        recorder, n_stamps = self._recorder, len(self.structure.owners)
        # Work between two trials makes the second one slower, so it is done for a group at once.
        group: list[TimedTrial] = []
        recorder.clear()
        try:
            with recorder:
                for _ in range(count):
                    trial = recorder.trial()
                    group.append(trial)
                    regular = trial.end[0] == n_stamps * len(group)
                    age_ns = trial.start_ns + trial.wall_ns - group[0].start_ns
                    if not regular or age_ns >= _GROUP_NS:
                        self._fold(group)
                    if self._ends():
                        return False
        finally:
            self._fold(group)
        return True

    def _fold(self, group: list[TimedTrial]) -> None:
        """Write the trials of a group at once and forget them; calls of an unfinished one stay."""
        recorder, structure = self._recorder, self.structure
        stamps, entries, backwards = recorder.stamps, recorder.entries, recorder.backwards
        trials, group[:] = group[:], []
        done: list[tuple[TimedTrial, bytes]] = []
        at, difference = (0, 0, 0), ""
        for trial in trials:
            end = trial.end
            seen = (stamps[at[0] : end[0]], entries[at[1] : end[1]], backwards[at[2] : end[2]])
            difference = structure.difference(seen[1], seen[2], len(seen[0]))
            if difference:
                break
            at = end
            done.append((trial, self._timeline.times(seen[0], trial).tobytes()))
        del stamps[: at[0]], entries[: at[1]], backwards[: at[2]]
        self.journal.add_group(
            Kind.PROFILED, [(trial.start_ns, trial.wall_ns, times) for trial, times in done]
        )
        for trial, _ in done:
            self._walls.append(trial.wall_ns)
            self._total_ns += trial.wall_ns
            self._launch_ns += trial.launch_ns
        if difference:
            raise CallsDifferError(difference)
        if trials:
            count = len(self._walls)
            self._progress(count, self.settings.trials, self._total_ns / count * NS)

    def _ends(self) -> bool:
        reason = self._stop()
        limit = self.settings.max_seconds
        if reason:
            self.ended = reason
        elif (
            limit is not None and self._begin_ns and (self._now_ns() - self._begin_ns) * NS >= limit
        ):
            self.ended = TIME_LIMIT
        return self.ended != COMPLETE

    def _precise_enough(self) -> bool:
        if self._enough is None or not self._enough.due(len(self._walls)):
            return False
        walls = np.frombuffer(self._walls, np.int64)
        reached = self._enough.reached(walls)
        del walls  # an array cannot grow while it is looked into
        return reached

    def probe_threads(self) -> None:
        """A few trials with one BLAS thread, where more are in use by nobody's choice."""
        threads = max((library.threads for library in self._where.blas), default=1)
        few = len(self._walls) < _PROBE_MIN_TRIALS
        chosen = self.settings.threads is not None or self._device is not None
        if few or threads < 2 or chosen:
            return
        round_s = 2 * (_PROBE_TRIALS + 1) * self._total_ns * NS / len(self._walls)
        rounds = int(min(_PROBE_ROUNDS, _PROBE_SECONDS / max(round_s, NS)))
        if rounds < _PROBE_MIN_ROUNDS:
            return
        for _ in range(rounds):
            for count in (threads, 1):
                with threadpool_limits(count, user_api="blas"):
                    self.step()
                    for _ in range(_PROBE_TRIALS):
                        start_ns, wall_ns = self._time_step()
                        self.journal.add(Kind.PROBE, start_ns, wall_ns, pack("<q", count))
                        if self._stop():
                            return

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
        for _ in range(min(HELD_TRIALS, max(_LEAST_HELD, int(_HELD_SECONDS / each_s)))):
            while not self._held_trial(hold_ns):
                in_a_row += 1
                hold_ns *= _HOLD_MORE
                if in_a_row == _MOST_HOLDS or hold_ns > _MOST_HOLD_NS:
                    return
            in_a_row = 0
            if self._stop():
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
        seen = recorder.entries, recorder.backwards, len(recorder.stamps)
        difference = self.structure.difference(*seen)
        if difference:
            raise CallsDifferError(difference)
        if not begun:
            device = self._timeline.divide(events.times_ns())
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
            at = self.structure.place(len(self._recorder.stamps))
            at = f", in or after layer {at}" if at else ""
            why = memory_full(error, self._clock, self.settings) or one_line(error)
            message = f"the network fails after {done}{at}: {why}"
        self.ended = f"failed: {message}"
        return message, self.recording()
