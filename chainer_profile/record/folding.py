"""Converts a flat history of calls, such as TimerHook's, to layers and trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import plural
from chainer_profile.record.recording import Layer, Recording, Settings


class Timed(Protocol):
    """A hook that knows the nested calls: :class:`~chainer_profile.LayerTimerHook`."""

    @property
    def self_history(self) -> Sequence[tuple[str, float]]:
        """Pairs of function name and self time in seconds."""


def fold_call_history(
    history: Sequence[tuple[str, float]] | Timed, layers_per_trial: int | None = None
) -> Recording:
    """Fold a ``call_history`` into a recording: call i belongs to layer i mod layers_per_trial.

    The times of a bare history are inclusive: they contain nested calls, which a history does not
    identify. So the recording's times may add up to more than the time of a trial, and it has no
    trial times. The times of a LayerTimerHook are exclusive.

    Args:
        history: Pairs of function name and time in seconds, in the order of the calls: the
            ``call_history`` of :class:`chainer.function_hooks.TimerHook` or of
            :class:`~chainer_profile.LayerTimerHook`, of forward passes only; or a LayerTimerHook.
        layers_per_trial: Calls in one trial. Default: the shortest period of the names. Give it for
            a network that is itself periodic (such as linear, ReLU, linear, ReLU), because its
            shortest period is shorter than a trial.

    Returns:
        A recording without trial times, because a history does not contain the time between calls.

    Raises:
        ProfileError: The history is empty, has no period, does not fit layers_per_trial, or
            contains an impossible time.
    """
    inclusive = isinstance(history, Sequence)
    if not isinstance(history, Sequence):
        history = history.self_history
    names = [name for name, _ in history]
    if not names:
        raise ProfileError("the call history is empty: run the network under the hook first")
    period = shortest_period(names) if layers_per_trial is None else layers_per_trial
    if period < 1:
        raise ProfileError(f"layers_per_trial is {period}: give a whole number from 1")
    n_trials, left_over = divmod(len(names), period)
    if left_over:
        raise ProfileError(
            f"the call history has {plural(len(names), 'call')}: that is "
            f"{plural(n_trials, 'trial')} of {period} and {plural(left_over, 'call')} more"
        )
    for index, name in enumerate(names):
        if name != names[index % period]:
            raise ProfileError(
                f"call {index} of the history is {name}, and {names[index % period]} in the first "
                f"trial of {period} calls: the trials differ, or layers_per_trial is wrong"
            )
    seconds = np.array([seconds for _, seconds in history], np.float64)
    possible = (seconds >= 0) & (seconds < 1e9)  # false for NaN
    if not possible.all():
        index = int(np.argmin(possible))
        raise ProfileError(
            f"call {index} of the history is {names[index]} with a time of {history[index][1]}: "
            "a time is a number of seconds, not below 0"
        )
    return Recording(
        layers=tuple(Layer(i, "/", name) for i, name in enumerate(names[:period])),
        self_ns=np.rint(seconds * 1e9).astype(np.int64).reshape(n_trials, period),
        settings=Settings(
            trials=n_trials, input="not known: folded from a call history", inclusive=inclusive
        ),
    )


def shortest_period(names: Sequence[str]) -> int:
    """The shortest period of the names.

    Raises:
        ProfileError: The names do not contain two periods.
    """
    # The period is len - border. The border is the longest proper prefix that is also a suffix
    # (Knuth, Morris and Pratt 1977).
    border = [0] * len(names)
    length = 0
    for index in range(1, len(names)):
        while length and names[index] != names[length]:
            length = border[length - 1]
        if names[index] == names[length]:
            length += 1
        border[index] = length
    period = len(names) - length
    if 2 * period > len(names):
        raise ProfileError(
            f"the {plural(len(names), 'call')} of the history do not repeat, so the length of a "
            "trial cannot be found: give layers_per_trial, or run more trials of the same network"
        )
    return period
