"""Makes the trials and passes of :func:`profile`, and returns the recording.

The order is: structure passes; on a CPU, a few trials that choose the number of BLAS threads;
warm-up trials; profiled trials, in blocks that alternate with unprofiled ("clean") ones; on a GPU,
a few held trials (the device waits for all launches); then the :data:`PASSES` that are asked for.
:func:`profile` never asks for the machine's limits. Each measurement runs alone, so none of them
disturbs another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

from chainer_profile.basics.describe import MIN_TRIALS, NS
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.warning import warn_user
from chainer_profile.measure import environment
from chainer_profile.measure.clock import HOST_CLOCK, Clock, TimeLimit
from chainer_profile.measure.configuration import current_configuration
from chainer_profile.measure.counters import COUNTERS
from chainer_profile.measure.inside import INSIDE
from chainer_profile.measure.interrupts import InterruptedRecording
from chainer_profile.measure.learning import LEARNING_PASSES, learn
from chainer_profile.measure.machine import LIMITS
from chainer_profile.measure.memory import MEMORY
from chainer_profile.measure.passes import Pass, PassInput
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepSession
from chainer_profile.measure.steps import AnyStep
from chainer_profile.measure.threads import (
    PROBE_PART,
    PROBE_SECONDS,
    Probe,
    default_blas_threads,
    limit_blas_threads,
    probe_threads,
)
from chainer_profile.measure.too_large import check_samples
from chainer_profile.measure.trials import HELD_SECONDS, Progress, Say, Stop, Trials
from chainer_profile.measure.values import find_denormals, not_finite
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Calibration,
    Environment,
    Recording,
    Settings,
)

#: The passes after the trials, in the order in which they run. The first one counts page faults, so
#: it comes before the recording is made.
PASSES = (COUNTERS, INSIDE, MEMORY, LIMITS)
#: Values of ``ended`` for a run that nobody stopped.
_NOT_STOPPED = (COMPLETE, TIME_LIMIT, INTERVAL)
#: Largest fraction of a time limit that is reserved for the passes after the trials.
_MAX_RESERVED_PART = 0.2


class RunError(ProfileError):
    """The network or the disk failed; ``recording`` has the trials before the failure."""

    def __init__(self, message: str, recording: Recording) -> None:
        super().__init__(message)
        self.recording = recording


def default_clean_trials(trials: int) -> int:
    """Return a tenth of the profiled trials, but at least 30 (or all if fewer), and at least 5."""
    return max(5, min(trials, MIN_TRIALS), -(-trials // 10))


def run(
    step: AnyStep,
    settings: Settings,
    *,
    journal: Journal | None = None,
    clock: Clock = HOST_CLOCK,
    memory: bool = True,
    counters: bool | None = False,
    why: bool = False,
    limits: bool = False,
    calibration: Callable[[], Calibration | None] | None = None,
    by_link: bool = False,
    choose_threads: bool = True,
    progress: Progress | None = None,
    say: Say | None = None,
    warn: Say = warn_user,
    stop: Stop | None = None,
) -> Recording:
    """Make the trials of a step, and the passes after them.

    A pass is left out if its argument is False. With None, the counters pass is short. With
    ``by_link``, rows are functions of links from the first trial on.

    Raises:
        ProfileError: The network fails. From the first warm-up trial on, it is a RunError.
    """
    stop, calibrate = stop or (lambda: ""), calibration or (lambda: None)
    limit = TimeLimit(clock.now_ns, settings.max_seconds)
    requested = {"counters": counters, "inside": why, "memory": memory, "limits": limits}
    passes = [run_pass for run_pass in PASSES if run_pass.wanted(requested, clock)]
    with ExitStack() as stack:
        stack.enter_context(step.configured())
        stack.enter_context(limit_blas_threads(settings.threads))
        session, pass_s, nonfinite = _learn_rows(step, settings, clock, by_link, warn)
        settings = _with_names(settings, step)  # the first pass has chosen the loss
        where, probe = environment.collect(settings.device), Probe()
        if choose_threads and settings.threads is None and clock.device is None:
            probe = _choose_threads(step, settings, where, clock, pass_s, limit, stop)
        stack.enter_context(limit_blas_threads(probe.threads))
        if probe.threads is not None:
            where = replace(where, blas=environment.blas_libraries())
        begin_ns = clock.now_ns()
        before = calibrate()
        calibration_s = (clock.now_ns() - begin_ns) * NS
        rest_s = calibration_s + sum(run_pass.reserved_s(pass_s, limit) for run_pass in passes)
        rest_s += HELD_SECONDS if clock.device else 0.0
        trials = Trials(
            *(step, session, settings, where, journal or Journal(), clock),
            progress or (lambda done, total, mean_s: None),
            *(stop, say or (lambda text: None), limit, probe.trials),
            trial_s=pass_s,
            # The limit is checked after a trial, so the last trial needs up to pass_s more.
            reserve_s=limit.at_most_s(rest_s + pass_s, _MAX_RESERVED_PART),
        )
        on_interrupt = stack.enter_context(InterruptedRecording(trials.interrupted))
        after = _run_trials(trials, calibrate, calibration_s, limit)
        recording = cache(lambda: _recording(trials, (before, after), nonfinite))
        timed = PassInput(step, session, recording, clock, pass_s, trials.total_s, 0.0, None, stop)
        return _run_passes(passes, trials, timed, requested, limit, on_interrupt, warn)


def _learn_rows(
    step: AnyStep, settings: Settings, clock: Clock, by_link: bool, warn: Say
) -> tuple[StepSession, float, tuple[str, ...]]:
    """Make the structure passes.

    Returns:
        The session; the seconds of a pass; and the arrays that are not finite.
    """
    begin_ns = clock.now_ns()
    outputs: list[Any] = []
    if by_link:
        try:
            outputs.append(step())
        except Exception as error:
            raise ProfileError(f"the network fails: {one_line(error)}") from error
        session = StepSession(step, clock, single_calls=False, warn=warn)
    else:
        session = learn(step, settings, clock, outputs.append, warn=warn)
    check_samples(settings, len(session.layers) + len(session.phases))
    pass_s = (clock.now_ns() - begin_ns) * NS / (1 if by_link else LEARNING_PASSES)
    # The output keeps its graph alive, so no variable of the caller may have it.
    return session, pass_s, not_finite(step.roots, outputs.pop(), settings.phase != "forward")


def _run_trials(
    trials: Trials,
    calibrate: Callable[[], Calibration | None],
    calibration_s: float,
    limit: TimeLimit,
) -> Calibration | None:
    """Run the trials, calibrate once more if there is time, and run the held trials.

    Returns the calibration; None if there is none.

    Raises:
        RunError: The network or the disk failed.
    """
    try:
        trials.run()
        calibration = calibrate() if limit.left_s() >= calibration_s else None
        if trials.ended in _NOT_STOPPED:
            trials.hold()
        return calibration
    except Exception as error:
        raise RunError(*trials.failure(error)) from error


def _recording(
    trials: Trials, calibrations: Sequence[Calibration | None], nonfinite: tuple[str, ...]
) -> Recording:
    """Make the recording of the trials, with what was found about the machine and the arrays."""
    result = trials.recording()
    conditions = replace(
        result.conditions,
        calibrations=tuple(times for times in calibrations if times is not None),
        not_finite=nonfinite,
        denormals=find_denormals(trials.step.roots, trials.session.target.aggregator.rows),
    )
    return replace(result, conditions=conditions)


def _run_passes(
    passes: Sequence[Pass],
    trials: Trials,
    timed: PassInput,
    requested: Mapping[str, Any],
    limit: TimeLimit,
    on_interrupt: InterruptedRecording,
    warn: Say,
) -> Recording:
    """Make the passes, and return the recording with their results.

    After the trials, Ctrl-C only skips the remaining passes.
    """
    results: dict[str, Any] = {}
    for position, run_pass in enumerate(passes, 1):
        if trials.ended not in _NOT_STOPPED or timed.stop():
            break
        # Reserve the least time that later passes need.
        later_s = sum(other.calls for other in passes[position:]) * timed.pass_s
        own = replace(
            timed, left_s=limit.left_s() - later_s, requested=requested.get(run_pass.part)
        )
        results[run_pass.part] = run_pass.find(own, warn)
        on_interrupt.recording = replace(timed.recording(), **results)
    return replace(timed.recording(), **results)


def _choose_threads(
    step: Step,
    settings: Settings,
    where: Environment,
    clock: Clock,
    pass_s: float,
    limit: TimeLimit,
    stop: Stop,
) -> Probe:
    """Choose the number of BLAS threads by a few trials; see :mod:`.threads`."""
    run_s = (settings.trials + settings.clean_trials) * pass_s
    max_s = limit.at_most_s(max(PROBE_SECONDS, PROBE_PART * run_s), PROBE_PART)
    default = default_blas_threads(where)
    try:
        return probe_threads(step, clock.now_ns, default, trial_s=pass_s, max_s=max_s, stop=stop)
    except Exception as error:  # the network may raise any exception
        raise ProfileError(
            f"the network fails before the first trial: {one_line(error)}"
        ) from error


def _with_names(settings: Settings, step: AnyStep) -> Settings:
    """Add the names of the step's loss and optimizer, its mode and its kernels to the settings."""
    loss, optimizer = getattr(step, "loss", None), getattr(step, "optimizer", None)
    return replace(
        settings,
        loss=loss.name if loss is not None else "",
        optimizer=type(optimizer).__name__ if optimizer is not None else "",
        train_mode=settings.train_mode or loss is not None,
        with_graph=getattr(step, "with_graph", False) and loss is None,
        **current_configuration() | {"dtype": settings.dtype},
    )
