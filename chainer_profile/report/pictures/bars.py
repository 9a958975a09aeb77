"""Bar charts with upright labels, and links from the bars to rows of tables."""

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

#: Largest width in inches that a page shows unscaled.
_UNSCALED_WIDTH = 12.0
#: Width in inches left and right of the bars, for the labels of the axes.
SIDES = 1.0
#: Height of a line of text, in font sizes.
LINE_HEIGHT = 1.25
#: Distances in points: from the axis to the bars' labels, and from these to the axis' label.
_TO_NAME, _TO_LABEL = 3.5, 4.0


def axes_for(count: int, width: float, height: float) -> tuple[Figure, Axes, float, float]:
    """Make a figure for ``count`` bars, ``width`` by ``height`` inches.

    Returns the figure, its axes, the width of a bar in points, and the font size.
    """
    figure = blank(width, height)
    ax = figure.add_subplot()
    # A page scales a wide picture down, so its text is larger.
    size = TEXT * max(1.0, width / _UNSCALED_WIDTH)
    ax.set_xlim(-0.7, count - 0.3)
    ax.grid(axis="y")
    ax.tick_params(axis="y", labelsize=size)
    return figure, ax, (width - SIDES) * 72 / count, size


def draw(
    ax: Axes, centres: ArrayLike, heights: ArrayLike, width: float, colour: str, **style: Any
) -> None:
    """Draw bars as one collection, which is as fast for a thousand bars as for one."""
    x, top = np.asarray(centres, float), np.asarray(heights, float)
    left, right, low = x - width / 2, x + width / 2, np.zeros_like(x)
    corners = np.array([[left, low], [left, top], [right, top], [right, low]])
    shapes = list(corners.transpose(2, 0, 1))
    shape = PolyCollection(shapes, facecolors=colour, linewidths=0, **style)
    ax.add_collection(shape, autolim=False)


def link_bars(ax: Axes, anchors: Sequence[str]) -> None:
    """Link the whole height above x = 0, 1, 2 ... to the anchors of table rows."""
    count, urls = len(anchors), [f"#{anchor}" for anchor in anchors]
    whole_height = {"transform": ax.get_xaxis_transform(), "zorder": 9}
    draw(ax, range(count), np.ones(count), 1.0, "none", urls=urls, **whole_height)


def label_bars(
    figure: Figure, names: Mapping[int, str], font: float, label: str, size: float
) -> None:
    """Write an upright name below each bar, by its x position, and the axis' label below them.

    ``font`` is the font size of the names, ``size`` the font size of the axis' label.
    """
    # Matplotlib measures labels of ticks a dozen times per picture, texts once.
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
    texts = [
        ax.text(at, 0, text, fontsize=font, transform=below, in_layout=False, **style)
        for at, text in names.items()
    ]
    highest = max(text.get_window_extent().height for text in texts) / figure.dpi * 72
    ax.set_xlabel(label, fontsize=size, labelpad=_TO_NAME + highest + _TO_LABEL)
