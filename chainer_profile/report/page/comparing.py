"""Charts of what goes beyond one run: comparisons with other runs, and other engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import BasicTickFormatter, ColumnDataSource, FixedTicker, Range1d, Span

from chainer_profile.basics.units import duration_unit, format_duration, in_unit
from chainer_profile.comparison.compare import FASTER, SLOWER
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.report.content.comparison import change, row_label
from chainer_profile.report.content.engine_nodes import function_shares
from chainer_profile.report.content.engines import factor_text
from chainer_profile.report.page.drawing import (
    INK,
    OTHER,
    by_kind,
    hover,
    legend,
    named_rows,
    plain,
    rounded,
    themed,
)
from chainer_profile.report.pictures.figures import shorten
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bokeh.plotting import figure as Figure

    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording

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


def engines_chart(run: EnginesRun, recordings: Mapping[str, Recording]) -> Figure:
    """One bar an engine: its median trial, and below it its functions where they are known."""
    engines = run.measured
    medians = [_median_s(engine) for engine in engines]
    parts = [_by_function(engine, recordings) for engine in engines]
    order: dict[str, float] = {}
    for found in parts:
        for function, seconds in found.items():
            order[function] = max(order.get(function, 0.0), seconds)
    functions = sorted(order, key=lambda name: -order[name])
    unit = duration_unit(max([*medians, *(sum(found.values()) for found in parts)]))
    scale = in_unit(1.0, unit)
    names = [printable(" ".join(filter(None, (e.name, e.precision)))) for e in engines]
    chart = named_rows(
        [shorten(name, _MAX_NAME) for name in names],
        x_label=f"median time of a trial, and by function below it [{unit}]"
        if functions
        else f"median time of a trial [{unit}]",
        row_height=_ENGINE_HEIGHT,
        x_end=max(medians) * scale * 1.04,
    )
    baseline = run.baseline
    trials = ColumnDataSource(
        {
            "y": [at - 0.2 if functions else at for at in range(len(names))],
            "time": rounded(np.array(medians) * scale),
            "name": names,
            "median": [format_duration(median) for median in medians],
            "speed": [factor_text(e, baseline) if baseline else "" for e in engines],
        }
    )
    height = 0.34 if functions else 0.6
    bars = chart.hbar(y="y", right="time", height=height, source=trials, line_width=0)
    themed(bars.glyph, fill_color="--accent", line_color="--accent")
    tips = [("", "@name"), ("median trial", "@median"), ("speed", "@speed")]
    chart.add_tools(hover(renderers=[bars], tooltips=tips))
    if functions:
        named, others = functions[:MAX_FUNCTIONS], functions[MAX_FUNCTIONS:]
        left = np.zeros(len(engines))
        for at, name in enumerate([*named, *(["others"] if others else [])]):
            which = [name] if at < len(named) else others
            times = np.array([sum(found.get(one, 0.0) for one in which) for found in parts])
            right = left + times * scale
            source = ColumnDataSource(
                {
                    "y": [row + 0.2 for row in range(len(engines))],
                    "left": rounded(left),
                    "right": rounded(right),
                    "engine": names,
                    "time": [format_duration(time) for time in times],
                }
            )
            stack = chart.hbar(
                y="y",
                left="left",
                right="right",
                height=height,
                source=source,
                line_width=1,
                legend_label=plain(shorten(printable(name), _MAX_NAME)),
            )
            colour = f"--series-{at}" if at < len(named) else OTHER
            themed(stack.glyph, fill_color=colour, line_color="--surface")
            tips = [("", "@engine"), ("function", plain(printable(name))), ("time", "@time")]
            chart.add_tools(hover(renderers=[stack], tooltips=tips))
            left = right
        chart.add_layout(chart.legend[0], "below")
        chart.legend.ncols = 3
        legend(chart)
        chart.height = (chart.height or 0) + 24 * (2 + len(named) // 3)
    return chart


def _median_s(engine: EngineResult) -> float:
    assert engine.statistics is not None
    return engine.statistics.median_s


def _by_function(engine: EngineResult, recordings: Mapping[str, Recording]) -> dict[str, float]:
    """Seconds of a trial by function, to the scale of the trials that timed nothing else."""
    recording = recordings.get(engine.name)
    if recording is None:
        return {}
    shares = function_shares(recording, recordings.get(BASELINE))
    return {name: share * _median_s(engine) for name, share in shares.items() if share}
