"""Summary -> the bars of its layers, as they are drawn: in the unit of their axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.units import duration_unit, format_count, format_duration, in_unit
from chainer_profile.report.charts.bars import MOST, Bars, layer_bars
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.text import typical_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: The axis reaches so many times the highest bar at most, whatever the whiskers do; and so many
#: times its usual end for the line of the rule.
_HEADROOM = 1.4
_ABOVE = 1.04


@dataclass(frozen=True)
class LayerChart:
    """Bars in the order of the calls: median self times, hot ones red, and whiskers.

    Whiskers reach from the 5th to the 95th percentile. The axis is made for the bars: a whisker
    that would need more than 1.4 times the highest bar is cut.

    Attributes:
        bars: What the bars are.
        typical: Their heights, in the axis's unit like what follows.
        hot: The red part of each.
        low: Lower ends of the whiskers.
        high: Upper ends, cut at the axis's end.
        cut: Which of them are cut.
        end: The axis's upper end.
        line: From which a layer is hot; None where the rule has no such line, or far above all.
        x_label: What the axis below says.
        y_label: What the axis at the left says, with its unit.
        hot_label: The hot layers in words.
        line_label: The line in words; empty without one.
        cut_label: The marks of cut whiskers in words; empty without any.
    """

    bars: Bars
    typical: NDArray[np.float64]
    hot: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    cut: NDArray[np.bool_]
    end: float
    line: float | None
    x_label: str
    y_label: str
    hot_label: str
    line_label: str
    cut_label: str


def layer_chart(summary: Summary, most: int = MOST) -> LayerChart:
    """The bars of a run's layers, or of their blocks; see :func:`.layer_bars`."""
    bars = layer_bars(summary, most)
    unit = duration_unit(float(bars.typical_s.max()))
    scale = in_unit(1.0, unit)
    typical, hot, low, high = (
        times * scale for times in (bars.typical_s, bars.hot_s, bars.low_s, bars.high_s)
    )
    top = float(typical.max()) or 1.0
    limit = min(max(top, float(high.max())), _HEADROOM * top) * _ABOVE
    cut = high > limit
    line_s = summary.hotspots.line_s if bars.kind == "layer" else None
    line = None if line_s is None else line_s * scale
    if line is not None and line > _HEADROOM * limit:
        line = None
    said = f"; {bars.note}" if bars.note else ""
    count = len(summary.hotspots.indices)
    of = f"{format_count(count)} of {format_count(len(summary.layers))}"
    return LayerChart(
        bars,
        typical,
        hot,
        low,
        np.minimum(high, limit),
        cut,
        limit if line is None else max(limit, line * _ABOVE),
        line,
        f"{bars.kind}, in the order of the calls{said}",
        f"{typical_word(summary.recording)} self time{on_gpu(summary)} [{unit}]",
        f"hot: {summary.hotspots.rule} ({of})",
        "" if line is None else f"line of the rule: {format_duration(line_s)}",
        f"cut (up to {format_duration(float(bars.high_s.max()))})" if cut.any() else "",
    )
