"""Summary -> roofline plot of the layers, as PNG or SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from chainer_profile.renderers.figures import (
    DPI,
    HOT_COLOUR,
    INK,
    OTHER_COLOUR,
    STYLE,
    save,
    title,
)
from chainer_profile.renderers.text import printable
from chainer_profile.roofline import drawable
from chainer_profile.units import format_giga, format_significant

if TYPE_CHECKING:
    import pandas as pd

    from chainer_profile.recording import MachineLimits
    from chainer_profile.summaries import Summary

_WIDTH, _HEIGHT = 8.0, 5.6
#: Area of the largest dot in square points, and of the smallest that can be seen.
_MOST_AREA, _LEAST_AREA = 700.0, 8.0
#: The axes reach so many times beyond the outermost dots and the ridge.
_MARGIN = 2.5
_CHARS = 95
#: Functions whose names are written, so many points below a dot's centre.
_NAMED, _BELOW = 6, 15.0


def render(summary: Summary, format: Literal["png", "svg"]) -> bytes:
    """The figure as a file's bytes; the same summary gives the same bytes.

    Args:
        summary: The summary of a run with the machine's limits and at least one drawable layer.
        format: ``png`` (150 dots an inch) or ``svg``.
    """
    return save(lambda: figure(summary), format)


def figure(summary: Summary) -> Figure:
    """Operations a second against operations a byte, both on log scales, under the roofs.

    One dot a layer, its area the layer's part of the time, hot layers in red and above the others.
    """
    limits = summary.recording.limits
    assert limits is not None
    with mpl.rc_context(STYLE):
        layers = drawable(summary.layers).sort_values(["hot", "mean_s"], ascending=[True, False])
        fig = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        ax = fig.add_subplot()
        x, y = layers["intensity"].to_numpy(float), layers["flops_per_s"].to_numpy(float)
        area = layers["mean_s"].to_numpy() / float(layers["mean_s"].max()) * _MOST_AREA
        ax.scatter(
            x,
            y,
            s=np.maximum(area, _LEAST_AREA),
            c=np.where(layers["hot"], HOT_COLOUR, OTHER_COLOUR).tolist(),
            alpha=0.75,
            linewidths=0.5,
            edgecolors="white",
            zorder=3,
        )
        left = min(x.min(), limits.ridge) / _MARGIN
        right = max(x.max(), limits.ridge) * _MARGIN
        _draw_roofs(ax, limits, left, right)
        ax.set(xscale="log", yscale="log", xlim=(left, right))
        ax.set_ylim(y.min() / _MARGIN, max(limits.flops_per_s, y.max()) * _MARGIN)
        ax.set_xlabel("operations a byte")
        ax.set_ylabel("operations a second")
        ax.yaxis.set_major_formatter(lambda value, _: f"{format_significant(value / 1e9, 1)} G")
        ax.xaxis.set_major_formatter(lambda value, _: format_significant(value, 1))
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        fig.suptitle(title(summary, _CHARS), x=0.01, ha="left", fontsize=9, parse_math=False)
        _name_functions(ax, layers)
        _draw_legend(ax, layers)
    return fig


def _name_functions(ax: Any, layers: pd.DataFrame) -> None:
    """Write the name of each of the functions of the most time at its slowest layer."""
    times = layers.groupby("function")["mean_s"].sum().sort_values(ascending=False)
    for function in times.index[:_NAMED]:
        slowest = layers.loc[layers.loc[layers["function"] == function, "mean_s"].idxmax()]
        ax.annotate(
            printable(str(function)),
            (slowest["intensity"], slowest["flops_per_s"]),
            xytext=(0, -_BELOW),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
            zorder=4,
            parse_math=False,
        )


def _draw_roofs(ax: Any, limits: MachineLimits, left: float, right: float) -> None:
    """The limit of arithmetic, and those of memory: a copy, and one into new memory."""
    at = np.array([left, limits.ridge, right])
    roof = np.minimum(at * limits.copy_nbytes_per_s, limits.flops_per_s)
    label = (
        f"limit: {format_giga(limits.flops_per_s)} GFLOP/s, "
        f"{format_giga(limits.copy_nbytes_per_s)} GB/s"
    )
    ax.plot(at, roof, color=INK, linewidth=1.4, label=label)
    fresh = np.array([left, limits.flops_per_s / limits.fresh_nbytes_per_s])
    ax.plot(
        fresh,
        fresh * limits.fresh_nbytes_per_s,
        color=INK,
        linewidth=0.9,
        linestyle=(0, (4, 3)),
        label=f"into new memory: {format_giga(limits.fresh_nbytes_per_s)} GB/s",
    )


def _draw_legend(ax: Any, layers: pd.DataFrame) -> None:
    def dot(colour: str, label: str) -> Line2D:
        return Line2D([], [], color=colour, marker="o", linestyle="", label=label)

    count = int(layers["hot"].sum())
    handles = [
        dot(HOT_COLOUR, f"hot layers ({count})"),
        dot(OTHER_COLOUR, f"other layers ({len(layers) - count})"),
        *ax.get_legend_handles_labels()[0],
    ]
    ax.legend(handles=handles, loc="lower right", frameon=True, framealpha=0.9, fontsize=8)
