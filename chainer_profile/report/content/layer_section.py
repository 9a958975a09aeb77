"""Summary -> the report's tables by layer: times, and work and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import NOT_KNOWN, format_count, format_percent, plural
from chainer_profile.comparison.fused import place
from chainer_profile.report.columns import (
    ABOUT,
    DEVICE,
    LAYER_COLUMNS,
    TIMES,
    WHICH,
    WORK,
    layer_columns,
)
from chainer_profile.report.content.device_section import explained
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.document import LAYERS, PLOT, Figure, file, text
from chainer_profile.report.rows import hot_marks
from chainer_profile.report.tables import Table, columns, with_content
from chainer_profile.report.text import engine_text, typical_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block
    from chainer_profile.report.tables import Column

#: With more layers than this the report shows the hot and the slowest ones only; and of more links
#: those of the longest times.
MAX_ROWS = 200
SLOWEST = 50


def bars(summary: Summary) -> Iterator[Block]:
    """The picture of all layers."""
    several = summary.several_phases
    yield Figure(
        PLOT,
        f"Bar plot of the {typical_word(summary.recording)} self time of every layer",
        "One bar for each layer in the order of the calls"
        + (", phase after phase" if several else "")
        + f": {typical_word(summary.recording)} self time{on_gpu(summary)}, with whiskers from "
        "the 5th to the 95th percentile. Hot layers are red here, and bold in the table.",
    )


def by_layer(summary: Summary) -> Iterator[Block]:
    """The table of times by layer."""
    shown = _chosen(summary)
    rest = summary.layers.drop(shown.index)
    if len(rest):
        yield text(
            f"{format_count(len(shown))} of {plural(len(summary.layers), 'layer')} are shown, the "
            f"slowest ones; the others hold {format_percent(rest['share'].sum())} of the "
            "layers' time. All are in ",
            file(LAYERS),
            ".",
        )
    times = list(TIMES)
    if not summary.has_intervals:
        yield text("The trials are too few for intervals of the medians.")
        times.remove("interval")
    rows = list(shown.itertuples())
    known = with_content(layer_columns(DEVICE), rows)
    times = [key for key in times if key not in DEVICE or LAYER_COLUMNS[key] in known]
    if said := explained([column.name for column in known]):
        yield text(f"Median, interval, mean and percentile are times on the GPU. {said}")
    columns = [*_which(summary), *layer_columns(times)]
    yield Table(columns, rows, "Self time by layer", hot_marks(shown))


def work_by_layer(summary: Summary) -> Iterator[Block]:
    """The table of work and memory by layer; nothing where none is known."""
    shown = _chosen(summary)
    rows = list(shown.itertuples())
    work = with_content(layer_columns(WORK), rows)
    if work:
        said = f"{ABOUT} " if shown["work_is_about"].any() else ""
        yield text(said + _explained([column.name for column in work]))
        yield Table([*_which(summary), *work], rows, "Work and memory by layer", hot_marks(shown))


def by_node(summary: Summary) -> Iterator[Block]:
    """What an engine's nodes are, where it is not Chainer that ran."""
    engine = summary.recording.settings.engine
    if not engine:
        return
    yield text(
        f"A row is a node of {engine_text(summary.recording.settings)}. Its path is that of "
        "the layer with the most operations among those of Chainer that it does, and its function "
        "names all of them; a node that does none is named by the engine. Numbers of layers are "
        "those of the profile of the network under Chainer."
    )
    layers = summary.recording.layers
    found = columns(
        """
index Index | # | plain
node | | text 40
covers | Chainer's layers | text 40
number | | count
median | median ms | ms
""",
        node=lambda row: layers[row.Index].node,
        covers=lambda row: place(NOT_KNOWN, layers[row.Index].covers),
        number=lambda row: len(layers[row.Index].covers),
    )
    yield Table(found, list(_chosen(summary).itertuples()), "By node")


def _which(summary: Summary) -> list[Column]:
    return layer_columns(WHICH, several_phases=summary.several_phases)


def _chosen(summary: Summary) -> pd.DataFrame:
    """All layers in order, or the slowest of very many."""
    layers = summary.layers
    if len(layers) <= MAX_ROWS:
        return layers
    # Whatever the rule, the hot layers are the slowest ones.
    count = min(MAX_ROWS, max(SLOWEST, int(layers["hot"].sum())))
    return layers.loc[summary.slowest.head(count).index.sort_values()]


def _explained(names: list[str]) -> str:
    """What the columns say that are there."""
    said = []
    if "MFLOP" in names:
        said.append("Operations and bytes are those of all calls in a trial, in millions.")
    if "limit" in names:
        said.append(
            "A layer is limited by compute, by memory, or, where less than a third of the limit is "
            "reached, by the largest part of its time that is known; where none is a quarter, it "
            "stays below both limits."
        )
    if "peak" in names:
        said.append(
            "The peak is the most that is allocated in the layer beyond what is there at its begin"
            + (
                "; of a forward call, the workspace is the part beyond its outputs."
                if "workspace" in names
                else "."
            )
        )
    said.append("What is not known is shown as -.")
    return " ".join(said)
