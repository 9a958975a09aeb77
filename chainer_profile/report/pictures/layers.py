"""Summary -> bar plot of the layers, as PNG or SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from chainer_profile.basics.units import format_duration
from chainer_profile.report.charts.bars import Bars
from chainer_profile.report.charts.layers import LayerChart, layer_chart
from chainer_profile.report.pictures.figures import (
    DPI,
    HOT_COLOUR,
    INK,
    OTHER_COLOUR,
    STYLE,
    TEXT,
    ending,
    save,
    title,
)
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

_BAND_COLOUR = "#f1f1f1"
_POINTS = 72

_MIN_WIDTH, _MAX_WIDTH = 7.2, 20.0
_MIN_HEIGHT, _MAX_HEIGHT = 4.8, 8.0
#: Width of a layer where there is room, and what the axis labels take, in inches.
_LAYER_WIDTH, _SIDES = 0.15, 1.0
_MIN_FONT, _MAX_FONT = 6.0, 8.0
#: Width at which a picture is shown in its own size, in inches; a wider one is shown smaller.
_SHOWN_WIDTH = 12.0
#: A label's line is so many times as high as its font size.
_LINE_HEIGHT = 1.25
_MAX_LABEL = 32
#: Width of a character as a part of the font size, with some room.
_CHAR_WIDTH = 0.65
#: Between the axis and the names of the phases, in points: a triangle of a cut fits.
_PHASE_GAP = 5.0
#: Characters of the title to an inch, in the usual size.
_CHARS = 12.5


def render(summary: Summary, format: Literal["png", "svg"]) -> bytes:
    """The figure as a file's bytes; the same summary gives the same bytes.

    Args:
        summary: The summary of a run.
        format: ``png`` (150 dots an inch) or ``svg`` (its text is text, and can be searched).
    """
    return save(lambda: figure(summary), format)


def figure(summary: Summary, widest: float = _MAX_WIDTH) -> Figure:
    """One bar a layer in the order of the calls: its median self time, hot layers in red.

    Of very many layers it is one bar a block; see :func:`.bars.layer_bars`. Whiskers reach from the
    5th to the 95th percentile. The axis is made for the bars: a whisker that would need more than
    1.4 times the highest bar is cut, and a triangle marks the cut. Where names of all bars would
    overlap, the highest are named first. Lines and names tell the phases of a trial apart.

    Args:
        summary: The summary of a run.
        widest: The most inches that it may be wide.
    """
    with mpl.rc_context(STYLE):
        chart = layer_chart(summary)
        bars, count = chart.bars, len(chart.bars)
        width = min(widest, max(_MIN_WIDTH, _SIDES + _LAYER_WIDTH * count))
        height = min(_MAX_HEIGHT, max(_MIN_HEIGHT, 0.4 * width))
        fig = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        ax = fig.add_subplot()
        points = (width - _SIDES) * _POINTS / count
        _draw_bars(ax, chart, points)
        # A wide picture is shown smaller, so its words are larger.
        scale = max(1.0, width / _SHOWN_WIDTH)
        _label(ax, bars, points, scale)
        size = TEXT * scale
        if len(phases_of(summary)) > 1:
            _draw_phases(ax, summary, bars, points, size)
        ax.set_ylabel(chart.y_label, fontsize=size)
        ax.set_xlabel(chart.x_label, fontsize=size)
        ax.tick_params(axis="y", labelsize=size)
        ax.set_xlim(-0.7, count - 0.3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(axis="x", length=2, pad=1.5)
        words = title(summary, int(width * _CHARS * TEXT / size))
        fig.suptitle(words, x=0.01, ha="left", fontsize=size, parse_math=False)
        _draw_legend(fig, summary, chart, size - 1)
    return fig


def _draw_bars(ax: Axes, chart: LayerChart, points: float) -> None:
    """Bars and whiskers, and the line from which a layer is hot."""
    x = np.arange(len(chart.bars))
    thin = float(np.clip(points / 10, 0.3, 1.0))
    ax.bar(x, chart.typical, 0.8, color=OTHER_COLOUR, linewidth=0)
    ax.bar(x, chart.hot, 0.8, color=HOT_COLOUR, linewidth=0)
    ax.vlines(x, chart.low, chart.high, INK, linewidth=thin)
    cap = min(6.0, points * 0.45)
    if cap >= 1.5:
        for ends in (chart.low, np.where(chart.cut, np.nan, chart.high)):
            ax.plot(x, ends, "_", color=INK, markersize=cap, markeredgewidth=thin)
    if chart.cut.any():
        ax.plot(
            x[chart.cut],
            chart.high[chart.cut],
            "^",
            color=INK,
            markersize=max(3.0, cap),
            clip_on=False,
            label=chart.cut_label,
        )
    if chart.line is not None:
        ax.axhline(chart.line, color=HOT_COLOUR, linewidth=0.9, linestyle=(0, (5, 3)))
    ax.set_ylim(0, chart.end)


def _draw_phases(ax: Axes, summary: Summary, bars: Bars, points: float, size: float) -> None:
    """A line between two phases, every second one on grey, and above each its name and time.

    Where names would overlap, those of phases of more layers are written first.
    """
    layers = summary.layers
    sums_s = layers.groupby("phase", sort=False)["mean_s"].sum()
    taken: list[tuple[float, float]] = []
    regions = bars.regions()
    for _, start, end in regions[1::2]:
        ax.axvspan(start - 0.5, end - 0.5, color=_BAND_COLOUR, linewidth=0, zorder=0.5)
    for phase, start, end in sorted(regions, key=lambda region: region[1] - region[2]):
        if start:
            ax.axvline(start - 0.5, color=INK, linewidth=0.6, zorder=0.6)
        name = printable(phase)
        with_sum = f"{name}: {format_duration(float(sums_s[phase]))}"
        centre = (start + end - 1) / 2
        for text in (with_sum, name):
            half = len(text) * size * _CHAR_WIDTH / points / 2
            # At the ends the axis is no place to write beyond.
            at = float(np.clip(centre, half - 0.7, max(half - 0.7, len(bars) - 0.3 - half)))
            if all(at + half < low or at - half > high for low, high in taken):
                taken.append((at - half, at + half))
                ax.annotate(
                    text,
                    (at, 1.0),
                    (0, _PHASE_GAP),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=size,
                    parse_math=False,
                )
                break


def _label(ax: Axes, bars: Bars, points: float, scale: float) -> None:
    font = float(np.clip(points / _LINE_HEIGHT, _MIN_FONT * scale, _MAX_FONT * scale))
    apart = int(np.ceil(font * _LINE_HEIGHT / points - 1e-9))
    shown = _labelled(bars, max(1, apart))
    names = [ending(bars.names[at], _MAX_LABEL) for at in shown]
    ax.set_xticks(shown, names, rotation=90, fontsize=font, parse_math=False)


def _labelled(bars: Bars, apart: int) -> list[int]:
    """The bars to name: at least so many apart, the highest first and so hot ones first."""
    if apart == 1:
        return list(range(len(bars)))
    order = np.argsort(-bars.typical_s, kind="stable")
    taken: NDArray[np.bool_] = np.zeros(len(bars), bool)
    for i in order:
        if not taken[max(0, i - apart + 1) : i + apart].any():
            taken[i] = True
    return [int(i) for i in np.flatnonzero(taken)]


def _draw_legend(fig: Figure, summary: Summary, chart: LayerChart, size: float) -> None:
    handles: list[Any] = [
        Patch(color=HOT_COLOUR, label=chart.hot_label),
        Patch(color=OTHER_COLOUR, label="other layers"),
        Line2D(
            [],
            [],
            color=INK,
            marker="|",
            markersize=9,
            linestyle="",
            label="5th to 95th percentile",
        ),
    ]
    ax = fig.axes[0]
    if chart.line is not None:
        dashes = (0, (3, 2))
        handles.append(Line2D([], [], color=HOT_COLOUR, linestyle=dashes, label=chart.line_label))
    handles += ax.get_legend_handles_labels()[0]
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(handles) if fig.get_figwidth() >= 9.5 else 2,
        frameon=False,
        fontsize=size,
        # In font sizes; names of phases stand between.
        borderaxespad=0.2
        if len(phases_of(summary)) == 1
        else 0.4 + (_PHASE_GAP + 1.3 * size) / size,
        handlelength=1.4,
        columnspacing=1.4,
    )
