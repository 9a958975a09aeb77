"""Summary -> roofline plot of the layers, as PNG or SVG."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from chainer_profile.analyse.roofline import drawable
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_giga,
    format_significant,
)
from chainer_profile.record.recording import MachineLimits
from chainer_profile.report.pictures import figures
from chainer_profile.report.pictures.layers import MAX_BARS
from chainer_profile.report.rows import layer_anchor

_GIGA = 1e9
_WIDTH, _HEIGHT = 8.0, 5.6
#: The axes reach beyond the outermost dots and the ridge by this factor.
_MARGIN = 2.5
#: Area of the largest dot in square points, and of the smallest that can be seen.
_MAX_AREA, _MIN_AREA = 700.0, 8.0
_CHARS = 95

Floats = NDArray[np.float64]


@figures.drawing()
def figure(summary: Summary) -> Figure:
    """Draw the layers' operations per second over operations per byte, and the machine's limits.

    Both axes are logarithmic. Each layer is a dot with an area proportional to its median time. Hot
    layers are red and drawn last.
    """
    limits = summary.recording.limits
    assert limits is not None
    layers = drawable(summary.layers).sort_values(["hot", "median_s"], ascending=[True, False])
    x = layers["intensity"].to_numpy(float)
    y = layers["flops_per_s"].to_numpy(float) / _GIGA
    longest_s = float(layers["median_s"].max())
    fig = figures.blank(_WIDTH, _HEIGHT)
    ax = fig.add_subplot()
    area = layers["median_s"].to_numpy() / (longest_s or 1.0) * _MAX_AREA
    _draw_dots(ax, layers, x, y, np.maximum(area, _MIN_AREA))
    every, hidden = summary.layers["hot"], len(summary.layers) - len(layers)
    for count, name, colour in (
        (int(every.sum()), "hot", figures.HOT_COLOUR),
        (int((~every).sum()), "other", figures.OTHER_COLOUR),
    ):
        ax.plot([], [], "o", color=colour, label=f"{name} layers ({format_count(count)})")
    if hidden:
        label = f"{format_count(hidden)} of them without known operations, not shown"
        ax.plot([], [], " ", label=label)
    left, right = min(x.min(), limits.ridge) / _MARGIN, max(x.max(), limits.ridge) * _MARGIN
    _draw_roofs(ax, limits, left, right)
    top = max(limits.flops_per_s / _GIGA, float(y.max())) * _MARGIN
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(y.min() / _MARGIN, top))
    ax.set(xlabel="operations a byte", ylabel="billions of operations a second (GFLOP/s)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: format_significant(value, 1))
        axis.set_minor_formatter(NullFormatter())
    ax.grid(axis="both")
    figures.set_title(fig, figures.title(summary, _CHARS))
    ax.plot([], [], " ", label=f"area: time of a layer, {format_duration(longest_s)} at most")
    ax.legend(loc="lower right", frameon=True, framealpha=0.9, fontsize=8)
    return fig


def _draw_dots(ax: Any, layers: pd.DataFrame, x: Floats, y: Floats, area: Floats) -> None:
    """Draw a dot for each layer. The slowest :data:`MAX_BARS` layers link to their rows."""
    colours = np.where(layers["hot"], figures.HOT_COLOUR, figures.OTHER_COLOUR)
    linked = (layers["median_s"].rank(method="first", ascending=False) <= MAX_BARS).to_numpy()
    # The others share one shape per size and colour, because many shapes make a large file.
    size = np.round(np.sqrt(area))
    for diameter, colour in sorted(set(zip(size[~linked], colours[~linked], strict=True))):
        same = ~linked & (size == diameter) & (colours == colour)
        style = {"alpha": 0.75, "markeredgecolor": "white", "markeredgewidth": 0.5}
        ax.plot(x[same], y[same], "o", color=colour, markersize=diameter, **style)
    style = {"alpha": 0.75, "linewidths": 0.5, "edgecolors": "white", "zorder": 3}
    dots = ax.scatter(x[linked], y[linked], s=area[linked], c=colours[linked].tolist(), **style)
    dots.set_urls([f"#{layer_anchor(at)}" for at in layers.index[linked]])


def _draw_roofs(ax: Any, limits: MachineLimits, left: float, right: float) -> None:
    """Draw the machine's limits; the limit for copies into new memory is dashed."""
    peak, copied = limits.flops_per_s / _GIGA, limits.copy_nbytes_per_s / _GIGA
    at = np.array([left, limits.ridge, right])
    speeds = f"{format_giga(limits.flops_per_s)} GFLOP/s, {format_giga(limits.copy_nbytes_per_s)}"
    label = f"limit: {speeds} GB/s"
    ax.plot(at, np.minimum(at * copied, peak), color=figures.INK, linewidth=1.4, label=label)
    if limits.fresh_nbytes_per_s:
        fresh = np.array([left, limits.flops_per_s / limits.fresh_nbytes_per_s])
        label = f"into new memory: {format_giga(limits.fresh_nbytes_per_s)} GB/s"
        rates = fresh * limits.fresh_nbytes_per_s / _GIGA
        ax.plot(fresh, rates, color=figures.INK, linewidth=0.9, linestyle=(0, (4, 3)), label=label)
