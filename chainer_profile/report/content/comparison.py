"""Comparison -> what is said of it, the verdict first; and its words for the gate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_factor,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.comparison.compare import (
    FASTER,
    LAYERS,
    MIN_TRIALS,
    SAME,
    SLOWER,
    UNCLEAR,
    UNKNOWN,
)
from chainer_profile.comparison.fused import CHAINER, place, short_name
from chainer_profile.comparison.run_differences import COPY, OTHERS, PRODUCT
from chainer_profile.report import document
from chainer_profile.report.document import (
    Figure,
    Heading,
    file,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Column, Columns, Table, columns
from chainer_profile.report.text import model_name, printable, profiled_text, settings_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from chainer_profile.comparison.compare import Comparison, Side, Slower
    from chainer_profile.record.recording import Layer
    from chainer_profile.report.document import Block

#: The table with all digits, and the picture.
CSV, PLOT = "comparison.csv", "comparison.png"
#: What ``--sort`` takes.
SORTS = ("change", "time", "index", "path")
#: Unmatched layers that are named.
MAX_UNMATCHED = 5
_MAX_DIFFERENCES = 8
_MAX_PATH, _MAX_FUNCTION, _MAX_PLACE = 32, 26, 12
_MAX_VALUE, _MAX_NAME = 40, 80
_MARKS = {SLOWER: document.SLOWER, FASTER: document.FASTER}


@dataclass(frozen=True)
class Gate:
    """A gate that a comparison has to pass.

    Attributes:
        fail_above: The fraction above which it fails.
        cpu: Whether it looks at CPU time.
    """

    fail_above: float
    cpu: bool = False


def report(
    comparisons: Sequence[Comparison],
    *,
    plots: Sequence[str],
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    gate: Gate | None = None,
) -> list[Block]:
    """The report of comparisons of one run with others; see :func:`compared`.

    Args:
        comparisons: The comparisons.
        plots: File of the picture of each of them.
        sort: One of :data:`SORTS`.
        limit: Rows of a table of layers at most; None for all.
        everything: Show unchanged layers too.
        gate: The gate, if there is one.
    """
    names = ", ".join(comparison.after.name for comparison in comparisons)
    blocks: list[Block] = [Heading(1, f"{names} compared with {comparisons[0].before.name}")]
    for comparison, plot in zip(comparisons, plots, strict=True):
        if len(comparisons) > 1:
            blocks.append(Heading(2, comparison.after.name))
        blocks += compared(
            comparison, sort=sort, limit=limit, everything=everything, gate=gate, anchor=plot
        )
        blocks.append(Figure(plot, "Times of the layers in both runs", ""))
    blocks.append(text("All layers, with all digits: ", file(CSV)))
    return blocks


def compared(
    comparison: Comparison,
    *,
    sort: str = "change",
    limit: int | None = None,
    everything: bool = False,
    gate: Gate | None = None,
    hint: str = "",
    anchor: str = "",
) -> Iterator[Block]:
    """The verdict, what makes it doubtful, totals, layers, and what was compared.

    Args:
        comparison: The comparison.
        sort: One of :data:`SORTS`.
        limit: Rows of the table of layers at most; None for all.
        everything: Show unchanged layers too.
        gate: The gate, if there is one.
        hint: How to see the rows that a limit leaves out, if there is a way.
        anchor: What the anchors of the layers' rows begin with.
    """
    yield text(strong(verdict(comparison)))
    if gate is not None:
        yield text(strong(gate_line(comparison, gate.fail_above, gate.cpu)), below=True)
        if failed := failures(comparison, gate.fail_above, gate.cpu):
            yield points(failed)
    loud = comparison.moved or comparison.other_machine
    if len(comparison.totals):  # or it is the verdict
        yield text(counts_line(comparison), below=True)
    yield text(machine_line(comparison), note=loud, below=True)
    for line in notes(comparison):
        yield text(line, note=not comparison.judged, below=True)
    if len(comparison.totals):
        yield _table(_TOTALS, comparison.totals, "Whole trials")
    layers = shown_layers(comparison, sort=sort, everything=everything)
    shown = layers if limit is None else layers.head(limit)
    if len(shown):
        legend = [("", "Times are medians in ms."), ("95 %", "95 % is the interval of the factor.")]
        if hidden := len(layers) - len(shown):
            how = f" ({hint})" if hint else ""
            legend.insert(0, ("", f"{plural(hidden, 'row')} not shown{how}."))
        table = _table(layer_columns(comparison), shown, "The layers")
        yield replace(table, legend=legend, anchors=[f"{anchor}-{at}" for at in shown.index])
    for line in unmatched_lines(comparison):
        yield text(line)
    sides = (("Before: ", comparison.before), ("After: ", comparison.after))
    yield points(
        [*(start + side_text(side) for start, side in sides), differences_line(comparison)]
    )


def words_of(comparison: Comparison, anchor: str) -> dict[str, str]:
    """What pointing at a layer's bars says, by the anchor of its row."""
    return {
        f"{anchor}-{row.Index}": f"{row_label(row)} at {printable(row.path)}: "
        f"{format_duration(row.before_s)}, now {format_duration(row.after_s)}, "
        f"{change(row.ratio, row.verdict)}"
        for row in comparison.layers.itertuples()
    }


def _table(found: Columns, table: pd.DataFrame, caption: str) -> Table:
    marks = [_MARKS.get(verdict, "") for verdict in table["verdict"]]
    return Table(found, table, caption, marks)


def verdict(comparison: Comparison) -> str:
    """The answer: ``The clean trial is 1.11x slower: 4.7 ms, now 5.2 ms (95 % 1.08-1.14).``"""
    totals = comparison.totals
    if not len(totals):
        return counts_line(comparison)
    row = totals.iloc[0]
    name, found = comparison.headline, str(row["verdict"])
    name = "sum of the layers" if name == LAYERS else name
    times = f"{format_duration(row['before_s'])}, now {format_duration(row['after_s'])}"
    said = interval(row["ratio"], row["low"], row["high"])
    within = "" if said == NOT_KNOWN else f", 95 % interval of the factor {said}"
    factor = towards(row["ratio"])
    if found in (SLOWER, FASTER):
        return f"The {name} is {factor}: {times}{within}."
    if found == SAME:
        return f"No change of the {name} can be told: {times}, {factor}, not significant{within}."
    if found == UNCLEAR:
        return f"The {name} is {factor}, by the machine or the code: {times}{within}."
    return f"No verdict on the {name}: {times}, {factor}."


def side_text(side: Side) -> str:
    """What a side is: ``A: resnet20, ..., 1,000 profiled trials, 2026-01-02T03:04:05Z``."""
    first = side.runs[0]
    trials = [format_count(run.n_trials) for run in side.runs]
    parts = [model_name(first.settings), settings_text(first.settings)]
    if len(side.runs) == 1:
        parts.append(profiled_text(first))
    else:
        shown = trials[0] if len(set(trials)) == 1 else " + ".join(trials)
        parts.append(f"{plural(len(side.runs), 'run')} of {shown} profiled trials")
    started = sorted(run.environment.started for run in side.runs if run.environment.started)
    if started:
        parts.append(started[0] + (f" to {started[-1]}" if started[-1] != started[0] else ""))
    commits = dict.fromkeys(run.environment.commit for run in side.runs if run.environment.commit)
    if commits:
        parts.append(f"commit {' and '.join(commits)}")
    return f"{_begin(side.name, _MAX_NAME)}: {', '.join(map(printable, parts))}"


def differences_line(comparison: Comparison) -> str:
    """One line of what differs beside the times; says so where nothing does."""
    found = comparison.differences
    if not found:
        return "Settings and environments are the same."
    parts = [
        f"{d.name} ({_value(d.before)}, now {_value(d.after)})" for d in found[:_MAX_DIFFERENCES]
    ]
    more = len(found) - len(parts)
    rest = f", and {format_count(more)} more" if more else ""
    start = "Different machines. " if comparison.other_machine else ""
    return f"{start}What differs: {', '.join(parts)}{rest}."


def _value(text: str) -> str:
    return _begin(text, _MAX_VALUE) or "none"


def machine_line(comparison: Comparison) -> str:
    """One line of whether the machine itself became faster or slower, and by how much."""
    found = {movement.name: movement for movement in comparison.movements}
    works = [found[name] for name in (PRODUCT, COPY) if name in found]
    if not works and not comparison.same_place:
        return "How fast the machines themselves are is not compared: their fixed work differs."
    if not works:
        return "Whether the machine itself was as fast is not known: a run has no calibration."
    parts = [
        f"a fixed {work.name} took {format_factor(work.ratio)} the time"
        + ("" if comparison.several else f" ({work.low:.2f} to {work.high:.2f} by the moment)")
        for work in works
    ]
    words = ", ".join(parts)
    others = found.get(OTHERS)
    if others is not None and others.moved:
        busy = [_busy(side) for side in (comparison.before, comparison.after)]
        words += f"; other programs kept {busy[0]} and {busy[1]} cores busy"
    if not comparison.same_place:
        return f"On the two machines, devices or BLAS settings {words}."
    if not comparison.moved:
        return f"The machine itself was as fast: {words}."
    return (
        f"The machine itself moved: {words}. What this may account for is not called a change: "
        "compare again on a quiet machine."
    )


def _busy(side: Side) -> str:
    known = [run.conditions.other_cpu for run in side.runs if run.conditions.other_cpu is not None]
    return f"{sum(known) / len(known):.1f}" if known else NOT_KNOWN


def notes(comparison: Comparison) -> Iterator[str]:
    """What the reader must know to take the verdicts for what they are, a sentence each."""
    if comparison.same_run:
        yield "A run stands on both sides: it is compared with itself."
    if line := fusion_line(comparison):
        yield line
    phases = [side.runs[0].settings.phase for side in (comparison.before, comparison.after)]
    if phases[0] != phases[1]:
        yield (
            f"The trials are not the same ({printable(phases[0])}, and {printable(phases[1])}): "
            "the layers of the phases in common are compared, not the trials."
        )
    if not comparison.judged:
        yield (
            f"There are times but no verdicts: a run of fewer than {MIN_TRIALS} trials does not "
            "tell how much is noise."
        )
    elif comparison.several:
        yield (
            "Noise from run to run is measured: the 95 % interval of the median layer's ratio is "
            f"+/-{format_percent(comparison.run_spread)}."
        )
    else:
        yield (
            "One run of each: what differs from run to run is not measured. Layers are judged by "
            f"how they scatter ({format_percent(comparison.run_spread)}), and what all of them "
            "have in common may be the machine. Record five runs of each, in turn, to tell more: "
            "compare A1,A2,A3,A4,A5 B1,B2,B3,B4,B5."
        )
    if unclear := unclear_line(comparison):
        yield unclear


def unclear_line(comparison: Comparison) -> str:
    """Why the trial has no verdict though it differs; empty where it has one.

    ``Whether the machine or the code made the trial 2.52x slower cannot be told: ...``
    """
    totals = comparison.totals
    if not len(totals) or totals["verdict"].iloc[0] != UNCLEAR:
        return ""
    more = (
        "compare again on a quiet machine, or by CPU time (--gate cpu)."
        if comparison.several
        else "there is one run a side; record five runs of each, in turn."
    )
    found = towards(totals["ratio"].iloc[0])
    return f"Whether the machine or the code made the trial {found} cannot be told: {more}"


def fusion_line(comparison: Comparison) -> str:
    """What was put together, where an engine does several layers together; empty for nothing.

    ``66 layers of chainer became 27 nodes of onnxruntime 1.20.1; compared as 24 groups.``
    """
    fusion = comparison.fusion
    if fusion is None or not fusion.merged:
        return ""
    sides = [
        f"{plural(rows, 'layer' if engine == CHAINER else 'node')} of {printable(engine)}"
        for engine, rows in (
            (fusion.before, fusion.before_rows),
            (fusion.after, fusion.after_rows),
        )
    ]
    became = "became" if fusion.before == CHAINER else "and"
    return f"{f' {became} '.join(sides)}; compared as {plural(fusion.groups, 'group')}."


def row_label(row: Any) -> str:
    """Index and function of a row of :attr:`Comparison.layers`: ``3-5_Convolution2D + 2 fused``."""
    return printable(f"{_place(row.before_index, row.covers)}_{short_name(row.function)}")


def _place(index: int, covers: Sequence[int]) -> str:
    return _begin(place(index, covers), _MAX_PLACE)


def change(ratio: float, verdict: str) -> str:
    """A change in words: ``1.11x faster``, ``1.05x slower``, ``not significant``."""
    if verdict in (FASTER, SLOWER):
        return f"{format_factor(ratio if verdict == SLOWER else 1 / ratio)} {verdict}"
    if verdict == UNKNOWN:
        return towards(ratio)
    return f"{towards(ratio)}, {verdict}" if verdict == UNCLEAR else verdict


def towards(ratio: float) -> str:
    """A ratio in words, whether significant or not: ``1.01x slower``."""
    if not ratio > 0 or math.isinf(ratio):
        return NOT_KNOWN
    return f"{format_factor(max(ratio, 1 / ratio))} {'slower' if ratio >= 1 else 'faster'}"


def interval(ratio: float, low: float, high: float) -> str:
    """The 95 % interval of the factor that :func:`towards` gives: ``1.04-1.07``."""
    if math.isnan(low) or math.isnan(high):
        return NOT_KNOWN
    if ratio < 1:
        low, high = 1 / high, 1 / low
    return f"{low:.2f}-{high:.2f}"


_TOTALS = columns(
    """
total Index | | text 14
before | | duration
after | | duration
change | | figure
interval | 95 % = 95 % interval !1 | figure
""",
    change=lambda row: _total_change(row.ratio, row.verdict),
    interval=lambda row: interval(row.ratio, row.low, row.high),
)


def _total_change(ratio: float, verdict: str) -> str:
    words = change(ratio, verdict)
    return f"{towards(ratio)}, {words}" if verdict == SAME else words


_LAYERS = columns(
    """
place | # !2 | figure
path | | text 32
function | | text 26
phase | !4 | text 12
before | before = before [ms] | ms
after | after = after [ms] | ms
change | | figure
interval | 95 % = 95 % interval !3 | figure
share after_share | share = share [%] !1 | percent
""",
    place=lambda row: _place(row.before_index, row.covers),
    path=lambda row: _end(row.path, _MAX_PATH),
    function=lambda row: _function(row.function),
    phase=lambda row: _begin(row.phase, _MAX_PLACE),
    change=lambda row: change(row.ratio, row.verdict),
    interval=lambda row: interval(row.ratio, row.low, row.high),
)


def layer_columns(comparison: Comparison) -> list[Column]:
    """Columns of the table of layers, for rows of :func:`shown_layers`."""
    phases = comparison.layers["phase"].nunique() > 1
    return [column for key, column in _LAYERS.items() if phases or key != "phase"]


#: The columns of ``comparison.csv``, of :func:`file_rows`. Times are medians; of several runs their
#: geometric mean.
COLUMNS = columns("""
before | | text | The run to compare with, as it was named
after | | text | The run that is compared with it
row | | text | What the row is: total, layer, only before or only after (a layer that the other run
  does not have)
name | | text | Name of the total, or index and function of the layer in the run that has it
before_index | | plain? | Place of the layer in a trial of the first run, from 0; empty for totals
after_index | | plain? | Place in a trial of the second run; likewise
path | | text | Path of the link that made the call; empty for totals
function | | text | Chainer's name of the function; of a row that puts several together all of their
  names; likewise
phase | | text | Phase of the trial that the layer belongs to; likewise
covers | | text | Indices of Chainer's layers that the row puts together, where a run of another
  engine is compared; empty for what is the engine's own, and between runs of Chainer
before_time before_s before_ms | | ms | Median time in the first run; of several runs the geometric
  mean of theirs
after_time after_s after_ms | | ms | The same in the second run
before_share | | percent | Part of the sum of all layers' such times in the first run; empty for
  totals
after_share | | percent | The same in the second run
ratio | | number | Second time over first; above 1 is slower
ci95_low low | | number | Lower end of the ratio's 95 % interval, which holds what the machine may
  account for; empty where it is not known
ci95_high high | | number | Upper end
p_value | | number | How likely such a difference is without a cause; for layers corrected for their
  number (false discovery rate)
verdict | | text | faster, slower, not significant, not known (too few trials), or, of totals,
  machine or code (it differs, as the machine itself did)
""")


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
    for which, side, layers in (
        ("before", comparison.before, comparison.only_before),
        ("after", comparison.after, comparison.only_after),
    ):
        for only in layers:
            yield both | {
                "row": f"only {which}",
                "name": only.label,
                f"{which}_index": only.index,
                "path": only.path,
                "function": only.function,
                "phase": only.phase,
                "covers": _covers(only.covers),
                f"{which}_s": side.time_s(only.index),
                f"{which}_share": side.share(only.index),
            }


def _covers(covers: Sequence[int]) -> str:
    return " ".join(map(str, covers))


def _function(function: str) -> str:
    return _begin(short_name(function), _MAX_FUNCTION)


def _begin(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _end(text: str, most: int) -> str:
    """Of a path the end tells layers apart."""
    text = printable(text)
    return text if len(text) <= most else "…" + text[1 - most :]


def shown_layers(comparison: Comparison, *, sort: str, everything: bool) -> pd.DataFrame:
    """The layers to show, in order: the changed ones, or all; all without verdicts too.

    Args:
        comparison: The comparison.
        sort: One of :data:`SORTS`: ``change`` is by how much time the trial gains or loses,
            ``time`` by the larger of both times, ``index`` the order of the calls.
        everything: Unchanged layers too.
    """
    layers = comparison.layers if everything or not comparison.judged else comparison.changed
    if sort == "index":
        return layers
    keys = {
        "change": (layers["after_s"] - layers["before_s"]).abs(),
        "time": layers[["before_s", "after_s"]].max(axis=1),
        "path": layers["path"],
    }
    order = keys[sort].sort_values(ascending=sort == "path", kind="stable").index
    return layers.loc[order]


def counts_line(comparison: Comparison) -> str:
    """How many layers changed: ``3 of 66 layers changed: 2 slower, 1 faster.``"""
    verdicts = comparison.layers["verdict"]
    count = plural(len(verdicts), "matched group" if fusion_line(comparison) else "matched layer")
    if not comparison.judged:
        return f"{count}, without verdicts."
    slower, faster = (int((verdicts == which).sum()) for which in (SLOWER, FASTER))
    of = f"{format_count(slower + faster)} of {count} changed"
    if not slower + faster:
        return f"{of} significantly."
    rest = len(verdicts) - slower - faster
    same = f"; the other {format_count(rest)} not significantly" if rest else ""
    return f"{of}: {format_count(slower)} slower, {format_count(faster)} faster{same}."


def unmatched_lines(comparison: Comparison) -> Iterator[str]:
    """Layers that only one side has, some by name, with their time in all."""
    for side, layers in (
        (comparison.before, comparison.only_before),
        (comparison.after, comparison.only_after),
    ):
        if layers:
            shown = [_layer_name(layer) for layer in layers[:MAX_UNMATCHED]]
            more = len(layers) - len(shown)
            rest = f", and {format_count(more)} more" if more else ""
            yield (
                f"Only in {_begin(side.name, _MAX_NAME)}: {plural(len(layers), 'layer')}, "
                f"{format_duration(_time_s(side, layers))}: {', '.join(shown)}{rest}."
            )


def _layer_name(layer: Layer) -> str:
    at = _place(layer.index, layer.covers)
    return f"{at}_{_function(layer.function)} at {_end(layer.path, _MAX_PATH)}"


def _time_s(side: Side, layers: Sequence[Layer]) -> float:
    return sum(side.time_s(layer.index) for layer in layers)


def failures(comparison: Comparison, fraction: float, cpu: bool = False) -> list[str]:
    """What a gate fails for, a line each."""
    return [_slower_text(slower) for slower in comparison.slower_than(fraction, cpu)]


def not_judged(comparison: Comparison, fraction: float, cpu: bool = False) -> str:
    """Why a gate can neither fail nor pass; empty where it can."""
    if not comparison.enough_trials(cpu):
        return f"{_begin(comparison.after.name, _MAX_NAME)} has too few trials for a verdict"
    if comparison.unclear(fraction, cpu) and not comparison.slower_than(fraction, cpu):
        return unclear_line(comparison).rstrip(".")
    return ""


def _slower_text(slower: Slower) -> str:
    found = f"{printable(slower.name)}: {format_factor(slower.ratio)} slower"
    if math.isnan(slower.low):
        return found
    return f"{found} (95 % interval {slower.low:.2f} to {slower.high:.2f})"


def gate_line(comparison: Comparison, fraction: float, cpu: bool = False) -> str:
    """The result of a gate, in one line."""
    limit = f"{format_significant(fraction * 100, 2)} %"
    if why := not_judged(comparison, fraction, cpu):
        return f"Gate: not judged. {why}."
    failed = len(comparison.slower_than(fraction, cpu))
    of = "" if comparison.headline else " Trials are not compared, layers alone are."
    if cpu:
        of = " It looks at the CPU time of a trial alone."
    if failed:
        moved = " The machine itself moved: try again." if comparison.moved and not cpu else ""
        return f"Gate: FAILED, {format_count(failed)} slower by more than {limit}.{of}{moved}"
    return f"Gate: passed, nothing is significantly slower by more than {limit}.{of}"
