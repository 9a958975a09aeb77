"""Summary -> the sections of its result: the whole trial, phases, groups, links and hotspots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from chainer_profile.analyse.amdahl import ways
from chainer_profile.analyse.changes import whole
from chainer_profile.analyse.device_use import DeviceUse, phase_device
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import Statistics
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_change,
    format_count,
    format_duration,
    format_interval,
    format_ms,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.basics.words import TOTAL_TIME
from chainer_profile.report.columns import (
    PHASES,
    WHICH,
    framework_of_groups,
    group_columns,
    group_rows,
    hot_marks,
    layer_columns,
    link_anchor,
    phase_rows,
    properties,
    tree_columns,
    tree_rows,
)
from chainer_profile.report.content import boxes
from chainer_profile.report.content.layer_section import Shown, hidden
from chainer_profile.report.document import TOTAL, Block, Fold, strong, text
from chainer_profile.report.tables import HOT_MARK, Table, columns, listed
from chainer_profile.report.text import Row, between, of_layers, on_gpu

#: Hot layers that the result lists.
MAX_HOT = 10
#: A phase that is less of a trial is not told in a sentence.
_LEAST_PHASE = 0.001
#: Links deeper than any.
_ALL_LEVELS = 10**9
_MARKED = columns('marked | "" | hot')


def whole_trial(summary: Summary) -> Iterator[Block]:
    """The times of a trial as a whole, and that they add up."""
    yield from boxes.parts(summary)
    yield properties(total_rows(summary), "A trial as a whole")
    found = summary.totals
    if found.layers_s is None or found.profiled is None or found.framework is None:
        return
    layers, framework, trial = (
        f"{format_ms(seconds)} ms"
        for seconds in (found.layers_s, found.framework.mean_s, found.profiled.mean_s)
    )
    rows = "nodes" if summary.recording.settings.engine else "layers"
    yield text(
        f"It adds up: {rows}{on_gpu(summary)} {layers} + "
        f"{between(summary.recording)} {framework} = profiled trial {trial}."
    )


def total_rows(summary: Summary) -> Iterator[Row]:
    """The times of a whole trial that are known, and beside each what is to be said of it."""
    for name, figure, more in _totals(summary):
        if figure != NOT_KNOWN:
            yield name, f"{figure} ({more})" if more else figure


def _totals(summary: Summary) -> Iterator[tuple[str, str, str]]:
    found, recording = summary.totals, summary.recording
    clean, profiled, trial = found.clean, found.profiled, found.trial
    which = "Unprofiled" if clean else "Profiled"
    mean_of = which if clean else "Unprofiled"
    yield f"{which} trial, median", *_median(trial)
    yield f"{which} trial, 95th percentile", format_duration(trial.p95_s if trial else None), ""
    yield f"{mean_of} trial, mean", format_duration(clean.mean_s if clean else None), ""
    if found.fps is not None:
        of = "" if clean else "profiled trials"
        yield "Inputs per second (FPS)", format_significant(found.fps), of
    yield "Profiled trial, mean", format_duration(profiled.mean_s if profiled else None), ""
    engine, on_device = recording.settings.engine, recording.on_device
    share, framework, part = found.framework_share, found.framework, "of the profiled trial"
    known = found.layers_s is not None and share is not None
    yield (
        f"Sum of the {'nodes' if engine else 'layers'}" + (", on the GPU" if on_device else ""),
        format_duration(found.layers_s),
        f"{format_percent(1 - share)} {part}" if known and share is not None else "",
    )
    if known and framework is not None:
        where = "between the functions"
        if engine or on_device:
            where = "between the nodes" if engine else "outside the layers"
        time, of_trial = format_duration(framework.mean_s), f"{format_percent(share)} {part}"
        yield f"{between(recording).capitalize()} ({where})", time, of_trial
    if found.overhead is not None:
        low, high = format_change(found.overhead.low), format_change(found.overhead.high)
        interval = "" if low == NOT_KNOWN else f"95 % interval {low} to {high}"
        yield "Added by the recorder", format_change(found.overhead.fraction), interval


def _median(statistics: Statistics | None) -> tuple[str, str]:
    """A median; its interval, and of how many trials."""
    if statistics is None:
        return NOT_KNOWN, ""
    interval = format_interval(statistics.ci_low_s, statistics.ci_high_s)
    trials = plural(statistics.count, "trial")
    said = f"95 % interval {interval}, {trials}"
    if interval == NOT_KNOWN:
        said = f"{trials}: too few for a confidence interval"
    return format_duration(statistics.median_s), said


#: What is shown of a time: so many seconds are one in the last digit of a time in ms.
_STEP_S = 1e-7
NO_HELD_TRIALS = "unknown: there are no held trials"


def pace(use: DeviceUse) -> str:
    launch, wait = format_duration(use.launch_s), format_duration(use.wait_s)
    if use.launch_bound and use.busy_s is not None:
        return (
            f"the GPU waits for the host. The host takes {launch} to launch work that the GPU "
            f"does in {format_duration(use.busy_s)} ({format_percent(use.busy_share)} busy)."
        )
    if use.launch_bound:
        return (
            f"the GPU probably waits for the host. The host launches for {launch} and then "
            f"waits for only {wait}. (A network that waits for the GPU midway looks the "
            "same.)"
        )
    busy = "" if use.busy_share is None else f", busy for {format_percent(use.busy_share)} of it"
    return (
        f"The GPU sets the pace{busy}: the host launches a trial in {launch} and then waits "
        f"for another {wait}."
    )


def device(summary: Summary) -> Iterator[Block]:
    """The part of the report on the GPU; nothing on a CPU."""
    use = summary.device
    if use is None:
        return
    yield text(strong("Launch bound"), f": {pace(use)}") if use.launch_bound else text(pace(use))
    wall, (launch, wait) = _adding_up((use.launch_s, use.wait_s))
    span, (layers, gaps, rest) = _adding_up((use.layers_s, use.gaps_s, use.rest_s))
    rows = [
        ("Wall time of a profiled trial", wall),
        ("... the host launches", launch),
        ("... of that in the layers' calls", f"{format_ms(use.calls_s)} ms"),
        ("... the host waits for the GPU", wait),
        ("Time of a trial on the GPU", span),
        ("... in the layers", layers),
        ("... between the layers", gaps),
        ("... after the last layer", rest),
        ("GPU busy", _busy_text(use)),
    ]
    if use.held_span_s is not None:
        rows.append(("A held trial on the GPU, median", f"{format_ms(use.held_span_s)} ms"))
    yield properties(rows, "A trial on the host and on the GPU")
    yield text(f"It adds up: launching {launch} + waiting {wait} = wall time {wall}.")
    yield text(
        f"On the GPU: layers {layers} + between them {gaps} + after the last {rest} = time on the "
        f"GPU {span}."
    )
    if summary.several_phases:
        yield from _gpu_phases(summary, use)


_ON_GPU = columns("""
phase Index | | text
host | host ms = host in the layers' calls [ms] | ms
layers | layers ms = layers on the GPU [ms] | ms
gaps gap_s | between ms = between the layers [ms] | ms
busy | busy ms = GPU busy [ms] | ms
busy_share | busy % = busy part of the layers [%] | percent
""")


def _gpu_phases(summary: Summary, use: DeviceUse) -> Iterator[Block]:
    rows = phase_device(summary.layers)
    marks = [*("" for _ in rows.index), TOTAL]
    busy_s = float("nan") if use.busy_s is None else use.busy_s
    whole = {"host_s": use.calls_s, "layers_s": use.layers_s, "gap_s": use.gaps_s, "busy_s": busy_s}
    rows.loc["all layers"] = whole
    # The part of the layers' time in which the device works.
    rows["busy_share"] = rows["busy_s"] / rows["layers_s"]
    yield text(
        "By phase. The time between two layers counts for the phase of the second one; the "
        "host's time between the layers' calls counts for no phase:"
    )
    yield Table(_ON_GPU, rows, "The phases on the GPU", marks)


def _busy_text(use: DeviceUse) -> str:
    """How long the device works in a trial, and how long it does not."""
    share = use.busy_share
    if use.busy_s is None or use.idle_s is None or share is None:
        return NO_HELD_TRIALS
    # Both as they are shown add up to 100 %.
    share = round(share, 3)
    return (
        f"{format_ms(use.busy_s)} ms ({format_percent(share)} of the wall time), idle "
        f"{format_ms(use.idle_s)} ms ({format_percent(1 - share)}); from "
        f"{plural(use.held_trials, 'held trial')}"
    )


def _adding_up(parts_s: Sequence[float]) -> tuple[str, list[str]]:
    """A sum and its parts in ms; as they are shown, the parts add up to the sum.

    What rounding leaves over goes to the largest part.
    """
    steps = [round(part / _STEP_S) for part in parts_s]
    whole = round(math.fsum(parts_s) / _STEP_S)
    steps[steps.index(max(steps))] += whole - sum(steps)
    return f"{format_ms(whole * _STEP_S)} ms", [f"{format_ms(n * _STEP_S)} ms" for n in steps]


def phases(summary: Summary) -> Iterator[Block]:
    """Time by phase, where a trial has several."""
    if not summary.several_phases:
        return
    rows = phase_rows(summary)
    *terms, whole = (f"{name} {format_ms(each_s)} ms" for name, each_s in rows["total_s"].items())
    yield Table(PHASES, rows, "Time by phase", [*("" for _ in terms), TOTAL])
    yield text(f"It adds up: {' + '.join(terms)} = {whole}.")
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
        told = shares[shares >= _LEAST_PHASE]
        parts = (f"{name} {format_percent(share)}" for name, share in told.items())
        yield text(f"By phase: {', '.join(parts)}.", below=True)


def groups(summary: Summary, shown: Shown) -> Iterator[Block]:
    """The terminal's table of the groups that are asked for."""
    by, every = shown.group_by, group_rows(summary, shown.group_by)
    if shown.sort == TOTAL_TIME:
        every = every.sort_values("inclusive_s", ascending=False, kind="stable")
    told = every if shown.limit is None else every.head(max(0, shown.limit))
    legend = [
        *hidden(summary, every["share"].iloc[len(told) :], shown.hint, by),
        ("", f"Times are in ms; % is self time as part of the {whole(summary)[1]}."),
        ("total ms", "total is with the calls made within these, self without them."),
        ("ms a call", "ms a call is of the total."),
    ]
    columns = group_columns(by, summary.phase_names)
    rows = pd.concat([told, framework_of_groups(summary)])
    yield Table(columns, rows, f"By {by}", hot_marks(told), legend)


def by_function(summary: Summary) -> Iterator[Block]:
    columns = group_columns("function", summary.phase_names)
    rows = pd.concat([group_rows(summary, "function"), framework_of_groups(summary)])
    yield Table(columns, rows, "Self time by function")


def tree(summary: Summary, shown: Shown) -> Iterator[Block]:
    links, beside = tree_rows(summary, shown.depth)
    rows = pd.concat([links, beside])
    columns = [*listed(_MARKED), *tree_columns(summary.phase_names, rows, indent=True)]
    legend = []
    if below := int((summary.links["depth"] > shown.depth).sum()):
        said = (
            f"{plural(below, 'link')} below {'is' if below == 1 else 'are'} not shown "
            "(--tree 99 shows all); their times are in the rows above them."
        )
        legend.append(("", said))
    legend += [
        ("", f"{HOT_MARK} marks hot layers: {summary.hotspots.rule}."),
        ("", f"Times are in ms, % is of the {whole(summary)[1]}."),
        ("", "incl. is the time of a link with all links below it."),
        ("excl. ms", "excl. is the time of the functions that it calls itself."),
    ]
    marks = hot_marks(rows, "marked")
    if summary.totals.profiled is not None:
        marks[-1] = TOTAL
    yield Table(columns, rows, "The tree of links", marks, legend)


def tree_on_page(summary: Summary) -> Iterator[Block]:
    """A page's tree of links, which folds, below its pictures."""
    links, beside = tree_rows(summary, _ALL_LEVELS)
    if len(links) < 2:
        return
    for at, (name, picture) in enumerate(boxes.links(summary)):
        yield Fold((name,), [picture]) if at else picture
    rows = pd.concat([links, beside])
    yield Table(
        tree_columns(summary.phase_names, rows, indent=False),
        rows,
        "Inclusive and exclusive time of the links",
        hot_marks(rows.fillna({"hot": 0})),
        [("", "Inclusive time covers a link and all links below it.")],
        anchors=[link_anchor(summary, path) for path in rows.index],
        depths=rows["depth"].tolist(),
    )


def hotspots(summary: Summary) -> Iterator[Block]:
    """The hot layers: which, how much of the time they take, and where they are."""
    layers, hot = summary.layers, summary.layers[summary.layers["hot"]]
    rule = f"Hot layers are {summary.hotspots.rule}."
    if hot.empty:
        slowest = layers.loc[layers["typical_s"].idxmax()]
        yield text(
            f"{rule} No layer is hot. The slowest is {slowest['label']} with "
            f"{format_duration(slowest['typical_s'])}."
        )
        return
    yield text(
        f"{rule} {of_layers(len(hot), len(layers))} {'is' if len(hot) == 1 else 'are'} hot and "
        f"{'takes' if len(hot) == 1 else 'take'} {format_percent(hot['share'].sum())} of the "
        f"{whole(summary)[1]}."
    )
    yield _hot_layers(summary, hot)
    rest = layers[~layers["hot"]]
    if len(rest):
        most = format_percent(rest["share"].max())
        yield text(
            f"The other layer takes {most}."
            if len(rest) == 1
            else f"None of the other {plural(len(rest), 'layer')} takes more than {most}."
        )
    yield from target(summary, 2.0)


def target(summary: Summary, factor: float) -> Iterator[Block]:
    """Which layers must become how fast, for a trial that is so many times as fast."""
    found = ways(summary.recording, summary.layers["typical_s"].to_numpy(), factor)
    if found is None:
        return
    wanted = f"A trial becomes {factor:g}x as fast if"
    if not found:
        yield text(f"Every layer 10x as fast would not make a trial {factor:g}x as fast.")
        return
    first, *others = (
        (
            f"the {'' if way.count == 1 else f'{way.count} '}slowest "
            f"{'layer' if way.count == 1 else 'layers'} ({format_percent(way.share)} of it)",
            f"{way.times:g}x",
        )
        for way in found
    )
    said = [f"{first[0]} {'become' if found[0].count > 1 else 'becomes'} {first[1]} as fast"]
    yield text(f"{wanted} {', or '.join([*said, *map(' '.join, others)])}.")


def _hot_layers(summary: Summary, hot: pd.DataFrame) -> Table:
    """The hot layers, slowest first; the number of a layer says when it is called."""
    slowest = summary.slowest[summary.slowest["hot"]].head(MAX_HOT)
    keys = [*WHICH, "median", "interval", "share", "cumulative_share"]
    if hot["ci_low_s"].isna().all():
        keys.remove("interval")
    found = layer_columns(keys, summary)
    caption = (
        f"The {format_count(len(slowest))} slowest of {plural(len(hot), 'hot layer')}"
        if len(slowest) < len(hot)
        else "The hot layers, slowest first"
    )
    rows = slowest.assign(rank=range(1, len(slowest) + 1))
    return Table([*columns("rank | | count").values(), *found], rows, caption)
