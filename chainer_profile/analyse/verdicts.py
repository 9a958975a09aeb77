"""Verdicts: a limit of the machine that a layer reaches, or the largest known part of its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.analyse.counted import trial_counters
from chainer_profile.analyse.inside import CALLS, CAUSES, COPYING, WAITING, InsideParts
from chainer_profile.analyse.roofline import REACHED
from chainer_profile.analyse.values import has_denormals
from chainer_profile.basics.describe import NS
from chainer_profile.record.recording import Recording

FAULTS = "page faults"
DENORMAL = "denormal numbers"
#: Far from both limits, for an unknown reason.
BELOW = "unknown"
#: A part of a layer's time that is large enough to be named.
MUCH = 0.25
#: Counters are unreliable for a layer that takes less time than this number of readings.
_READINGS = 20
#: A call that takes less than this multiple of the quickest call is mostly call overhead.
_QUICK = 3
#: Functions that Chainer does by im2col on a CPU.
_WINDOWS = ("Convolution2D", "Deconvolution2D")


def verdicts(
    recording: Recording, columns: Mapping[str, Any], inside: InsideParts | None = None
) -> list[str]:
    """The verdict on every layer, the first of these that applies:

    - the nearer limit, if the layer reaches a third of it;
    - :data:`DENORMAL`, if it gets denormal numbers;
    - the largest part of its time, if that is at least a quarter: :data:`FAULTS` or one of
      :data:`.inside.CAUSES`;
    - :data:`BELOW`, if limits are known, and otherwise an empty text.

    ``columns`` are columns of the table of layers.
    """
    measured, estimated = _measured(recording, columns, inside), _estimated(recording, columns)
    # Parts that the pass inside measured replace estimates.
    seen = ~np.isnan(measured[COPYING])
    names = [*measured, *estimated]
    rows = [*measured.values(), *(np.where(seen, np.nan, row) for row in estimated.values())]
    shares = np.nan_to_num(np.array(rows))
    verdicts_by_row = []
    denormal = has_denormals(recording)
    for index, bound in enumerate(columns["bound"]):
        # Estimates count only if the limits are known.
        largest = int(shares[: None if bound else len(measured), index].argmax())
        if bound and columns["reached"][index] >= REACHED:
            verdicts_by_row.append(bound)
        elif denormal[index]:
            verdicts_by_row.append(DENORMAL)
        elif shares[largest, index] >= MUCH:
            verdicts_by_row.append(names[largest])
        else:
            verdicts_by_row.append(BELOW if bound else "")
    return verdicts_by_row


def _measured(
    recording: Recording, columns: Mapping[str, Any], inside: InsideParts | None
) -> dict[str, NDArray[np.float64]]:
    """Measured fractions of the time of every layer, by name; NaN where not known.

    The fractions of a layer may overlap.
    """
    # A layer that takes little more than reading the counters has no counted parts. A layer with
    # too few samples of the pass inside has the parts of its function.
    calls = np.array([layer.calls for layer in recording.layers])
    wall = None if recording.counters is None else recording.counters["wall_ns"]
    reading_s = 0.0 if wall is None else _READINGS * wall.window * NS
    counted_s = columns["counted_s"]
    counted_s = np.where(counted_s > reading_s * calls, counted_s, np.nan)
    trial = trial_counters(recording)
    fault_s = float("nan") if trial is None else trial.fault_s
    # A layer does not wait while other programs use its processor.
    preempted = columns["preemptions"] >= columns["waits"]
    time_s = np.where(preempted & ~np.isnan(counted_s), columns["cpu_s"], counted_s)
    shares = {FAULTS: columns["page_faults"] * fault_s / time_s}
    shares |= {cause: np.full(len(calls), np.nan) for cause in CAUSES}
    seen_inside = inside or InsideParts((), (), None)
    functions = {(parts.name, parts.phase): parts for parts in seen_inside.functions}
    layers = {parts.row: parts for parts in seen_inside.layers}
    for index, layer in enumerate(recording.layers):
        if seen := layers.get(index) or functions.get((layer.function, layer.phase)):
            for cause in CAUSES:
                shares[cause][index] = seen.causes.get(cause, 0.0)
    shares[WAITING] = np.fmax(shares[WAITING], 1 - columns["cpu_s"] / time_s)
    return shares


def _estimated(recording: Recording, columns: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Estimated fractions of the time of every layer, by name; NaN where not known.

    Only for layers that Chainer runs on a CPU.
    """
    # Copying of windows: writing and reading a convolution's workspace at the rate of new memory,
    # if that takes longer than its arithmetic. Call overhead: all of the time of a layer with calls
    # that take hardly longer than the quickest call.
    if recording.on_device or recording.settings.engine:
        return {}
    layers, limits = recording.layers, recording.limits
    median_s = np.asarray(columns["median_s"], float)
    call_s = median_s / np.array([layer.calls for layer in layers])
    timed_s = call_s[call_s > 0]
    quick_s = _QUICK * float(timed_s.min()) if len(timed_s) > _QUICK else 0.0
    shares = {CALLS: np.where(call_s < quick_s, 1.0, np.nan)}
    if limits is not None:
        windows = np.array([layer.function.startswith(_WINDOWS) for layer in layers])
        workspace = pd.array(columns["workspace_nbytes"], dtype="Int64")
        copying_s = 2 * workspace.to_numpy(float, na_value=np.nan) / limits.fresh_nbytes_per_s
        seconds = np.where(windows & (median_s > 0), median_s, np.nan)
        share = np.minimum(copying_s / seconds, 1.0)
        shares[COPYING] = np.where(copying_s > columns["bound_s"], share, np.nan)
    return shares
