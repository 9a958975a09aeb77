"""Summary -> blocks of the single layers: the tables of each form, the plot, the hot layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.analyse.shares import whole_time
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.basics.words import DEFAULT_DEPTH, SELF_TIME, TOTAL_TIME
from chainer_profile.comparison.fused import row_number
from chainer_profile.report import unit
from chainer_profile.report.columns import (
    ABOUT,
    LAYER_COLUMNS,
    TABLE_COLUMNS,
    layer_columns,
    properties,
)
from chainer_profile.report.document import LAYERS, LINKS, PLOT, Figure, file, text
from chainer_profile.report.rows import hot_marks, layer_anchor, other_layers
from chainer_profile.report.tables import (
    SPREAD,
    Column,
    Spread,
    Table,
    not_shown,
    rows_of,
    with_notes,
)
from chainer_profile.report.text import on_gpu_suffix, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

#: Most rows of the report's appendix, and its fewest rows if the network has more layers.
MAX_ROWS, SLOWEST = 100, 50
#: Layers of a page's first table, and hot layers of a report.
_MAX_HOTTEST, _MAX_HOT = 8, 10
#: Most bars of a histogram, and most medians of a course.
_MAX_BINS, _MAX_BLOCKS = 20, 24
#: Layers processed at once, so that memory does not hold a long run's times twice.
_LAYERS_AT_ONCE = 64
#: The field to sort by, for orders with another name.
_SORT_FIELDS = {
    **dict.fromkeys(("time", SELF_TIME, TOTAL_TIME), "mean_s"),
    **{name: f"{name}_s" for name in ("median", "mean", "p95", "std")},
    **{"name": "function", "memory": "peak_nbytes"},
}
_ASCENDING = ("path", "function")
#: Columns that an order adds to the default ones, and columns that it replaces.
_ADDED_BY_ORDER = {"flops": "flops", "memory": "peak", "reached": "reached"}
_REPLACED_BY_ORDER = {"std": ("ci", "std")}
#: Notes on columns below the terminal's table.
_NOTES = {
    "ci": "+/- is half of the 95 % confidence interval of the median.",
    "host": "host is the host's time in the layer's call.",
    "gap": "gap is the device's time between the previous layer and this one.",
    "busy": "busy is the device's time when it never waits for the host.",
    "reached": (
        "% of limit is the shortest possible time at this machine's limits as a part of the median."
    ),
}


@dataclass(frozen=True)
class TableOptions:
    """The options of the command line that choose the tables of a run."""

    sort: str = "time"
    limit: int | None = None  #: Rows of layers and groups; None for all.
    group_by: str = "function"
    tree: bool = False  #: Whether to show the tree of links instead of the layers.
    depth: int = DEFAULT_DEPTH  #: Levels of the tree below the network.
    #: Columns of the layers that a narrow terminal shows too; None for the default columns.
    columns: Sequence[str] | None = None
    default_columns: Sequence[str] = TABLE_COLUMNS["terminal"]
    hint: str = ""  #: How to see the rows that the limit omits.
    in_python: bool = False  #: Whether texts must not name options of the command line.


def layers(summary: Summary, options: TableOptions) -> Iterator[Block]:
    """The table of layers of a terminal or a first screen."""
    ordered = _sorted(summary.layers, options.sort)
    rows = ordered if options.limit is None else ordered.head(max(0, options.limit))
    wider = "a wider terminal"
    if options.columns is None:
        columns = _default_columns(summary, options)
        wider += "" if options.in_python else " or --columns"
    else:
        marks = [] if "hot" in options.columns else ["hot"]
        columns = [LAYER_COLUMNS[key].never_dropped() for key in (*marks, *options.columns)]
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    legend = [
        *hidden(summary, ordered["share"].iloc[len(rows) :], options.hint, "layer"),
        f"{unit.HOT_MARK} marks hot layers: {summary.hotspots.rule}.",
        f"Times are {kind}{on_gpu_suffix(summary)} in ms, % is of the {whole_time(summary).name}.",
    ]
    columns = with_notes(columns, _NOTES | _note_of_marks(columns, rows))
    keys = [column.key for column in columns]
    name_column = next((key for key in ("function", "label", "path") if key in keys), "")
    # Without a column for their names, the rows that complete the table would be confusing.
    rest = other_layers(summary, rows, name_column) if name_column else []
    yield Table(
        columns,
        [*rows_of(rows), *rest],
        "The layers",
        hot_marks(rows),
        legend,
        wider=f"{wider} shows them",
        foot=len(rest),
    )


def hidden(summary: Summary, shares: Sequence[float], hint: str, noun: str) -> list[str]:
    """The legend's sentence about layers, or groups of layers, that a limit omits."""
    more = f": {units.format_percent(float(sum(shares)))} of the {whole_time(summary).name}"
    return not_shown(len(shares), hint, noun, more)


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    field = _SORT_FIELDS.get(sort, sort)
    return layers.sort_values(field, ascending=field in _ASCENDING, kind="stable")


def _default_columns(summary: Summary, options: TableOptions) -> list[Column]:
    """The default columns, including the column that the table is sorted by."""
    replaced, replacement = _REPLACED_BY_ORDER.get(options.sort, ("", ""))
    keys = [replacement if key == replaced else key for key in options.default_columns]
    added = _ADDED_BY_ORDER.get(options.sort, "")
    if added and added not in keys:
        keys.append(added)
    columns = layer_columns(summary, keys)
    return [column.never_dropped() if column.key == added else column for column in columns]


def _note_of_marks(columns: Sequence[Column], rows: pd.DataFrame) -> dict[str, str]:
    """The note that explains ``~``, by column key; empty if no cell has this mark.

    The marked column that a narrow terminal drops last gets the note.
    """
    estimated = list(rows[rows["work_is_about"]].itertuples())
    marked = [column for column in columns if any(column.cell(row)[:1] == "~" for row in estimated)]
    last = sorted(marked, key=lambda column: column.drop or math.inf)[-1:]
    return {key: f"{ABOUT} {_NOTES.get(key, '')}".rstrip() for key in (c.key for c in last)}


def bars(summary: Summary) -> Iterator[Block]:
    """The figure with a bar for each layer."""
    phases = ", phase after phase" if summary.several_phases else ""
    yield Figure(
        PLOT,
        "Bar plot of the mean self time of every layer",
        f"One bar for each layer in the order of the calls{phases}: mean self "
        f"time{on_gpu_suffix(summary)}, with whiskers from the 5th to the 95th percentile. Hot "
        "layers are red here, and bold in tables.",
    )


def hot_layers(summary: Summary) -> Iterator[Block]:
    """A paragraph about the number, time and functions of the hot layers."""
    layers, hot = summary.layers, summary.layers[summary.layers["hot"]]
    if hot.empty:
        slowest = layers.loc[layers["mean_s"].idxmax()]
        yield text(
            f"No layer is hot. The slowest is {slowest['label']} with "
            f"{units.format_duration(slowest['mean_s'])}."
        )
        return
    functions, phases = hot["function"].value_counts(), hot["phase"].value_counts()
    is_or_are = "is" if len(hot) == 1 else "are"
    sentence = (
        f"{units.format_count(len(hot))} of {units.plural(len(layers), 'layer')} {is_or_are} hot: "
        f"{units.format_percent(float(hot['share'].sum()))} of the {whole_time(summary).name}."
    )
    if (largest := int(functions.iloc[0])) > 1:
        count = "All" if largest == len(hot) else units.format_count(largest)
        sentence += f" {count} of them are {functions.index[0]}"
        in_phase = f", {units.format_count(int(phases.iloc[0]))} belong to {phases.index[0]}"
        sentence += f"{in_phase if summary.several_phases else ''}."
    if len(hot) < len(layers):
        slowest = float(layers["share"][~layers["hot"]].max())
        sentence += f" No other layer takes more than {units.format_percent(slowest)}."
    yield text(sentence)


def hotspots(summary: Summary) -> Iterator[Block]:
    """The report's table of hot layers, slowest first."""
    yield from hot_layers(summary)
    hot = summary.slowest[summary.slowest["hot"]]
    rows = hot.head(_MAX_HOT)
    if rows.empty:
        return
    columns = layer_columns(summary, TABLE_COLUMNS["hot layers"], rows)
    legend = [*not_shown(len(hot) - len(rows), noun="hot layer"), _hot_rule(summary)]
    rest = other_layers(summary, rows)
    caption = "The hot layers, slowest first"
    yield Table(columns, [*rows_of(rows), *rest], caption, legend=legend, foot=len(rest))


def _hot_rule(summary: Summary) -> str:
    return f"Hot layers are {summary.hotspots.rule}."


def hottest(summary: Summary) -> Table:
    """A page's first table: the slowest layers, with links to their rows in the full table."""
    rows = summary.slowest.head(_MAX_HOTTEST)
    rest = other_layers(summary, rows)
    return Table(
        layer_columns(summary, TABLE_COLUMNS["hottest layers of a page"]),
        [*rows_of(rows), *rest],
        "The hottest layers",
        hot_marks(rows),
        [_hot_rule(summary), f"Shares are of the {whole_time(summary).name}."],
        row_links=list(map(layer_anchor, rows.index)),
        foot=len(rest),
    )


def on_page(summary: Summary) -> Iterator[Block]:
    """A page's table of all layers."""
    layers = summary.layers
    spread = "Beside each layer: the histogram of its times, and their course over the trials."
    rest = other_layers(summary, layers)
    yield Table(
        layer_columns(summary, TABLE_COLUMNS["page"]),
        [*rows_of(layers), *rest],
        "All layers",
        hot_marks(layers),
        [spread],
        foot=len(rest),
        anchors=list(map(layer_anchor, layers.index)),
        spreads=spreads(summary),
    )


def glossary(summary: Summary) -> Iterator[Block]:
    """The meanings of the columns of a page's table."""
    columns = layer_columns(summary, TABLE_COLUMNS["page"])
    yield properties((column.title, column.meaning) for column in columns)


def spreads(summary: Summary) -> list[Spread]:
    """The small plot of each layer's times over the trials."""
    self_ns = summary.recording.self_ns
    starts = range(0, self_ns.shape[1], _LAYERS_AT_ONCE)
    return [spread for at in starts for spread in _spreads(self_ns[:, at : at + _LAYERS_AT_ONCE])]


def _spreads(times_ns: NDArray[np.int64]) -> Iterator[Spread]:
    """The small plots of some layers; the shape of ``times_ns`` is (trials, layers)."""
    count = len(times_ns)
    minimum, maximum = times_ns.min(axis=0), times_ns.max(axis=0)
    # The histogram ends at the 99th percentile, so that a few long trials do not squeeze it.
    last = min(count - 1, int(0.99 * count))
    high = np.partition(times_ns, last, axis=0)[last]
    blocks = np.array_split(times_ns, min(_MAX_BLOCKS, count))
    course = np.array([np.median(block, axis=0) for block in blocks])
    for i in range(times_ns.shape[1]):
        # Times are whole nanoseconds: with narrower bars, some would always be empty.
        bins = min(_MAX_BINS, max(1, int(2 * count**0.4)), int(high[i] - minimum[i]) + 1)
        span = max(1, int(high[i] - minimum[i]))
        bin_indices = np.minimum((times_ns[:, i] - minimum[i]) * (bins / span), bins - 1)
        counts = np.bincount(bin_indices.astype(np.intp), minlength=bins)
        level = np.clip((course[:, i] - minimum[i]) / span, 0, 1)
        shortest, longest = (units.format_duration(int(end[i]) * NS) for end in (minimum, maximum))
        yield Spread(
            np.ceil(counts / counts.max() * SPREAD).astype(int).tolist(),
            np.rint(level * SPREAD).astype(int).tolist(),
            f"{units.plural(count, 'trial')}: {shortest} to {longest}",
        )


def by_layer(summary: Summary) -> Iterator[Block]:
    """The appendix of the report: each layer and its time."""
    rows = _appendix_rows(summary)
    if rest := len(summary.layers) - len(rows):
        share = float(summary.layers["share"].drop(rows.index).sum())
        yield text(
            f"These are the {units.format_count(len(rows))} slowest of "
            f"{units.plural(len(summary.layers), 'layer')}; the other {units.format_count(rest)} "
            f"take {units.format_percent(share)} of the {whole_time(summary).name}."
        )
    label, *others = layer_columns(summary, TABLE_COLUMNS["appendix"])
    rest_rows = other_layers(summary, rows)
    yield Table(
        [label.headed("layer"), *others],
        [*rows_of(rows), *rest_rows],
        "Self time by layer",
        hot_marks(rows),
        foot=len(rest_rows),
    )
    yield text(file(LAYERS), " has all figures of the layers, ", file(LINKS), " those of links.")


def _appendix_rows(summary: Summary) -> pd.DataFrame:
    """All layers in the order of the calls; only the slowest if there are too many."""
    layers = summary.layers
    if len(layers) <= MAX_ROWS:
        return layers
    # Every rule for hotspots selects the slowest layers, so these rows include all hot layers.
    count = min(MAX_ROWS, max(SLOWEST, int(layers["hot"].sum())))
    return layers.loc[summary.slowest.head(count).index.sort_values()]


def by_node(summary: Summary) -> Iterator[Block]:
    """The table of an engine's nodes; nothing for a run under Chainer."""
    if not summary.recording.settings.engine:
        return
    yield text(
        f"Each row is a node of {printable(summary.recording.settings.engine)}. Its function names "
        "all of Chainer's layers that it computes; its path is that of the layer with the "
        "most operations. A node that computes none has the engine's name. Layer numbers are "
        "those of the network's profile under Chainer."
    )
    nodes = summary.recording.layers

    def covers(row: Any) -> str:
        return row_number(units.NOT_KNOWN, nodes[row.Index].covers)

    columns = [
        Column("index", "#", unit.PLAIN, field="Index"),
        Column("node", "node", unit.TEXT, value=lambda row: nodes[row.Index].node, fold=40),
        Column("covers", "Chainer's layers", unit.TEXT, value=covers, fold=40),
        Column("number", "number", unit.COUNT, value=lambda row: len(nodes[row.Index].covers)),
        LAYER_COLUMNS["median"],
    ]
    yield Table(columns, _appendix_rows(summary), "By node")
