"""Structure passes: trials before the timed ones, in which a session learns a step's calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.free_memory import limit_to_free_memory
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.session import Warn
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepError, StepSession
from chainer_profile.measure.steps import learn_first
from chainer_profile.measure.too_large import memory_full
from chainer_profile.record.recording import Settings

#: Number of structure passes that :func:`learn` makes.
LEARNING_PASSES = 3


def learn(
    step: Step,
    settings: Settings,
    clock: Clock,
    look: Callable[[Any], object] | None = None,
    warn: Warn = lambda text: None,
) -> StepSession:
    """Make the structure passes of a step, and return a session that knows its calls.

    The first pass may initialise parameters, so the session records only the two after it. ``look``
    is called with the result of the last one.

    Raises:
        ProfileError: The network fails, the memory is full, or no Chainer function is called.
    """
    free: int | None = None
    try:
        # A GPU's driver reserves much more address space than it uses, and CuPy has its own error.
        with nullcontext() if clock.device else limit_to_free_memory() as free:
            learn_first(step)
            session = StepSession(step, clock, warn=warn)
            session.learn()
            session.learn(look)
    except StepError as error:
        if isinstance(error.cause, ProfileError):  # for example, the output has no loss
            raise error.cause from None
        full = memory_full(error.cause, clock, settings, free)
        if full:
            raise ProfileError(f"the network fails {error.where}: {full}") from error
        failure = error.with_input(settings.input_shape)
        mixes_arrays = isinstance(error.cause, TypeError) and "numpy" in str(error.cause)
        if clock.device is not None and mixes_arrays:
            advice = (
                "the input is on the host: send it to the network's device"
                if any(isinstance(array, np.ndarray) for array in step.inputs)
                else "an array of the network was left on the host: make it a parameter, or "
                "register it with add_persistent"
            )
            failure = ProfileError(f"{failure}; {advice}")
        raise failure from error
    if not session.layers:
        raise ProfileError("the network calls no Chainer function, so there is nothing to time")
    return session
