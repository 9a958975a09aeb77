"""Results of the counters pass for layers, functions and a whole trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from chainer_profile.basics.describe import NS
from chainer_profile.record.recording import Recording

#: Columns of :func:`layer_counters`: the counter of each, and the factor into the column's unit.
_COLUMNS = {
    "counted_s": ("wall_ns", NS),
    "cpu_s": ("cpu_ns", NS),
    "page_faults": ("page_faults", 1.0),
    "waits": ("waits", 1.0),
    "preemptions": ("preemptions", 1.0),
}


def layer_counters(recording: Recording) -> dict[str, Any]:
    """Columns of what the thread does in every layer, means of that pass; NaN where unknown.

    ``counted_s`` is the wall time in the trials of that pass, ``cpu_s`` the CPU time in them.
    """
    counters = recording.counters
    columns = {}
    for column, (name, unit) in _COLUMNS.items():
        columns[column] = np.full(len(recording.layers), np.nan)
        counted = None if counters is None else counters[name]
        if counters is not None and counted is not None and counted.layers:
            columns[column] = np.array(counted.layers, float) * unit / counters.trials
    return columns


@dataclass(frozen=True)
class TrialCounters:
    """Means of a trial of the counters pass; NaN for what this machine does not count."""

    wall_s: float  #: Wall time.
    cpu_s: float  #: CPU time of the calling thread.
    system_s: float  #: The system's part of it.
    system_error_s: float  #: Standard error of that mean.
    page_faults: float  #: How often the system provided a page of memory.
    #: CPU time that each of these takes at least: for a small page, not for a huge one.
    fault_s: float
    waits: float  #: How often the thread gave up its processor.
    preemptions: float  #: How often the thread was preempted.

    @property
    def system_share(self) -> float:
        """Part of the CPU time that the system takes."""
        return self.system_s / self.cpu_s if self.cpu_s else np.nan

    @property
    def off_share(self) -> float:
        """Part of the wall time in which the thread did not run."""
        return max(0.0, 1 - self.cpu_s / self.wall_s) if self.wall_s else np.nan


def trial_counters(recording: Recording) -> TrialCounters | None:
    """Means of a trial; None without a counters pass."""
    counters = recording.counters
    if counters is None:
        return None
    by_name = {counted.name: np.array(counted.trial, float) for counted in counters.counted}

    def mean(name: str) -> float:
        return float(by_name[name].mean()) if name in by_name else np.nan

    system = by_name.get("system_ns", np.full(1, np.nan))
    error = system.std(ddof=1) / np.sqrt(len(system)) if len(system) > 1 else np.nan
    return TrialCounters(
        wall_s=mean("wall_ns") * NS,
        cpu_s=mean("cpu_ns") * NS,
        system_s=mean("system_ns") * NS,
        system_error_s=float(error) * NS,
        page_faults=mean("page_faults"),
        fault_s=np.nan if counters.fault_ns is None else counters.fault_ns * NS,
        waits=mean("waits"),
        preemptions=mean("preemptions"),
    )


def counters_by(layers: pd.DataFrame, by: str) -> pd.DataFrame:
    """The columns of :func:`layer_counters` added up by a column, most CPU time first."""
    sums = layers.groupby(by, sort=False)[list(_COLUMNS)].sum(min_count=1)
    sums["layers"] = layers.groupby(by, sort=False).size()
    return sums.sort_values("cpu_s", ascending=False, kind="stable")
