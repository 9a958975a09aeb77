"""Summary -> what the terminal and a notebook show of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import NOTE, STEP, WARNING
from chainer_profile.basics.units import format_percent, plural
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.report.columns import (
    ABOUT,
    DEVICE,
    LAYER_COLUMNS,
    USUAL,
    group_columns,
    interval_note,
    layer_columns,
    tree_columns,
)
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.answer import answer, finding_words, opening, what_next
from chainer_profile.report.content.device_section import MEANINGS
from chainer_profile.report.content.gpu_text import on_gpu
from chainer_profile.report.content.profile import checks, sections
from chainer_profile.report.content.work_section import work
from chainer_profile.report.document import HOT, TOTAL, Heading, points, strong, text
from chainer_profile.report.rows import group_rows, hot_marks, phase_rows, tree_rows
from chainer_profile.report.tables import (
    HOT_MARK,
    Column,
    Table,
    columns,
    kept,
    listed,
    with_content,
)
from chainer_profile.report.text import engine_text, run_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import Own
    from chainer_profile.report.document import Block

_SORT_COLUMNS = {
    "time": "typical_s",
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
#: The sections of the report that a terminal has: before and behind its layers and groups.
_WHOLE = "A trial as a whole", "By phase"
_SECTIONS = (
    *("Hotspots", "By block", "By link", "On the GPU", "Inside the layers", "Work and limits"),
    *("CPU time and page faults", "Memory", "By node", "What to do next", "What was tried"),
    *("What else was found", "Experiment", "Environment", "Method", "Command and versions"),
)
#: Columns that an order needs to be seen, beside the usual ones or in place of one of them.
_SHOWN_FOR = {"flops": "flops", "memory": "peak", "reached": "reached"}
_IN_PLACE_FOR = {"std": ("ci", "std")}
#: Layers, notes and steps of a first screen, and the columns of its layers.
MOST_LAYERS, _MOST_NOTES, _MOST_STEPS = 10, 1, 3
#: A phase that is less of a trial is not told there.
_LEAST_PHASE = 0.001
BRIEF = ("index", "hot", "path", "function", "phase", "median", "share", "verdict")
_MARKED = columns('marked | "" | hot')
#: Columns that there are only where there is something in them.
_WHERE_KNOWN = frozenset({"gflops", "reached", "verdict", "peak", *DEVICE})


def brief(
    summary: Summary,
    *,
    sort: str = "time",
    limit: int | None = MOST_LAYERS,
    group_by: str = "",
    tree: bool = False,
    depth: int = DEFAULT_DEPTH,
    columns: Sequence[str] | None = None,
    hint: str = "",
    advice: Advice | None = None,
    all_findings: bool = False,
) -> Iterator[Block]:
    """A first screen: what it takes, where it goes, the hottest layers, what to do.

    The options are those of :func:`overview`; groups are shown where ``group_by`` asks for some,
    and findings down to the last where ``all_findings`` does.
    """
    yield from _what_was_run(summary)
    yield from opening(summary, None if all_findings else _MOST_NOTES)
    if summary.several_phases:
        yield text(_phases(summary), below=True)
    yield from (
        _tree(summary, depth) if tree else _layers(summary, sort, limit, columns, hint, usual=BRIEF)
    )
    if group_by:
        yield from _groups(summary, group_by, limit, hint)
    if words := what_next(summary, advice):
        yield text("Next: ", *words)
    steps = [one for one in summary.findings if one.severity == STEP and one.to_do]
    for one in steps[1:_MOST_STEPS] if advice is None and not all_findings else ():
        yield text("Or: ", *finding_words(one), below=True)
    if all_findings:
        told = [one for one in summary.findings if one.severity == WARNING] + steps[:1]
        yield points(finding_words(one) for one in summary.findings if one not in told)


def _phases(summary: Summary) -> str:
    """``By phase, of the time of a trial: forward 39.4 %, backward 59.9 %, update 0.7 %.``"""
    rows = [row for row in phase_rows(summary) if not row.whole and row.share >= _LEAST_PHASE]
    parts = (f"{row.name} {format_percent(row.share)}" for row in rows)
    return f"By phase, of the time of a trial: {', '.join(parts)}."


def overview(
    summary: Summary,
    *,
    sort: str = "time",
    limit: int | None = None,
    group_by: str = "function",
    tree: bool = False,
    depth: int = DEFAULT_DEPTH,
    macs: bool = False,
    columns: Sequence[str] | None = None,
    hint: str = "",
    advice: Advice | None = None,
) -> Iterator[Block]:
    """The answer, then the sections of the report.

    Args:
        summary: The summary of a run.
        sort: One of :data:`~.options.SORT_KEYS`, for the layer table: ``time``
            is the median, ``index`` the order of the calls, ``name`` the function, ``memory`` the
            peak. Numbers come largest first, and what is not known last.
        limit: Rows of the layer table and of the groups at most; None for all.
        group_by: One of :data:`~chainer_profile.basics.words.GROUPS`, for the table of groups.
        tree: Show the tree of links in place of the layers.
        depth: Levels of the tree below the network.
        macs: Show multiply-adds in place of operations.
        columns: Names of the columns of the layer table (:data:`.columns.LAYER_COLUMNS`), which
            are all shown, on a narrow terminal too; None for the usual ones.
        hint: How to see the rows that a limit leaves out, if there is a way.
        advice: What was tried on its network.
    """
    layers, groups = "The tree of links" if tree else "The layers", f"By {group_by}"
    own: Own = {
        layers: lambda: (
            _tree(summary, depth) if tree else _layers(summary, sort, limit, columns, hint)
        ),
        groups: lambda: _groups(summary, group_by, limit, hint),
        "Work and limits": lambda: work(summary, macs=macs),
        "What was tried": lambda: tried(advice) if advice is not None else (),
        "What else was found": lambda: checks(summary, (NOTE,)),
    }
    names = [layers, groups, *(name for name in _SECTIONS if name != groups)]
    if tree:
        names.remove("By link")
    yield from _what_was_run(summary)
    yield from answer(summary, advice)
    for name, blocks in sections(summary, [*_WHOLE, *names], own).items():
        yield Heading(2, name)
        yield from blocks


def _what_was_run(summary: Summary) -> Iterator[Block]:
    for line in run_lines(summary.recording):
        yield text(line, below=True)
    if summary.recording.settings.engine:
        said = f"engine: {engine_text(summary.recording.settings)}; a row is a node of it"
        yield text(strong(said), below=True)


def _layers(
    summary: Summary,
    sort: str,
    limit: int | None,
    chosen: Sequence[str] | None,
    hint: str,
    usual: Sequence[str] = USUAL,
) -> Iterator[Block]:
    layers = _sorted(summary.layers, sort)
    shown = layers if limit is None else layers.head(max(0, limit))
    if chosen is None:
        columns = _usual_columns(summary, sort, usual)
    else:
        columns = list(map(kept, layer_columns(chosen)))
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    hidden = layers.iloc[len(shown) :]
    said = _hidden(plural(len(hidden), "layer"), float(hidden["share"].sum()), hint)
    legend = [
        *([("", said)] if said else []),
        ("", f"{HOT_MARK} hot: {summary.hotspots.rule}."),
        ("", f"Times are {kind}{on_gpu(summary)} in ms, % is of the layers' time."),
        *_legend_of_marks(columns, shown),
        ("+/- ms", f"{interval_note(layers)}."),
        ("% of limit", "% of limit is the least time at this machine's limits over the median."),
        *((name, f"{meaning}.") for name, meaning in MEANINGS.items()),
    ]
    yield Table(
        columns,
        list(shown.itertuples()),
        "The layers",
        hot_marks(shown),
        legend=legend,
        wider="--columns chooses, a wider terminal shows them",
    )


def _legend_of_marks(columns: Sequence[Column], shown: pd.DataFrame) -> list[tuple[str, str]]:
    """What the mark of approximate figures means, with the last of their columns to be left out."""
    rows = list(shown[shown["work_is_about"]].itertuples())
    marked = [column for column in columns if any(column.cell(row).startswith("~") for row in rows)]
    lasting = sorted(marked, key=lambda column: column.drop or math.inf)[-1:]
    return [(column.name, ABOUT) for column in lasting]


def _usual_columns(summary: Summary, sort: str, usual: Sequence[str]) -> list[Column]:
    """The columns where none were chosen: with that of the order, without what is not known."""
    instead, other = _IN_PLACE_FOR.get(sort, ("", ""))
    keys = [other if key == instead else key for key in usual]
    wanted = _SHOWN_FOR.get(sort)
    if wanted is not None and wanted not in keys:
        keys.append(wanted)
    columns = layer_columns(keys, several_phases=summary.several_phases)
    unsure = [LAYER_COLUMNS[key] for key in keys if key in _WHERE_KNOWN]
    known = with_content(unsure, summary.layers)
    always = LAYER_COLUMNS[wanted] if wanted is not None else None
    return [
        kept(column) if column is always else column
        for column in columns
        if column not in unsure or column in known or column is always
    ]


def _sorted(layers: pd.DataFrame, sort: str) -> pd.DataFrame:
    if sort == "index":
        return layers
    column = _SORT_COLUMNS[sort]
    return layers.sort_values(column, ascending=column in _ASCENDING, kind="stable")


def _hidden(rows: str, share: float, hint: str) -> str:
    if rows.startswith("0 "):
        return ""
    how = f" ({hint})" if hint else ""
    return f"{rows} not shown{how}: {format_percent(share)} of the layers' time."


def _tree(summary: Summary, depth: int) -> Iterator[Block]:
    links, beside = tree_rows(summary, depth)
    rows = [*links, *beside]
    columns = [
        *listed(_MARKED),
        *tree_columns(summary.phase_names, rows, indent=True),
    ]
    legend = []
    if hidden := int((summary.links["depth"] > depth).sum()):
        said = (
            f"{plural(hidden, 'link')} below {'is' if hidden == 1 else 'are'} not shown "
            "(--depth 99 shows all); their times are in the rows above them."
        )
        legend.append(("", said))
    legend += [
        ("", f"{HOT_MARK} hot: {summary.hotspots.rule}."),
        ("", "Times are in ms; incl. is a link with all links below it."),
        ("excl. ms", "excl. is the functions that it calls itself."),
    ]
    marks = [HOT if row.marked else TOTAL if row.share is None else "" for row in rows]
    yield Table(columns, rows, "The tree of links", marks, legend)


def _groups(summary: Summary, by: str, limit: int | None, hint: str) -> Iterator[Block]:
    groups = group_rows(summary, by)
    shown = groups if limit is None else groups[: max(0, limit)]
    hidden = groups[len(shown) :]
    said = _hidden(plural(len(hidden), by), sum(row.share for row in hidden), hint)
    legend = [
        *([("", said)] if said else []),
        ("", "Times are in ms, % is of the layers' time."),
        ("bwd/fwd", "bwd/fwd is backward over forward."),
    ]
    marks = [HOT if row.hot else "" for row in shown]
    columns = group_columns(by, summary.phase_names)
    yield Table(columns, shown, f"By {by}", marks, legend=legend)
