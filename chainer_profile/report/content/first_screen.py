"""Summary -> the first screen of a run: its time, the slowest functions and layers, next steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.changes import MEASURE
from chainer_profile.analyse.findings import WARNING, Finding, steps_to_do
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import decimals_for, format_percent, format_shape, plural
from chainer_profile.basics.words import ADVISE_SECONDS
from chainer_profile.report import document as doc
from chainer_profile.report import unit
from chainer_profile.report.content.advice import what_helped
from chainer_profile.report.content.answer import (
    doubts,
    ended_early,
    first_doubts,
    format_finding,
    how_long,
    merged,
)
from chainer_profile.report.content.layer_section import TableOptions, layers
from chainer_profile.report.content.pass_section import inside, inside_sentences
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.content.result_section import groups, phases_in_short, tree
from chainer_profile.report.rows import framework_time
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import input_text, model_name, options, printable

#: Rows of functions and of layers.
MAX_FUNCTIONS, MAX_LAYERS = 3, 5
#: The legend counts further layers that take at least this fraction of the last row's time.
_SIMILAR = 0.9
#: Share of a trial that one character of a bar shows.
_BAR_SHARE = 0.05
#: Further steps below the first one.
_MORE_STEPS = 1
#: An overhead is reported as "less than" this fraction if its interval is below it.
_LITTLE_OVERHEAD = 0.02


def first_screen(
    summary: Summary,
    related: RelatedResults | None = None,
    table_options: TableOptions | None = None,
    *,
    tables: Sequence[str] = ("functions", "slowest"),
    every_finding: bool = False,
) -> Iterator[doc.Block]:
    """The blocks of a first screen.

    Args:
        summary: The run.
        related: The advice and the program's time, if known.
        table_options: The options of tables; None for the defaults.
        tables: Names of :data:`TABLES` in their order.
        every_finding: Whether to include all findings, as in a notebook.
    """
    advice, program = (related.advice, related.program) if related else (None, None)
    yield doc.text(what_was_run(summary))
    yield doc.text(doc.strong(how_long(summary, program)), below=True)
    yield from doubts(summary) if every_finding else first_doubts(summary, 1)
    yield from ended_early(summary)
    yield from doc.below(inside_sentences(summary)[:1])
    yield from phases_in_short(summary)
    for table in tables:
        yield from TABLES[table](summary, table_options or TableOptions())
    yield from next_steps(summary, advice, every_finding)


def what_was_run(summary: Summary) -> str:
    """Describe the network, its input, the kind of run and the device on one line."""
    recording = summary.recording
    settings = recording.settings
    size, shape = settings.batchsize, settings.input_shape
    if settings.input.startswith("random image") and size and len(shape) > 1:
        batch = f"{plural(size, 'random image')} {format_shape(shape[1:])}"
    else:
        batch = input_text(settings) + (f", batch {size}" if size else "")
    if settings.phase == "train":
        kind = f"training with {printable(settings.optimizer) or 'an optimizer'}"
    elif settings.phase == "forward-backward":
        kind = "forward and backward pass"
    else:
        kind = "forward pass in train mode" if settings.train_mode else "inference"
    number = settings.device.partition(":")[2]
    device = f"on GPU {number}" if number else f"on the {printable(settings.device).upper()}"
    parts = [model_name(settings), batch, f"{kind} {device}"]
    if settings.engine:
        parts.append(f"{printable(settings.engine)} (each row is one of its nodes)")
    elif settings.device == "cpu" and recording.environment.blas:
        threads = max(library.threads for library in recording.environment.blas)
        parts.append(plural(threads, "BLAS thread"))
    return ", ".join([*parts, *options(settings)])


class _Row(NamedTuple):
    name: str
    calls: float | None
    seconds: float
    share: float


def functions_table(summary: Summary, _: TableOptions) -> Iterator[doc.Block]:
    """The table of the slowest functions, the other functions, the framework and the trial."""
    whole_s, whole_name = whole_time(summary)
    inclusive = summary.recording.settings.inclusive
    rows = [
        _Row(printable(str(row.Index)), row.calls, row.total_s, row.share)
        for row in summary.functions.head(MAX_FUNCTIONS).itertuples()
    ]
    rest = summary.functions.iloc[MAX_FUNCTIONS:]
    if framework := framework_time(summary):
        where = "outside the layers" if summary.recording.on_device else "between functions"
        if summary.recording.settings.engine:
            where = "between nodes"
        name = f"{framework.name} ({where})"
        rows.append(_Row(name, None, framework.seconds, framework.share))
        rows.sort(key=lambda row: -row.seconds)
    if len(rest):
        sums = rest[["calls", "total_s", "share"]].sum()
        rows.append(_Row(plural(len(rest), "other"), *sums))
    marks = [""] * len(rows)
    if not inclusive:
        name = f"{whole_name} {_overhead_text(summary)}".rstrip()
        rows.append(_Row(name, None, whole_s, 1.0 if whole_s else 0.0))
        marks.append(doc.TOTAL)
    kind = "inclusive times, mean" if inclusive else "mean"
    noun = "profiled trial" if whole_name != "iteration" else whole_name
    heading = f"{kind} of {plural(summary.recording.n_trials, noun)}"
    yield Table(_columns(summary, heading), rows, "Time by function", marks, ruled=False)


def _overhead_text(summary: Summary) -> str:
    """Format the profiler's overhead in brackets; empty if it is not significant."""
    added = summary.totals.overhead
    if added is None or not added.high > 0:
        return ""
    if added.low > 0:
        return f"(the profiler adds {format_percent(added.fraction)})"
    if added.high < _LITTLE_OVERHEAD:
        return f"(the profiler adds less than {format_percent(_LITTLE_OVERHEAD, 0)})"
    return ""


def _decimals(summary: Summary) -> int:
    """The number of decimals of functions' times in ms, from the interval of the trial's time."""
    trial, (whole_s, _) = summary.totals.trial, whole_time(summary)
    half_ms = float("nan") if trial is None else (trial.ci_high_s - trial.ci_low_s) / 2 * 1e3
    return decimals_for(half_ms, whole_s * 1e3)


def _columns(summary: Summary, heading: str) -> list[Column]:
    decimals = _decimals(summary)

    def milliseconds(row: _Row) -> str:
        return f"{row.seconds * 1e3:,.{decimals}f}"

    def bar(row: _Row) -> str:
        # The row of the whole trial has no bar.
        return "" if row.share >= 1 else "#" * round(row.share / _BAR_SHARE)

    return [
        Column("name", heading, unit.TEXT),
        Column("calls", "calls", unit.CALLS, unknown=""),
        Column("time", "ms", unit.FIGURE, value=milliseconds),
        Column("share", "%", unit.PERCENT),
        Column("bar", "", unit.TEXT, value=bar, drop=1),
    ]


def slowest_table(summary: Summary, _: TableOptions) -> Iterator[doc.Block]:
    """The table of the slowest layers. Its legend counts further layers with similar times."""
    rows = summary.slowest.head(MAX_LAYERS)
    decimals = _decimals(summary) + 1
    min_s = _SIMILAR * float(rows["mean_s"].iloc[-1])
    following = summary.slowest.iloc[MAX_LAYERS:]
    similar = following[following["mean_s"] >= min_s] if min_s else following.head(0)

    def milliseconds(row: tuple[object, ...]) -> str:
        return f"{row.mean_s * 1e3:,.{decimals}f}"  # type: ignore[attr-defined]

    columns = [
        Column("path", f"slowest of {plural(len(summary.layers), 'layer')}", unit.TEXT, fold=30),
        Column("function", "function", unit.TEXT, fold=24),
        Column("phase", "phase", unit.TEXT, fold=12, drop=2),
        Column("time", "ms", unit.FIGURE, value=milliseconds),
        Column("share", "%", unit.PERCENT),
        Column("verdict", "limited by", unit.TEXT, fold=20, drop=1),
    ]
    if not summary.several_phases:
        columns = [column for column in columns if column.key != "phase"]
    if not any(rows["verdict"]):
        columns = [column for column in columns if column.key != "verdict"]
    legend = []
    if len(similar):
        share, count = format_percent(float(similar["share"].sum())), plural(len(similar), "layer")
        legend.append(f"... and {count} like the last one: {share} together.")
    yield Table(columns, rows, "The slowest layers", legend=legend, ruled=False)


#: The function that makes each table of a first screen.
TABLES: dict[str, Callable[[Summary, TableOptions], Iterator[doc.Block]]] = {
    "functions": functions_table,
    "slowest": slowest_table,
    "layers": layers,
    "tree": tree,
    "groups": groups,
    "inside": lambda summary, _: inside(summary),
}


def next_steps(summary: Summary, advice: Advice | None, every_finding: bool) -> Iterator[doc.Block]:
    """The best measured change; without advice, the most promising steps.

    ``every_finding`` adds all findings except warnings, in place of these steps.
    """
    findings = merged(summary.findings)
    steps = steps_to_do(findings)
    if advice is not None and (helped := what_helped(advice)):
        yield doc.text("Next: ", *helped)
    if every_finding:
        others = (finding for finding in findings if finding.severity != WARNING)
        yield from doc.listing(map(format_finding, others))
    elif steps and advice is None:
        yield from _step(steps[0])
        for finding in steps[1 : 1 + _MORE_STEPS]:
            yield doc.text("Or: ", *format_finding(finding), below=True)


def _step(finding: Finding) -> Iterator[doc.Block]:
    """A finding as the next step. For the step of measuring all changes, only its command."""
    if finding.advice != MEASURE:
        yield doc.text("Next: ", *format_finding(finding))
        return
    minutes = plural(round(ADVISE_SECONDS / 60), "minute")
    yield doc.text(f"To make it faster, measure what helps (at most {minutes}):")
    yield doc.Code(f"  {finding.command}")
