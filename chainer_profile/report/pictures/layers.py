"""Summary -> bar plots of the layers: their times, and the memory that they allocate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from chainer_profile.basics.units import duration_unit, format_count, format_duration, in_unit
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.pictures.bars import (
    MOST,
    Bars,
    layer_bars,
    names_of,
    regions_of,
)
from chainer_profile.report.pictures.figures import (
    ACCENT,
    BAND,
    HOT_COLOUR,
    INK,
    OTHER_COLOUR,
    SIDES,
    STYLE,
    TEXT,
    entitle,
    for_bars,
    lead,
    legend_above,
    title,
)
from chainer_profile.report.rows import layer_anchor
from chainer_profile.report.text import ending, printable, typical_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

_MIB = 1024.0 * 1024.0

_MIN_WIDTH, _MAX_WIDTH = 7.2, 20.0
_MIN_HEIGHT, _MAX_HEIGHT = 4.8, 8.0
#: Width of a layer where there is room, in inches.
_LAYER_WIDTH = 0.15
_MIN_FONT, _MAX_FONT = 6.0, 8.0
#: A label's line is so many times as high as its font size.
_LINE_HEIGHT = 1.25
_MAX_LABEL = 32
#: Width of a character as a part of the font size, with some room.
_CHAR_WIDTH = 0.65
#: Between the axis and the names of the phases, in points: a triangle of a cut fits.
_PHASE_GAP = 5.0
#: Characters of the title to an inch, in the usual size.
_CHARS = 12.5
#: The axis reaches so many times the highest bar at most, whatever the whiskers do; and so many
#: times its usual end for the line of the rule.
_HEADROOM, _ABOVE = 1.4, 1.04
_DASHES = (0, (3, 2))


def figure(summary: Summary, widest: float = _MAX_WIDTH) -> Figure:
    """One bar a layer in the order of the calls: its median self time, hot layers in red.

    Of very many layers it is one bar a block; see :func:`.bars.layer_bars`. Whiskers reach from the
    5th to the 95th percentile. The axis is made for the bars: a whisker that would need more than
    1.4 times the highest bar is cut, and a triangle marks the cut. Where names of all bars would
    overlap, the highest are named first. Lines and names tell the phases of a trial apart.
    """
    with mpl.rc_context(STYLE):
        bars = layer_bars(summary)
        fig, ax, points, size = _axes(len(bars), widest)
        unit = duration_unit(float(bars.typical_s.max()))
        handles = _draw_bars(ax, summary, bars, in_unit(1.0, unit), points)
        _name(ax, bars.names, bars.typical_s, points, size / TEXT)
        _draw_phases(ax, summary, bars.phases, points, size)
        said = f"; {bars.note}" if bars.note else ""
        ax.set_xlabel(f"{bars.kind}, in the order of the calls{said}", fontsize=size)
        what = f"{typical_word(summary.recording)} self time{on_gpu(summary)} [{unit}]"
        ax.set_ylabel(what, fontsize=size)
        words = title(summary, int(fig.get_figwidth() * _CHARS * TEXT / size))
        entitle(fig, words, size)
        _draw_legend(fig, summary, handles, size - 1)
        lead(ax, bars.anchors)
    return fig


def memory_figure(summary: Summary) -> Figure:
    """What every layer allocates at its peak and leaves allocated, in the order of the calls.

    The most that is allocated in every phase beyond what was there at the trial's begin is a line
    over its layers. What is freed between the layers is known for whole phases only, so there is
    no running total.
    """
    use = summary.recording.memory
    assert use is not None
    with mpl.rc_context(STYLE):
        phases = summary.layers["phase"].tolist()
        count = len(phases)
        fig, ax, points, size = _axes(count, _MAX_WIDTH)
        peak = np.array(use.peak_nbytes, float) / _MIB
        left = np.array(use.retained_nbytes, float) / _MIB
        levels = {phase.phase: phase.high_nbytes / _MIB for phase in use.phases}
        x = np.arange(count)
        # One shape: bars of a thousand layers would take a second.
        said = "peak in the layer"
        ax.fill_between(x, peak, step="mid", color=OTHER_COLOUR, linewidth=0, label=said)
        ax.step(x, left, color=ACCENT, linewidth=1.2, where="mid", label="left allocated")
        spans = [span for span in regions_of(phases) if span[0] in levels]
        if spans:
            high = [levels[phase] for phase, _, _ in spans]
            ends = ([at - 0.5 for _, at, _ in spans], [at - 0.5 for _, _, at in spans])
            ax.hlines(high, *ends, INK, _DASHES, linewidth=1.2, label="high water of the phase")
        values = [float(peak.max()), float(left.max()), *levels.values()]
        low = min(0.0, float(left.min()), *levels.values()) if levels else min(0.0, left.min())
        ax.set_ylim(low * 1.05, (max(values) or 1.0) * 1.1)
        _name(ax, names_of(summary), peak, points, size / TEXT)
        _draw_phases(ax, summary, phases, points, size, times=False)
        ax.set_xlabel("layer, in the order of the calls", fontsize=size)
        ax.set_ylabel("allocated [MiB]", fontsize=size)
        _draw_legend(fig, summary, [], size - 1)
        if count <= MOST:
            lead(ax, [layer_anchor(at) for at in range(count)])
    return fig


def _axes(count: int, widest: float) -> tuple[Figure, Axes, float, float]:
    """As large as so many layers need."""
    width = min(widest, max(_MIN_WIDTH, SIDES + _LAYER_WIDTH * count))
    return for_bars(count, width, min(_MAX_HEIGHT, max(_MIN_HEIGHT, 0.4 * width)))


def _draw_bars(ax: Axes, summary: Summary, bars: Bars, scale: float, points: float) -> list[Artist]:
    """Bars and whiskers, and the line from which a layer is hot; what the legend says of them."""
    x = np.arange(len(bars))
    typical, hot, low, high = (
        times * scale for times in (bars.typical_s, bars.hot_s, bars.low_s, bars.high_s)
    )
    top = float(typical.max()) or 1.0
    limit = min(max(top, float(high.max())), _HEADROOM * top) * _ABOVE
    cut = high > limit
    thin = float(np.clip(points / 10, 0.3, 1.0))
    ax.bar(x, typical, 0.8, color=OTHER_COLOUR, linewidth=0)
    ax.bar(x, hot, 0.8, color=HOT_COLOUR, linewidth=0)
    ax.vlines(x, low, np.minimum(high, limit), INK, linewidth=thin)
    cap = min(6.0, points * 0.45)
    if cap >= 1.5:
        for ends in (low, np.where(cut, np.nan, high)):
            ax.plot(x, ends, "_", color=INK, markersize=cap, markeredgewidth=thin)
    count, layers = len(summary.hotspots.indices), format_count(len(summary.layers))
    said = f"hot: {summary.hotspots.rule} ({format_count(count)} of {layers})"
    handles: list[Artist] = [
        Patch(color=HOT_COLOUR, label=said),
        Patch(color=OTHER_COLOUR, label="other layers"),
        _line(label="5th to 95th percentile", marker="|", markersize=9, linestyle=""),
    ]
    line_s = summary.hotspots.line_s if bars.kind == "layer" else None
    if line_s is not None and line_s * scale <= _HEADROOM * limit:
        line = line_s * scale
        ax.axhline(line, color=HOT_COLOUR, linewidth=0.9, linestyle=(0, (5, 3)))
        said = f"line of the rule: {format_duration(line_s)}"
        handles.append(_line(label=said, color=HOT_COLOUR, linestyle=_DASHES))
        top = max(limit, line * _ABOVE)
    else:
        top = limit
    if cut.any():
        style: dict[str, Any] = {"marker": "^", "markersize": max(3.0, cap), "linestyle": ""}
        ax.plot(x[cut], np.full(cut.sum(), limit), color=INK, clip_on=False, **style)
        longest = format_duration(float(bars.high_s.max()))
        handles.append(_line(label=f"cut (up to {longest})", **style))
    ax.set_ylim(0, top)
    return handles


def _line(**style: Any) -> Line2D:
    return Line2D([], [], **{"color": INK} | style)


def _draw_phases(
    ax: Axes,
    summary: Summary,
    phases: Sequence[str],
    points: float,
    size: float,
    *,
    times: bool = True,
) -> None:
    """A line between two phases, every second one on grey, and above each its name and time.

    Where names would overlap, those of phases of more layers are written first.
    """
    if not summary.several_phases:
        return
    sums_s = summary.layers.groupby("phase", sort=False)["mean_s"].sum()
    taken: list[tuple[float, float]] = []
    regions = regions_of(phases)
    for _, start, end in regions[1::2]:
        ax.axvspan(start - 0.5, end - 0.5, color=BAND, linewidth=0, zorder=0.5)
    for phase, start, end in sorted(regions, key=lambda region: region[1] - region[2]):
        if start:
            ax.axvline(start - 0.5, color=INK, linewidth=0.6, zorder=0.6)
        name = printable(phase)
        with_sum = f"{name}: {format_duration(float(sums_s[phase]))}"
        centre = (start + end - 1) / 2
        for text in (with_sum, name)[not times :]:
            half = len(text) * size * _CHAR_WIDTH / points / 2
            # At the ends the axis is no place to write beyond.
            at = float(np.clip(centre, half - 0.7, max(half - 0.7, len(phases) - 0.3 - half)))
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


def _name(
    ax: Axes, names: Sequence[str], heights: NDArray[np.float64], points: float, scale: float
) -> None:
    """Names below the bars: of those that have no room the highest ones first, and so hot ones."""
    font = float(np.clip(points / _LINE_HEIGHT, _MIN_FONT * scale, _MAX_FONT * scale))
    apart = max(1, int(np.ceil(font * _LINE_HEIGHT / points - 1e-9)))
    taken: NDArray[np.bool_] = np.zeros(len(names), bool)
    for i in np.argsort(-heights, kind="stable"):
        if not taken[max(0, i - apart + 1) : i + apart].any():
            taken[i] = True
    shown = np.flatnonzero(taken).tolist()
    labels = [ending(names[at], _MAX_LABEL) for at in shown]
    ax.set_xticks(shown, labels, rotation=90, fontsize=font, parse_math=False)


def _draw_legend(fig: Figure, summary: Summary, handles: Sequence[Artist], size: float) -> None:
    # Names of phases stand between.
    pad = 0.2 if not summary.several_phases else 0.4 + (_PHASE_GAP + 1.3 * size) / size
    legend_above(fig.axes[0], size, 0 if fig.get_figwidth() >= 9.5 else 2, pad, handles)
