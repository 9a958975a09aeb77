"""Summary -> the bar plot of the layers, as a notebook shows it."""

from __future__ import annotations

import io
from functools import cached_property
from typing import TYPE_CHECKING

from PIL import Image

from chainer_profile.report.pictures import layers as plot
from chainer_profile.report.pictures.figures import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainer_profile.analyse.summary import Summary

_COLOURS = 256


class LayerPlot:
    """The bar plot of a summary's layers: a notebook shows it, without pyplot and its magics."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    @cached_property
    def figure(self) -> Figure:
        """Matplotlib's figure, to change it or to save it with ``figure.savefig(...)``."""
        return plot.figure(self._summary)

    def __repr__(self) -> str:
        return f"<LayerPlot of {self._summary!r}: .figure is Matplotlib's figure>"

    def _repr_png_(self) -> bytes:
        with Image.open(io.BytesIO(save(self.figure, "png"))) as image:
            # With a palette a picture is a third as large, and so is the notebook that keeps it.
            few = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        file = io.BytesIO()
        few.save(file, "png", optimize=True)
        return file.getvalue()
