"""Bars side by side, with names below them and rows of tables that they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.markers import TICKDOWN
from matplotlib.transforms import offset_copy
from numpy.typing import ArrayLike

from chainer_profile.report.pictures.figures import INK, TEXT, blank

#: Width at which a picture is shown in its own size, in inches; a wider one is shown smaller.
_SHOWN_WIDTH = 12.0
#: Width of the labels of the axes, in inches.
SIDES = 1.0
#: A name's line is so many times as high as its font size.
LINE_HEIGHT = 1.25
#: From the axis to names, and from names to the label of the axis, in points.
_TO_NAME, _TO_LABEL = 3.5, 4.0


def axes_for(count: int, width: float, height: float) -> tuple[Figure, Axes, float, float]:
    """A figure of so many bars: its axes, points that a bar has, size of words."""
    figure = blank(width, height)
    ax = figure.add_subplot()
    # A wide picture is shown smaller, so its words are larger.
    size = TEXT * max(1.0, width / _SHOWN_WIDTH)
    ax.set_xlim(-0.7, count - 0.3)
    ax.grid(axis="y")
    ax.tick_params(axis="y", labelsize=size)
    return figure, ax, (width - SIDES) * 72 / count, size


def draw(
    ax: Axes, places: ArrayLike, heights: ArrayLike, width: float, colour: str, **style: Any
) -> None:
    """Bars as one shape of Matplotlib's, which makes a thousand of them as fast as one."""
    x, top = np.asarray(places, float), np.asarray(heights, float)
    left, right, low = x - width / 2, x + width / 2, np.zeros_like(x)
    corners = np.array([[left, low], [left, top], [right, top], [right, low]])
    shapes = list(corners.transpose(2, 0, 1))
    shape = PolyCollection(shapes, facecolors=colour, linewidths=0, **style)
    ax.add_collection(shape, autolim=False)


def lead(ax: Axes, anchors: Sequence[str]) -> None:
    """Make the bars at 0, 1, 2 and so on lead to rows of tables, with all that is above them."""
    count, urls = len(anchors), [f"#{anchor}" for anchor in anchors]
    whole_height = {"transform": ax.get_xaxis_transform(), "zorder": 9}
    draw(ax, range(count), np.ones(count), 1.0, "none", urls=urls, **whole_height)


def name(figure: Figure, names: Mapping[int, str], font: float, label: str, size: float) -> None:
    """Write upright names below bars, by their places, and below them the axis' label."""
    # Ticks with labels are measured a dozen times for a picture, texts once.
    (ax,) = figure.axes
    ax.set_xticks([])
    ax.plot(
        list(names),
        [0.0] * len(names),
        marker=TICKDOWN,
        transform=ax.get_xaxis_transform(),
        color=INK,
        linestyle="",
        markersize=2,
        markeredgewidth=0.8,
        clip_on=False,
        in_layout=False,
    )
    below = offset_copy(ax.get_xaxis_transform(), figure, y=-_TO_NAME, units="points")
    style: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "top", "parse_math": False}
    shown = [
        ax.text(at, 0, text, fontsize=font, transform=below, in_layout=False, **style)
        for at, text in names.items()
    ]
    highest = max(text.get_window_extent().height for text in shown) / figure.dpi * 72
    ax.set_xlabel(label, fontsize=size, labelpad=_TO_NAME + highest + _TO_LABEL)
