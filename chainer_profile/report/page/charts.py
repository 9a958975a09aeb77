"""Summary -> the page's charts of a run, as Bokeh's figures.

Nothing in them is JavaScript, so the page needs no leave to evaluate any. Colours are names of the
page's style sheet; see :mod:`.drawing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    BoxAnnotation,
    ColumnDataSource,
    Label,
    Range1d,
    RangeTool,
    Span,
)

from chainer_profile.analyse.grouping import OUTSIDE, group_names
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    duration_unit,
    format_count,
    format_duration,
    format_interval,
    format_percent,
    in_unit,
)
from chainer_profile.report.charts.bars import names_of, regions_of
from chainer_profile.report.charts.layers import layer_chart as layers_drawn
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.page.drawing import (
    INK,
    OTHER,
    figure,
    hot_or_not,
    hover,
    legend,
    name_layers,
    named_rows,
    plain,
    rounded,
    themed,
)
from chainer_profile.report.pictures.figures import ending, shorten
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from bokeh.models import LayoutDOM
    from bokeh.plotting import figure as Figure
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary

#: With more layers than this the chart shows so many at once, and a strip below shows all.
MAX_AT_ONCE = 200
MAX_GROUPS = 30
#: Characters of a name beside a bar.
_MAX_NAME = 34
#: A phase is named in the chart where it has this part of the layers.
_WIDE = 0.08
_HEIGHT, _STRIP_HEIGHT, _ROW_HEIGHT = 340, 80, 26
_MIB = 1024.0 * 1024.0


def layer_chart(summary: Summary) -> LayoutDOM:
    """One bar a layer in the order of the calls, and the strip of all layers where they are many.

    Bars are median self times, hot layers red; whiskers reach from the 5th to the 95th percentile,
    cut where they would need an axis of more than 1.4 times the highest bar.
    """
    layers = summary.layers
    count = len(layers)
    found = layers_drawn(summary, count)
    first, last = _window(summary)
    x_range = Range1d(first - 0.7, last - 0.3, bounds=(-1.5, count + 0.5), min_interval=3)
    chart = figure(
        height=_HEIGHT,
        x_range=x_range,
        y_range=Range1d(0, found.end),
        x_label=found.x_label,
        y_label=found.y_label,
        zooms=True,
    )
    source = ColumnDataSource(
        {
            "x": list(range(count)),
            "median": rounded(found.typical),
            "low": rounded(found.low),
            "high": rounded(found.high),
            "kind": ["hot" if hot else "other" for hot in layers["hot"]],
        },
        name="layers",
    )
    _draw_phases(chart, summary)
    colours = hot_or_not()
    bars = chart.vbar(
        x="x",
        top="median",
        width=0.8,
        source=source,
        fill_color=colours,
        line_color=colours,
        line_width=0.5,
    )
    whiskers = chart.segment(x0="x", x1="x", y0="low", y1="high", source=source)
    # A layer that is chosen does not dim the others.
    bars.nonselection_glyph = whiskers.nonselection_glyph = None
    themed(whiskers.glyph, line_color=INK)
    if found.cut.any():
        marks = chart.scatter(
            x=np.flatnonzero(found.cut).tolist(),
            y=rounded(found.high[found.cut] * 0.985),
            marker="triangle",
            size=7,
        )
        themed(marks.glyph, fill_color=INK, line_color=INK)
    if found.line is not None:
        line = Span(location=found.line, dimension="width", line_dash=[6, 4])
        chart.add_layout(themed(line, line_color="--hot"))
    tips = which_layer(summary)
    tips.append(("median [ms]", "@median_text (@share %)"))
    if layers["ci_low_s"].notna().any():
        tips.append(("95 % interval [ms]", "@interval"))
    tips += [("mean [ms]", "@mean"), ("5th to 95th pct. [ms]", "@p5 to @p95")]
    tips.append(("output", "@output_shapes"))
    chart.add_tools(
        hover(renderers=[bars], tooltips=tips, mode="vline", limit=1, attachment="horizontal")
    )
    name_layers(chart, [ending(name, 26) for name in found.bars.names])
    if count <= MAX_AT_ONCE:
        return chart
    strip = _strip(chart, source, x_range, found.end, count)
    return column(chart, strip, sizing_mode="stretch_width")


def which_layer(summary: Summary) -> list[tuple[str, str]]:
    """What a tooltip says first; the page's script fills its columns from the table of layers."""
    phase = [("phase", "@phase")] if len(phases_of(summary)) > 1 else []
    return [("layer", "@index @function"), ("at", "@path"), *phase]


def _window(summary: Summary) -> tuple[int, int]:
    """The layers to show at first: all, or those around the hottest."""
    count = len(summary.layers)
    if count <= MAX_AT_ONCE:
        return 0, count
    first = int(summary.layers["typical_s"].to_numpy().argmax()) - MAX_AT_ONCE // 2
    first = min(max(0, first), count - MAX_AT_ONCE)
    return first, first + MAX_AT_ONCE


def _strip(
    chart: Figure, source: ColumnDataSource, x_range: Range1d, limit: float, count: int
) -> Figure:
    strip = figure(
        height=_STRIP_HEIGHT,
        x_range=Range1d(-1, count),
        y_range=Range1d(0, limit),
        x_label="",
        y_label="",
        tools="",
    )
    colours = hot_or_not()
    bars = strip.vbar(
        x="x",
        top="median",
        width=0.8,
        source=source,
        fill_color=colours,
        line_color=colours,
    )
    bars.nonselection_glyph = None
    strip.yaxis.visible = False
    strip.ygrid.visible = False
    tool = RangeTool(x_range=x_range)
    themed(tool.overlay, fill_color="--accent", line_color="--accent")
    tool.overlay.fill_alpha = 0.18
    strip.add_tools(tool)
    strip.toolbar_location = None
    strip.min_border_left = chart.min_border_left
    return strip


def _draw_phases(chart: Figure, summary: Summary) -> None:
    """Every second phase on a band, and the names of those that are wide enough."""
    regions = regions_of(summary.layers["phase"])
    if len(phases_of(summary)) == 1:
        return
    for place, (phase, start, end) in enumerate(regions):
        if place % 2:
            band = BoxAnnotation(
                left=start - 0.5, right=end - 0.5, fill_alpha=1, line_alpha=0, level="image"
            )
            chart.add_layout(themed(band, fill_color="--band"))
        if end - start >= _WIDE * min(len(summary.layers), MAX_AT_ONCE):
            name = Label(
                x=start - 0.5,
                y=chart.y_range.end,
                x_offset=6,
                y_offset=-4,
                text=plain(printable(phase)),
                name=f"phase {start} {end}",
                text_font_size="12px",
                text_baseline="top",
            )
            chart.add_layout(themed(name, text_color="--muted"))


def group_chart(summary: Summary, by: str) -> Figure:
    """One bar a function, block or phase: the time of its hot layers in red, and of the others.

    Whiskers reach from the 5th to the 95th percentile of its time over the trials. A phase has its
    framework time beside.
    """
    layers = summary.layers
    frameworks: dict[str, float] = {}
    if by == "phase":
        table = summary.phases[summary.phases.index != OUTSIDE]
        names = [str(name) for name in table.index]
        groups = layers["phase"].astype(str)
        frameworks = {str(k): float(v) for k, v in table["framework_s"].fillna(0.0).items()}
    else:
        by_layer = group_names(summary.recording.layers, by)
        groups = pd.Series(by_layer, index=layers.index, dtype=object)
        totals = layers["mean_s"].groupby(groups, sort=False).sum()
        names = [str(n) for n in totals.sort_values(ascending=False, kind="stable").index]
    shown = names if len(names) <= MAX_GROUPS else names[: MAX_GROUPS - 1]
    rows = [(name, np.flatnonzero(groups == name)) for name in shown]
    if len(shown) < len(names):
        rest = np.flatnonzero(~groups.isin(shown))
        rows.append((f"{format_count(len(names) - len(shown))} others", rest))
    return _group_bars(summary, rows, frameworks)


def _group_bars(
    summary: Summary, rows: list[tuple[str, NDArray[np.intp]]], frameworks: dict[str, float]
) -> Figure:
    """One row a group: its name and the indices of its layers."""
    layers = summary.layers
    mean_s, is_hot = layers["mean_s"].to_numpy(), layers["hot"].to_numpy(bool)
    hot = np.array([mean_s[at[is_hot[at]]].sum() for _, at in rows])
    whole = np.array([mean_s[at].sum() for _, at in rows])
    between = np.array([frameworks.get(name, 0.0) for name, _ in rows])
    ends = np.array([_ends_s(summary, at) for _, at in rows]).T
    unit = duration_unit(float((whole + between).max()))
    scale = in_unit(1.0, unit)
    names = [printable(name) or "(no name)" for name, _ in rows]
    all_s = float(mean_s.sum())
    source = ColumnDataSource(
        {
            "y": list(range(len(rows))),
            "zero": [0.0] * len(rows),
            "hot": rounded(hot * scale),
            "whole": rounded(whole * scale),
            "with": rounded((whole + between) * scale),
            "low": rounded(ends[0] * scale),
            "high": rounded(ends[1] * scale),
            "name": names,
            "time": [format_duration(float(value)) for value in whole],
            "ends": [format_interval(float(low), float(high)) for low, high in ends.T],
            "share": [format_percent(float(value) / all_s if all_s else None) for value in whole],
            "layers": [format_count(len(at)) for _, at in rows],
            "hot_layers": [format_count(int(is_hot[at].sum())) for _, at in rows],
            "between": [format_duration(float(value)) for value in between],
        }
    )
    chart = named_rows(
        [shorten(name, _MAX_NAME) for name in names],
        x_label=f"mean time in a trial{on_gpu(summary)} [{unit}]",
        row_height=_ROW_HEIGHT,
        x_end=float(max((whole + between).max(), ends[1].max()) * scale) * 1.04,
    )
    tips = [
        ("", "@name"),
        ("mean", "@time (@share)"),
        ("5th to 95th pct.", "@ends"),
        ("layers", "@layers (@hot_layers hot)"),
    ]
    parts = [("zero", "hot", "--hot"), ("hot", "whole", OTHER)]
    if between.any():
        parts.append(("whole", "with", "--band-strong"))
        tips.append(("framework", "@between"))
    bars = []
    for left, right, colour in parts:
        bar = chart.hbar(y="y", left=left, right=right, height=0.7, source=source, line_width=0)
        themed(bar.glyph, fill_color=colour, line_color=colour)
        bars.append(bar)
    whiskers = chart.segment(x0="low", x1="high", y0="y", y1="y", source=source, line_width=1.5)
    themed(whiskers.glyph, line_color=INK)
    chart.add_tools(
        hover(renderers=bars, tooltips=tips, mode="hline", limit=1, attachment="vertical")
    )
    return chart


def _ends_s(summary: Summary, at: NDArray[np.intp]) -> tuple[float, float]:
    """5th and 95th percentile of the sum of some layers, in seconds."""
    if not len(at):
        return 0.0, 0.0
    sums = summary.recording.self_ns[:, at].sum(axis=1)
    low, high = np.quantile(sums, (0.05, 0.95))
    return float(low) * NS, float(high) * NS


def distribution_charts() -> tuple[Figure, Figure]:
    """Histogram and course over the trials, empty: the page's script fills them."""
    # Ranges of their own, which the script sets with the data.
    histogram = figure(
        height=260,
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 1),
        x_label="self time",
        y_label="trials",
        tools="",
    )
    histogram.yaxis[0].ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    source = ColumnDataSource({"left": [], "right": [], "count": []}, name="histogram")
    bars = histogram.quad(
        left="left", right="right", bottom=0, top="count", source=source, line_width=1
    )
    themed(bars.glyph, fill_color="--accent", line_color="--surface")
    course = figure(
        height=260,
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 1),
        x_label="trial",
        y_label="self time",
        tools="",
    )
    source = ColumnDataSource({"trial": [], "low": [], "median": [], "high": []}, name="course")
    area = course.varea(x="trial", y1="low", y2="high", source=source, fill_alpha=0.25)
    themed(area.glyph, fill_color="--accent")
    line = course.line(x="trial", y="median", source=source, line_width=2)
    themed(line.glyph, line_color="--accent")
    dots = course.scatter(x="trial", y="median", source=source, size=4)
    themed(dots.glyph, fill_color="--accent", line_color="--accent")
    return histogram, course


def memory_chart(summary: Summary) -> Figure:
    """What every layer allocates at its peak and leaves allocated, in the order of the calls.

    The most that is allocated in every phase beyond what was there at the trial's begin is a line
    over its layers. What is freed between the layers is known for whole phases only, so there is
    no running total.

    Args:
        summary: The summary of a run with a memory pass.
    """
    use = summary.recording.memory
    assert use is not None
    layers = summary.layers
    count = len(layers)
    peak = np.array(use.peak_nbytes, float) / _MIB
    left = np.array(use.retained_nbytes, float) / _MIB
    levels = [phase.high_nbytes / _MIB for phase in use.phases]
    top = max([float(peak.max()), float(left.max()), *levels, use.high_water_nbytes / _MIB])
    bottom = min(0.0, float(left.min()), *levels) if levels else min(0.0, float(left.min()))
    chart = figure(
        height=300,
        x_range=Range1d(-0.7, count - 0.3, bounds=(-1.5, count + 0.5), min_interval=3),
        y_range=Range1d(bottom * 1.05, (top or 1.0) * 1.15),
        x_label="layer, in the order of the calls",
        y_label="allocated [MiB]",
        zooms=True,
    )
    source = ColumnDataSource(
        {
            "x": list(range(count)),
            "peak": rounded(peak),
            "left": rounded(left),
        },
        name="layers",
    )
    _draw_phases(chart, summary)
    bars = chart.vbar(
        x="x", top="peak", width=0.8, source=source, line_width=0, legend_label="peak in the layer"
    )
    themed(bars.glyph, fill_color=OTHER)
    steps = chart.step(
        x="x", y="left", source=source, mode="center", line_width=1.5, legend_label="left allocated"
    )
    themed(steps.glyph, line_color="--accent")
    lines = _phase_spans(summary)
    if lines:
        high = chart.segment(
            x0=[start - 0.5 for _, start, _ in lines],
            x1=[end - 0.5 for _, _, end in lines],
            y0=[value for value, _, _ in lines],
            y1=[value for value, _, _ in lines],
            line_width=2,
            line_dash="dashed",
            legend_label="high water of the phase",
        )
        themed(high.glyph, line_color=INK)
    tips = [*which_layer(summary), ("peak", "@peak_text"), ("left allocated", "@retained")]
    chart.add_tools(hover(renderers=[bars], tooltips=tips, mode="vline", limit=1))
    name_layers(chart, [ending(name, 26) for name in names_of(summary)])
    chart.add_layout(chart.legend[0], "above")
    chart.legend.orientation = "horizontal"
    chart.legend.location = "left"
    legend(chart)
    return chart


def _phase_spans(summary: Summary) -> list[tuple[float, int, int]]:
    """High water of every phase in MiB, and its first layer and the one behind its last."""
    use = summary.recording.memory
    assert use is not None
    spans = []
    for phase in use.phases:
        at = np.flatnonzero(summary.layers["phase"] == phase.phase)
        if len(at):
            spans.append((phase.high_nbytes / _MIB, int(at[0]), int(at[-1]) + 1))
    return spans
