"""Passes and trials -> Recording.

The passes do not disturb one another: a structure pass learns the layers, their link paths and
shapes; warm-up trials; then trials without any hook ("clean") in blocks that alternate with
"profiled" ones, which take clock reads only; a few trials with one BLAS thread, where the library
uses more; a last structure pass, to see that the network is still the same; and the memory pass.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from struct import pack
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile import environment
from chainer_profile.clock import HOST_CLOCK, Clock
from chainer_profile.errors import ProfileError, one_line
from chainer_profile.journal import Journal, JournalError, Kind
from chainer_profile.memory import measure_memory
from chainer_profile.recorder import Recorder
from chainer_profile.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Conditions,
    Environment,
    MemoryUse,
    Recording,
    Settings,
    Shape,
)
from chainer_profile.statistics import NS, half_width
from chainer_profile.steps import AnyStep, make_step
from chainer_profile.structure import Step, Structure, StructureError, learn_structure
from chainer_profile.units import format_shape, plural

#: Called ten times a second, or after every trial that takes longer, with the trials done, those
#: wanted, and the mean trial in seconds.
Progress = Callable[[int, int, float], None]
#: Asked after every trial: why to stop now, or an empty text.
Stop = Callable[[], str]

_MIN_TRIALS_FOR_CI = 30
_GROUP_NS = 100_000_000
_PROBE_ROUNDS = 10
_PROBE_MIN_ROUNDS = 2
_PROBE_TRIALS = 3
_PROBE_SECONDS = 2.0
_PROBE_MIN_TRIALS = 100
#: Ends of a run that nobody stopped.
_IN_ORDER = (COMPLETE, TIME_LIMIT, INTERVAL)


# Start and wall time of a trial; the numbers of clock reads, entries and backwards up to its end.
_Timed = tuple[int, int, int, int, int]


class RunError(ProfileError):
    """The network or the disk failed during the trials.

    Attributes:
        recording: The trials that were complete.
    """

    def __init__(self, message: str, recording: Recording) -> None:
        super().__init__(message)
        self.recording = recording


def profile(
    model: Any,
    x: Any,
    *,
    trials: int = 1000,
    warmups: int = 50,
    clean_trials: int | None = None,
    phase: str = "forward",
    loss: str | Callable[[Any], Any] = "auto",
    optimizer: Any = None,
    train_mode: bool = False,
    max_seconds: float | None = None,
    until_ci: float | None = None,
    memory: bool = True,
    progress: Progress | None = None,
) -> Recording:
    """Profile a network layer by layer: its forward pass, backward too, or a training step.

    Args:
        model: The network, a :class:`chainer.Link`.
        x: Its input array, or a tuple of its inputs.
        trials: Number of profiled trials; an upper bound with max_seconds or until_ci.
        warmups: Trials before those, kept apart.
        clean_trials: Trials without hooks on top; a tenth of trials by default.
        phase: ``forward``, ``forward-backward``, or ``train`` (forward, loss, backward, update).
        loss: A callable from the network's output to a scalar variable, or a name: ``auto`` is
            softmax cross-entropy against random labels, and the output itself where it is one
            number; see :func:`chainer_profile.steps.choose_loss`.
        optimizer: For ``train``: one that is set up for the network. By default momentum SGD with
            weight decay and learning rate 0, so that all trials have the same weights.
        train_mode: Run ``forward`` with ``chainer.config.train`` on. Inference is False; the other
            phases always have it on.
        max_seconds: Stop after so many seconds of trials.
        until_ci: Stop when the half width of the 95 % interval of the mean trial is at most this
            fraction of it.
        memory: Make the memory pass: two more calls after the trials, which max_seconds does not
            bound.
        progress: Called now and then, see :data:`Progress`.

    Returns:
        The recording; :func:`chainer_profile.summarise` makes the statistics.

    Raises:
        ProfileError: The network fails, or its calls differ from trial to trial.
    """
    first = x[0] if isinstance(x, tuple) else x
    shape = tuple(int(n) for n in first.shape)
    settings = Settings(
        model=type(model).__name__,
        input_shape=shape,
        batchsize=shape[0] if shape else 1,
        phase=phase,
        train_mode=train_mode,
        trials=trials,
        clean_trials=default_clean_trials(trials) if clean_trials is None else clean_trials,
        warmups=warmups,
        max_seconds=max_seconds,
        until_ci=until_ci,
    )
    step = make_step(
        phase,
        model,
        x if isinstance(x, tuple) else (x,),
        train_mode=train_mode,
        loss=loss,
        optimizer=optimizer,
    )
    return run(step, settings, memory=memory, progress=progress)


def default_clean_trials(trials: int) -> int:
    """A tenth of the profiled trials, and at least five."""
    return max(5, -(-trials // 10))


def run(
    step: AnyStep,
    settings: Settings,
    *,
    journal: Journal | None = None,
    clock: Clock = HOST_CLOCK,
    memory: bool = True,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Recording:
    """Make all passes that the settings ask for.

    Args:
        step: What a trial runs, from :func:`~chainer_profile.steps.make_step`.
        settings: Numbers of trials and so on; the rest is kept as it is, for the reports, but for
            names that the step gives.
        journal: Where trials are written as they are made; in memory by default.
        clock: The clock that measures.
        memory: Make the memory pass, where the run was not stopped. Its failure is a warning.
        progress: Called now and then, see :data:`Progress`.
        stop: Asked after every trial whether to stop.

    Raises:
        ProfileError: The network fails before the first trial, or calls no function.
        RunError: It fails later, its calls differ from trial to trial, or the disk is full.
    """
    settings = _named(settings, step)
    with step.configured():
        structure = _learn(step, settings)
        trials = Trials(
            step,
            structure,
            settings,
            environment.collect(),
            journal or Journal(),
            clock,
            progress or (lambda done, total, mean_s: None),
            stop or (lambda: ""),
        )
        try:
            trials.run()
            if trials.ended in _IN_ORDER:
                trials.probe_threads()
                _compare(structure, learn_structure(step))
        except Exception as error:
            raise RunError(*trials.failure(error)) from error
        recording = trials.recording()
        # A signal during the probe ends no run, but it asks for no more trials.
        if memory and trials.ended in _IN_ORDER and not (stop and stop()):
            recording = replace(recording, memory=_memory(step, structure))
        return recording


def _memory(step: Step, structure: Structure) -> MemoryUse | None:
    """What the memory pass finds; None if it fails."""
    try:
        return measure_memory(step, structure)
    except Exception as error:
        warnings.warn(f"the memory pass fails ({one_line(error)}): left out", stacklevel=2)
        return None


def _named(settings: Settings, step: AnyStep) -> Settings:
    """The settings with the names of the step's loss and optimizer."""
    loss, optimizer = getattr(step, "loss", None), getattr(step, "optimizer", None)
    return replace(
        settings,
        loss=loss.name if loss is not None else "",
        optimizer=type(optimizer).__name__ if optimizer is not None else "",
        train_mode=settings.train_mode or loss is not None,
    )


def _learn(step: Step, settings: Settings) -> Structure:
    """The structure pass, made twice: the first call may initialise parameters."""
    try:
        learn_structure(step)
        structure = learn_structure(step)
        _compare(structure, learn_structure(step))
    except StructureError as error:
        raise error.with_input(settings.input_shape) from error
    except _CallsDifferError as error:
        raise ProfileError(str(error)) from None
    if not structure.layers:
        raise ProfileError("the network calls no Chainer function, so there is nothing to time")
    return structure


class _CallsDifferError(Exception):
    def __init__(self, difference: str) -> None:
        super().__init__(
            f"the network's calls differ from trial to trial: {difference}; such a network has no "
            "fixed layers to take means of"
        )


def _compare(known: Structure, seen: Structure) -> None:
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
        raise _CallsDifferError(difference)


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
        self._progress = progress
        self._stop = stop
        self._recorder = Recorder(clock.now_ns, step)
        self._conditions = Conditions()
        self._watch = environment.CpuWatch()
        self._walls = array("q")
        self._total_ns = 0
        self._begin_ns = 0

    def begin(self) -> None:
        """Look at the clock and open the journal."""
        self._conditions = Conditions(
            clock_resolution_ns=self._clock.resolution_ns(), window_ns=self._recorder.window_ns()
        )
        self.journal.begin(
            self.structure.layers,
            self.settings,
            self._where,
            phases=self.structure.phases,
            links=self.structure.links,
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
            start_ns = self._now_ns()
            self.step()
            self.journal.add(kind, start_ns, self._now_ns() - start_ns)
            if self._ends():
                return False
        return True

    def profiled(self, count: int) -> bool:
        """Trials under the recorder. False: stop."""
        recorder, step, now_ns = self._recorder, self.step, self._now_ns
        stamps, entries, backwards = recorder.stamps, recorder.entries, recorder.backwards
        n_stamps = len(self.structure.owners)
        # Work between two trials makes the second one slower, so it is done for a group at once.
        group: list[_Timed] = []
        recorder.clear()
        try:
            with recorder:
                for _ in range(count):
                    start_ns = now_ns()
                    step()
                    end_ns = now_ns()
                    wall_ns = end_ns - start_ns
                    group.append((start_ns, wall_ns, len(stamps), len(entries), len(backwards)))
                    regular = len(stamps) == n_stamps * len(group)
                    if not regular or end_ns - group[0][0] >= _GROUP_NS:
                        self._fold(group)
                    if self._ends():
                        return False
        finally:
            self._fold(group)
        return True

    def _fold(self, group: list[_Timed]) -> None:
        """Write the trials of a group and forget them; the calls of an unfinished one stay."""
        recorder, structure = self._recorder, self.structure
        stamps, entries, backwards = recorder.stamps, recorder.entries, recorder.backwards
        trials, group[:] = group[:], []
        full: JournalError | None = None
        at = (0, 0, 0)
        for start_ns, wall_ns, *end in trials:
            seen = (stamps[at[0] : end[0]], entries[at[1] : end[1]], backwards[at[2] : end[2]])
            difference = structure.difference(seen[1], seen[2], len(seen[0]))
            if difference:
                raise _CallsDifferError(difference)
            at = (end[0], end[1], end[2])
            try:
                times = structure.times_ns(seen[0])
                self.journal.add(Kind.PROFILED, start_ns, wall_ns, times.tobytes())
            except JournalError as error:
                full = error
            if full is None:
                self._walls.append(wall_ns)
                self._total_ns += wall_ns
        del stamps[: at[0]], entries[: at[1]], backwards[: at[2]]
        if full is not None:
            raise full
        if trials:
            done = len(self._walls)
            self._progress(done, self.settings.trials, self._total_ns / done * NS)

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
        wanted = self.settings.until_ci
        if wanted is None or len(self._walls) < _MIN_TRIALS_FOR_CI:
            return False
        walls = np.frombuffer(self._walls, np.int64)
        reached = half_width(walls) <= wanted * walls.mean()
        del walls  # an array cannot grow while it is looked into
        return bool(reached)

    def probe_threads(self) -> None:
        """A few trials with one BLAS thread, where more are in use by nobody's choice."""
        threads = max((library.threads for library in self._where.blas), default=1)
        few = len(self._walls) < _PROBE_MIN_TRIALS
        if few or threads < 2 or self.settings.threads is not None:
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
                        start_ns = self._now_ns()
                        self.step()
                        wall_ns = self._now_ns() - start_ns
                        self.journal.add(Kind.PROBE, start_ns, wall_ns, pack("<q", count))
                        if self._stop():
                            return

    def recording(self) -> Recording:
        """What was measured so far."""
        conditions = replace(self._conditions, other_cpu=self._watch.other_cpu())
        return self.journal.recording(conditions, self.ended)

    def failure(self, error: Exception) -> tuple[str, Recording]:
        """The message of a failure during the trials, and what had been measured."""
        done = plural(len(self._walls), "trial")
        if isinstance(error, _CallsDifferError):
            message = str(error)
        elif isinstance(error, StructureError):
            message = f"the network fails after {done}, {error.where}: {one_line(error.cause)}"
        elif isinstance(error, JournalError):
            message = f"the samples cannot be written after {done}: {error}"
        else:
            at = self.structure.place(len(self._recorder.stamps))
            at = f", in or after layer {at}" if at else ""
            message = f"the network fails after {done}{at}: {one_line(error)}"
        self.ended = f"failed: {message}"
        return message, self.recording()
