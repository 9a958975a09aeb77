"""Charts of what goes beyond one run: comparisons with other runs, and other engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import BasicTickFormatter, ColumnDataSource, FixedTicker, Range1d, Span

from chainer_profile.basics.units import duration_unit, format_duration, in_unit
from chainer_profile.comparison.compare import FASTER, SLOWER
from chainer_profile.report.content.comparison_text import change, row_label
from chainer_profile.report.page.drawing import (
    INK,
    OTHER,
    by_kind,
    hover,
    named_rows,
    rounded,
    themed,
)
from chainer_profile.report.pictures.figures import shorten
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.report.page.engines import Engines

#: Layers of a comparison, and functions of an engine, that have a bar.
MAX_CHANGED, MAX_FUNCTIONS = 30, 7
_ROW_HEIGHT, _ENGINE_HEIGHT = 24, 44
_MAX_NAME = 40
_COLOURS = {SLOWER: "--hot", FASTER: "--faster"}


def comparison_chart(comparison: Comparison) -> Figure | None:
    """Time after over time before, with its interval, of the layers that changed the most.

    Those are the ones whose times differ most. None where no layer changed.
    """
    changed = comparison.changed
    if changed.empty:
        return None
    apart = (changed["after_s"] - changed["before_s"]).abs()
    order = apart.sort_values(ascending=False, kind="stable").index[:MAX_CHANGED]
    shown = changed.loc[order]
    shown = shown[np.isfinite(shown["ratio"]) & (shown["ratio"] > 0)]
    if shown.empty:
        return None
    names = [f"{row_label(row)} at {printable(row.path)}" for row in shown.itertuples()]
    ratio = shown["ratio"].to_numpy(float)
    low = shown["low"].fillna(shown["ratio"]).to_numpy(float)
    high = shown["high"].fillna(shown["ratio"]).to_numpy(float)
    source = ColumnDataSource(
        {
            "y": list(range(len(shown))),
            "ratio": rounded(ratio),
            "low": rounded(low),
            "high": rounded(high),
            "kind": shown["verdict"].tolist(),
            "name": names,
            "before": [format_duration(value) for value in shown["before_s"]],
            "after": [format_duration(value) for value in shown["after_s"]],
            "change": [change(row.ratio, row.verdict) for row in shown.itertuples()],
        }
    )
    least, most = min(1.0, float(low.min())), max(1.0, float(high.max()))
    logarithmic = most > 3 * least
    chart = named_rows(
        [shorten(name, _MAX_NAME) for name in names],
        x_label="time after over time before (left of 1 is faster)",
        row_height=_ROW_HEIGHT,
        x_end=most * 1.05,
        x_axis_type="log" if logarithmic else "linear",
    )
    chart.x_range = Range1d(least / 1.05, most * 1.05)
    if logarithmic:
        chart.xaxis.ticker = FixedTicker(ticks=_factors(least, most))
        chart.xaxis.formatter = BasicTickFormatter()
    one = Span(location=1, dimension="height")
    chart.add_layout(themed(one, line_color=INK))
    colours = by_kind({verdict: _COLOURS[verdict] for verdict in (SLOWER, FASTER)})
    chart.segment(
        x0="low", x1="high", y0="y", y1="y", source=source, line_width=2, line_color=colours
    )
    dots = chart.scatter(
        x="ratio", y="y", size=10, source=source, fill_color=colours, line_color=colours
    )
    tips = [("", "@name"), ("before", "@before"), ("after", "@after"), ("", "@change")]
    chart.add_tools(hover(renderers=[dots], tooltips=tips, mode="hline", attachment="vertical"))
    return chart


def _factors(least: float, most: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two numbers."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    found = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    return [number for number in found if least <= number <= most]


def by_time(engines: Engines) -> list[str]:
    """The functions that engines name, those first that take an engine the most time.

    The first :data:`MAX_FUNCTIONS` have colours of their own.
    """
    order: dict[str, float] = {}
    for row in engines.rows:
        for function, seconds in row.by_function:
            order[function] = max(order.get(function, 0.0), seconds)
    return sorted(order, key=lambda name: -order[name])


def engines_chart(engines: Engines) -> Figure:
    """One bar an engine: its median trial, and below it its layers by function where known."""
    functions = by_time(engines)
    named, others = functions[:MAX_FUNCTIONS], functions[MAX_FUNCTIONS:]
    most = max(max(row.median_s, sum(s for _, s in row.by_function)) for row in engines.rows)
    unit = duration_unit(most)
    scale = in_unit(1.0, unit)
    names = [" ".join(filter(None, (row.name, row.precision))) for row in engines.rows]
    chart = named_rows(
        [shorten(printable(name), _MAX_NAME) for name in names],
        x_label=f"median time of a trial, and by function below it [{unit}]"
        if functions
        else f"median time of a trial [{unit}]",
        row_height=_ENGINE_HEIGHT,
        x_end=most * scale * 1.04,
    )
    trials = ColumnDataSource(
        {
            "y": [at - 0.2 if functions else at for at in range(len(names))],
            "time": rounded(np.array([row.median_s * scale for row in engines.rows])),
            "name": [printable(name) for name in names],
            "median": [format_duration(row.median_s) for row in engines.rows],
            "speed": [printable(row.speedup) for row in engines.rows],
        }
    )
    height = 0.34 if functions else 0.6
    bars = chart.hbar(y="y", right="time", height=height, source=trials, line_width=0)
    themed(bars.glyph, fill_color="--accent", line_color="--accent")
    tips = [("", "@name"), ("median trial", "@median"), ("speed", "@speed")]
    chart.add_tools(hover(renderers=[bars], tooltips=tips))
    if functions:
        parts = _stacks(engines, named, others, scale)
        stacks = chart.hbar(
            y="y", left="left", right="right", height=height, source=parts, line_width=1
        )
        colours = {str(at): f"--series-{at}" for at in range(MAX_FUNCTIONS)} | {"rest": OTHER}
        stacks.glyph.fill_color = by_kind(colours)
        themed(stacks.glyph, line_color="--surface")
        tips = [("", "@engine"), ("function", "@function"), ("time", "@time")]
        chart.add_tools(hover(renderers=[stacks], tooltips=tips))
    return chart


def _stacks(
    engines: Engines, named: list[str], others: list[str], scale: float
) -> ColumnDataSource:
    """A piece of a bar for each function of each engine."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("y", "left", "right", "kind", "engine", "function", "time")
    }
    for at, row in enumerate(engines.rows):
        times = dict(row.by_function)
        pieces = [(str(place), name, times.get(name, 0.0)) for place, name in enumerate(named)]
        pieces.append(("rest", "others", sum(times.get(name, 0.0) for name in others)))
        left = 0.0
        for kind, function, seconds in pieces:
            if not seconds:
                continue
            right = left + seconds * scale
            values = (
                at + 0.2,
                float(f"{left:.6g}"),
                float(f"{right:.6g}"),
                kind,
                printable(row.name),
                printable(function),
                format_duration(seconds),
            )
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
            left = right
    return ColumnDataSource(columns)
