"""Findings on the numbers in a network: NaN, infinite and denormal ones change what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.findings import WARNING, Finding
from chainer_profile.analyse.shares import part_of_whole, whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_count, format_percent
from chainer_profile.record.recording import Denormals, Recording

#: Codes of the findings on numbers.
VALUES = ("not-finite", "denormal-numbers")
#: Names of arrays in a finding at most.
MOST_NAMED = 3
#: Part of a trial that layers with denormal numbers take, from which they are a finding.
MUCH_DENORMAL = 0.05
#: Sets the denormal numbers of all parameters to zero.
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
        f"{whole(summary)[1]}. With as many, a product of matrices takes {slowdown:.3g} times as "
        "long as with zeros in their place.",
        advice,
        command=_TO_ZERO if in_parameters else "",
        off=math.inf,
    )


def denormal_share(summary: Summary) -> float:
    """The part of a trial that layers with denormal numbers take."""
    return part_of_whole(summary, summary.layers["mean_s"][has_denormals(summary.recording)].sum())


def has_denormals(recording: Recording) -> NDArray[np.bool_]:
    """Whether each layer gets denormal numbers, (layers,)."""
    found = np.zeros(len(recording.layers), bool)
    for each in recording.conditions.denormals:
        found |= _with(recording, each)
    return found


def _with(recording: Recording, denormals: Denormals) -> NDArray[np.bool_]:
    """Whether each layer gets this array."""
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
    """The arrays with denormal numbers, in the order of their layers' time."""
    mean_s, recording = summary.layers["mean_s"].to_numpy(float), summary.recording
    return sorted(
        recording.conditions.denormals, key=lambda each: -mean_s[_with(recording, each)].sum()
    )


def _places(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f" and {format_count(more)} more" if more > 0 else "")
