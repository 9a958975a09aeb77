"""Summary -> what the terminal and a notebook show of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import STEP, WARNING, next_step
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
    properties,
    tree_columns,
)
from chainer_profile.report.content.answer import (
    answer,
    doubts,
    finding_words,
    how_long,
    what_next,
    where,
)
from chainer_profile.report.content.counters_section import counters
from chainer_profile.report.content.device_section import MEANINGS, device_rows
from chainer_profile.report.content.gpu_text import gpu_lines, on_gpu
from chainer_profile.report.content.inside_section import inside
from chainer_profile.report.content.inside_section import said as inside_said
from chainer_profile.report.content.memory_section import (
    PHASE_MEMORY,
    memory_sentences,
    peak_columns,
    peak_rows,
    peaks_sentence,
    phase_memory,
)
from chainer_profile.report.content.result_section import phase_table
from chainer_profile.report.content.totals import total_rows
from chainer_profile.report.content.work_section import (
    has_about,
    has_work,
    limits_sentence,
    work_columns,
    work_rows,
)
from chainer_profile.report.document import HOT, TOTAL, plain, points, strong, text
from chainer_profile.report.rows import group_rows, phase_rows, tree_rows
from chainer_profile.report.tables import (
    HOT_MARK,
    Column,
    Table,
    columns,
    kept,
    listed,
    with_content,
)
from chainer_profile.report.text import engine_text, environment_lines, printable, run_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.summary import Summary
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
_MAX_PEAKS = 5
#: Columns that an order needs to be seen, beside the usual ones or in place of one of them.
_SHOWN_FOR = {"flops": "flops", "memory": "peak", "reached": "reached"}
_IN_PLACE_FOR = {"std": ("ci", "std")}
#: Layers, notes and steps of a first screen, and the columns of its layers.
MOST_LAYERS, _MOST_NOTES, _MOST_STEPS = 10, 1, 3
#: A phase that is less of a trial is not told there.
_LEAST_PHASE = 0.001
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
    # What was found goes before what is missing.
    notes = sorted(doubts(summary), key=lambda note: not plain(note.words).startswith(WARNING))
    yield text(strong(how_long(summary)))
    most = len(notes) if all_findings else _MOST_NOTES
    yield from notes[:most]
    if more := len(notes[most:]):
        said = f"{plural(more, 'more warning')}: --full shows {'it' if more == 1 else 'them'}."
        yield text(said, note=True, below=True)
    early = [one.text for one in summary.findings if one.code == "ended-early"]
    for sentence in (*early, where(summary), *inside_said(summary)[:1]):
        if sentence:
            yield text(sentence, below=True)
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
) -> Iterator[Block]:
    """The answer, then totals, phases, layers or tree, groups, work, memory, findings.

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
    """
    recording = summary.recording
    yield from _what_was_run(summary)
    yield from answer(summary)
    yield properties([*total_rows(summary), *device_rows(summary)])
    if summary.several_phases:
        yield phase_table(summary)
    yield from _tree(summary, depth) if tree else _layers(summary, sort, limit, columns, hint)
    yield from _groups(summary, group_by, limit, hint)
    yield from inside(summary, brief=True)
    if has_work(summary):
        legend = [("", ABOUT)] if has_about(summary) else []
        rows = work_rows(summary)
        yield Table(work_columns(summary, macs), rows, "Work by function", legend=legend)
        if sentence := limits_sentence(summary):
            yield text(sentence, below=True)
    yield from _memory(summary, limit)
    yield from counters(summary, brief=True)
    first = next_step(summary.findings)
    for finding in summary.findings:
        if finding.severity != WARNING and finding != first:
            yield text(strong(finding.severity), ": ", *finding_words(finding))
    lines = [*environment_lines(recording.environment), *gpu_lines(recording)]
    for at, line in enumerate(lines):
        yield text(line, aside=True, below=at > 0)


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
        [HOT if hot else "" for hot in shown["hot"]],
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


def _memory(summary: Summary, limit: int | None) -> Iterator[Block]:
    for at, sentence in enumerate(memory_sentences(summary)):
        yield text(printable(sentence), below=at > 0)
    if phases := phase_memory(summary):
        yield Table(PHASE_MEMORY, phases, "Memory by phase")
    peaks = peak_rows(summary, _MAX_PEAKS if limit is None else min(limit, _MAX_PEAKS))
    if peaks:
        yield text(peaks_sentence(peaks))
        yield Table(peak_columns(summary), peaks, "The layers with the highest peaks of memory")
