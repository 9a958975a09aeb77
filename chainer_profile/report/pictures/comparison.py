"""Comparison -> bar plot with two bars per layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chainer_profile.basics.units import format_count
from chainer_profile.comparison.compare import Comparison
from chainer_profile.comparison.fused import short_name
from chainer_profile.comparison.significance import FASTER, SLOWER
from chainer_profile.report.content.comparison_words import change_text, fusion_line, verdict
from chainer_profile.report.pictures import bars, figures
from chainer_profile.report.text import printable, shorten

#: Layers drawn at most.
MAX_LAYERS = 80
_COLOURS = {SLOWER: figures.HOT_COLOUR, FASTER: figures.FASTER_COLOUR}
_MIN_WIDTH, _LAYER_WIDTH, _HEIGHT = 8.0, 0.19, 6.0
_BAR = 0.4
_MIN_FONT, _MAX_FONT = 5.0, 8.0
_MAX_LABEL = 40
#: Characters of the title per inch.
_CHARS = 12.0
#: Top of the axis divided by the highest bar, and by the highest bar with a factor above it.
_HEADROOM, _MARKED_HEADROOM = 1.04, 1.5
#: Points from a bar to the factor above it.
_ABOVE = 3


def pictures(comparisons: Sequence[Comparison]) -> dict[str, figures.Picture]:
    """The picture of each comparison, by its name in a page, with which its rows' anchors begin."""
    return {
        f"comparison{index}": figures.Picture(partial(figure, comparison, f"comparison{index}"))
        for index, comparison in enumerate(comparisons)
    }


@figures.drawing()
def figure(comparison: Comparison, anchor: str = "") -> Figure:
    """Draw each layer's median (or mean) before and after, in the order of the calls.

    Slower layers are red, faster ones blue, with the factor above. Shows at most
    :data:`MAX_LAYERS`: first the layers that changed most, then the slowest ones. The bars link to
    anchors that begin with ``anchor``.
    """
    layers = _layers_to_draw(comparison)
    count = len(layers)
    width = max(_MIN_WIDTH, bars.SIDES + _LAYER_WIDTH * count)
    fig, ax, points, size = bars.axes_for(count, width, _HEIGHT)
    highest_s = layers[["before_s", "after_s"]].max(axis=1)
    marked_s = highest_s[layers["verdict"].isin(list(_COLOURS))]
    font = float(np.clip(points / bars.LINE_HEIGHT, _MIN_FONT, _MAX_FONT))
    _draw_bars(ax, layers)
    _write_factors(ax, layers, font)
    names = {at: shorten(_name(row), _MAX_LABEL) for at, row in enumerate(layers.itertuples())}
    bars.label_bars(fig, names, font, "layer, in the order of the calls", size)
    statistic = "mean" if comparison.by_means else "median"
    by_input = " by input" * comparison.by_input
    ax.set_ylabel(f"{statistic} self time{by_input} [ms]", fontsize=size)
    figures.set_title(fig, _title(comparison, int(width * _CHARS * figures.TEXT / size)), size)
    figures.legend_above(ax, size - 1, 0.2)
    top_s = max(
        _HEADROOM * highest_s.max(), _MARKED_HEADROOM * marked_s.to_numpy().max(initial=0.0)
    )
    ax.set_ylim(0, top_s * 1e3 or 1.0)
    bars.link_bars(ax, [f"{anchor}-{at}" for at in layers.index])
    return fig


def _name(row: Any) -> str:
    """The link's path and the function."""
    return f"{printable(row.path)} {printable(short_name(row.function))}"


def _layers_to_draw(comparison: Comparison) -> pd.DataFrame:
    """The layers that :func:`figure` shows, in the order of the calls."""
    layers = comparison.layers
    if len(layers) <= MAX_LAYERS:
        return layers
    changed = layers["verdict"].isin(list(_COLOURS))
    by = {
        "changed": changed,
        "difference": (layers["after_s"] - layers["before_s"]).abs().where(changed, 0.0),
        "time": layers[["before_s", "after_s"]].max(axis=1),
    }
    ordered = layers.assign(**by).sort_values(list(by), ascending=False, kind="stable")
    return layers.loc[sorted(ordered.index[:MAX_LAYERS])]


def _draw_bars(ax: Axes, layers: pd.DataFrame) -> None:
    x, after_ms = np.arange(len(layers)), layers["after_s"].to_numpy() * 1e3
    bars.draw(
        ax, x - _BAR / 2, layers["before_s"] * 1e3, _BAR, figures.OTHER_COLOUR, label="before"
    )
    same = ~layers["verdict"].isin(list(_COLOURS)).to_numpy()
    bars.draw(ax, x[same] + _BAR / 2, after_ms[same], _BAR, figures.SAME_COLOUR, label="after")
    for change_kind, colour in _COLOURS.items():
        changed = (layers["verdict"] == change_kind).to_numpy()
        if count := int(changed.sum()):
            label = f"after, {change_kind} ({format_count(count)})"
            bars.draw(ax, x[changed] + _BAR / 2, after_ms[changed], _BAR, colour, label=label)


def _write_factors(ax: Axes, layers: pd.DataFrame, font: float) -> None:
    """Write the factor above each changed layer."""
    style = figures.ABOVE | {"rotation": 90, "fontsize": font, "annotation_clip": False}
    for index, row in enumerate(layers.itertuples()):
        if colour := _COLOURS.get(row.verdict):
            top = index, max(row.before_s, row.after_s) * 1e3
            ax.annotate(
                change_text(row.ratio, row.verdict), top, (0, _ABOVE), color=colour, **style
            )


def _title(comparison: Comparison, width: int) -> str:
    """The verdict and the two names, in lines of at most ``width`` characters."""
    sides = comparison.after, comparison.before
    names = (shorten(printable(side.name), width // 2 - 2) for side in sides)
    lines = [verdict(comparison).rstrip("."), " compared with ".join(names)]
    if fusion := fusion_line(comparison):
        lines.append(fusion.removesuffix("."))
    count = len(comparison.layers)
    if count > MAX_LAYERS:
        lines.append(
            f"{MAX_LAYERS} of {format_count(count)} layers: the most changed ones, then those with "
            "the most time"
        )
    if comparison.other_machine:
        lines.append("different machines")
    elif comparison.moved:
        lines.append("the machine's own speed changed")
    return "\n".join(shorten(line, width) for line in lines)
