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
    """Columns of the counters pass for every layer, means per trial; NaN where unknown.

    ``counted_s`` and ``cpu_s`` are the layer's wall time and CPU time in that pass. The other
    columns are numbers: ``page_faults``, ``waits``, ``preemptions``.
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
    """Means per trial of the counters pass; NaN for what this machine does not count."""

    wall_s: float  #: Wall time.
    cpu_s: float  #: CPU time of the calling thread.
    system_s: float  #: The part of the CPU time in the kernel.
    system_error_s: float  #: Standard error of ``system_s``.
    page_faults: float  #: How often the system provided a page of memory.
    #: Smallest CPU time of a page fault: for a small page, not a huge one.
    fault_s: float
    waits: float  #: How often the thread gave up its processor.
    preemptions: float  #: How often the thread was preempted.

    @property
    def system_share(self) -> float:
        """Fraction of the CPU time in the kernel."""
        return self.system_s / self.cpu_s if self.cpu_s else np.nan

    @property
    def off_share(self) -> float:
        """Fraction of the wall time in which the thread did not run."""
        return max(0.0, 1 - self.cpu_s / self.wall_s) if self.wall_s else np.nan


def trial_counters(recording: Recording) -> TrialCounters | None:
    """Means per trial; None without a counters pass."""
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
    """Sums of the columns of :func:`layer_counters` for each value of the column ``by``.

    Most CPU time first. The column ``layers`` has the number of layers.
    """
    sums = layers.groupby(by, sort=False)[list(_COLUMNS)].sum(min_count=1)
    sums["layers"] = layers.groupby(by, sort=False).size()
    return sums.sort_values("cpu_s", ascending=False, kind="stable")
