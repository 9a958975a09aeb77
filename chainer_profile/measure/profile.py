"""The function :func:`profile`: checks its arguments, and restores the state afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chainer_profile.basics.checks import (
    callable_or_none,
    choice,
    flag,
    number_between,
    whole_number,
)
from chainer_profile.basics.parsing import check_threads
from chainer_profile.basics.warning import warner
from chainer_profile.basics.words import LOSSES, PHASES
from chainer_profile.measure.arguments import Arguments, as_network, network_name
from chainer_profile.measure.calibration import calibration_of
from chainer_profile.measure.configuration import current_configuration
from chainer_profile.measure.devices import clock_of, device_name, only_device_of
from chainer_profile.measure.interrupts import interrupts_that_stop
from chainer_profile.measure.runner import default_clean_trials, run
from chainer_profile.measure.state import preserved_state
from chainer_profile.measure.steps import AnyStep, check_optimizer, make_step
from chainer_profile.measure.trials import Progress, Stop
from chainer_profile.record.recording import Recording, Settings


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
            The ``recording`` of a :class:`.runner.RunError` has the trials before the failure.
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
