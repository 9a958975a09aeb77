"""Comparison -> its tables: totals, parts of a program, layers, and the rows of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from chainer_profile.basics import units
from chainer_profile.comparison import significance
from chainer_profile.comparison.compare import Comparison
from chainer_profile.comparison.fused import row_number, short_name
from chainer_profile.comparison.programs import WHOLE
from chainer_profile.record.budget import REST
from chainer_profile.report import document as doc
from chainer_profile.report import unit
from chainer_profile.report.content.comparison_words import (
    change_text,
    factor_interval,
    factor_text,
    join_first,
    side_name,
)
from chainer_profile.report.tables import Column, Columns, Table, by_key, not_shown
from chainer_profile.report.text import ending, printable, script_name, shorten

#: Most unmatched layers that are named; most characters of paths, functions and other cells.
_MAX_UNMATCHED, _MAX_PATH, _MAX_FUNCTION, _MAX_OTHER = 5, 32, 26, 12
_MARKS = {significance.SLOWER: doc.SLOWER, significance.FASTER: doc.FASTER}


def _number_text(layer: Any, index: int) -> str:
    """The number of a layer, or the indices of the layers that its row combines."""
    return shorten(row_number(index, layer.covers), _MAX_OTHER)


def _function_text(layer: Any) -> str:
    return shorten(printable(short_name(layer.function)), _MAX_FUNCTION)


def _path_text(layer: Any) -> str:
    return ending(printable(layer.path), _MAX_PATH)


# fmt: off
_INTERVAL = Column("interval", "95 %", unit.FIGURE, full="95 % interval",
                   value=lambda row: factor_interval(row.ratio, row.low, row.high))
_TOTALS = (
    Column("total", "total", unit.TEXT, field="Index", fold=14),
    Column("before", "before", unit.SECONDS),
    Column("after", "after", unit.SECONDS),
    Column("change", "change", unit.FIGURE,
           value=lambda row: (f"{factor_text(row.ratio)}, " * (row.verdict == significance.SAME)
                              + change_text(row.ratio, row.verdict))),
    replace(_INTERVAL, drop=1),
)
_PARTS = (
    Column("part", "part", unit.TEXT, field="Index", fold=24),
    Column("count", "count", unit.FIGURE, value=lambda row: _counts(row), unknown="", drop=1),
    Column("before", "before", unit.SECONDS),
    Column("after", "after", unit.SECONDS),
    Column("difference", "difference", unit.FIGURE,
           value=lambda row: units.format_difference(row.after_s - row.before_s)),
    Column("change", "change", unit.FIGURE, value=lambda row: _change_of_part(row)),
)
_LAYERS = by_key(
    Column("place", "#", unit.FIGURE, value=lambda row: _number_text(row, row.before_index),
           drop=2),
    Column("path", "path", unit.TEXT, value=_path_text, fold=32),
    Column("function", "function", unit.TEXT, value=_function_text, fold=26),
    Column("phase", "phase", unit.TEXT, value=lambda row: shorten(row.phase, _MAX_OTHER), fold=12,
           drop=4),
    Column("before", "before", unit.MS),
    Column("after", "after", unit.MS),
    Column("change", "change", unit.FIGURE, value=lambda row: change_text(row.ratio, row.verdict)),
    replace(_INTERVAL, drop=3, note="95 % is the confidence interval of the factor."),
    Column("share", "share", unit.PERCENT, full="share [%]", field="after_share", drop=1),
)
# fmt: on


def _counts(row: Any) -> str | None:
    """How often a part ran: ``600``, or ``600, now 300``."""
    counts = [units.format_count(n) for n in (row.before_count, row.after_count) if n > 0]
    return ", now ".join(dict.fromkeys(counts)) or None


def _change_of_part(row: Any) -> str | None:
    """``1.05x slower``; a part that one program does not have is new or gone."""
    if not row.before_s:
        return "new"
    if not row.after_s:
        return "gone"
    doubt = f", {row.verdict}" if row.verdict in (significance.SAME, significance.UNCLEAR) else ""
    return factor_text(row.ratio) + doubt


def programs(comparison: Comparison) -> Iterator[doc.Block]:
    """The table of the whole program and its parts, which add up to it; nothing for networks."""
    if not comparison.of_programs:
        return
    rows = pd.concat([comparison.totals.head(1), comparison.parts])
    rows.index = [_part_name(comparison, str(name)) for name in rows.index]
    columns = _PARTS if rows["low"].isna().all() else (*_PARTS, replace(_INTERVAL, drop=2))
    table = _table(columns, rows, "The whole program")
    marks = [mark or doc.TOTAL * (not index) for index, mark in enumerate(table.marks)]
    yield replace(table, marks=marks, legend=["The parts add up to the whole program."])


def _part_name(comparison: Comparison, name: str) -> str:
    scripts = {budget.script for budget in comparison.before.programs + comparison.after.programs}
    if name == REST and len(scripts) == 1:
        return f"{script_name(*scripts)}'s own code"
    return name


def trials(comparison: Comparison) -> Iterator[doc.Block]:
    """The table of a whole trial: its time, CPU time, layers and framework, as far as known."""
    rows = comparison.totals.iloc[1 if comparison.of_programs else 0 :]
    if len(rows):
        yield _table(_TOTALS, rows, "Whole trials")


def layers(
    comparison: Comparison,
    sort: str,
    limit: int | None,
    everything: bool,
    hint: str,
    anchor: str,
) -> Iterator[doc.Block]:
    """The table of the first ``limit`` of :func:`select_layers`; nothing if there are none.

    ``hint`` says how to see the omitted rows. The anchors of the rows begin with ``anchor``.
    """
    rows = select_layers(comparison, sort, everything)
    shown = rows.head(len(rows) if limit is None else limit)
    if len(shown):
        legend = not_shown(len(rows) - len(shown), hint)
        which = "means" if comparison.by_means else "medians"
        legend.append(f"Times are {which} in ms{' by input' * comparison.by_input}.")
        table = _table(layer_columns(comparison), shown, "The layers")
        yield replace(table, legend=legend, anchors=[f"{anchor}-{at}" for at in shown.index])


def _table(columns: Columns, rows: pd.DataFrame, caption: str) -> Table:
    marks = [_MARKS.get(verdict, "") for verdict in rows["verdict"]]
    return Table(columns, rows, caption, marks)


def layer_columns(comparison: Comparison) -> list[Column]:
    phases = comparison.layers["phase"].nunique() > 1
    return [column for key, column in _LAYERS.items() if phases or key != "phase"]


# fmt: off
#: The columns of ``comparison.csv``, of :func:`file_rows`. Times are medians, of programs means; of
#: several runs their geometric mean.
COLUMNS = by_key(
    Column("before", "before", unit.TEXT, "Name of the first run, the baseline"),
    Column("after", "after", unit.TEXT, "Name of the second run"),
    Column("row", "row", unit.TEXT,
           meaning="total, part (of a whole program), layer, or only before or only after: a layer "
                   "of one run"),
    Column("name", "name", unit.TEXT,
           meaning="Name of the total or part, or index and function of the layer"),
    Column("before_index", "before_index", unit.PLAIN,
           meaning="Place of the layer in a trial of the first run, from 0; empty for totals"),
    Column("after_index", "after_index", unit.PLAIN, "The same in the second run"),
    Column("path", "path", unit.TEXT, "Path of the calling link; empty for totals"),
    Column("function", "function", unit.TEXT,
           meaning="Chainer's name of the function, or names of several; likewise"),
    Column("phase", "phase", unit.TEXT, "Phase of the layer; likewise"),
    Column("covers", "covers", unit.TEXT,
           meaning="Indices of Chainer's layers in the row, if it compares another engine; empty "
                   "for what is the engine's own, and between runs of Chainer"),
    Column("before_time", "before_time", unit.MS, field="before_s", file="before_ms",
           meaning="Median time in the first run, of a program's trials and layers the mean; of "
                   "several runs the geometric mean of these; by input where the batches differ. "
                   "Of a whole program and its parts the time; of several runs the mean"),
    Column("after_time", "after_time", unit.MS, field="after_s", file="after_ms",
           meaning="The same in the second run"),
    Column("before_share", "before_share", unit.PERCENT,
           meaning="Part of the sum of all layers' times there; empty for totals"),
    Column("after_share", "after_share", unit.PERCENT, "The same in the second run"),
    Column("ratio", "ratio", unit.NUMBER, "Second time over first; above 1 is slower"),
    Column("ci95_low", "ci95_low", unit.NUMBER, field="low",
           meaning="Lower end of the ratio's 95 % confidence interval, which allows for the "
                   "machine's changes; empty if unknown"),
    Column("ci95_high", "ci95_high", unit.NUMBER, "Upper end", field="high"),
    Column("p_value", "p_value", unit.NUMBER,
           meaning="Probability of such a difference by chance; of layers, corrected for their "
                   "number (false discovery rate)"),
    Column("verdict", "verdict", unit.TEXT,
           meaning="faster, slower, not significant, not known (too few trials, or a part that one "
                   "program does not have) or, of totals and parts, machine or code (the machine "
                   "changed too) or one run each (of a program, which shows no noise)"),
)
# fmt: on


def file_rows(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Totals, parts of programs, and all layers of the comparisons; see :data:`COLUMNS`."""
    return pd.DataFrame([row for comparison in comparisons for row in _file_rows(comparison)])


def _file_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    both = {"before": comparison.before.name, "after": comparison.after.name}
    for name, total in comparison.totals.to_dict("index").items():
        yield both | {"row": "total", "name": name} | total
        if name == WHOLE:
            for part, times in comparison.parts.to_dict("index").items():
                yield both | {"row": "part", "name": part} | times
    for layer in comparison.layers.to_dict("records"):
        name = f"{layer['before_index']}_{layer['function']}"
        yield (
            both | layer | {"row": "layer", "name": name, "covers": _join_indices(layer["covers"])}
        )
    for which, (side, layers) in zip(("before", "after"), comparison.unmatched, strict=True):
        for only in layers:
            times = {"index": only.index, "s": side.time_s(only.index)}
            times["share"] = side.share(only.index)
            texts = {name: getattr(only, name) for name in ("path", "function", "phase")}
            texts |= {
                "row": f"only {which}",
                "name": only.label,
                "covers": _join_indices(only.covers),
            }
            yield both | texts | {f"{which}_{name}": value for name, value in times.items()}


def _join_indices(covers: Sequence[int]) -> str:
    return " ".join(map(str, covers))


def select_layers(comparison: Comparison, sort: str, everything: bool) -> pd.DataFrame:
    """The layers that changed, sorted; all layers with ``everything`` or without verdicts.

    ``sort`` is ``change`` (the largest difference of times first), ``time`` (the longest time of
    both sides first), ``index`` (the order of the calls) or ``path``.
    """
    layers = comparison.layers if everything or not comparison.judged else comparison.changed
    keys = {
        "change": (layers["after_s"] - layers["before_s"]).abs(),
        "time": layers[["before_s", "after_s"]].max(axis=1),
        "index": layers["before_index"],
        "path": layers["path"],
    }
    order = keys[sort].sort_values(ascending=sort in ("index", "path"), kind="stable").index
    return layers.loc[order]


def unmatched_lines(comparison: Comparison) -> Iterator[str]:
    """For each side, a sentence on the layers that only it has: number, total time, some names."""
    for side, layers in comparison.unmatched:
        if layers:
            names = [
                f"{_number_text(each, each.index)}_{_function_text(each)} at {_path_text(each)}"
                for each in layers
            ]
            time = units.format_duration(sum(side.time_s(layer.index) for layer in layers))
            count, shown = units.plural(len(layers), "layer"), join_first(names, _MAX_UNMATCHED)
            yield f"Only in {side_name(side)}: {count}, {time}: {shown}."
