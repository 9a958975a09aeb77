"""Summary -> the page's roofline chart, as Bokeh's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import ColumnDataSource, NumeralTickFormatter, Range1d

from chainer_profile.report.charts.roofline import X_LABEL, Y_LABEL, roofline
from chainer_profile.report.page.charts import which_layer
from chainer_profile.report.page.drawing import (
    INK,
    figure,
    hot_or_not,
    hover,
    legend,
    rounded,
    themed,
)

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from chainer_profile.analyse.summary import Summary

#: Sizes of dots in pixels.
_LEAST_DOT, _MOST_DOT = 5.0, 34.0


def roofline_chart(summary: Summary) -> Figure:
    """Operations a second against operations a byte, on log scales, under the machine's roofs.

    Args:
        summary: The summary of a run with the machine's limits and at least one drawable layer.
    """
    found = roofline(summary)
    layers = found.layers
    chart = figure(
        height=440,
        x_range=Range1d(*found.x_range),
        y_range=Range1d(*found.y_range),
        x_axis_type="log",
        y_axis_type="log",
        x_label=X_LABEL,
        y_label=Y_LABEL,
        tools="pan,box_zoom,reset",
    )
    for axis in chart.axis:
        axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    for roof in found.roofs:
        line = chart.line(
            x=roof.x.tolist(),
            y=roof.y.tolist(),
            line_width=1 if roof.dashed else 2,
            line_dash=[6, 4] if roof.dashed else [],
            legend_label=roof.label,
        )
        themed(line.glyph, line_color=INK)
    source = ColumnDataSource(
        {
            "x": rounded(found.x),
            "y": rounded(found.y),
            "size": rounded(np.maximum(np.sqrt(found.area) * _MOST_DOT, _LEAST_DOT)),
            "kind": ["hot" if hot else "other" for hot in layers["hot"]],
            "row": layers.index.tolist(),
        },
        name="layers",
    )
    dots = chart.scatter(
        x="x",
        y="y",
        size="size",
        source=source,
        fill_color=hot_or_not(),
        fill_alpha=0.75,
        legend_label=found.area_label,
    )
    themed(dots.glyph, line_color="--surface")
    tips = [
        *which_layer(summary),
        ("rate", "@gflops GFLOP/s, @gbytes GB/s"),
        ("operations a byte", "@intensity"),
        ("limit reached", "@reached % (limited by: @verdict)"),
        ("median [ms]", "@median"),
    ]
    chart.add_tools(hover(renderers=[dots], tooltips=tips, limit=3))
    chart.legend.location = "bottom_right"
    legend(chart)
    return chart
