"""Comparison -> its blocks, the verdict first; and the words of its gate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from chainer_profile.basics import units
from chainer_profile.basics.sentences import first
from chainer_profile.comparison import significance
from chainer_profile.comparison.compare import LAYERS, Comparison, Side
from chainer_profile.comparison.fused import CHAINER, place, short_name
from chainer_profile.comparison.run_differences import COPY, OTHERS, PRODUCT
from chainer_profile.report import document as doc
from chainer_profile.report import text as words
from chainer_profile.report import unit
from chainer_profile.report.document import text
from chainer_profile.report.tables import Column, Columns, Table, by_key, not_shown
from chainer_profile.report.text import printable, shorten

#: The file of the table.
CSV = "comparison.csv"
#: Unmatched layers, and settings that differ, that are named at most.
_MAX_UNMATCHED, _MAX_DIFFERENCES = 5, 8
#: Characters of paths, functions and places, and of values and names of runs, at most.
_MAX_PATH, _MAX_FUNCTION, _MAX_PLACE = 32, 26, 12
_MAX_VALUE, _MAX_NAME = 40, 80
_MARKS = {significance.SLOWER: doc.SLOWER, significance.FASTER: doc.FASTER}


@dataclass(frozen=True)
class Gate:
    """A gate: it fails above this fraction, and may look at CPU time."""

    fail_above: float
    cpu: bool = False


def report(
    comparisons: Sequence[Comparison], plots: Sequence[str], **shown: Any
) -> list[doc.Block]:
    """The report of comparisons of one run with others, each with its picture's file."""
    names = ", ".join(comparison.after.name for comparison in comparisons)
    title = f"{names} compared with {comparisons[0].before.name}"
    blocks: list[doc.Block] = [doc.Heading(1, title)]
    for comparison, plot in zip(comparisons, plots, strict=True):
        if len(comparisons) > 1:
            blocks.append(doc.Heading(2, comparison.after.name))
        blocks += compared(comparison, anchor=plot, **shown)
        blocks.append(doc.Figure(plot, "Times of the layers in both runs", ""))
    return [*blocks, text("All layers: ", doc.file(CSV))]


def compared(
    comparison: Comparison,
    *,
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    gate: Gate | None = None,
    hint: str = "",
    anchor: str = "",
) -> Iterator[doc.Block]:
    """The verdict, its doubts, totals, layers (see :func:`shown_layers`), the sides.

    The anchors of the layers' rows begin with ``anchor``.
    """
    yield text(doc.strong(verdict(comparison)))
    if gate is not None:
        yield text(doc.strong(gate_line(comparison, gate)), below=True)
        yield from doc.listing(failures(comparison, gate))
    if len(comparison.totals):  # or it is the verdict
        yield text(counts_line(comparison), below=True)
    times = [side.program_s for side in (comparison.before, comparison.after)]
    if None not in times:
        took, now = map(units.format_duration, times)
        yield text(f"The whole program took {took}, now {now}.", below=True)
    loud = comparison.moved or comparison.other_machine
    yield text(machine_line(comparison), note=loud, below=True)
    yield from doc.below(notes(comparison), note=not comparison.judged)
    if len(comparison.totals):
        yield _table(_TOTALS, comparison.totals, "Whole trials")
    layers = shown_layers(comparison, sort, everything)
    shown = layers.head(len(layers) if limit is None else limit)
    if len(shown):
        legend = not_shown(len(layers) - len(shown), hint)
        legend.append(f"Times are medians in ms{' by input' * comparison.by_input}.")
        table = _table(layer_columns(comparison), shown, "The layers")
        yield replace(table, legend=legend, anchors=[f"{anchor}-{at}" for at in shown.index])
    yield from map(text, unmatched_lines(comparison))
    sides = (("Before: ", comparison.before), ("After: ", comparison.after))
    yield doc.points(
        [*(start + _side(side) for start, side in sides), differences_line(comparison)]
    )


def _table(columns: Columns, rows: pd.DataFrame, caption: str) -> Table:
    marks = [_MARKS.get(verdict, "") for verdict in rows["verdict"]]
    return Table(columns, rows, caption, marks)


def verdict(comparison: Comparison) -> str:
    """The answer: ``The unprofiled trial is 1.11x slower: 4.7 ms, now 5.2 ms ...``"""
    if not len(comparison.totals):
        return counts_line(comparison)
    row = comparison.totals.iloc[0]
    judged, factor = str(row["verdict"]), towards(row["ratio"])
    name = "sum of the layers" if comparison.headline == LAYERS else comparison.headline
    name += " by input" * comparison.by_input
    times = f"{units.format_duration(row['before_s'])}, now {units.format_duration(row['after_s'])}"
    of_factor = interval(row["ratio"], row["low"], row["high"])
    within = "" if of_factor == units.NOT_KNOWN else f", 95 % interval of the factor {of_factor}"
    if judged == significance.SAME:
        return f"No significant change in the {name}: {times}, {factor}{within}."
    if judged == significance.UNKNOWN:
        return f"No verdict on the {name}: {times}, {factor}."
    by = ", by the machine or the code" if judged == significance.UNCLEAR else ""
    return f"The {name} is {factor}{by}: {times}{within}."


def _side(side: Side) -> str:
    """A side in a line: ``A: resnet20, ..., 1,000 profiled trials, 2026-01-02T03:04:05Z``."""
    run = side.runs[0]
    parts = [words.model_name(run.settings), words.settings_text(run.settings)]
    if len(side.runs) == 1:
        parts.append(words.profiled_text(run))
    else:
        trials = [units.format_count(run.n_trials) for run in side.runs]
        shown = trials[0] if len(set(trials)) == 1 else " + ".join(trials)
        parts.append(f"{units.plural(len(side.runs), 'run')} of {shown} profiled trials")
    started = sorted({run.environment.started for run in side.runs} - {""})
    parts.append(" to ".join(dict.fromkeys((*started[:1], *started[-1:]))))
    commits = dict.fromkeys(run.environment.commit for run in side.runs if run.environment.commit)
    parts.append(f"commit {' and '.join(commits)}" if commits else "")
    return f"{_name(side)}: {', '.join(filter(None, parts))}"


def differences_line(comparison: Comparison) -> str:
    """One line of the settings and environments that differ."""
    texts = []
    for difference in comparison.differences:
        sides = (difference.before, difference.after)
        shown = (shorten(value, _MAX_VALUE) or "none" for value in sides)
        texts.append(f"{difference.name} ({', now '.join(shown)})")
    if not texts:
        return "Settings and environments are the same."
    start = "Different machines. " if comparison.other_machine else ""
    return f"{start}What differs: {_first(texts, _MAX_DIFFERENCES)}."


def _first(texts: Sequence[str], most: int) -> str:
    """The first of these, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f", and {units.format_count(more)} more" if more > 0 else "")


def machine_line(comparison: Comparison) -> str:
    """One line of whether the machine itself became faster or slower, and by how much."""
    movements = {movement.name: movement for movement in comparison.movements}
    works = [movements[name] for name in (PRODUCT, COPY) if name in movements]
    if not works:
        if not comparison.same_place:
            return "The speed of the machines is not compared, because their calibration differs."
        return (
            "It is unknown whether the machine was equally fast, because one run has no "
            "calibration."
        )
    words = ", ".join(
        f"a fixed {work.name} took {units.format_factor(work.ratio)} the time"
        + ("" if comparison.several else _ends(f"{work.low:.2f}", f"{work.high:.2f}"))
        for work in works
    )
    if OTHERS in movements and movements[OTHERS].moved:
        busy = [_busy(side) for side in (comparison.before, comparison.after)]
        words += f"; other programs kept {busy[0]} and {busy[1]} cores busy"
    if not comparison.same_place:
        return f"On the two machines, devices or BLAS settings {words}."
    if not comparison.moved:
        return f"The machine was equally fast: {words}."
    return (
        f"The machine's own speed changed: {words}. Differences that this may explain are not "
        "reported as changes. Compare again on a quiet machine."
    )


def _ends(low: str, high: str) -> str:
    return "" if low == high else f" (between {low} and {high})"


def _busy(side: Side) -> str:
    shares = [run.conditions.other_cpu for run in side.runs]
    cores = [share for share in shares if share is not None]
    return f"{sum(cores) / len(cores):.1f}" if cores else units.NOT_KNOWN


#: The first of these that holds says how much of a change may be noise.
_NOISE = {
    "-judged": (
        "There are times but no verdicts: fewer than {least} trials do not show how much is noise."
    ),
    "several": (
        "Run-to-run noise is measured: the 95 % interval of the median layer's ratio is "
        "+/-{spread:%}."
    ),
    "": (
        "With one run on each side, run-to-run noise is not measured: layers are judged by their "
        "scatter ({spread:%}), and a change common to all of them may be the machine's. For a "
        "stronger verdict, record five runs of each in turn and compare A1,A2,A3,A4,A5 "
        "B1,B2,B3,B4,B5."
    ),
}


def notes(comparison: Comparison) -> Iterator[str]:
    """The meaning and the limits of the verdicts, a sentence each."""
    if comparison.by_input:
        batches = f"{comparison.before.inputs}, now {comparison.after.inputs}"
        yield f"The batches differ ({batches}), so all times are by input: divided by the batch."
    if comparison.same_run:
        yield "One run is on both sides, so it is compared with itself."
    if line := fusion_line(comparison):
        yield line
    phases = [side.runs[0].settings.phase for side in (comparison.before, comparison.after)]
    if phases[0] != phases[1]:
        yield (
            f"The trials differ ({phases[0]}, and {phases[1]}), so only the layers of their "
            "common phases are compared."
        )
    facts = {"judged": comparison.judged, "several": comparison.several}
    yield first(_NOISE, facts | {"spread": comparison.run_spread, "least": significance.MIN_TRIALS})
    if unclear := unclear_line(comparison):
        yield unclear


def unclear_line(comparison: Comparison, gated: bool = False) -> str:
    """Why the trial, or its gate, has no verdict though it differs; empty where it has one."""
    totals = comparison.totals
    if not len(totals) or totals["verdict"].iloc[0] != significance.UNCLEAR:
        return ""
    cpu = "compare by CPU time (--gate cpu)" if gated else "look at the CPU time"
    more = (
        f"compare again on a quiet machine, or {cpu}."
        if comparison.several
        else "there is one run on each side; record five of each in turn."
    )
    factor = towards(totals["ratio"].iloc[0])
    return f"It is unknown whether the machine or the code made the trial {factor}: {more}"


def fusion_line(comparison: Comparison) -> str:
    """How many layers an engine does together, and the groups compared; empty for none.

    ``66 layers of chainer became 27 nodes of onnxruntime 1.20.1; compared as 24 groups.``
    """
    fusion = comparison.fusion
    if fusion is None or not fusion.merged:
        return ""
    before, after = (
        f"{units.plural(rows, 'layer' if engine == CHAINER else 'node')} of {printable(engine)}"
        for engine, rows in ((fusion.before, fusion.before_rows), (fusion.after, fusion.after_rows))
    )
    became = "became" if fusion.before == CHAINER else "and"
    return f"{before} {became} {after}; compared as {units.plural(fusion.groups, 'group')}."


def _place(layer: Any, index: int) -> str:
    return shorten(place(index, layer.covers), _MAX_PLACE)


def _function(layer: Any) -> str:
    return shorten(printable(short_name(layer.function)), _MAX_FUNCTION)


def _path(layer: Any) -> str:
    return words.ending(printable(layer.path), _MAX_PATH)


def change(ratio: float, verdict: str) -> str:
    """A change in words: ``1.11x faster``, ``1.05x slower``, ``not significant``."""
    if verdict == significance.SAME:
        return verdict
    return towards(ratio) + (f", {verdict}" if verdict == significance.UNCLEAR else "")


def towards(ratio: float) -> str:
    """A ratio in words, whether significant or not: ``1.01x slower``."""
    if not ratio > 0 or math.isinf(ratio):
        return units.NOT_KNOWN
    return f"{units.format_factor(max(ratio, 1 / ratio))} {'slower' if ratio >= 1 else 'faster'}"


def interval(ratio: float, low: float, high: float) -> str:
    """The 95 % interval of the factor that :func:`towards` gives: ``1.04-1.07``."""
    if ratio < 1:
        low, high = 1 / high, 1 / low
    return units.format_interval(low, high, "{:.2f}".format, "-")


# fmt: off
_INTERVAL = Column("interval", "95 %", unit.FIGURE, full="95 % interval",
                   value=lambda row: interval(row.ratio, row.low, row.high))
_TOTALS = (
    Column("total", "total", unit.TEXT, field="Index", fold=14),
    Column("before", "before", unit.SECONDS),
    Column("after", "after", unit.SECONDS),
    Column("change", "change", unit.FIGURE,
           value=lambda row: (f"{towards(row.ratio)}, " * (row.verdict == significance.SAME)
                              + change(row.ratio, row.verdict))),
    replace(_INTERVAL, drop=1),
)
_LAYERS = by_key(
    Column("place", "#", unit.FIGURE, value=lambda row: _place(row, row.before_index), drop=2),
    Column("path", "path", unit.TEXT, value=_path, fold=32),
    Column("function", "function", unit.TEXT, value=_function, fold=26),
    Column("phase", "phase", unit.TEXT, value=lambda row: shorten(row.phase, _MAX_PLACE), fold=12,
           drop=4),
    Column("before", "before", unit.MS),
    Column("after", "after", unit.MS),
    Column("change", "change", unit.FIGURE, value=lambda row: change(row.ratio, row.verdict)),
    replace(_INTERVAL, drop=3, note="95 % is the confidence interval of the factor."),
    Column("share", "share", unit.PERCENT, full="share [%]", field="after_share", drop=1),
)
# fmt: on


def layer_columns(comparison: Comparison) -> list[Column]:
    phases = comparison.layers["phase"].nunique() > 1
    return [column for key, column in _LAYERS.items() if phases or key != "phase"]


# fmt: off
#: The columns of ``comparison.csv``, of :func:`file_rows`. Times are medians; of several runs their
#: geometric mean.
COLUMNS = by_key(
    Column("before", "before", unit.TEXT, "Name of the first run, the baseline"),
    Column("after", "after", unit.TEXT, "Name of the second run"),
    Column("row", "row", unit.TEXT,
           meaning="total, layer, or only before or only after: a layer of one run"),
    Column("name", "name", unit.TEXT, "Name of the total, or index and function of the layer"),
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
           meaning="Median time in the first run; of several runs the geometric mean of their "
                   "medians; by input where the batches differ"),
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
           meaning="faster, slower, not significant, not known (too few trials) or, of totals, "
                   "machine or code (the machine changed too)"),
)
# fmt: on


def file_rows(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Totals, layers and unmatched layers of all comparisons; see :data:`COLUMNS`."""
    return pd.DataFrame([row for comparison in comparisons for row in _file_rows(comparison)])


def _file_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    both = {"before": comparison.before.name, "after": comparison.after.name}
    for name, total in comparison.totals.to_dict("index").items():
        yield both | {"row": "total", "name": name} | total
    for layer in comparison.layers.to_dict("records"):
        name = f"{layer['before_index']}_{layer['function']}"
        yield both | layer | {"row": "layer", "name": name, "covers": _covers(layer["covers"])}
    for which, (side, layers) in zip(("before", "after"), comparison.unmatched, strict=True):
        for only in layers:
            times = {"index": only.index, "s": side.time_s(only.index)}
            times["share"] = side.share(only.index)
            texts = {name: getattr(only, name) for name in ("path", "function", "phase")}
            texts |= {"row": f"only {which}", "name": only.label, "covers": _covers(only.covers)}
            yield both | texts | {f"{which}_{name}": value for name, value in times.items()}


def _covers(covers: Sequence[int]) -> str:
    return " ".join(map(str, covers))


def shown_layers(comparison: Comparison, sort: str, everything: bool) -> pd.DataFrame:
    """The layers to show: the changed ones, or all; all without verdicts too.

    In order of ``change`` (by how much time the trial gains or loses), ``time`` (the larger of
    both), ``index`` (the order of the calls) or ``path``.
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


def counts_line(comparison: Comparison) -> str:
    """How many layers changed: ``3 of 66 layers changed: 2 slower, 1 faster.``"""
    verdicts = comparison.layers["verdict"]
    count = units.plural(
        len(verdicts), "matched group" if fusion_line(comparison) else "matched layer"
    )
    if not comparison.judged:
        return f"{count}, without verdicts."
    slower, faster = (
        int((verdicts == which).sum()) for which in (significance.SLOWER, significance.FASTER)
    )
    of = f"{units.format_count(slower + faster)} of {count} changed"
    if not slower + faster:
        return f"{of} significantly."
    rest = len(verdicts) - slower - faster
    same = f"; the other {units.format_count(rest)} not significantly" if rest else ""
    return f"{of}: {units.format_count(slower)} slower, {units.format_count(faster)} faster{same}."


def unmatched_lines(comparison: Comparison) -> Iterator[str]:
    """Layers that only one side has, some by name, with their time in all."""
    for side, layers in comparison.unmatched:
        if layers:
            names = [
                f"{_place(each, each.index)}_{_function(each)} at {_path(each)}" for each in layers
            ]
            time = units.format_duration(sum(side.time_s(layer.index) for layer in layers))
            count, shown = units.plural(len(layers), "layer"), _first(names, _MAX_UNMATCHED)
            yield f"Only in {_name(side)}: {count}, {time}: {shown}."


def _name(side: Side) -> str:
    return shorten(printable(side.name), _MAX_NAME)


def failures(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """The changes for which a gate fails, a line each."""
    for slower in comparison.slower_than(gate.fail_above, gate.cpu):
        sure = words.interval_text(slower.low, slower.high, "{:.2f}".format)
        name, ratio = printable(slower.name), units.format_factor(slower.ratio)
        yield f"{name}: {ratio} slower" + (sure and f" ({sure})")


def not_judged(comparison: Comparison, gate: Gate) -> str:
    """Why a gate can neither fail nor pass; empty where it can."""
    asked = gate.fail_above, gate.cpu
    if not comparison.enough_trials(gate.cpu):
        return f"{_name(comparison.after)} has too few trials for a verdict"
    if comparison.unclear(*asked) and not comparison.slower_than(*asked):
        return unclear_line(comparison, gated=True).rstrip(".")
    return ""


def gate_line(comparison: Comparison, gate: Gate) -> str:
    limit = f"{units.format_significant(gate.fail_above * 100, 2)} %"
    if why := not_judged(comparison, gate):
        return f"Gate: not judged. {why}."
    of = "" if comparison.headline else " Only layers are compared, not trials."
    if gate.cpu:
        of = " It considers only the CPU time of a trial."
    if failed := len(comparison.slower_than(gate.fail_above, gate.cpu)):
        return f"Gate: FAILED, {units.format_count(failed)} slower by more than {limit}.{of}"
    return f"Gate: passed, nothing is significantly slower by more than {limit}.{of}"
