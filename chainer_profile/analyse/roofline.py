"""How near every layer comes to the limits of the machine (Williams, Waterman, Patterson 2009).

A function takes no less time than its operations at the rate of a large matrix product, and no less
than its bytes at the bandwidth of a pass over a large array: the longer is its bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.analyse.grouping import majority_label
from chainer_profile.record.recording import MachineLimits, Recording

COMPUTE, MEMORY = "compute", "memory"
#: Below this fraction of its limit, a layer spends its time on something else; :mod:`.verdicts`
#: names it.
REACHED = 1 / 3
WORK = ("flops", "macs", "nbytes_read", "nbytes_written")


def layer_work(recording: Recording, median_s: NDArray[np.float64]) -> dict[str, Any]:
    """Columns of the work of every layer, and of how near it comes to the machine's limits.

    The columns :data:`WORK` are <NA> without a formula, and all numbers that need them are NaN.
    Rates (``flops_per_s``, ``nbytes_per_s``) use the median time, because a few calls that wait for
    memory can take ten times as long. ``intensity`` is operations per byte. ``bound_s`` is the
    least time at the machine's limits, ``reached`` its ratio to the median time (above 1 if arrays
    stay in a cache), and ``bound`` the nearer limit, empty if it is not known.
    """
    layers, limits = recording.layers, recording.limits
    columns: dict[str, Any] = {
        name: pd.array([getattr(layer, name) for layer in layers], dtype="Int64") for name in WORK
    }
    flops, _, read, written = (
        values.to_numpy(float, na_value=np.nan) for values in columns.values()
    )
    moved = read + written
    seconds = np.where(median_s > 0, median_s, np.nan)
    columns |= {
        "work_is_about": [layer.work_is_about for layer in layers],
        "flops_per_s": flops / seconds,
        "nbytes_per_s": moved / seconds,
        "intensity": flops / np.where(moved > 0, moved, np.nan),
    }
    if limits is None:
        nothing = np.full(len(layers), np.nan)
        return columns | {"bound_s": nothing, "reached": nothing, "bound": [""] * len(layers)}
    rates = np.array([peak_rate(limits, layer.dtype) for layer in layers])
    compute_s, memory_s = flops / rates, moved / limits.copy_nbytes_per_s
    bound_s = np.maximum(compute_s, memory_s)
    reached = bound_s / seconds
    nearer = np.where(compute_s >= memory_s, COMPUTE, MEMORY)
    bound = np.where(np.isnan(reached), "", nearer).tolist()
    return columns | {"bound_s": bound_s, "reached": reached, "bound": bound}


def peak_rate(limits: MachineLimits, dtype: str) -> float:
    """Operations a second that bound a layer with outputs of this data type."""
    half = limits.half_flops_per_s
    return half if half is not None and dtype == "float16" else limits.flops_per_s


def drawable(layers: pd.DataFrame) -> pd.DataFrame:
    """The layers that a roofline plot can show: with operations, bytes and a time."""
    return layers[(layers["flops_per_s"] > 0) & (layers["intensity"] > 0)]


def has_plot(recording: Recording, layers: pd.DataFrame) -> bool:
    """Whether a roofline plot can be drawn: limits are known, and a layer is drawable."""
    return recording.limits is not None and len(drawable(layers)) > 0


def work_by_function(layers: pd.DataFrame) -> pd.DataFrame:
    """A table of the work of each function in each phase, most time first.

    Sums are NaN if a layer has no formula, and approximate if one layer is approximate. The verdict
    holds for more than half of the time; it is empty without such a verdict.
    """
    rows = []
    for (function, phase), part in layers.groupby(["function", "phase"], sort=False):
        median_s = float(part["median_s"].sum()) or np.nan
        sums = {name: _sum(part[name]) for name in ("flops", "macs")}
        total_s = float(part["mean_s"].sum())
        nbytes = _sum(part["nbytes_read"] + part["nbytes_written"])
        by_verdict = part.groupby("verdict", sort=False)["mean_s"].sum()
        rows.append(
            {
                "function": function,
                "phase": phase,
                "layers": len(part),
                "total_s": total_s,
                **sums,
                "nbytes": nbytes,
                "work_is_about": bool(part["work_is_about"].any()),
                "flops_per_s": sums["flops"] / median_s,
                "nbytes_per_s": nbytes / median_s,
                "reached": float(part["bound_s"].sum(skipna=False)) / median_s,
                "verdict": majority_label(by_verdict, float(by_verdict.sum())) or "",
            }
        )
    table = pd.DataFrame(rows)
    return table.sort_values("total_s", ascending=False, kind="stable", ignore_index=True)


def functions_without_formula(layers: pd.DataFrame) -> pd.DataFrame:
    """Functions whose work is not known: their number of layers and share of the trial."""
    unknown = layers[layers["flops"].isna()]
    table = unknown.groupby("function", sort=False).agg(
        layers=("mean_s", "size"), share=("share", "sum")
    )
    return table.sort_values("share", ascending=False, kind="stable")


def _sum(values: pd.Series[float]) -> float:
    return float("nan") if values.isna().any() else float(values.sum())
