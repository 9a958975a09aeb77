"""Makes the trials and passes of :func:`profile`, and returns the recording.

The order is: structure passes; on a CPU, a few trials that choose the number of BLAS threads;
warm-up trials; profiled trials, in blocks that alternate with unprofiled ("clean") ones; on a GPU,
a few held trials (the device waits for all launches); then the :data:`PASSES` that are asked for.
:func:`profile` never asks for the machine's limits. Each measurement runs alone, so none of them
disturbs another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

from chainer_profile.basics.checks import (
    callable_or_none,
    choice,
    flag,
    number_between,
    whole_number,
)
from chainer_profile.basics.describe import MIN_TRIALS, NS
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.parsing import check_threads
from chainer_profile.basics.warning import warn_user, warner
from chainer_profile.basics.words import LOSSES, PHASES
from chainer_profile.measure import environment
from chainer_profile.measure.arguments import Arguments, as_network, network_name
from chainer_profile.measure.calibration import calibration_of
from chainer_profile.measure.clock import HOST_CLOCK, Clock, TimeLimit
from chainer_profile.measure.configuration import current_configuration
from chainer_profile.measure.counters import COUNTERS
from chainer_profile.measure.devices import clock_of, device_name, only_device_of
from chainer_profile.measure.inside import INSIDE
from chainer_profile.measure.interrupts import InterruptedRecording, interrupts_that_stop
from chainer_profile.measure.learning import LEARNING_PASSES, learn
from chainer_profile.measure.machine import LIMITS
from chainer_profile.measure.memory import MEMORY
from chainer_profile.measure.passes import PassInput
from chainer_profile.measure.state import preserved_state
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepSession
from chainer_profile.measure.steps import AnyStep, check_optimizer, make_step
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
    threads: int | None = None,
    max_seconds: float | None = None,
    until_ci: float | None = None,
    memory: bool = True,
    counters: bool | None = None,
    why: bool = False,
    progress: Progress | None = None,
) -> Recording:
    """Profile a network layer by layer: its forward pass, forward and backward, or a training step.

    While all trials make the same calls, each call is a row. From the first trial that differs
    (another branch, other shapes), a row is a function of a link, and
    :attr:`~.Recording.calls` has its calls in each trial.

    On a GPU, after ``model.to_device("@cupy:0")``, the layers' times are times on the device.

    Afterwards, also after an exception or Ctrl-C, the network, the optimizer, the input, the loss
    and the random generators of NumPy and Python have their former state, and so has every object
    that is reached from them; :func:`.preserved_state` names the limits. A function or a bound
    method reaches its object, its closure and the global variables that it names. Only parameters
    without an array keep the first array that they get, with its initial values.

    Ctrl-C ends the run after the current trial, or at once when it is pressed again.

    Args:
        model: The network, a :class:`chainer.Link`; or a function, whose layers have no link paths.
        x: Its input, on the network's device: an array or a Variable; a tuple of several arguments;
            a list of arrays, which is one argument; or a dict of arguments by name.
        trials: Number of profiled trials; an upper bound with max_seconds or until_ci.
        warmups: Trials before the profiled ones, which are not counted; fewer if they take more
            than ten seconds.
        clean_trials: Unprofiled trials in addition. Default: a tenth of trials, but at least 30,
            or as many as trials if these are fewer than 30, and never fewer than 5.
        phase: ``forward``, ``forward-backward``, or ``train`` (forward, loss, backward, update).
        loss: A callable from the network's output to a scalar variable, or a name. ``auto`` is
            softmax cross-entropy against random labels, or the output itself if it is one number;
            see :func:`chainer_profile.measure.steps.choose_loss`.
        optimizer: For ``train``: an optimizer that is set up for the network; it trains the network
            during the run. Default: momentum SGD with weight decay and learning rate 0, so that all
            trials have the same weights.
        train_mode: Run ``forward`` with ``chainer.config.train`` on. Inference uses False; the
            other phases always have it on.
        threads: BLAS threads. Default: one or as many as the library uses, whichever is faster in
            a few trials before the others, unless the program or a variable such as
            ``OPENBLAS_NUM_THREADS`` has set the number. BLAS has its former number afterwards.
        max_seconds: Time limit in seconds for all passes, from the structure passes to the memory
            pass. At least one unprofiled and one profiled trial are made.
        until_ci: Stop when half of the 95 % confidence interval of the median profiled trial is at
            most this fraction of the median, checked from 200 trials on (see
            :class:`.describe.PreciseEnough`).
        memory: Make the memory pass: two more calls after the trials, if max_seconds allows.
        counters: Make the counters pass on a CPU: more trials after the others, which count CPU
            time, page faults and context switches of the thread in each layer. Default: for a tenth
            of the trials' time, at most five seconds; True: for five seconds.
        why: Sample the layers for some seconds after the trials, to show which parts of their code,
            and of the framework between them, take the time.
        progress: Called up to ten times a second; see :data:`Progress`.

    Returns:
        The recording; :func:`chainer_profile.summarise` computes its statistics.

    Raises:
        ProfileError: The network fails, or memory does not hold the copies that restore the state.
            The ``recording`` of a :class:`RunError` has the trials before the failure.
        UsageError: An argument is invalid, or there are fewer cores than threads.
        KeyboardInterrupt: After Ctrl-C. Its ``recording`` has the trials so far; None if there are
            none.
    """
    trials = whole_number("trials", trials, 1)
    clean_trials = default_clean_trials(trials) if clean_trials is None else clean_trials
    settings = Settings(
        phase=choice("phase", phase, PHASES),
        train_mode=flag("train_mode", train_mode),
        trials=trials,
        clean_trials=whole_number("clean_trials", clean_trials, 0),
        warmups=whole_number("warmups", warmups, 0),
        threads=None if threads is None else whole_number("threads", threads, 1),
        max_seconds=number_between(
            "max_seconds", max_seconds, math.inf, "a number of seconds above 0"
        ),
        until_ci=number_between("until_ci", until_ci, 1, "a fraction, such as 0.01 for 1 %"),
    )
    check_threads(settings.threads)
    passes = {
        "memory": flag("memory", memory),
        "counters": None if counters is None else flag("counters", counters),
        "why": flag("why", why),
    }
    if not callable(loss):
        choice("loss", loss, LOSSES)
    check_optimizer(optimizer)
    progress = callable_or_none("progress", progress)
    arguments = Arguments.from_input(x)
    try:
        with interrupts_that_stop() as stop:
            with preserved_state(model, arguments.args, arguments.kwargs, loss, optimizer):
                step = make_step(
                    phase,
                    as_network(model, arguments.arrays),
                    arguments.args,
                    train_mode=settings.train_mode,
                    loss=loss,
                    optimizer=optimizer,
                    keywords=arguments.kwargs,
                )
                recording = _run_step(step, arguments, settings, stop, progress=progress, **passes)
            if stop():
                raise _keyboard_interrupt(recording)
            return recording
    except KeyboardInterrupt as error:
        # The network may have raised it before the first trial, without a recording.
        error.recording = getattr(error, "recording", None)  # type: ignore[attr-defined]
        raise


def _run_step(
    step: AnyStep, arguments: Arguments, settings: Settings, stop: Stop, **options: Any
) -> Recording:
    """Run a step, after adding its network, input and device to the settings."""
    device = only_device_of(step.model)
    clock = clock_of(device)
    settings = replace(
        settings,
        model=network_name(step.model),
        input=arguments.description,
        input_shape=arguments.shape,
        batchsize=arguments.batchsize,
        device=device_name(device),
        **current_configuration(),
    )
    return run(
        step,
        settings,
        clock=clock,
        calibration=calibration_of(step, clock),
        say=warner(),
        stop=stop,
        **options,
    )


def _keyboard_interrupt(recording: Recording) -> KeyboardInterrupt:
    """The exception for a run that Ctrl-C has stopped, with its recording."""
    error = KeyboardInterrupt()
    error.recording = recording if recording.n_trials else None  # type: ignore[attr-defined]
    return error


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
    stop = stop or (lambda: "")
    limit = TimeLimit(clock.now_ns, settings.max_seconds)
    with ExitStack() as stack:
        stack.enter_context(step.configured())
        stack.enter_context(limit_blas_threads(settings.threads))
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
        settings = _with_names(settings, step)  # the first pass has chosen the loss
        pass_s = (clock.now_ns() - begin_ns) * NS / (1 if by_link else LEARNING_PASSES)
        nonfinite = not_finite(step.roots, outputs.pop(), settings.phase != "forward")
        where = environment.collect(settings.device)
        probe = Probe()
        if choose_threads and settings.threads is None and clock.device is None:
            run_s = (settings.trials + settings.clean_trials) * pass_s
            max_s = limit.at_most_s(max(PROBE_SECONDS, PROBE_PART * run_s), PROBE_PART)
            probe = _choose_threads(step, where, clock, pass_s, max_s, stop)
        stack.enter_context(limit_blas_threads(probe.threads))
        if probe.threads is not None:
            where = replace(where, blas=environment.blas_libraries())
        begin_ns = clock.now_ns()
        calibrations = [calibration()] if calibration else []
        calibration_s = (clock.now_ns() - begin_ns) * NS
        requested = {"counters": counters, "inside": why, "memory": memory, "limits": limits}
        passes = [run_pass for run_pass in PASSES if run_pass.wanted(requested, clock)]
        # The time limit is checked after a trial, so the last trial needs up to pass_s more.
        passes_s = sum(run_pass.reserved_s(pass_s, limit) for run_pass in passes)
        rest_s = calibration_s + pass_s + passes_s
        rest_s += HELD_SECONDS if clock.device else 0.0
        trials = Trials(
            step,
            session,
            settings,
            where,
            journal or Journal(),
            clock,
            progress or (lambda done, total, mean_s: None),
            stop,
            say or (lambda text: None),
            limit,
            probe.trials,
            trial_s=pass_s,
            reserve_s=limit.at_most_s(rest_s, _MAX_RESERVED_PART),
        )
        on_interrupt = stack.enter_context(InterruptedRecording(trials.interrupted))
        try:
            trials.run()
            if calibration and limit.left_s() >= calibration_s:
                calibrations.append(calibration())
            if trials.ended in _NOT_STOPPED:
                trials.hold()
        except Exception as error:
            raise RunError(*trials.failure(error)) from error

        @cache
        def recording() -> Recording:
            result = trials.recording()
            conditions = replace(
                result.conditions,
                calibrations=tuple(times for times in calibrations if times is not None),
                not_finite=nonfinite,
                denormals=find_denormals(step.roots, session.target.aggregator.rows),
            )
            return replace(result, conditions=conditions)

        results: dict[str, Any] = {}
        for position, run_pass in enumerate(passes, 1):
            # After the trials, Ctrl-C only skips the remaining passes.
            if trials.ended not in _NOT_STOPPED or stop():
                break
            timed = PassInput(
                step=step,
                session=session,
                recording=recording,
                clock=clock,
                pass_s=pass_s,
                trials_s=trials.total_s,
                # Reserve the least time that later passes need.
                left_s=limit.left_s() - sum(other.calls for other in passes[position:]) * pass_s,
                requested=requested.get(run_pass.part),
                stop=stop,
            )
            results[run_pass.part] = run_pass.find(timed, warn)
            on_interrupt.recording = replace(recording(), **results)
        return replace(recording(), **results)


def _choose_threads(
    step: Step, where: Environment, clock: Clock, trial_s: float, max_s: float, stop: Stop
) -> Probe:
    """Choose the number of BLAS threads by a few trials, within ``max_s``; see :mod:`.threads`."""
    default = default_blas_threads(where)
    try:
        return probe_threads(step, clock.now_ns, default, trial_s=trial_s, max_s=max_s, stop=stop)
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
