"""Charts of what goes beyond one run: comparisons with other runs, and other engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import BasicTickFormatter, ColumnDataSource, FixedTicker, Range1d, Span

from chainer_profile.basics.units import format_duration, format_percent
from chainer_profile.comparison.compare import FASTER, SLOWER
from chainer_profile.report.charts.engines import PLAIN, REST
from chainer_profile.report.charts.engines import engines_chart as engines_drawn
from chainer_profile.report.content.comparison import change, row_label
from chainer_profile.report.content.engine_nodes import BETWEEN
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
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Recording

#: Layers of a comparison that have a dot.
MAX_CHANGED = 30
_ROW_HEIGHT, _ENGINE_HEIGHT = 24, 38
#: The axis reaches so many times the longest bar: there is room for the words beside it.
_BESIDE = 1.34
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
    """One bar an engine, its median trial, stacked by function; hatched where outputs are wrong."""
    found = engines_drawn(run, recordings)
    names = [bar.name for bar in found.bars]
    chart = named_rows(
        [shorten(name, _MAX_NAME) for name in names],
        x_label=found.x_label,
        row_height=_ENGINE_HEIGHT,
        x_end=max(found.lengths) * _BESIDE,
    )
    colours = {name: f"--series-{at}" for at, name in enumerate(found.functions)}
    colours |= {REST: OTHER, BETWEEN: "--band-strong", PLAIN: "--accent"}
    left = np.zeros(len(names))
    for part in found.parts:
        shares = np.array([bar.parts.get(part, 0.0) for bar in found.bars])
        right = left + shares * found.lengths
        rows = np.flatnonzero(shares)
        source = ColumnDataSource(
            {
                "y": rows.tolist(),
                "left": rounded(left[rows]),
                "right": rounded(right[rows]),
                "engine": [names[at] for at in rows],
                "time": [format_duration(shares[at] * found.bars[at].median_s) for at in rows],
                "share": [format_percent(share) for share in shares[rows]],
                "hatch": ["/" if found.bars[at].engine.wrong else " " for at in rows],
            }
        )
        stack = chart.hbar(
            y="y",
            left="left",
            right="right",
            height=0.66,
            source=source,
            line_width=1,
            hatch_pattern="hatch",
            legend_label=plain(shorten(printable(part), _MAX_NAME)),
        )
        glyph = {"fill_color": colours[part], "line_color": "--surface", "hatch_color": "--surface"}
        themed(stack.glyph, **glyph)
        tips = [("", "@engine"), (plain(printable(part)), "@time (@share)")]
        chart.add_tools(hover(renderers=[stack], tooltips=tips))
        left = right
    said = ColumnDataSource({"x": rounded(left), "y": list(range(len(names))), "said": found.said})
    words = chart.text(x="x", y="y", text="said", x_offset=6, source=said, text_baseline="middle")
    words.glyph.text_font_size = "12px"
    themed(words.glyph, text_color=INK)
    chart.add_layout(chart.legend[0], "below")
    chart.legend.ncols = 3
    legend(chart)
    chart.height = (chart.height or 0) + 24 * (1 + -(-len(found.parts) // 3))
    return chart
