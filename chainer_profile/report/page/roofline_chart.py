"""Summary -> the page's roofline chart, as Bokeh's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import ColumnDataSource, NumeralTickFormatter, Range1d

from chainer_profile.analyse.roofline import drawable
from chainer_profile.basics.units import (
    format_duration,
    format_flops_rate,
    format_intensity,
    format_nbytes_rate,
    format_percent,
)
from chainer_profile.report.page.drawing import (
    INK,
    figure,
    hot_or_not,
    hover,
    legend,
    rounded,
    themed,
)
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from chainer_profile.analyse.summary import Summary

#: Sizes of dots in pixels.
_LEAST_DOT, _MOST_DOT = 5.0, 34.0
#: The axes reach so many times beyond the outermost dots and the ridge.
_MARGIN = 2.5


def roofline_chart(summary: Summary) -> Figure:
    """Operations a second against operations a byte, on log scales, under the machine's roofs.

    Args:
        summary: The summary of a run with the machine's limits and at least one drawable layer.
    """
    limits = summary.recording.limits
    assert limits is not None
    layers = drawable(summary.layers).sort_values(["hot", "median_s"], ascending=[True, False])
    x, y = layers["intensity"].to_numpy(float), layers["flops_per_s"].to_numpy(float)
    left, right = min(x.min(), limits.ridge) / _MARGIN, max(x.max(), limits.ridge) * _MARGIN
    giga = 1e-9
    bottom, top = y.min() / _MARGIN, max(limits.flops_per_s, y.max()) * _MARGIN
    chart = figure(
        height=440,
        x_range=Range1d(left, right),
        y_range=Range1d(bottom * giga, top * giga),
        x_axis_type="log",
        y_axis_type="log",
        x_label="operations a byte",
        y_label="billions of operations a second (GFLOP/s)",
        tools="pan,box_zoom,reset",
    )
    for axis in chart.axis:
        axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    at = np.array([left, limits.ridge, right])
    roof = np.minimum(at * limits.copy_nbytes_per_s, limits.flops_per_s) * giga
    line = chart.line(x=at.tolist(), y=roof.tolist(), line_width=2, legend_label="limit")
    themed(line.glyph, line_color=INK)
    if limits.fresh_nbytes_per_s:
        fresh = np.array([left, limits.flops_per_s / limits.fresh_nbytes_per_s])
        line = chart.line(
            x=fresh.tolist(),
            y=(fresh * limits.fresh_nbytes_per_s * giga).tolist(),
            line_dash=[6, 4],
            legend_label="memory limit into new memory",
        )
        themed(line.glyph, line_color=INK)
    areas = layers["median_s"].to_numpy() / float(layers["median_s"].max() or 1.0)
    source = ColumnDataSource(
        {
            "x": rounded(x),
            "y": rounded(y * giga),
            "size": rounded(np.maximum(np.sqrt(areas) * _MOST_DOT, _LEAST_DOT)),
            "kind": ["hot" if hot else "other" for hot in layers["hot"]],
            "layer": [printable(label) for label in layers["label"]],
            "path": [printable(path) for path in layers["path"]],
            "rate": [format_flops_rate(value) for value in y],
            "intensity": [format_intensity(value) for value in x],
            "moved": [format_nbytes_rate(value) for value in layers["nbytes_per_s"]],
            "reached": [format_percent(value) for value in layers["reached"].astype(float)],
            "limited": layers["limited_by"].tolist(),
            "time": [format_duration(value) for value in layers["median_s"]],
        }
    )
    dots = chart.scatter(
        x="x", y="y", size="size", source=source, fill_color=hot_or_not(), fill_alpha=0.75
    )
    themed(dots.glyph, line_color="--surface")
    tips = [
        ("layer", "@layer"),
        ("at", "@path"),
        ("rate", "@rate, @moved"),
        ("intensity", "@intensity"),
        ("limit reached", "@reached (limited by: @limited)"),
        ("median", "@time"),
    ]
    chart.add_tools(hover(renderers=[dots], tooltips=tips, limit=3))
    chart.legend.location = "bottom_right"
    legend(chart)
    return chart
