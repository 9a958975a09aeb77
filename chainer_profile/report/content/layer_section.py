"""Summary -> the layers one by one: the tables of every form, the plot, and the hot layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.analyse.shares import whole
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.basics.words import DEFAULT_DEPTH, SELF_TIME, TOTAL_TIME
from chainer_profile.comparison.fused import place
from chainer_profile.report import unit
from chainer_profile.report.columns import ABOUT, LAYER_COLUMNS, SHOWN, layer_columns, properties
from chainer_profile.report.document import LAYERS, LINKS, PLOT, TOTAL, Figure, file, text
from chainer_profile.report.rows import layer_anchor, other_layers, total_marks
from chainer_profile.report.tables import SPREAD, Column, Spread, Table, not_shown, noted, rows_of
from chainer_profile.report.text import on_gpu, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

#: Of more layers the report's appendix shows the hot and the slowest ones, at least so many.
MAX_ROWS, SLOWEST = 100, 50
#: Layers of a page's first table, and hot layers of a report.
_MAX_HOTTEST, _MAX_HOT = 8, 10
#: Bars of a histogram, and medians of a course, at most; layers at a time, so that a long run's
#: times are not in memory twice.
_MAX_BINS, _MAX_BLOCKS, _LAYERS_AT_ONCE = 20, 24, 64
#: The field that each order is by, where it is not its name.
_SORT_FIELDS = {
    **dict.fromkeys(("time", SELF_TIME, TOTAL_TIME), "mean_s"),
    **{name: f"{name}_s" for name in ("median", "mean", "p95", "std")},
    **{"name": "function", "memory": "peak_nbytes"},
}
_ASCENDING = ("path", "function")
#: Columns that an order needs, beside the usual ones or in place of another one.
_SHOWN_FOR = {"flops": "flops", "memory": "peak", "reached": "reached"}
_IN_PLACE_FOR = {"std": ("ci", "std")}
#: What the terminal says of columns.
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
class Shown:
    """The choices of the terminal's options; a limit of None shows all rows."""

    sort: str = "time"
    limit: int | None = None
    group_by: str = "function"
    #: Show the tree of links, so many levels below the network, in place of the layers.
    tree: bool = False
    depth: int = DEFAULT_DEPTH
    #: Columns of the layers, which a narrow terminal shows too; None for the usual ones.
    columns: Sequence[str] | None = None
    usual: Sequence[str] = SHOWN["terminal"]
    #: How to see the rows that the limit leaves out, if there is a way.
    hint: str = ""
    in_python: bool = False  #: Whether there are no options of a command line to name.


def layers(summary: Summary, shown: Shown) -> Iterator[Block]:
    """The terminal's table."""
    ordered = _sorted(summary.layers, shown.sort)
    rows = ordered if shown.limit is None else ordered.head(max(0, shown.limit))
    wider = "a wider terminal"
    if shown.columns is None:
        columns = _usual_columns(summary, shown)
        wider += "" if shown.in_python else " or --columns"
    else:
        marks = [] if "hot" in shown.columns else ["hot"]
        columns = [LAYER_COLUMNS[key].kept() for key in (*marks, *shown.columns)]
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    legend = [
        *hidden(summary, ordered["share"].iloc[len(rows) :], shown.hint, "layer"),
        f"{unit.HOT_MARK} marks hot layers: {summary.hotspots.rule}.",
        f"Times are {kind}{on_gpu(summary)} in ms, % is of the {whole(summary)[1]}.",
    ]
    columns = noted(columns, _NOTES | _note_of_marks(columns, rows))
    shown_keys = [column.key for column in columns]
    named = next((key for key in ("function", "label", "path") if key in shown_keys), "")
    # Without a name nobody would know what these rows are.
    every = [*rows_of(rows), *(other_layers(summary, rows, named) if named else ())]
    marks, foot = total_marks(rows, every), len(every) - len(rows)
    yield Table(columns, every, "The layers", marks, legend, wider=f"{wider} shows them", foot=foot)


def hidden(summary: Summary, shares: Sequence[float], hint: str, noun: str) -> list[str]:
    """The sentence of a legend on layers, or groups of layers, that a limit leaves out."""
    more = f": {units.format_percent(float(sum(shares)))} of the {whole(summary)[1]}"
    return not_shown(len(shares), hint, noun, more)


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    field = _SORT_FIELDS.get(sort, sort)
    return layers.sort_values(field, ascending=field in _ASCENDING, kind="stable")


def _usual_columns(summary: Summary, shown: Shown) -> list[Column]:
    """The columns where none were chosen, with that of the order."""
    replaced, by = _IN_PLACE_FOR.get(shown.sort, ("", ""))
    keys = [by if key == replaced else key for key in shown.usual]
    ordered_by = _SHOWN_FOR.get(shown.sort, "")
    if ordered_by and ordered_by not in keys:
        keys.append(ordered_by)
    columns = layer_columns(summary, keys)
    return [column.kept() if column.key == ordered_by else column for column in columns]


def _note_of_marks(columns: Sequence[Column], rows: pd.DataFrame) -> dict[str, str]:
    """The meaning of ``~``, with the marked column that a narrow terminal keeps longest."""
    about = list(rows[rows["work_is_about"]].itertuples())
    marked = [column for column in columns if any(column.cell(row)[:1] == "~" for row in about)]
    lasting = sorted(marked, key=lambda column: column.drop or math.inf)[-1:]
    return {key: f"{ABOUT} {_NOTES.get(key, '')}".rstrip() for key in (c.key for c in lasting)}


def bars(summary: Summary) -> Iterator[Block]:
    phases = ", phase after phase" if summary.several_phases else ""
    yield Figure(
        PLOT,
        "Bar plot of the mean self time of every layer",
        f"One bar for each layer in the order of the calls{phases}: mean self "
        f"time{on_gpu(summary)}, with whiskers from the 5th to the 95th percentile. Hot layers are "
        "red here, and bold in tables.",
    )


def hot_layers(summary: Summary) -> Iterator[Block]:
    """The hot layers in a sentence."""
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
        f"{units.format_percent(float(hot['share'].sum()))} of the {whole(summary)[1]}."
    )
    if (most := int(functions.iloc[0])) > 1:
        count = "All" if most == len(hot) else units.format_count(most)
        sentence += f" {count} of them are {functions.index[0]}"
        in_phase = f", {units.format_count(int(phases.iloc[0]))} belong to {phases.index[0]}"
        sentence += f"{in_phase if summary.several_phases else ''}."
    if len(hot) < len(layers):
        slowest = float(layers["share"][~layers["hot"]].max())
        sentence += f" No other layer takes more than {units.format_percent(slowest)}."
    yield text(sentence)


def hotspots(summary: Summary) -> Iterator[Block]:
    """The hot layers, slowest first; the number of a layer says when it is called."""
    yield from hot_layers(summary)
    hot = summary.slowest[summary.slowest["hot"]]
    rows = hot.head(_MAX_HOT)
    if rows.empty:
        return
    columns = layer_columns(summary, SHOWN["hot layers"], rows)
    legend = [*not_shown(len(hot) - len(rows), noun="hot layer"), _hot_rule(summary)]
    rest = other_layers(summary, rows)
    every = [*rows_of(rows), *rest]
    marks = [*[""] * (len(every) - 1), TOTAL if rest else ""]
    caption = "The hot layers, slowest first"
    yield Table(columns, every, caption, marks, legend, foot=len(rest))


def _hot_rule(summary: Summary) -> str:
    return f"Hot layers are {summary.hotspots.rule}."


def hottest(summary: Summary) -> Table:
    """The hottest layers, which lead to their rows."""
    rows = summary.slowest.head(_MAX_HOTTEST)
    rest = other_layers(summary, rows)
    return Table(
        layer_columns(summary, SHOWN["hottest layers of a page"]),
        [*rows_of(rows), *rest],
        "The hottest layers",
        total_marks(rows, [*rows.index, *rest]),
        [_hot_rule(summary), f"Shares are of the {whole(summary)[1]}."],
        leads=list(map(layer_anchor, rows.index)),
        foot=len(rest),
    )


def on_page(summary: Summary) -> Iterator[Block]:
    layers = summary.layers
    spread = "Beside each layer: the histogram of its times, and their course over the trials."
    rest = other_layers(summary, layers)
    yield Table(
        layer_columns(summary, SHOWN["page"]),
        [*rows_of(layers), *rest],
        "All layers",
        total_marks(layers, [*layers.index, *rest]),
        [spread],
        foot=len(rest),
        anchors=list(map(layer_anchor, layers.index)),
        spreads=spreads(summary),
    )


def glossary(summary: Summary) -> Iterator[Block]:
    """The meanings of the columns of a page's table."""
    columns = layer_columns(summary, SHOWN["page"])
    yield properties((column.title, column.meaning) for column in columns)


def spreads(summary: Summary) -> list[Spread]:
    """Of every layer a histogram of its times, and their course over the trials."""
    self_ns = summary.recording.self_ns
    parts = range(0, self_ns.shape[1], _LAYERS_AT_ONCE)
    return [spread for at in parts for spread in _spreads(self_ns[:, at : at + _LAYERS_AT_ONCE])]


def _spreads(times_ns: NDArray[np.int64]) -> Iterator[Spread]:
    """How the times of some layers are spread, in the order of the trials: (trials, layers)."""
    count = len(times_ns)
    least, most = times_ns.min(axis=0), times_ns.max(axis=0)
    # A few very long trials do not press all others into one bar.
    last = min(count - 1, int(0.99 * count))
    high = np.partition(times_ns, last, axis=0)[last]
    blocks = np.array_split(times_ns, min(_MAX_BLOCKS, count))
    course = np.array([np.median(block, axis=0) for block in blocks])
    for at in range(times_ns.shape[1]):
        # The clock counts whole nanoseconds: narrower bars would be empty in turn.
        bins = min(_MAX_BINS, max(1, int(2 * count**0.4)), int(high[at] - least[at]) + 1)
        span = max(1, int(high[at] - least[at]))
        places = np.minimum((times_ns[:, at] - least[at]) * (bins / span), bins - 1)
        counts = np.bincount(places.astype(np.intp), minlength=bins)
        level = np.clip((course[:, at] - least[at]) / span, 0, 1)
        shortest, longest = (units.format_duration(int(end[at]) * NS) for end in (least, most))
        yield Spread(
            np.ceil(counts / counts.max() * SPREAD).astype(int).tolist(),
            np.rint(level * SPREAD).astype(int).tolist(),
            f"{units.plural(count, 'trial')}: {shortest} to {longest}",
        )


def by_layer(summary: Summary) -> Iterator[Block]:
    """The report's table: each layer and its time."""
    rows = _appendix_rows(summary)
    if rest := len(summary.layers) - len(rows):
        share = float(summary.layers["share"].drop(rows.index).sum())
        yield text(
            f"These are the {units.format_count(len(rows))} slowest of "
            f"{units.plural(len(summary.layers), 'layer')}; the other {units.format_count(rest)} "
            f"take {units.format_percent(share)} of the {whole(summary)[1]}."
        )
    label, *others = layer_columns(summary, SHOWN["appendix"])
    whole_rows = other_layers(summary, rows)
    every = [*rows_of(rows), *whole_rows]
    marks = total_marks(rows, every)
    columns = [label.headed("layer"), *others]
    yield Table(columns, every, "Self time by layer", marks, foot=len(whole_rows))
    yield text(file(LAYERS), " has all figures of the layers, ", file(LINKS), " those of links.")


def _appendix_rows(summary: Summary) -> pd.DataFrame:
    """All layers in order, or the slowest of very many."""
    layers = summary.layers
    if len(layers) <= MAX_ROWS:
        return layers
    # Whatever the rule, the hot layers are the slowest ones.
    count = min(MAX_ROWS, max(SLOWEST, int(layers["hot"].sum())))
    return layers.loc[summary.slowest.head(count).index.sort_values()]


def by_node(summary: Summary) -> Iterator[Block]:
    """The nodes of an engine, where it is not Chainer that ran."""
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
        return place(units.NOT_KNOWN, nodes[row.Index].covers)

    columns = [
        Column("index", "#", unit.PLAIN, field="Index"),
        Column("node", "node", unit.TEXT, value=lambda row: nodes[row.Index].node, fold=40),
        Column("covers", "Chainer's layers", unit.TEXT, value=covers, fold=40),
        Column("number", "number", unit.COUNT, value=lambda row: len(nodes[row.Index].covers)),
        LAYER_COLUMNS["median"],
    ]
    yield Table(columns, _appendix_rows(summary), "By node")
