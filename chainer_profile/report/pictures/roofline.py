"""Summary -> roofline plot of the layers, as PNG or SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from chainer_profile.basics.units import format_significant
from chainer_profile.report.charts.roofline import X_LABEL, Y_LABEL, Roofline, roofline
from chainer_profile.report.pictures.figures import (
    DPI,
    HOT_COLOUR,
    INK,
    OTHER_COLOUR,
    STYLE,
    save,
    shorten,
    title,
)
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

_WIDTH, _HEIGHT = 8.0, 5.6
#: Area of the largest dot in square points, and of the smallest that can be seen.
_MOST_AREA, _LEAST_AREA = 700.0, 8.0
_CHARS = 95
#: Functions whose names are written, so many points below a dot's centre.
_NAMED, _BELOW = 6, 15.0
_NAME_SIZE, _MAX_NAME = 7.0, 32


#: Left, bottom, right, top.
_Box = tuple[float, float, float, float]


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
        chart = roofline(summary)
        layers = chart.layers
        fig = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        ax = fig.add_subplot()
        ax.scatter(
            chart.x,
            chart.y,
            s=np.maximum(chart.area * _MOST_AREA, _LEAST_AREA),
            c=np.where(layers["hot"], HOT_COLOUR, OTHER_COLOUR).tolist(),
            alpha=0.75,
            linewidths=0.5,
            edgecolors="white",
            zorder=3,
        )
        for roof in chart.roofs:
            width, dashes = (0.9, (0, (4, 3))) if roof.dashed else (1.4, "-")
            ax.plot(roof.x, roof.y, color=INK, linewidth=width, linestyle=dashes, label=roof.label)
        ax.set(xscale="log", yscale="log", xlim=chart.x_range, ylim=chart.y_range)
        ax.set(xlabel=X_LABEL, ylabel=Y_LABEL)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda value, _: format_significant(value, 1))
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        fig.suptitle(title(summary, _CHARS), x=0.01, ha="left", fontsize=9, parse_math=False)
        _name_functions(ax, chart)
        _draw_legend(ax, chart)
    return fig


def _name_functions(ax: Any, chart: Roofline) -> None:
    """Write the name of each of the functions of the most time at its slowest layer.

    A name goes where it covers the fewest dots: below its dot, above it, or beside it. It covers no
    other name, and is left out where that cannot be.
    """
    ax.figure.draw_without_rendering()  # only then is it known where the axes are
    dots = DPI / 72
    layers = chart.layers
    centres = ax.transData.transform(np.column_stack([chart.x, chart.y]))
    taken: list[_Box] = []
    times = layers.groupby("function")["mean_s"].sum().sort_values(ascending=False, kind="stable")
    for function in times.index[:_NAMED]:
        of_function = layers["function"].to_numpy() == function
        slowest = int(np.where(of_function, layers["typical_s"], -1.0).argmax())
        at = (chart.x[slowest], chart.y[slowest])
        x0, y0 = ax.transData.transform(at)
        name = shorten(printable(str(function)), _MAX_NAME)
        half, high = len(name) * _NAME_SIZE * 0.3, _NAME_SIZE * 1.2
        found: list[tuple[int, float, float, _Box]] = []
        for x, y in (
            (0.0, -_BELOW - high),
            (0.0, _BELOW),
            (_BELOW + half, -high / 2),
            (-_BELOW - half, -high / 2),
        ):
            left, low = x0 + (x - half) * dots, y0 + y * dots
            box = (left, low, left + 2 * half * dots, low + high * dots)
            inside = ax.bbox.x0 <= box[0] and box[2] <= ax.bbox.x1 and ax.bbox.y0 <= box[1]
            if inside and not any(_overlap(box, other) for other in taken):
                found.append((_covered(box, centres), x, y, box))
        if not found:
            continue
        _, x, y, box = min(found, key=lambda place: place[0])
        taken.append(box)
        ax.annotate(
            name,
            at,
            xytext=(x, y),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=_NAME_SIZE,
            zorder=4,
            parse_math=False,
            bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.5},
        )


def _overlap(a: _Box, b: _Box) -> bool:
    """Whether two boxes have a part in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _covered(box: _Box, points: NDArray[np.float64]) -> int:
    """How many points, (points, 2), lie in a box."""
    x, y = points.T
    inside = (box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3])
    return int(inside.sum())


def _draw_legend(ax: Any, chart: Roofline) -> None:
    def dot(colour: str, label: str) -> Line2D:
        return Line2D([], [], color=colour, marker="o", linestyle="", label=label)

    layers = chart.layers
    count = int(layers["hot"].sum())
    handles = [
        dot(HOT_COLOUR, f"hot layers ({count})"),
        dot(OTHER_COLOUR, f"other layers ({len(layers) - count})"),
        *ax.get_legend_handles_labels()[0],
    ]
    handles.append(Line2D([], [], linestyle="", label=chart.area_label))
    ax.legend(handles=handles, loc="lower right", frameon=True, framealpha=0.9, fontsize=8)
