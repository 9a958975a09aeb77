"""Findings on numbers in a network that change its time: NaN, infinite and denormal numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.findings import WARNING, Finding
from chainer_profile.analyse.shares import part_of_whole, whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_count, format_percent
from chainer_profile.record.recording import Denormals, Recording

#: Codes of the findings on numbers.
VALUES = ("not-finite", "denormal-numbers")
#: Largest number of arrays that a finding names.
MAX_NAMED = 3
#: Denormal numbers are a finding if layers with them take at least this fraction of a trial.
MUCH_DENORMAL = 0.05
#: Code that sets the denormal numbers of all parameters to zero.
_TO_ZERO = "for p in model.params(): p.array[abs(p.array) < np.finfo(p.dtype).tiny] = 0"


def not_finite(summary: Summary) -> Iterator[Finding]:
    names = summary.recording.conditions.not_finite
    if names:
        yield Finding(
            "not-finite",
            WARNING,
            f"The network contains NaN or infinite numbers: in {_places(names)}.",
            "They can change the time of functions. chainer.set_debug(True) stops at the first "
            "function that produces NaN. If a training has diverged, profile an earlier state.",
            off=math.inf,
        )


def denormal_numbers(summary: Summary) -> Iterator[Finding]:
    denormals = summary.recording.conditions.denormals
    share = denormal_share(summary)
    if share < MUCH_DENORMAL:
        return
    names = [f"{each.name} ({format_percent(each.part)} of it)" for each in _ranked(summary)]
    slowdown = max(each.slowdown for each in denormals)
    in_parameters = any(not each.phase for each in denormals)
    advice = "docs/reading.md shows how to treat them as zero (Denormal numbers)."
    if in_parameters:
        advice = (
            "Use a smaller weight decay, and set such weights to zero, in a training once an "
            "epoch. Write."
        )
    yield Finding(
        "denormal-numbers",
        WARNING,
        "The network contains denormal numbers, which this processor computes slowly: in "
        f"{_places(names)}. Layers with them take {format_percent(share)} of the "
        f"{whole_time(summary).name}. With as many, a product of matrices takes {slowdown:.3g} "
        "times as long as with zeros in their place.",
        advice,
        command=_TO_ZERO if in_parameters else "",
        off=math.inf,
    )


def denormal_share(summary: Summary) -> float:
    """The fraction of a trial in layers with denormal numbers."""
    return part_of_whole(summary, summary.layers["mean_s"][has_denormals(summary.recording)].sum())


def has_denormals(recording: Recording) -> NDArray[np.bool_]:
    """Whether each layer gets denormal numbers, (layers,)."""
    found = np.zeros(len(recording.layers), bool)
    for each in recording.conditions.denormals:
        found |= _uses(recording, each)
    return found


def _uses(recording: Recording, denormals: Denormals) -> NDArray[np.bool_]:
    """Whether each layer gets this array, (layers,)."""
    wanted = denormals.function, denormals.phase
    return np.array(
        [
            layer.path == denormals.path
            and wanted[0] in ("", layer.function)
            and wanted[1] in ("", layer.phase)
            for layer in recording.layers
        ],
        bool,
    )


def _ranked(summary: Summary) -> list[Denormals]:
    """The arrays with denormal numbers; layers that get the first one take the most time."""
    mean_s, recording = summary.layers["mean_s"].to_numpy(float), summary.recording
    return sorted(
        recording.conditions.denormals, key=lambda each: -mean_s[_uses(recording, each)].sum()
    )


def _places(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return "; ".join(names[:MAX_NAMED]) + (f" and {format_count(more)} more" if more > 0 else "")
