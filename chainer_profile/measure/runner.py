"""Passes and trials -> Recording.

The passes do not disturb one another: a structure pass learns the layers, their link paths and
shapes; warm-up trials; then trials without any hook ("clean") in blocks that alternate with
"profiled" ones, which take clock reads only; a few trials with one BLAS thread, where the library
uses more; on a GPU a few that it begins when all of them is launched, for its own times without
waiting; a last structure pass, to see that the network is still the same; and the memory pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import chainer

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure import environment
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.configuration import dtype_name
from chainer_profile.measure.devices import clock_of, device_name, device_of
from chainer_profile.measure.memory import measure_memory
from chainer_profile.measure.ranges import mark_ranges
from chainer_profile.measure.steps import AnyStep, make_step
from chainer_profile.measure.structure import Step, Structure, StructureError, learn_structure
from chainer_profile.measure.trials import (
    CallsDifferError,
    Progress,
    Stop,
    Trials,
    compare,
    memory_full,
)
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Calibration,
    MemoryUse,
    Recording,
    Settings,
)

#: Ends of a run that nobody stopped.
_IN_ORDER = (COMPLETE, TIME_LIMIT, INTERVAL)


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

    On a GPU, after ``model.to_device("@cupy:0")``, the layers' times are the device's.

    Args:
        model: The network, a :class:`chainer.Link`.
        x: Its input array, or a tuple of its inputs, on the network's device.
        trials: Number of profiled trials; an upper bound with max_seconds or until_ci.
        warmups: Trials before those, kept apart.
        clean_trials: Trials without hooks on top; a tenth of trials by default.
        phase: ``forward``, ``forward-backward``, or ``train`` (forward, loss, backward, update).
        loss: A callable from the network's output to a scalar variable, or a name: ``auto`` is
            softmax cross-entropy against random labels, and the output itself where it is one
            number; see :func:`chainer_profile.measure.steps.choose_loss`.
        optimizer: For ``train``: one that is set up for the network. By default momentum SGD with
            weight decay and learning rate 0, so that all trials have the same weights.
        train_mode: Run ``forward`` with ``chainer.config.train`` on. Inference is False; the other
            phases always have it on.
        max_seconds: Stop after so many seconds of trials.
        until_ci: Stop when the half width of the 95 % interval of the median profiled trial is, at
            looks from 200 trials on (see :class:`.stopping.PreciseEnough`), at most this
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
        device=device_name(device_of(model)),
        dtype=dtype_name(),
    )
    step = make_step(
        phase,
        model,
        x if isinstance(x, tuple) else (x,),
        train_mode=train_mode,
        loss=loss,
        optimizer=optimizer,
    )
    clock = clock_of(device_of(model))
    return run(
        step,
        settings,
        clock=clock,
        memory=memory,
        calibration=calibration_of(step, clock),
        progress=progress,
    )


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
    ranges: bool = False,
    calibration: Callable[[], Calibration | None] | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Recording:
    """Make all passes that the settings ask for.

    Args:
        step: What a trial runs, from :func:`~chainer_profile.measure.steps.make_step`.
        settings: Numbers of trials and so on; the rest is kept as it is, for the reports, but for
            names that the step gives.
        journal: Where trials are written as they are made; in memory by default.
        clock: The clock that measures.
        memory: Make the memory pass, where the run was not stopped. Its failure is a warning.
        ranges: On a GPU, make a few trials with the layers as ranges for the device's own tools.
        calibration: Times fixed work, before the warm-up and after the trials: how fast the machine
            was; see :func:`calibration_of`.
        progress: Called now and then, see :data:`Progress`.
        stop: Asked after every trial whether to stop.

    Raises:
        ProfileError: The network fails before the first trial, or calls no function.
        RunError: It fails later, its calls differ from trial to trial, or the disk is full.
    """
    settings = _named(settings, step)
    with step.configured():
        structure = learn(step, settings, clock)
        trials = Trials(
            step,
            structure,
            settings,
            environment.collect(settings.device),
            journal or Journal(),
            clock,
            progress or (lambda done, total, mean_s: None),
            stop or (lambda: ""),
        )
        calibrations = [calibration()] if calibration else []
        try:
            trials.run()
            if calibration:
                calibrations.append(calibration())
            if trials.ended in _IN_ORDER:
                trials.probe_threads()
                trials.hold()
                if ranges:
                    mark_ranges(step, structure, clock.device)
                compare(structure, learn_structure(step))
        except Exception as error:
            raise RunError(*trials.failure(error)) from error
        recording = trials.recording()
        known = tuple(one for one in calibrations if one is not None)
        conditions = replace(recording.conditions, calibrations=known)
        recording = replace(recording, conditions=conditions)
        # A signal during the probe ends no run, but it asks for no more trials.
        if memory and trials.ended in _IN_ORDER and not (stop and stop()):
            recording = replace(recording, memory=_memory(step, structure))
        return recording


def calibration_of(step: Step, clock: Clock) -> Callable[[], Calibration | None]:
    """The calibration of the device that a step runs on; see :mod:`.calibration`."""
    xp = chainer.backend.get_array_module(*step.inputs)

    def calibration() -> Calibration | None:
        try:
            return calibrate(clock.waiting().now_ns, xp)
        except Exception:  # such as a full GPU: nothing of the run depends on it
            return None

    return calibration


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


def learn(step: Step, settings: Settings, clock: Clock) -> Structure:
    """The structure pass, made twice: the first call may initialise parameters.

    Args:
        step: What a trial runs; within its configuration.
        settings: For the message of a GPU whose memory is full.
        clock: The run's clock.

    Raises:
        ProfileError: The network fails, calls no function, or others from pass to pass.
    """
    try:
        learn_structure(step)
        structure = learn_structure(step)
        compare(structure, learn_structure(step))
    except StructureError as error:
        full = memory_full(error.cause, clock, settings)
        if full:
            raise ProfileError(f"the network fails {error.where}: {full}") from error
        said = error.with_input(settings.input_shape)
        if clock.device is not None and _mixes_arrays(error.cause):
            said = ProfileError(
                f"{said}; an array of the network was left on the host: make it a parameter, or "
                "register it with add_persistent"
            )
        raise said from error
    except CallsDifferError as error:
        raise ProfileError(str(error)) from None
    if not structure.layers:
        raise ProfileError("the network calls no Chainer function, so there is nothing to time")
    return structure


def _mixes_arrays(error: Exception) -> bool:
    """Whether an exception is that of CuPy, or of Chainer, about an array of NumPy."""
    return isinstance(error, TypeError) and "numpy" in str(error)
