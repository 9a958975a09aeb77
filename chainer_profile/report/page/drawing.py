"""What the page's charts have in common: their look, colours by name, and how they become JSON."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from bokeh.embed import json_item
from bokeh.models import (
    BoxZoomTool,
    CategoricalColorMapper,
    FixedTicker,
    HoverTool,
    Model,
    PanTool,
    Range1d,
    ResetTool,
    TapTool,
    WheelZoomTool,
)
from bokeh.plotting import figure as bokeh_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.plotting import figure as Figure
    from numpy.typing import NDArray

M = TypeVar("M", bound=Model)

#: Names of colours in the page's style sheet.
INK, GRID, OTHER = "--ink", "--grid", "--other"
_FONT = "system-ui, sans-serif"


def themed(model: M, **colours: str) -> M:
    """Note a model's colours by their names in the style sheet.

    The page's script gives the models these colours, and others with another theme.

    Args:
        model: A model of Bokeh.
        **colours: Names by property; several of them, for a palette, are parted by commas.
    """
    model.tags = [*model.tags, *(f"{name}={colour}" for name, colour in colours.items())]
    return model


def by_kind(colours: dict[str, str]) -> dict[str, Any]:
    """The colour of a bar by the column ``kind``: names of colours by its values."""
    mapper = CategoricalColorMapper(factors=list(colours), palette=["#000000"] * len(colours))
    return {"field": "kind", "transform": themed(mapper, palette=",".join(colours.values()))}


def hot_or_not() -> dict[str, Any]:
    """The colour of a bar by the column ``kind``, which is ``hot`` or ``other``."""
    return by_kind({"hot": "--hot", "other": OTHER})


def rounded(values: NDArray[np.float64]) -> list[float]:
    """Numbers with as many digits as a picture can show."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def figure(*, x_label: str, y_label: str, zooms: bool = False, **options: Any) -> Figure:
    """An empty chart in the page's style.

    Args:
        x_label: What the axis below says.
        y_label: What the axis at the left says.
        zooms: Whether it can be moved and zoomed along its layers, and a layer be chosen.
        **options: Options of Bokeh's figure.
    """
    tools: list[Any] = []
    if zooms:
        pan = PanTool(dimensions="width")
        # Without a key, scrolling the page would zoom each chart on the way.
        wheel = WheelZoomTool(dimensions="width", modifiers="ctrl")
        tools = [pan, wheel, BoxZoomTool(dimensions="width"), ResetTool()]
        tools.append(TapTool(visible=False))
    chart = bokeh_figure(
        **{"sizing_mode": "stretch_width", "tools": tools, "min_border_left": 66} | options
    )
    if zooms:
        chart.toolbar.active_drag = pan
        chart.toolbar.active_scroll = wheel
    chart.toolbar.logo = None
    chart.toolbar.autohide = False
    if not chart.toolbar.tools:
        chart.toolbar_location = None
    chart.background_fill_color = None
    chart.border_fill_color = None
    themed(chart, border_fill_color="--surface")
    chart.outline_line_color = None
    for axis, label in ((chart.xaxis[0], x_label), (chart.yaxis[0], y_label)):
        axis.axis_label = label or None
        axis.axis_label_text_font = axis.major_label_text_font = _FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
        themed(
            axis,
            axis_label_text_color=INK,
            major_label_text_color=INK,
            axis_line_color="--muted",
            major_tick_line_color="--muted",
        )
    chart.xgrid.grid_line_color = None
    themed(chart.ygrid[0], grid_line_color=GRID)
    return chart


def plain(name: str) -> str:
    """A name that Bokeh shows as it is, and does not take for a formula in TeX."""
    # A space of no width parts the marks that a formula begins and ends with.
    return re.sub(r"(?<=\$)(?=\$)|(?<=\\)(?=[()\[\]])", "\u200b", name)


def name_layers(chart: Figure, labels: Sequence[str]) -> None:
    """Name the layers below a chart, upright; the page's script says which there is room for.

    The chart's source has the name ``layers``; its bars are the column ``median`` or ``peak``.
    """
    axis = chart.xaxis[0]
    axis.name = "names"
    axis.ticker = FixedTicker(ticks=[])
    axis.major_label_overrides = dict(enumerate(map(plain, labels)))
    axis.major_label_orientation = math.pi / 2
    axis.major_label_text_font_size = "11px"
    # The bars keep their height however long the names are.
    chart.height = (chart.height or 0) + round(6.3 * max(map(len, labels)))


def named_rows(
    names: Sequence[str], *, x_label: str, row_height: int, x_end: float, **options: Any
) -> Figure:
    """An empty chart of horizontal bars, the first one above."""
    chart = figure(
        height=70 + row_height * len(names),
        x_range=Range1d(0, x_end or 1.0),
        y_range=Range1d(len(names) - 0.4, -0.6),
        x_label=x_label,
        y_label="",
        tools="",
        **options,
    )
    axis = chart.yaxis[0]
    axis.ticker = FixedTicker(ticks=list(range(len(names))))
    axis.major_label_overrides = dict(enumerate(map(plain, names)))
    axis.major_tick_line_color = None
    axis.tags = [tag for tag in axis.tags if not str(tag).startswith("major_tick")]
    chart.ygrid.visible = False
    chart.xgrid.grid_line_color = "#cccccc"
    themed(chart.xgrid[0], grid_line_color=GRID)
    return chart


def hover(**options: Any) -> HoverTool:
    """A tool that shows figures beside the pointer; it has no button."""
    return HoverTool(visible=False, **options)


def legend(chart: Figure) -> None:
    """Show the chart's legend in the page's style."""
    for found in chart.legend:
        found.background_fill_alpha = found.border_line_alpha = 0.0
        found.label_text_font = _FONT
        found.label_text_font_size = "12px"
        themed(found, label_text_color=INK)


def as_json(chart: Model, name: str) -> dict[str, Any]:
    """A chart for BokehJS; the same chart gives the same JSON.

    Bokeh numbers the models of a process; here they are numbered anew.

    Args:
        chart: The chart.
        name: A name that no other chart of the page has.
    """
    item: dict[str, Any] = dict(json_item(chart))
    numbers: dict[str, str] = {}

    def renumber(value: Any) -> Any:
        if isinstance(value, dict):
            # Data stand in lists: a key of this name is always Bokeh's.
            return {
                key: numbers.setdefault(part, f"{name}-{len(numbers)}")
                if key in ("id", "root_id") and isinstance(part, str)
                else renumber(part)
                for key, part in value.items()
            }
        return [renumber(part) for part in value] if isinstance(value, list) else value

    found: dict[str, Any] = renumber(item)
    return found
