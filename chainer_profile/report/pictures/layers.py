"""Summary -> bar plots of the layers: their times, and the memory they allocate."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from chainer_profile.analyse.grouping import group_names
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.report.pictures import bars, figures
from chainer_profile.report.rows import layer_anchor, link_anchor
from chainer_profile.report.text import ending, on_gpu_suffix, printable

#: Bars of a picture at most. A network with more layers and blocks shows its slowest layers.
MAX_BARS, SLOWEST = 200, 30
_MIB = 1024.0 * 1024.0

_MIN_WIDTH, _MAX_WIDTH = 7.2, 20.0
_MIN_HEIGHT, _MAX_HEIGHT = 4.8, 8.0
#: Width of a bar in inches, if the picture does not become too wide.
_LAYER_WIDTH = 0.15
_MIN_FONT, _MAX_FONT = 6.0, 8.0
_MAX_LABEL = 32
#: Width of a character in font sizes, rounded up.
_CHAR_WIDTH = 0.65
#: Distance in points from the axes to the names of the phases. The triangle of a cut whisker fits.
_PHASE_GAP = 5.0
#: Characters of the title per inch at the default font size.
_CHARS = 12.5
#: Longest whisker divided by the highest bar, and top of the axes divided by the highest mark.
_HEADROOM, _ABOVE = 1.4, 1.05
_DASHES = (0, (3, 2))
#: Colours of a notebook's picture.
_COLOURS = 256


@dataclass(frozen=True)
class Bars:
    """The bars of :func:`figure` in the order of the calls, and the label of their axis.

    Columns of ``frame``: ``name``, ``phase``, ``anchor`` (of the row in the table), ``mean_s``,
    ``p5_s``, ``p95_s`` (seconds per trial), and ``hot_s`` (the time of hot layers in ``mean_s``).
    """

    frame: pd.DataFrame
    label: str = "layer, in the order of the calls"
    are_layers: bool = True


@figures.drawing()
def figure(summary: Summary) -> Figure:
    """Draw the mean self time of each layer, in the order of the calls; hot layers are red.

    Whiskers reach from the 5th to the 95th percentile. A whisker longer than 1.4 times the highest
    bar is cut, and a triangle marks the cut.
    """
    drawn = layer_bars(summary)
    frame = drawn.frame
    fig, ax, bar_points, size = _axes(len(frame))
    _draw_bars(ax, summary, drawn, bar_points)
    names, mean_s = frame["name"].tolist(), frame["mean_s"].to_numpy()
    _label_bars(fig, names, mean_s, bar_points, drawn.label, size)
    _draw_phases(ax, summary, frame["phase"].tolist(), bar_points, size)
    label = f"mean self time{on_gpu_suffix(summary)} [ms]"
    ax.set_ylabel(label, fontsize=size)
    width = int(fig.get_figwidth() * _CHARS * figures.TEXT / size)
    figures.set_title(fig, figures.title(summary, width), size)
    _draw_legend(fig, summary, size - 1)
    bars.link_bars(ax, frame["anchor"].tolist())
    return fig


@figures.drawing()
def memory_figure(summary: Summary) -> Figure:
    """Draw the peak that each layer allocates, and what it leaves allocated, in MiB.

    A running total is impossible, because memory freed between layers is known per phase only.
    The peak of each phase is a dashed line over its layers.
    """
    use = summary.recording.memory
    assert use is not None
    phases = summary.layers["phase"].tolist()
    count = len(phases)
    fig, ax, bar_points, size = _axes(count)
    peak = np.array(use.peak_nbytes, float) / _MIB
    left = np.array(use.retained_nbytes, float) / _MIB
    levels = {phase.phase: phase.high_nbytes / _MIB for phase in use.phases}
    x = np.arange(count)
    label = "peak in the layer"
    ax.fill_between(x, peak, step="mid", color=figures.OTHER_COLOUR, linewidth=0, label=label)
    ax.step(x, left, color=figures.ACCENT, linewidth=1.2, where="mid", label="left allocated")
    spans = [span for span in phase_ranges(phases) if span[0] in levels]
    if spans:
        high = [levels[phase] for phase, _, _ in spans]
        ends = ([at - 0.5 for _, at, _ in spans], [at - 0.5 for _, _, at in spans])
        ax.hlines(high, *ends, figures.INK, _DASHES, linewidth=1.2, label="high water of the phase")
    top = max(float(peak.max()), float(left.max()), *levels.values())
    ax.set_ylim(min(0.0, float(left.min()), *levels.values()) * 1.05, (top or 1.0) * 1.1)
    _label_bars(
        fig, layer_names(summary), peak, bar_points, "layer, in the order of the calls", size
    )
    _draw_phases(ax, summary, phases, bar_points, size, times=False)
    ax.set_ylabel("allocated [MiB]", fontsize=size)
    _draw_legend(fig, summary, size - 1)
    if count <= MAX_BARS:
        bars.link_bars(ax, [layer_anchor(at) for at in range(count)])
    return fig


def phase_ranges(phases: Iterable[str]) -> list[tuple[str, int, int]]:
    """Group successive equal phases: (phase, first index, last index + 1)."""
    ranges = []
    for phase, group in groupby(enumerate(phases), key=itemgetter(1)):
        indices = [index for index, _ in group]
        ranges.append((phase, indices[0], indices[-1] + 1))
    return ranges


def layer_bars(summary: Summary) -> Bars:
    """Make a bar for each layer.

    If there are more than :data:`MAX_BARS`, make one for each block in each phase. If there are
    more of these too, make one for each of the :data:`SLOWEST` layers.
    """
    layers = summary.layers
    all_bars = layers.assign(
        name=layer_names(summary),
        hot_s=layers["mean_s"].where(layers["hot"], 0.0),
        anchor=list(map(layer_anchor, range(len(layers)))),
    )
    if len(layers) <= MAX_BARS:
        return Bars(all_bars)
    # A block has a bar in each phase.
    blocks = list(map(str, group_names(summary.recording.layers, "block")))
    groups = layers.groupby(["phase", blocks], sort=False).indices
    count = units.plural(len(layers), "layer")
    if len(groups) <= MAX_BARS:
        frame = pd.DataFrame(_block_bar(summary, key, rows) for key, rows in groups.items())
        return Bars(frame, f"block, in the order of the calls; {count} by block", are_layers=False)
    slowest = np.argsort(-layers["mean_s"].to_numpy(), kind="stable")[:SLOWEST]
    slow_bars = all_bars.iloc[np.sort(slowest)]
    share = f"{slow_bars['share'].sum():.0%} of the {whole_time(summary).name}"
    note = f"the {SLOWEST} slowest of {count}, which take {share}"
    return Bars(slow_bars, f"layer, in the order of the calls; {note}")


def _block_bar(summary: Summary, key: Any, rows: NDArray[np.intp]) -> dict[str, str | float]:
    """A row of :attr:`Bars.frame` for the layers of a block; ``key`` is its phase and name."""
    layers, (phase, block) = summary.layers.iloc[rows], key
    times_s = summary.recording.self_ns[:, rows].sum(axis=1) * NS
    p5_s, p95_s = np.quantile(times_s, (0.05, 0.95))
    return {
        "name": printable(block),
        "phase": phase,
        "mean_s": layers["mean_s"].sum(),
        "p5_s": p5_s,
        "p95_s": p95_s,
        "hot_s": layers["mean_s"].where(layers["hot"], 0.0).sum(),
        "anchor": link_anchor(summary, block) or layer_anchor(int(rows[0])),
    }


def layer_names(summary: Summary) -> list[str]:
    """Name each layer by its path, with its function if other layers have the same path."""
    layers = summary.layers
    paths = [printable(str(path)) for path in layers["path"]]
    keys = list(zip(paths, layers["phase"], strict=True))
    counts = Counter(keys)
    return [
        path if counts[key] == 1 else f"{path} {printable(str(function))}"
        for path, key, function in zip(paths, keys, layers["function"], strict=True)
    ]


def _axes(count: int) -> tuple[Figure, Axes, float, float]:
    """Make a figure that is large enough for ``count`` bars; see :func:`.bars.axes_for`."""
    width = min(_MAX_WIDTH, max(_MIN_WIDTH, bars.SIDES + _LAYER_WIDTH * count))
    return bars.axes_for(count, width, min(_MAX_HEIGHT, max(_MIN_HEIGHT, 0.4 * width)))


def _draw_bars(ax: Axes, summary: Summary, drawn: Bars, bar_points: float) -> None:
    """Draw bars that are ``bar_points`` wide, whiskers, and the time from which a layer is hot."""
    x = np.arange(len(drawn.frame))
    mean, hot, low, high = (
        drawn.frame[name].to_numpy() * 1e3 for name in ("mean_s", "hot_s", "p5_s", "p95_s")
    )
    highest = float(mean.max()) or 1.0
    limit = min(max(highest, float(high.max())), _HEADROOM * highest)
    cut = high > limit
    thin = float(np.clip(bar_points / 10, 0.3, 1.0))
    count, layers = map(units.format_count, (len(summary.hotspots.indices), len(summary.layers)))
    rule = f"hot: {summary.hotspots.rule} ({count} of {layers})"
    style: dict[str, Any] = {"zorder": 1.01, "label": rule}
    bars.draw(ax, x[hot > 0], hot[hot > 0], 0.8, figures.HOT_COLOUR, **style)
    bars.draw(ax, x, mean, 0.8, figures.OTHER_COLOUR, label="other layers")
    cap, length = min(3.0, bar_points * 0.22), np.minimum(high, limit) - low
    style = {"ecolor": figures.INK, "elinewidth": thin, "capsize": cap, "capthick": thin}
    label = "5th to 95th percentile"
    ax.errorbar(x, low, (0 * length, length), fmt="none", label=label, **style)
    top, line_s = limit, summary.hotspots.line_s if drawn.are_layers else None
    if line_s is not None and line_s * 1e3 <= _HEADROOM * limit:
        top = max(limit, line_s * 1e3)
        label = f"line of the rule: {units.format_duration(line_s)}"
        style = {"color": figures.HOT_COLOUR, "linewidth": 0.9, "label": label}
        ax.axhline(line_s * 1e3, linestyle=_DASHES, **style)
    if cut.any():
        label = f"cut (up to {units.format_duration(drawn.frame['p95_s'].max())})"
        size = max(3.0, 2 * cap)
        ax.plot(x[cut], np.full(cut.sum(), limit), "^", color=figures.INK, ms=size, label=label)
    ax.set_ylim(0, top * _ABOVE)


def _draw_phases(
    ax: Axes,
    summary: Summary,
    phases: Sequence[str],
    bar_points: float,
    size: float,
    *,
    times: bool = True,
) -> None:
    """Separate phases by lines and grey bands, and write the name of each above it.

    If names would overlap, only the phase with more layers has one. ``times`` adds its time.
    """
    if not summary.several_phases:
        return
    sums_s = summary.layers.groupby("phase", sort=False)["mean_s"].sum()
    text_ranges: list[tuple[float, float]] = []
    ranges = phase_ranges(phases)
    for _, start, end in ranges[1::2]:
        ax.axvspan(start - 0.5, end - 0.5, color=figures.BAND, linewidth=0, zorder=0.5)
    for _, start, _ in ranges[1:]:
        ax.axvline(start - 0.5, color=figures.INK, linewidth=0.6, zorder=0.6)
    style = figures.ABOVE | {"xycoords": ("data", "axes fraction")}
    for phase, start, end in sorted(ranges, key=lambda item: item[1] - item[2]):
        name = printable(phase)
        with_sum = f"{name}: {units.format_duration(float(sums_s[phase]))}"
        for text in (with_sum, name)[not times :]:
            half = len(text) * size * _CHAR_WIDTH / bar_points / 2
            # Keep the text within the ends of the axis.
            ends = half - 0.7, max(half - 0.7, len(phases) - 0.3 - half)
            at = float(np.clip((start + end - 1) / 2, *ends))
            if all(at + half < low or at - half > high for low, high in text_ranges):
                text_ranges.append((at - half, at + half))
                position = (at, 1.0), (0, _PHASE_GAP)
                ax.annotate(text, *position, fontsize=size, parse_math=False, **style)
                break


def _label_bars(
    fig: Figure,
    names: Sequence[str],
    heights: NDArray[np.float64],
    bar_points: float,
    label: str,
    size: float,
) -> None:
    """Write the names below the bars; if they would overlap, the highest bars keep theirs."""
    scale = size / figures.TEXT
    font = float(np.clip(bar_points / bars.LINE_HEIGHT, _MIN_FONT * scale, _MAX_FONT * scale))
    spacing = max(1, int(np.ceil(font * bars.LINE_HEIGHT / bar_points - 1e-9)))
    named: NDArray[np.bool_] = np.zeros(len(names), bool)
    for at in np.argsort(-heights, kind="stable"):
        if not named[max(0, at - spacing + 1) : at + spacing].any():
            named[at] = True
    labels = {at: ending(names[at], _MAX_LABEL) for at in np.flatnonzero(named).tolist()}
    bars.label_bars(fig, labels, font, label, size)


def _draw_legend(fig: Figure, summary: Summary, size: float) -> None:
    # Leave space for the names of the phases below the legend.
    pad = 0.2 if not summary.several_phases else 0.4 + (_PHASE_GAP + 1.3 * size) / size
    figures.legend_above(fig.axes[0], size, pad, 0 if fig.get_figwidth() >= 9.5 else 2)


class LayerPlot:
    """The bar plot of a summary's layers, which a notebook shows without pyplot."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    @cached_property
    def figure(self) -> Figure:
        """Matplotlib's figure. Change it, or save it with ``figure.savefig(...)``."""
        return figure(self._summary)

    def __repr__(self) -> str:
        return f"<LayerPlot of {self._summary!r}: .figure is Matplotlib's figure>"

    def _repr_png_(self) -> bytes:
        with Image.open(io.BytesIO(figures.save(self.figure, "png"))) as image:
            # A palette makes the picture, and the notebook that stores it, a third as large.
            indexed = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        file = io.BytesIO()
        indexed.save(file, "png", optimize=True)
        return file.getvalue()
