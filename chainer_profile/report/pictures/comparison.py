"""Comparison -> bar plot: two bars a layer, as PNG or SVG."""

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
from chainer_profile.report.content.comparison_words import change, fusion_line, verdict
from chainer_profile.report.pictures import bars, figures
from chainer_profile.report.text import printable, shorten

#: Layers that are shown of a network that has more.
MAX_LAYERS = 80
_COLOURS = {SLOWER: figures.HOT_COLOUR, FASTER: figures.FASTER_COLOUR}
_MIN_WIDTH, _LAYER_WIDTH, _HEIGHT = 8.0, 0.19, 6.0
_BAR = 0.4
_MIN_FONT, _MAX_FONT = 5.0, 8.0
_MAX_LABEL = 40
#: Characters of the title to an inch.
_CHARS = 12.0
#: The axis reaches so many times the highest bar, and the highest one with a factor above it; from
#: a bar to its factor, in points.
_HEADROOM, _MARKED_HEADROOM, _ABOVE = 1.04, 1.5, 3


def pictures(comparisons: Sequence[Comparison]) -> dict[str, figures.Picture]:
    """The picture of each, by the prefix of the anchors of its rows in a page."""
    return {
        f"comparison{at}": figures.Picture(partial(figure, comparison, f"comparison{at}"))
        for at, comparison in enumerate(comparisons)
    }


@figures.drawing()
def figure(comparison: Comparison, anchor: str = "") -> Figure:
    """Two bars a layer in the order of the calls, its median (or mean) before and after.

    Changed layers are red where they became slower and blue where faster, with the factor above.
    Of more than 80 layers those are shown that changed most, and then those with the most time.
    """
    layers = _shown(comparison)
    count = len(layers)
    width = max(_MIN_WIDTH, bars.SIDES + _LAYER_WIDTH * count)
    fig, ax, points, size = bars.axes_for(count, width, _HEIGHT)
    highest_s = layers[["before_s", "after_s"]].max(axis=1)
    marked_s = highest_s[layers["verdict"].isin(list(_COLOURS))]
    font = float(np.clip(points / bars.LINE_HEIGHT, _MIN_FONT, _MAX_FONT))
    _draw_bars(ax, layers)
    _mark(ax, layers, font)
    names = {at: shorten(_name(row), _MAX_LABEL) for at, row in enumerate(layers.itertuples())}
    bars.name(fig, names, font, "layer, in the order of the calls", size)
    which = "mean" if comparison.by_means else "median"
    by_input = " by input" * comparison.by_input
    ax.set_ylabel(f"{which} self time{by_input} [ms]", fontsize=size)
    figures.entitle(fig, _title(comparison, int(width * _CHARS * figures.TEXT / size)), size)
    figures.legend_above(ax, size - 1, 0.2)
    top_s = max(
        _HEADROOM * highest_s.max(), _MARKED_HEADROOM * marked_s.to_numpy().max(initial=0.0)
    )
    ax.set_ylim(0, top_s * 1e3 or 1.0)
    bars.lead(ax, [f"{anchor}-{at}" for at in layers.index])
    return fig


def _name(row: Any) -> str:
    """The link's path first, then the function."""
    return f"{printable(row.path)} {printable(short_name(row.function))}"


def _shown(comparison: Comparison) -> pd.DataFrame:
    """The layers to draw, in the order of the calls."""
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
    for which, colour in _COLOURS.items():
        changed = (layers["verdict"] == which).to_numpy()
        if count := int(changed.sum()):
            label = f"after, {which} ({format_count(count)})"
            bars.draw(ax, x[changed] + _BAR / 2, after_ms[changed], _BAR, colour, label=label)


def _mark(ax: Axes, layers: pd.DataFrame, font: float) -> None:
    """The factor above each changed layer."""
    style = figures.ABOVE | {"rotation": 90, "fontsize": font, "annotation_clip": False}
    for at, row in enumerate(layers.itertuples()):
        if colour := _COLOURS.get(row.verdict):
            top = at, max(row.before_s, row.after_s) * 1e3
            ax.annotate(change(row.ratio, row.verdict), top, (0, _ABOVE), color=colour, **style)


def _title(comparison: Comparison, most: int) -> str:
    """The verdict and the sides, in lines of so many characters at most."""
    sides = comparison.after, comparison.before
    names = (shorten(printable(side.name), most // 2 - 2) for side in sides)
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
    return "\n".join(shorten(line, most) for line in lines)
