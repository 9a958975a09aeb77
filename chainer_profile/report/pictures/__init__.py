"""Plots as PNG, SVG and parts of a page; traces and stacks."""

from __future__ import annotations

from chainer_profile.analyse.summary import Summary
from chainer_profile.report.pictures.figures import Picture


def of_run(summary: Summary) -> dict[str, Picture]:
    """The pictures of a run, by their files."""
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
