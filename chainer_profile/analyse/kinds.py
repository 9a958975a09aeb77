"""Recording -> its kinds of trials: how many of each, how long, and what tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_shapes

if TYPE_CHECKING:
    from chainer_profile.record.recording import Layer, Recording


@dataclass(frozen=True)
class Kind:
    """Trials that made the same calls with the same shapes.

    Attributes:
        number: Number of the kind: 1 for the commonest, which a summary of the run is of.
        trials: Number of its profiled trials.
        share: Part that these are of all profiled trials.
        calls: Function calls in one of them.
        median_s: Median trial in seconds; None where trials were not timed.
        difference: The first row that differs from those of the first kind, in words; empty for
            that itself.
        other_shapes: Whether this row differs in its input shapes alone.
    """

    number: int
    trials: int
    share: float
    calls: int
    median_s: float | None
    difference: str
    other_shapes: bool


def kinds(recording: Recording) -> tuple[Kind, ...]:
    """The kinds of a run's trials, the recording's own first; none where there are no others."""
    if not recording.variants:
        return ()
    found = []
    for number, one in enumerate((recording, *recording.variants), 1):
        walls = one.trial_ns
        difference, other_shapes = _difference(recording.layers, one.layers)
        found.append(
            Kind(
                number=number,
                trials=one.n_trials,
                share=one.n_trials / recording.all_trials,
                calls=sum(int(layer.calls) for layer in one.layers),
                median_s=None if walls is None or not len(walls) else float(np.median(walls)) * NS,
                difference=difference if number > 1 else "",
                other_shapes=other_shapes,
            )
        )
    return tuple(found)


def _difference(first: tuple[Layer, ...], second: tuple[Layer, ...]) -> tuple[str, bool]:
    """The first row of the second that is another one, in words; and whether by shapes alone."""
    for index, (was, now) in enumerate(zip_longest(first, second)):
        if was is None:
            return f"row {index} is more: {_named(now)}", False
        if now is None:
            return f"row {index} is missing: {_named(was)}", False
        if (was.function, was.path) != (now.function, now.path):
            return f"row {index}: {_named(now)}, not {_named(was)}", False
        if was.input_shapes != now.input_shapes:
            shapes = [format_shapes(one.input_shapes) or "none" for one in (now, was)]
            return f"row {index}: {_named(now)} with input {shapes[0]}, not {shapes[1]}", True
    return "the same rows, called in another order or number", False


def _named(layer: Layer) -> str:
    return f"{layer.function} at {layer.path}"
