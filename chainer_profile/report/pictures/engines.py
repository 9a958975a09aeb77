"""A run of several engines -> bar plot: the time of a trial, stacked by function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chainer_profile.report.charts.engines import PLAIN, REST, Bar, engines_chart
from chainer_profile.report.content.engine_nodes import BETWEEN
from chainer_profile.report.content.engines import about_lines
from chainer_profile.report.pictures.figures import (
    ACCENT,
    BETWEEN_COLOUR,
    DPI,
    INK,
    OTHER_COLOUR,
    SERIES_COLOURS,
    STYLE,
    TEXT,
    save,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Recording

_CAPTION = (
    "parts: shares of the trials in which nodes were timed; a node of several layers counts for "
    "its main one"
)
_WIDTH, _BAR_HEIGHT, _MAX_NAME = 9.6, 0.52, 30


def render(
    run: EnginesRun, recordings: Mapping[str, Recording], format: Literal["png", "svg"]
) -> bytes:
    """The figure as a file's bytes; the same run gives the same bytes.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
        format: ``png`` (150 dots an inch) or ``svg`` (its text is text, and can be searched).
    """
    return save(lambda: figure(run, recordings), format)


def figure(run: EnginesRun, recordings: Mapping[str, Recording]) -> Figure:
    """Two panels: the median trial of every engine, and what it consists of.

    The parts of a bar are shares of the trials in which the engine timed its nodes, put to the
    scale of the clean median; the second panel shows the shares by themselves, as the bars of fast
    engines are short. Bars of engines with wrong outputs are hatched.
    """
    chart = engines_chart(run, recordings)
    with mpl.rc_context(STYLE):
        found, shown = chart.bars, chart.parts
        colours = dict(zip(chart.functions, SERIES_COLOURS, strict=False))
        colours |= {REST: OTHER_COLOUR, BETWEEN: BETWEEN_COLOUR, PLAIN: ACCENT}
        columns = 3
        height = 1.75 + _BAR_HEIGHT * max(1, len(found)) + 0.18 * -(-len(shown) // columns)
        fig = Figure(figsize=(_WIDTH, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        left, right = fig.subplots(1, 2, width_ratios=(1.55, 1), sharey=True)
        for at, (bar, length) in enumerate(zip(found, chart.lengths, strict=True)):
            _draw(left, at, bar, length, colours)
            if PLAIN not in bar.parts:
                _draw(right, at, bar, 100.0, colours)
            left.annotate(
                chart.said[at],
                (length, at),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=TEXT - 0.5,
                parse_math=False,
            )
        labels = [shorten(bar.name, _MAX_NAME) for bar in found]
        left.set_yticks(range(len(found)), labels, parse_math=False)
        left.set_ylim(len(found) - 0.4, -0.6)
        left.set_xlim(0, (max(chart.lengths, default=0.0) or 1.0) * 1.34)
        left.set_xlabel(chart.x_label)
        right.set_xlim(0, 100)
        right.set_xlabel("share of the trial [%]")
        for ax in (left, right):
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(axis="x", color="#dddddd", linewidth=0.6)
            ax.set_axisbelow(True)
            ax.tick_params(axis="y", length=0)
        lines = [*about_lines(run), _CAPTION]
        words = "\n".join(shorten(line, int(_WIDTH * 12.5)) for line in lines)
        fig.suptitle(words, x=0.01, ha="left", fontsize=TEXT, parse_math=False)
        _legend(fig, [(name, colours[name]) for name in shown], columns)
    return fig


def _draw(ax: Axes, at: int, bar: Bar, length: float, colours: dict[str, str]) -> None:
    style: dict[str, Any] = {"height": 0.66, "linewidth": 0.5, "edgecolor": "white"}
    if bar.engine.wrong:
        style["hatch"] = "////"
    begin = 0.0
    for name, part in bar.parts.items():
        ax.barh(at, part * length, left=begin, color=colours[name], **style)
        begin += part * length
    if not np.isclose(begin, length):
        raise ValueError(f"the parts of {bar.engine.name} add up to {begin}, not {length}")


def _legend(fig: Figure, entries: Sequence[tuple[str, str]], columns: int) -> None:
    if not entries:
        return
    fused = "colours: functions, with what engines fused into them"
    legend = fig.legend(
        handles=[
            # Matplotlib leaves out labels that begin with an underscore.
            Patch(facecolor=colour, label=f" {shorten(name, 40)}" if name[:1] == "_" else name)
            for name, colour in entries
        ],
        title=fused,
        loc="outside lower left",
        alignment="left",
        frameon=False,
        fontsize=TEXT - 0.5,
        title_fontsize=TEXT - 0.5,
        ncols=columns,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
