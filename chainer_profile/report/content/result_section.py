"""Summary -> the sections of results: the whole trial, the GPU, phases, groups and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from chainer_profile.analyse.device_use import DeviceUse, phase_device
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import units
from chainer_profile.basics.describe import Statistics
from chainer_profile.basics.words import TOTAL_TIME
from chainer_profile.report import unit
from chainer_profile.report.columns import PHASES, group_columns, properties, tree_columns
from chainer_profile.report.content import boxes
from chainer_profile.report.content.layer_section import TableOptions, hidden
from chainer_profile.report.document import TOTAL, Block, Fold, strong, text
from chainer_profile.report.rows import (
    hot_marks,
    link_anchor,
    other_groups,
    phase_rows,
    tree_rows,
)
from chainer_profile.report.tables import Column, Table, by_key, with_notes
from chainer_profile.report.text import framework_name, interval_text

#: Smallest share of a phase in a sentence.
_MIN_PHASE_SHARE = 0.001
#: A depth below all links.
_ALL_LEVELS = 10**9
_MARKED = Column("marked", "", unit.HOT_FLAG)
#: Notes on columns below the terminal's tables of groups and links.
_NOTES = {
    "total": "total is with the calls made within these, self without them.",
    "each": "ms a call is of the total.",
    "inclusive": "incl. is the time of a link with all links below it.",
    "exclusive": "excl. is the time of the functions that it calls itself.",
}


def whole_trial(summary: Summary) -> Iterator[Block]:
    """The times of a whole trial. Layers and framework add up to the profiled trial."""
    yield from boxes.parts(summary)
    known = (row for row in _totals(summary) if row[1] != units.NOT_KNOWN)
    rows = ((name, f"{figure} ({more})" if more else figure) for name, figure, more in known)
    yield properties(rows, "A trial as a whole")


def _totals(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a figure, and its interval, share or formula."""
    totals, recording, time = summary.totals, summary.recording, units.format_duration
    clean, profiled, trial = totals.clean, totals.profiled, totals.trial
    quoted = "Unprofiled" if clean else "Profiled"
    yield f"{quoted} trial, median", *_median(trial)
    yield f"{quoted} trial, 95th percentile", time(trial.p95_s if trial else None), ""
    yield "Unprofiled trial, mean", time(clean.mean_s if clean else None), ""
    if totals.fps is not None:
        formula = f"batch / mean {quoted.lower()} trial"
        yield "Inputs per second (FPS)", units.format_significant(totals.fps), formula
    yield "Profiled trial, mean", time(profiled.mean_s if profiled else None), ""
    engine, on_device = recording.settings.engine, recording.on_device
    rows, where = ("nodes", "between the nodes") if engine else ("layers", "between the functions")
    share, framework = totals.framework_share, totals.framework
    name = f"Sum of the {rows}{', on the GPU' * on_device}"
    if totals.layers_s is None or share is None or framework is None:
        yield name, time(totals.layers_s), ""
    else:
        layers_share = f"{units.format_percent(1 - share)} of the profiled trial"
        yield name, time(totals.layers_s), layers_share
        outside = "outside the layers" if on_device and not engine else where
        name = f"{framework_name(recording).capitalize()} ({outside})"
        yield name, time(framework.mean_s), f"{units.format_percent(share)} of the profiled trial"
    if totals.overhead is not None:
        added = totals.overhead
        interval = interval_text(added.low, added.high, units.format_change)
        yield "Added by the recorder", units.format_change(added.fraction), interval


def _median(statistics: Statistics | None) -> tuple[str, str]:
    """Format a median, and its interval with the number of trials."""
    if statistics is None:
        return units.NOT_KNOWN, ""
    median = units.format_duration(statistics.median_s)
    trials = units.plural(statistics.count, "trial")
    interval = interval_text(statistics.ci_low_s, statistics.ci_high_s)
    if not interval:
        return median, f"{trials}: too few for a confidence interval"
    return median, f"{interval}, {trials}"


#: The last digit of a formatted time in ms, in seconds.
_STEP_S = 1e-7
NO_HELD_TRIALS = "unknown: there are no held trials"


def pace(use: DeviceUse) -> str:
    """Describe whether the host or the GPU limits the speed."""
    launch, wait = units.format_duration(use.launch_s), units.format_duration(use.wait_s)
    if use.launch_bound and use.busy_s is not None:
        return (
            f"the GPU waits for the host. The host takes {launch} to launch work that the GPU does "
            f"in {units.format_duration(use.busy_s)} ({units.format_percent(use.busy_share)} busy)."
        )
    if use.launch_bound:
        return (
            f"the GPU probably waits for the host. The host launches for {launch} and then waits "
            f"for only {wait}. (A network that waits for the GPU midway looks the same.)"
        )
    busy = ""
    if use.busy_share is not None:
        busy = f", busy for {units.format_percent(use.busy_share)} of it"
    return (
        f"The GPU sets the pace{busy}: the host launches a trial in {launch} and then waits for "
        f"another {wait}."
    )


def device(summary: Summary) -> Iterator[Block]:
    """The section on the GPU; nothing for a run on a CPU."""
    use = summary.device
    if use is None:
        return
    yield text(strong("Launch bound"), f": {pace(use)}") if use.launch_bound else text(pace(use))
    wall, (launch, wait) = _format_sum((use.launch_s, use.wait_s))
    span, (layers, gaps, rest) = _format_sum((use.layers_s, use.gaps_s, use.rest_s))
    rows = [
        ("Wall time of a profiled trial", wall),
        ("... the host launches", launch),
        ("... of that in the layers' calls", f"{units.format_ms(use.calls_s)} ms"),
        ("... the host waits for the GPU", wait),
        ("Time of a trial on the GPU", span),
        ("... in the layers", layers),
        ("... between the layers", gaps),
        ("... after the last layer", rest),
        ("GPU busy", _busy_text(use)),
    ]
    if use.held_span_s is not None:
        rows.append(("A held trial on the GPU, median", f"{units.format_ms(use.held_span_s)} ms"))
    yield properties(rows, "A trial on the host and on the GPU")
    if summary.several_phases:
        yield from _gpu_phases(summary, use)


_ON_GPU = by_key(
    Column("phase", "phase", unit.TEXT, field="Index"),
    Column("host", "host ms", unit.MS, full="host in the layers' calls [ms]"),
    Column("layers", "layers ms", unit.MS, full="layers on the GPU [ms]"),
    Column("gaps", "between ms", unit.MS, full="between the layers [ms]", field="gap_s"),
    Column("busy", "busy ms", unit.MS, full="GPU busy [ms]"),
    Column("busy_share", "busy %", unit.PERCENT, full="busy part of the layers [%]"),
)


def _gpu_phases(summary: Summary, use: DeviceUse) -> Iterator[Block]:
    rows = phase_device(summary.layers)
    marks = [*("" for _ in rows.index), TOTAL]
    busy_s = float("nan") if use.busy_s is None else use.busy_s
    whole = {"host_s": use.calls_s, "layers_s": use.layers_s, "gap_s": use.gaps_s, "busy_s": busy_s}
    rows.loc["all layers"] = whole
    # The fraction of the layers' time in which the device works.
    rows["busy_share"] = rows["busy_s"] / rows["layers_s"]
    yield text(
        "By phase. The time between two layers counts for the phase of the second one; the "
        "host's time between the layers' calls counts for no phase:"
    )
    yield Table(_ON_GPU, rows, "The phases on the GPU", marks)


def _busy_text(use: DeviceUse) -> str:
    """Format how long the device is busy and idle in a trial."""
    share = use.busy_share
    if use.busy_s is None or use.idle_s is None or share is None:
        return NO_HELD_TRIALS
    # Rounded to the printed digits first, so that busy and idle add up to 100 %.
    share = round(share, 3)
    return (
        f"{units.format_ms(use.busy_s)} ms ({units.format_percent(share)} of the wall time), idle "
        f"{units.format_ms(use.idle_s)} ms ({units.format_percent(1 - share)}); from "
        f"{units.plural(use.held_trials, 'held trial')}"
    )


def _format_sum(parts_s: Sequence[float]) -> tuple[str, list[str]]:
    """Format a sum and its parts in ms so that the printed parts add up to the printed sum.

    The largest part takes the rounding error.
    """
    steps = [round(part / _STEP_S) for part in parts_s]
    whole = round(math.fsum(parts_s) / _STEP_S)
    steps[steps.index(max(steps))] += whole - sum(steps)
    return f"{units.format_ms(whole * _STEP_S)} ms", [
        f"{units.format_ms(n * _STEP_S)} ms" for n in steps
    ]


def phases(summary: Summary) -> Iterator[Block]:
    """The table of phases; nothing for a trial with one phase."""
    if not summary.several_phases:
        return
    rows = phase_rows(summary)
    yield Table(PHASES, rows, "Time by phase", [*[""] * (len(rows) - 1), TOTAL])
    if summary.recording.on_device:
        yield text(
            "The times of a phase are the device's; its framework time is the device's time "
            "between the phase's layers. Time outside the phases is the rest of the trial on "
            "the host's clock."
        )


def phases_in_short(summary: Summary) -> Iterator[Block]:
    """``By phase: forward 39.4 %, backward 59.9 %, update 0.7 %.``"""
    if summary.several_phases:
        shares = phase_rows(summary)["share"].iloc[:-1]
        large = shares[shares >= _MIN_PHASE_SHARE]
        parts = (
            f"{str(name).removesuffix(' of the phases')} {units.format_percent(share)}"
            for name, share in large.items()
        )
        yield text(f"By phase: {', '.join(parts)}.", below=True)


def groups(summary: Summary, options: TableOptions) -> Iterator[Block]:
    """The terminal's table of the requested groups."""
    by, ordered = options.group_by, summary.group(options.group_by)
    if options.sort == TOTAL_TIME:
        ordered = ordered.sort_values("inclusive_s", ascending=False, kind="stable")
    rows = ordered if options.limit is None else ordered.head(max(0, options.limit))
    legend = [
        *hidden(summary, ordered["share"].iloc[len(rows) :], options.hint, by),
        f"Times are in ms; % is self time as part of the {whole_time(summary).name}.",
    ]
    columns = with_notes(group_columns(by, summary.phase_names), _NOTES)
    rest = other_groups(summary, ordered, rows)
    yield Table(
        columns, pd.concat([rows, rest]), f"By {by}", hot_marks(rows), legend, foot=len(rest)
    )


def by_function(summary: Summary) -> Iterator[Block]:
    """The table of all functions, for Markdown and the page."""
    columns = group_columns("function", summary.phase_names)
    functions = summary.functions
    rest = other_groups(summary, functions, functions)
    rows, marks = pd.concat([functions, rest]), hot_marks(functions)
    yield Table(columns, rows, "Self time by function", marks, foot=len(rest))


def tree(summary: Summary, options: TableOptions) -> Iterator[Block]:
    """The terminal's tree of links, down to ``options.depth``."""
    rows = pd.concat(tree_rows(summary, options.depth))
    columns = with_notes(tree_columns(summary.phase_names, rows, indent=True), _NOTES)
    legend = []
    if below := int((summary.links["depth"] > options.depth).sum()):
        verb = "is" if below == 1 else "are"
        legend.append(
            f"{units.plural(below, 'link')} below {verb} not shown (--tree 99 shows all); their "
            "times are in the rows above them."
        )
    legend += [
        f"{unit.HOT_MARK} marks hot layers: {summary.hotspots.rule}.",
        f"Times are in ms, % is of the {whole_time(summary).name}.",
    ]
    marks = hot_marks(rows, "marked")
    if summary.totals.profiled is not None:
        marks[-1] = TOTAL
    yield Table([_MARKED, *columns], rows, "The tree of links", marks, legend)


def tree_on_page(summary: Summary) -> Iterator[Block]:
    """A page's tree of links, which can be folded, and its pictures."""
    links, other_rows = tree_rows(summary, _ALL_LEVELS)
    if len(links) < 2:
        return
    for index, (name, picture) in enumerate(boxes.links(summary)):
        yield Fold((name,), [picture]) if index else picture
    rows = pd.concat([links, other_rows])
    yield Table(
        tree_columns(summary.phase_names, rows, indent=False),
        rows,
        "Inclusive and exclusive time of the links",
        hot_marks(rows.fillna({"hot": 0})),
        ["Inclusive time covers a link and all links below it."],
        anchors=[link_anchor(summary, path) for path in rows.index],
        depths=rows["depth"].tolist(),
    )
