"""Plots as PNG, SVG and inline SVG of a page; Chrome traces and folded stacks."""

from __future__ import annotations

from chainer_profile.analyse.summary import Summary
from chainer_profile.report.pictures.figures import Picture


def run_pictures(summary: Summary) -> dict[str, Picture]:
    """The pictures of a run by file name."""
    from chainer_profile.analyse.roofline import has_plot
    from chainer_profile.report.document import MEMORY, PLOT, ROOFLINE
    from chainer_profile.report.pictures import layers, roofline
    from chainer_profile.report.pictures.figures import Picture

    drawn = {PLOT: Picture(lambda: layers.figure(summary))}
    if has_plot(summary.recording, summary.layers):
        drawn[ROOFLINE] = Picture(lambda: roofline.figure(summary))
    if summary.recording.memory is not None:
        drawn[MEMORY] = Picture(lambda: layers.memory_figure(summary))
    return drawn
