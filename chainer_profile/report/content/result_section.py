"""Summary -> the report's sections of results: phases, groups, links, layers and hotspots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainer_profile.analyse.grouping import common_link
from chainer_profile.basics.paths import part_below
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_bare_percent,
    format_count,
    format_duration,
    format_ms,
    format_percent,
    plural,
)
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.report.columns import group_columns, kind_columns, phase_columns, tree_columns
from chainer_profile.report.content.device_section import device
from chainer_profile.report.content.engine_words import between, totals
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.content.layer_section import MAX_ROWS, by_layer
from chainer_profile.report.content.memory_section import memory
from chainer_profile.report.content.work_section import work
from chainer_profile.report.markdown_syntax import columns_table, link, properties, table, text
from chainer_profile.report.rows import (
    group_rows,
    has_blocks,
    phase_rows,
    phases_of,
    shortened,
    tree_rows,
)
from chainer_profile.report.text import of_kind, of_layers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from chainer_profile.analyse.summary import Summary

MAX_GROUPS = 20


def result(summary: Summary, *, plot: str, roofline: str, layers: str, links: str) -> Iterator[str]:
    """The section, as blocks of Markdown.

    Args:
        summary: The summary of a run.
        plot: Address of the bar plot.
        roofline: Address of the roofline plot.
        layers: Address of the table of all layers.
        links: Address of the table of all links.
    """
    several = len(phases_of(summary)) > 1
    yield "## 4 Result"
    yield properties(row for row in totals(summary) if row[1] != NOT_KNOWN)
    yield from _adds_up(summary)
    yield from device(summary)
    if several:
        yield from _phases(summary)
    yield from _kinds(summary, layers)
    yield "### By function"
    yield _groups(summary, "function", len(summary.functions))
    if has_blocks(summary):
        yield "### By block"
        yield (
            "A block is the part of a path up to its first number, or its first names where it has "
            "none. Its times are those of all links in it."
        )
        yield _groups(summary, "block", MAX_GROUPS)
    yield from _links(summary, links)
    yield from work(summary, roofline)
    yield from memory(summary)
    yield from by_layer(summary, plot, layers)


def _adds_up(summary: Summary) -> Iterator[str]:
    found = summary.totals
    if found.profiled is None or found.framework is None:
        return
    layers, framework, trial = (
        f"{format_ms(seconds)} ms"
        for seconds in (found.layers_s, found.framework.mean_s, found.profiled.mean_s)
    )
    rows = "nodes" if summary.recording.settings.engine else "layers"
    yield (
        f"It adds up: {rows}{on_gpu(summary)} {layers} + {between(summary)} {framework} = profiled "
        f"trial {trial}."
    )


def _phases(summary: Summary) -> Iterator[str]:
    rows = phase_rows(summary)
    yield "### By phase"
    yield columns_table(phase_columns(), rows, bold=[row.whole for row in rows])
    *parts, whole = rows
    terms = " + ".join(f"{text(row.name)} {format_ms(row.total_s)} ms" for row in parts)
    yield f"It adds up: {terms} = {text(whole.name)} {format_ms(whole.total_s)} ms."
    if summary.recording.on_device:
        yield (
            "The times of a phase are the device's, its framework being what passes on the device "
            "between the phase's layers; what is outside of the phases is the rest of the trial on "
            "the host's clock."
        )


def kinds(summary: Summary) -> Iterator[str]:
    """The table of the kinds of trials, where there are several, and what it says."""
    if not summary.kinds:
        return
    yield (
        "Trials that make other calls, or calls with other shapes, are of other kinds. All other "
        "tables and pictures are of the first kind."
    )
    yield columns_table(kind_columns(), summary.kinds)
    if left_out := summary.recording.left_out:
        yield f"Of {plural(left_out, 'more trial')} the kind is not known."


def _kinds(summary: Summary, layers: str) -> Iterator[str]:
    if not summary.kinds:
        return
    yield "### Kinds of trials"
    yield from kinds(summary)
    tables = ", ".join(link(of_kind(layers, kind.number)) for kind in summary.kinds[1:])
    yield f"The layers of the other kinds with all digits: {tables}."


def _groups(summary: Summary, by: str, most: int) -> str:
    """The largest groups, and all others in one row."""
    rows = group_rows(summary, by)
    columns = group_columns(by, phases_of(summary))
    return columns_table(columns, shortened(rows, most))


def _links(summary: Summary, address_of_all: str) -> Iterator[str]:
    shown, beside = tree_rows(summary, DEFAULT_DEPTH, MAX_ROWS)
    count = int(summary.links.index.str.startswith("/").sum())
    if count < 2:
        return
    yield "### By link"
    which = "All links are shown"
    if len(shown) < count:
        levels = max(row.depth for row in shown)
        which = (
            f"{format_count(len(shown))} of {plural(count, 'link')} are shown, down to "
            f"{plural(levels, 'level')} below the network"
        )
        if len(shown) == MAX_ROWS:
            which += " and those of the longest times"
    yield (
        f"{which}; {link(address_of_all)} has all of them with all digits. Inclusive times are "
        "those of a link with all links below it, exclusive times those of the functions that it "
        "calls itself. Bold links have hot layers of their own or in links that are not shown."
    )
    rows = [*shown, *beside]
    columns = tree_columns(phases_of(summary), rows, indent=False)
    yield columns_table(columns, rows, bold=[row.marked for row in rows])
    if summary.totals.profiled is not None:
        outside = [row.path for row in beside[:-1]]
        yield (
            f"The inclusive times of the network (/) and of {' + '.join(map(text, outside))} add "
            "up to the profiled trial."
        )


def hotspots(summary: Summary) -> Iterator[str]:
    """The section of the hot layers, as blocks of Markdown."""
    layers, hot = summary.layers, summary.layers[summary.layers["hot"]]
    yield "## 5 Hotspots"
    yield f"The rule: hot are {text(summary.hotspots.rule)}."
    if hot.empty:
        slowest = layers.loc[layers["median_s"].idxmax()]
        yield (
            f"No layer is hot. The slowest is {text(slowest['label'])} with "
            f"{format_duration(slowest['median_s'])}."
        )
        return
    sentence = (
        f"{of_layers(len(hot), len(layers))} {'is' if len(hot) == 1 else 'are'} hot and "
        f"{'holds' if len(hot) == 1 else 'hold'} {format_percent(hot['share'].sum())} of the "
        "layers' time"
    )
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        part = hot["mean_s"].sum() / profiled.mean_s
        sentence += f", {format_percent(part)} of the profiled trial"
    yield sentence + "."
    if len(phases_of(summary)) > 1:
        yield _hot_by("phase", hot, hot["phase"])
    yield _hot_by("function", hot, hot["function"])
    if len(hot) > 1:
        holder = common_link(layers["path"].tolist())
        parts = hot["path"].map(lambda path: part_below(path, holder))
        yield _hot_by("part of the network", hot, parts)
    rest = layers[~layers["hot"]]
    if len(rest):
        most = format_percent(rest["share"].max())
        yield (
            f"The other layer holds {most}."
            if len(rest) == 1
            else f"None of the other {plural(len(rest), 'layer')} holds more than {most}."
        )


def _hot_by(name: str, hot: pd.DataFrame, by: pd.Series[Any]) -> str:
    """The hot layers by something: how many, and their share; the largest groups only."""
    groups = hot.groupby(by, sort=False)["share"].agg(["size", "sum"])
    groups = groups.sort_values("sum", ascending=False, kind="stable")
    rows = [
        (text(group), format_count(int(size)), format_bare_percent(float(share)))
        for group, size, share in groups.head(MAX_GROUPS).itertuples()
    ]
    others = groups.iloc[MAX_GROUPS:]
    if len(others):
        size, share = int(others["size"].sum()), float(others["sum"].sum())
        rows.append((f"{len(others)} others", format_count(size), format_bare_percent(share)))
    return table((name, "hot layers", "share of the layers' time [%]"), rows, numbers=2)
