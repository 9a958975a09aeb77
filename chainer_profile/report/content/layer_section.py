"""Summary -> all that is told of its layers one by one, for every form of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.changes import whole
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.basics.words import DEFAULT_DEPTH, SELF_TIME, TOTAL_TIME
from chainer_profile.comparison.fused import place
from chainer_profile.report.columns import (
    ABOUT,
    USUAL,
    WHICH,
    framework_of_layers,
    hot_marks,
    layer_anchor,
    layer_columns,
    properties,
)
from chainer_profile.report.document import LAYERS, LINKS, PLOT, Figure, file, text
from chainer_profile.report.tables import (
    HOT_MARK,
    SPREAD,
    Spread,
    Table,
    columns,
    headed,
    kept,
    not_shown,
    rows_of,
    with_content,
)
from chainer_profile.report.text import on_gpu, printable, typical_word

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block
    from chainer_profile.report.tables import Column

#: With more layers than this the report shows the hot and the slowest ones only; and of more links
#: those of the longest times.
MAX_ROWS = 100
SLOWEST = 50
#: Layers of a page's first screen.
_HOTTEST = 8
#: Bars of a histogram, and medians of a course, at most; layers at a time, so that a long run's
#: times are not there twice.
_BINS, _BLOCKS, _AT_ONCE = 20, 24, 64
_SORT_COLUMNS = {
    "time": "typical_s",
    SELF_TIME: "typical_s",
    TOTAL_TIME: "typical_s",
    "median": "median_s",
    "mean": "mean_s",
    "p95": "p95_s",
    "std": "std_s",
    "path": "path",
    "name": "function",
    "flops": "flops",
    "memory": "peak_nbytes",
    "reached": "reached",
}
_ASCENDING = ("path", "function")
#: Columns that an order needs to be seen, beside the usual ones or in place of one of them.
_SHOWN_FOR = {"flops": "flops", "memory": "peak", "reached": "reached"}
_IN_PLACE_FOR = {"std": ("ci", "std")}
#: Columns that only a run on a GPU fills, and what they say.
_DEVICE = {
    "host": "host is the host's time in the layer's call",
    "gap": "gap is the device's time between the previous layer and this one",
    "busy": "busy is the device's time when it never waits for the host",
}
#: Columns of a first screen, and those that there are only where there is something in them.
BRIEF_COLUMNS = ("index", "hot", "path", "function", "phase", "median", "share", "verdict")
_WHERE_KNOWN = frozenset({"gflops", "reached", "verdict", "peak", *_DEVICE})
#: Columns of a page's two tables.
_HOT_COLUMNS = ("path", "median", "share", "function", "phase")
_PAGE_COLUMNS = (
    *("index", "path", "function", "phase", "median", "interval", "share", "verdict"),
    *("mean", "p5", "p95", "std", "calls", "output_shapes", "host", "gap", "busy"),
    *("flops", "moved", "intensity", "gflops", "gbytes", "reached"),
    *("peak", "workspace", "retained"),
)


@dataclass(frozen=True)
class Shown:
    """What the terminal's options ask for; a limit of None shows all rows."""

    sort: str = "time"
    limit: int | None = None
    group_by: str = "function"
    #: Show the tree of links, so many levels below the network, in place of the layers.
    tree: bool = False
    depth: int = DEFAULT_DEPTH
    #: Show multiply-adds in place of operations.
    macs: bool = False
    #: Columns of the layers, which a narrow terminal shows too; None for the usual ones.
    columns: Sequence[str] | None = None
    usual: Sequence[str] = USUAL
    #: How to see the rows that the limit leaves out, if there is a way.
    hint: str = ""
    #: Doubts at most on a first screen; None for all, and then all findings below.
    doubts: int | None = None


def layers(summary: Summary, shown: Shown) -> Iterator[Block]:
    every = _sorted(summary.layers, shown.sort)
    told = every if shown.limit is None else every.head(max(0, shown.limit))
    wider = "a wider terminal shows them"
    if shown.columns is None:
        columns = _usual_columns(summary, shown)
        wider = "a wider terminal or --columns shows them"
    else:
        columns = list(map(kept, layer_columns(shown.columns)))
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    interval = "there are too few trials for confidence intervals"
    if summary.has_intervals:
        interval = "+/- is half of the 95 % confidence interval of the median"
    legend = [
        *hidden(summary, every["share"].iloc[len(told) :], shown.hint, "layer"),
        ("", f"{HOT_MARK} marks hot layers: {summary.hotspots.rule}."),
        ("", f"Times are {kind}{on_gpu(summary)} in ms, % is of the {whole(summary)[1]}."),
        *_legend_of_marks(columns, told),
        ("+/- ms", f"{interval}."),
        (
            "% of limit",
            "% of limit is the shortest possible time at this machine's limits as a part of the "
            "median.",
        ),
        *((name, f"{meaning}.") for name, meaning in _DEVICE.items()),
    ]
    rows = [*rows_of(told), *framework_of_layers(summary)]
    yield Table(columns, rows, "The layers", hot_marks(told), legend, wider)


def hidden(
    summary: Summary, shares: Sequence[float], hint: str, what: str
) -> list[tuple[str, str]]:
    """What a legend says of layers or groups of layers that a limit leaves out."""
    more = f": {format_percent(float(sum(shares)))} of the {whole(summary)[1]}"
    return not_shown(len(shares), hint, what, more)


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    column = _SORT_COLUMNS[sort]
    return layers.sort_values(column, ascending=column in _ASCENDING, kind="stable")


def _usual_columns(summary: Summary, shown: Shown) -> list[Column]:
    """The columns where none were chosen: with that of the order, without what is not known."""
    instead, other = _IN_PLACE_FOR.get(shown.sort, ("", ""))
    keys = [other if key == instead else key for key in shown.usual]
    wanted = _SHOWN_FOR.get(shown.sort, "")
    if wanted and wanted not in keys:
        keys.append(wanted)
    found = _known(summary, keys, _WHERE_KNOWN - {wanted})
    return [kept(column) if column.key == wanted else column for column in found]


def _known(
    summary: Summary,
    keys: Sequence[str],
    unsure: Collection[str],
    among: pd.DataFrame | None = None,
) -> list[Column]:
    """Columns of these names; of those that are unsure the ones that say something of the rows."""
    rows = summary.layers if among is None else among
    known = {one.key for one in with_content(layer_columns(list(unsure)), rows)}
    found = layer_columns(keys, summary)
    return [one for one in found if one.key not in unsure or one.key in known]


def _legend_of_marks(columns: Sequence[Column], shown: pd.DataFrame) -> list[tuple[str, str]]:
    """What the mark of approximate figures means, with the last of their columns to be left out."""
    rows = list(shown[shown["work_is_about"]].itertuples())
    marked = [column for column in columns if any(column.cell(row).startswith("~") for row in rows)]
    lasting = sorted(marked, key=lambda column: column.drop or math.inf)[-1:]
    return [(column.name, ABOUT) for column in lasting]


def bars(summary: Summary) -> Iterator[Block]:
    several = summary.several_phases
    yield Figure(
        PLOT,
        f"Bar plot of the {typical_word(summary.recording)} self time of every layer",
        "One bar for each layer in the order of the calls"
        + (", phase after phase" if several else "")
        + f": {typical_word(summary.recording)} self time{on_gpu(summary)}, with whiskers from "
        "the 5th to the 95th percentile. Hot layers are red here, and bold in tables.",
    )


def hottest(summary: Summary) -> Table:
    """The hottest layers, which lead to their rows."""
    found = summary.slowest.head(_HOTTEST)
    return Table(
        layer_columns(_HOT_COLUMNS, summary),
        found,
        "The hottest layers",
        hot_marks(found),
        [("", f"Hot layers are {summary.hotspots.rule}. Shares are of the {whole(summary)[1]}.")],
        leads=[layer_anchor(at) for at in found.index],
    )


def on_page(summary: Summary) -> Iterator[Block]:
    yield Table(
        _page_columns(summary),
        summary.layers,
        "All layers",
        hot_marks(summary.layers),
        [
            (
                "",
                "Beside each layer: the histogram of its times, and their course over the trials.",
            ),
            *([("", ABOUT)] if summary.layers["work_is_about"].any() else []),
        ],
        anchors=[layer_anchor(at) for at in summary.layers.index],
        spreads=spreads(summary),
    )


def glossary(summary: Summary) -> Iterator[Block]:
    """What the columns of a page's table mean."""
    yield properties((column.title, column.meaning) for column in _page_columns(summary))


def _page_columns(summary: Summary) -> list[Column]:
    return _known(summary, _PAGE_COLUMNS, set(_PAGE_COLUMNS) - set(WHICH))


def spreads(summary: Summary) -> list[Spread]:
    """Of every layer a histogram of its times, and their course over the trials."""
    self_ns = summary.recording.self_ns
    parts = range(0, self_ns.shape[1], _AT_ONCE)
    return [one for at in parts for one in _spreads(self_ns[:, at : at + _AT_ONCE])]


def _spreads(times_ns: NDArray[np.int64]) -> Iterator[Spread]:
    """How the times of some layers are spread, in the order of the trials: (trials, layers)."""
    count = len(times_ns)
    least, most = times_ns.min(axis=0), times_ns.max(axis=0)
    # A few very long trials do not press all others into one bar.
    last = min(count - 1, int(0.99 * count))
    high = np.partition(times_ns, last, axis=0)[last]
    blocks = np.array_split(times_ns, min(_BLOCKS, count))
    course = np.array([np.median(block, axis=0) for block in blocks])
    for at in range(times_ns.shape[1]):
        # The clock counts whole nanoseconds: narrower bars would be empty in turn.
        bins = min(_BINS, max(1, int(2 * count**0.4)), int(high[at] - least[at]) + 1)
        span = max(1, int(high[at] - least[at]))
        places = np.minimum((times_ns[:, at] - least[at]) * (bins / span), bins - 1)
        counts = np.bincount(places.astype(np.intp), minlength=bins)
        level = np.clip((course[:, at] - least[at]) / span, 0, 1)
        longest = format_duration(int(most[at]) * NS)
        yield Spread(
            np.ceil(counts / counts.max() * SPREAD).astype(int).tolist(),
            np.rint(level * SPREAD).astype(int).tolist(),
            f"{plural(count, 'trial')}: {format_duration(int(least[at]) * NS)} to {longest}",
        )


def by_layer(summary: Summary) -> Iterator[Block]:
    """The report's table: each layer and its time."""
    shown = _chosen(summary)
    if rest := len(summary.layers) - len(shown):
        share = summary.layers["share"].drop(shown.index).sum()
        yield text(
            f"These are the {format_count(len(shown))} slowest of "
            f"{plural(len(summary.layers), 'layer')}; the other {format_count(rest)} take "
            f"{format_percent(share)} of the {whole(summary)[1]}."
        )
    label, *others = layer_columns(("label", "path", "phase", "median"), summary)
    yield Table([headed(label, "layer"), *others], shown, "Self time by layer", hot_marks(shown))
    yield text(file(LAYERS), " has all figures of the layers, ", file(LINKS), " those of links.")


def _chosen(summary: Summary) -> pd.DataFrame:
    """All layers in order, or the slowest of very many."""
    layers = summary.layers
    if len(layers) <= MAX_ROWS:
        return layers
    # Whatever the rule, the hot layers are the slowest ones.
    count = min(MAX_ROWS, max(SLOWEST, int(layers["hot"].sum())))
    return layers.loc[summary.slowest.head(count).index.sort_values()]


def by_node(summary: Summary) -> Iterator[Block]:
    """What an engine's nodes are, where it is not Chainer that ran."""
    if not summary.recording.settings.engine:
        return
    yield text(
        f"Each row is a node of {printable(summary.recording.settings.engine)}. Its function names "
        "all of Chainer's layers that it computes; its path is that of the layer with the "
        "most operations. A node that computes none has the engine's name. Layer numbers are "
        "those of the network's profile under Chainer."
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
    yield Table(found, _chosen(summary), "By node")
