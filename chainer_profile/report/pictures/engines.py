"""A run of several engines -> bar plot: the time of a trial, stacked by function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chainer_profile.basics.units import format_duration
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import EnginesRun, main_layer
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.engine_table import row_anchors, speedup_text
from chainer_profile.report.content.engine_texts import how_it_ran, title
from chainer_profile.report.pictures import figures
from chainer_profile.report.text import printable, shorten

REST = "other functions"
PLAIN = "no times of its parts"
#: The time of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
#: The function of nodes that compute none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Parts that are no function, in the order of the legend.
_LAST = (REST, BETWEEN, PLAIN)
#: Functions with a colour at most. One with a smaller fraction of every trial has none.
MAX_FUNCTIONS, _MIN_SHARE = 6, 0.01
_CAPTION = (
    "parts: shares in the trials that timed nodes; a node of several layers counts for its main one"
)
_WIDTH, _BAR_HEIGHT, _MAX_NAME = 9.6, 0.52, 30


@figures.drawing()
def figure(run: EnginesRun, recordings: Mapping[str, Recording]) -> Figure:
    """Two panels: the median trial of every engine, and its parts.

    The parts of a bar are their shares in the trials that timed nodes, scaled to the median of the
    unprofiled trials. The second panel shows the shares alone, because bars of fast engines are
    short. Bars of engines with wrong outputs are hatched.
    """
    parts, engines = shares(run, recordings), run.measured
    medians_s = [engine.statistics.median_s for engine in engines if engine.statistics]
    lengths = np.array(medians_s) * 1e3
    functions = [name for name in parts if name not in _LAST]
    colours = dict(zip(functions, figures.SERIES_COLOURS, strict=False))
    colours |= {REST: figures.OTHER_COLOUR, BETWEEN: figures.BETWEEN_COLOUR, PLAIN: figures.ACCENT}
    columns = 3
    height = 1.75 + _BAR_HEIGHT * max(1, len(engines)) + 0.18 * -(-len(parts.T) // columns)
    fig = figures.blank(_WIDTH, height)
    left, right = fig.subplots(1, 2, width_ratios=(1.55, 1), sharey=True)
    with_parts = 100.0 * (1 - parts.get(PLAIN, np.zeros(len(engines))))
    for ax, scale in ((left, lengths), (right, with_parts)):
        _draw(ax, parts.mul(scale, axis=0), colours, run)
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "parse_math": False}
    for index, (engine, median_s) in enumerate(zip(engines, medians_s, strict=True)):
        factor = speedup_text(engine, run.baseline or engine)
        text = ", ".join(filter(None, (format_duration(median_s), factor)))
        left.annotate(text, (lengths[index], index), (4, 0), fontsize=figures.TEXT - 0.5, **style)
    labels = [shorten(printable(engine.label), _MAX_NAME) for engine in engines]
    left.set_yticks(range(len(engines)), labels, parse_math=False)
    left.set_ylim(len(engines) - 0.4, -0.6)
    left.set_xlim(0, (max(lengths, default=0.0) or 1.0) * 1.34)
    left.set_xlabel("median of the trials [ms]")
    right.set_xlim(0, 100)
    right.set_xlabel("share of the trial [%]")
    for ax in (left, right):
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
    lines = (title(run), how_it_ran(run), _CAPTION)
    figures.set_title(fig, "\n".join(shorten(line, int(_WIDTH * 12.5)) for line in lines))
    entries = [(shorten(name, 40), Patch(facecolor=colours[name])) for name in parts]
    fused = "colours: functions, with what engines fused into them"
    figures.legend_below(fig, entries, columns, fused)
    return fig


def shares(run: EnginesRun, recordings: Mapping[str, Recording]) -> pd.DataFrame:
    """A row for each engine that made trials, a column for each part, in the legend's order.

    Functions beyond the largest :data:`MAX_FUNCTIONS`, and those with less than 1 % of every trial,
    are one part. :data:`PLAIN` is the whole trial of an engine that did not time its nodes.
    """
    chainer = recordings.get(BASELINE)
    shares_of_engines = [
        _function_shares(recordings[engine.name], chainer)
        if engine.name in recordings
        else {PLAIN: 1.0}
        for engine in run.measured
    ]
    frame = pd.DataFrame(shares_of_engines).fillna(0.0)
    functions = frame.drop(columns=list(_LAST), errors="ignore")
    largest_shares = functions.max().sort_values(ascending=False, kind="stable")
    kept = largest_shares.index[largest_shares >= _MIN_SHARE][:MAX_FUNCTIONS]
    frame[REST] = functions.drop(columns=kept).sum(axis=1)
    shown = frame.reindex(columns=[*kept, *_LAST], fill_value=0.0)
    return shown.loc[:, (shown > 0).any()]


def _function_shares(recording: Recording, chainer: Recording | None) -> dict[str, float]:
    """Fractions of the mean trial by function, and between functions; empty if it took no time.

    They add up to 1. A node of several layers counts for its main layer.
    """
    assert recording.trial_ns is not None
    whole_ns = float(recording.trial_ns.mean())
    if not whole_ns:
        return {}
    parts: Counter[str] = Counter()
    names = map(printable, _functions(recording, chainer))
    for name, mean_ns in zip(names, recording.self_ns.mean(axis=0).tolist(), strict=True):
        parts[name] += mean_ns / whole_ns
    return dict(parts) | {BETWEEN: max(0.0, 1 - parts.total())}


def _functions(recording: Recording, chainer: Recording | None) -> Iterator[str]:
    """For each row of a recording, the function of the layer that it counts for."""
    for row in recording.layers:
        if row.covers and chainer is not None:
            yield chainer.layers[main_layer(row.covers, chainer.layers)].function
        elif row.covers:
            yield row.function.partition(" + ")[0]
        else:
            yield OWN_STEPS if recording.settings.engine else row.function


def _draw(ax: Axes, parts: pd.DataFrame, colours: dict[str, str], run: EnginesRun) -> None:
    """Draw stacked bars that link to the engine's row in the table."""
    begins, anchors = parts.cumsum(axis=1) - parts, row_anchors(run)
    style: dict[str, Any] = {"height": 0.66, "linewidth": 0.5, "edgecolor": "white"}
    for name in parts:
        for at in np.flatnonzero(parts[name]):
            bar_style = {"left": begins[name][at], "hatch": "////" * run.measured[at].wrong}
            (bar,) = ax.barh(at, parts[name][at], color=colours[name], **bar_style, **style)
            bar.set_url(f"#{anchors[at]}")
