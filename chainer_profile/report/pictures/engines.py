"""A run of several engines -> bar plot: the time of a trial, stacked by function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chainer_profile.basics.units import duration_unit, format_duration, in_unit
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.report.content.engine_nodes import BETWEEN, function_shares
from chainer_profile.report.content.engines import about_lines, factor_text
from chainer_profile.report.pictures.figures import (
    ACCENT,
    BETWEEN_COLOUR,
    DPI,
    INK,
    OTHER_COLOUR,
    SERIES_COLOURS,
    STYLE,
    TEXT,
    plain_axes,
    save,
    shorten,
)
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording

REST = "other functions"
PLAIN = "no times of its parts"
#: Parts that are no function, in the order of the legend.
_LAST = (REST, BETWEEN, PLAIN)
#: Functions that have a colour, and a function that is nowhere more than this part of a trial has
#: none.
MAX_FUNCTIONS, _LEAST = 6, 0.01
_CAPTION = (
    "parts: shares of the trials in which nodes were timed; a node of several layers counts for "
    "its main one"
)
_WIDTH, _BAR_HEIGHT, _MAX_NAME = 9.6, 0.52, 30


@dataclass(frozen=True)
class Bar:
    """One engine's bar.

    Attributes:
        engine: The engine.
        median_s: Its length: the median of the trials, in seconds.
        parts: Names of the parts with their fractions of it, which add up to 1; :data:`PLAIN`
            where the engine did not time its nodes.
    """

    engine: EngineResult
    median_s: float
    parts: dict[str, float]

    @property
    def name(self) -> str:
        """The engine with its precision."""
        return " ".join(filter(None, (printable(self.engine.name), self.engine.precision)))


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
    with mpl.rc_context(STYLE):
        found = bars(run, recordings)
        unit = duration_unit(max((bar.median_s for bar in found), default=1.0))
        names = dict.fromkeys(name for bar in found for name in bar.parts)
        functions = [name for name in names if name not in _LAST]
        colours = dict(zip(functions, SERIES_COLOURS, strict=False))
        colours |= {REST: OTHER_COLOUR, BETWEEN: BETWEEN_COLOUR, PLAIN: ACCENT}
        shown = functions + [name for name in _LAST if name in names]
        columns = 3
        height = 1.75 + _BAR_HEIGHT * max(1, len(found)) + 0.18 * -(-len(shown) // columns)
        fig = Figure(figsize=(_WIDTH, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        left, right = fig.subplots(1, 2, width_ratios=(1.55, 1), sharey=True)
        for at, bar in enumerate(found):
            length = in_unit(bar.median_s, unit)
            _draw(left, at, bar, length, colours)
            if PLAIN not in bar.parts:
                _draw(right, at, bar, 100.0, colours)
            left.annotate(
                _said(run, bar),
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
        longest = max((in_unit(bar.median_s, unit) for bar in found), default=0.0)
        left.set_xlim(0, (longest or 1.0) * 1.34)
        left.set_xlabel(f"median of the trials [{unit}]")
        right.set_xlim(0, 100)
        right.set_xlabel("share of the trial [%]")
        for ax in (left, right):
            plain_axes(ax, "x")
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


def bars(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[Bar]:
    """The bars in the order of the tables.

    A node counts for its main function. Functions beyond the largest six, and those that are
    nowhere 1 % of a trial, are one part.
    """
    chainer = recordings.get(BASELINE)
    found = []
    for engine in run.measured:
        statistics = engine.statistics
        assert statistics is not None
        recording = recordings.get(engine.name)
        parts = {PLAIN: 1.0} if recording is None else function_shares(recording, chainer)
        found.append(Bar(engine, statistics.median_s, parts))
    return _without_small_ones(found)


def _without_small_ones(found: Sequence[Bar]) -> list[Bar]:
    """The bars with the functions that matter least in all of them in one part."""
    most: dict[str, float] = {}
    for bar in found:
        for name, part in bar.parts.items():
            if name not in _LAST:
                most[name] = max(most.get(name, 0.0), part)
    large = [name for name in most if most[name] >= _LEAST]
    kept = sorted(large, key=lambda name: -most[name])[:MAX_FUNCTIONS]
    out = []
    for bar in found:
        rest = sum(part for name, part in bar.parts.items() if name not in (*kept, *_LAST))
        parts = bar.parts | ({REST: rest} if rest > 0 else {})
        shown = {name: parts[name] for name in (*kept, *_LAST) if name in parts}
        out.append(Bar(bar.engine, bar.median_s, shown))
    return out


def _said(run: EnginesRun, bar: Bar) -> str:
    """The time, and the speed-up or what is wrong."""
    factor = factor_text(bar.engine, run.baseline or bar.engine)
    return ", ".join(filter(None, (format_duration(bar.median_s), factor)))
