"""Summary -> its layers under the machine's roofs, as they are drawn: both axes on log scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.roofline import drawable
from chainer_profile.basics.units import format_duration, format_giga

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: The axes reach so many times beyond the outermost dots and the ridge.
_MARGIN = 2.5
X_LABEL, Y_LABEL = "operations a byte", "billions of operations a second (GFLOP/s)"


@dataclass(frozen=True)
class Roof:
    """A limit of the machine: its line, and its name. One of memory alone is dashed."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    label: str
    dashed: bool = False


@dataclass(frozen=True)
class Roofline:
    """One dot a layer.

    Attributes:
        layers: The layers that have a place, with their fields; hot ones last, and so above.
        x: Operations a byte.
        y: Billions of operations a second.
        area: Each dot's area as a part of the largest: the layer's time.
        roofs: The machine's limits.
        x_range: Ends of the axis below.
        y_range: Ends of the axis at the left.
        area_label: What the area is, in words.
    """

    layers: pd.DataFrame
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    area: NDArray[np.float64]
    roofs: list[Roof]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    area_label: str


def roofline(summary: Summary) -> Roofline:
    """The dots and roofs of a run.

    Args:
        summary: The summary of a run with the machine's limits and at least one drawable layer.
    """
    limits = summary.recording.limits
    assert limits is not None
    layers = drawable(summary.layers).sort_values(["hot", "median_s"], ascending=[True, False])
    x, y = layers["intensity"].to_numpy(float), layers["flops_per_s"].to_numpy(float) / 1e9
    left, right = min(x.min(), limits.ridge) / _MARGIN, max(x.max(), limits.ridge) * _MARGIN
    most, copied = limits.flops_per_s / 1e9, limits.copy_nbytes_per_s / 1e9
    at = np.array([left, limits.ridge, right])
    speeds = f"{format_giga(limits.flops_per_s)} GFLOP/s, {format_giga(limits.copy_nbytes_per_s)}"
    roofs = [Roof(at, np.minimum(at * copied, most), f"limit: {speeds} GB/s")]
    if limits.fresh_nbytes_per_s:
        fresh = np.array([left, limits.flops_per_s / limits.fresh_nbytes_per_s])
        label = f"into new memory: {format_giga(limits.fresh_nbytes_per_s)} GB/s"
        roofs.append(Roof(fresh, fresh * limits.fresh_nbytes_per_s / 1e9, label, dashed=True))
    longest_s = float(layers["median_s"].max())
    return Roofline(
        layers,
        x,
        y,
        layers["median_s"].to_numpy() / (longest_s or 1.0),
        roofs,
        (left, right),
        (float(y.min()) / _MARGIN, max(most, float(y.max())) * _MARGIN),
        f"area: time of a layer, {format_duration(longest_s)} at most",
    )
