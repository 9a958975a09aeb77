"""The time of a whole program -> what is said of it, the answer first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.program import own_ns, program_findings, share_of
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_count, format_duration, format_percent, plural
from chainer_profile.record.budget import (
    BENEATH,
    CALLS,
    IMPORTS,
    ITERATIONS,
    PARTS,
    PROFILER,
    REPORTS,
    REST,
    RUNNING,
    START,
    Budget,
    Spent,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content.answer import finding_words
from chainer_profile.report.content.boxes import LEAST, bar, series
from chainer_profile.report.document import TOTAL, Block, Boxes, Heading, strong, text
from chainer_profile.report.tables import Table, columns
from chainer_profile.report.text import short

#: What an iteration takes outside of its phases, such as the program's own loop.
_OUTSIDE = "code between the phases"
#: Parts of the first sentence, names of a part, and layers of an iteration that are told.
_PARTS, _NAMES, _LAYERS = 3, 5, 5
#: What would shorten the program, at most so much of it.
_STEPS = 3
_OWN = tuple(part for part in PARTS if part != PROFILER)
#: Functions beside Chainer that are told.
_BESIDE = 8
#: A name of a part, or a layer, that is less of the whole is told with others.
#: In short it is as much as leaves so many rows.
_LEAST, _LEAST_IN_SHORT, _ROWS_IN_SHORT = 0.001, (0.01, 0.02, 0.05, 0.1), 18


class BudgetRow(NamedTuple):
    """A line of the budget's tree; the level is 0 for a part, -1 for the whole."""

    name: str
    level: int
    seconds: float
    share: float
    times: float = 0


def section(
    budget: Budget, summary: Summary | None = None, least: float = _LEAST
) -> Iterator[Block]:
    """The time of the program; what is less of the whole than ``least`` is told with others."""
    yield text(strong(sentence(budget)))
    if budget.outcome != COMPLETE:
        how = "was killed" if budget.outcome == RUNNING else f"ended: {budget.outcome}"
        yield text(f"The program {how}.", note=True, below=True)
    if budget.untimed:
        counts = " and ".join(f"{format_count(n)} {what}" for what, n in budget.untimed.items())
        yield text(f"Not timed: {counts} in other threads.", note=True, below=True)
    rows = list(budget_rows(budget, summary, least))
    marks = [TOTAL if row.level < 0 else "" for row in rows]
    yield Table(_COLUMNS, rows, f"The time of {script_name(budget)}", marks)
    note = "Indented lines add up to the line above them, and the parts add up to the whole."
    if summary is not None and any(row.level == 2 for row in rows) and _price_ns(summary):
        price = format_duration(_price_ns(summary) * NS)
        note += f" What profiling adds within iterations, {price} a call, is counted as profiling."
    yield text(note)
    yield from _beside(budget, least)
    # A report has what would shorten a trial in a section of its own.
    for one in program_findings(budget, summary if least > _LEAST else None)[:_STEPS]:
        yield text(*finding_words(one), below=True)


def _beside(budget: Budget, least: float) -> Iterator[Block]:
    """The functions beside Chainer in which the main thread was seen most."""
    whole = own_ns(budget)
    found = [one for one in budget.looked if whole and one.ns >= least * whole]
    if found:
        own = columns(
            """
name | outside Chainer | code 24
time | time, about | duration
share | | part
""",
            time_s=lambda one: one.ns * NS,
            share=lambda one: one.ns / whole,
        )
        caption = "Functions outside Chainer, from 100 samples a second of the main thread"
        yield Table(own, found[:_BESIDE], caption)


def overview(budget: Budget, summary: Summary | None = None) -> list[Block]:
    """The same in short, for a terminal."""
    least = next(
        share
        for share in _LEAST_IN_SHORT
        if share == _LEAST_IN_SHORT[-1]
        or sum(1 for _ in budget_rows(budget, summary, share)) <= _ROWS_IN_SHORT
    )
    return [
        Heading(2, f"Where the time of {script_name(budget)} went"),
        *section(budget, summary, least),
    ]


def script_name(budget: Budget) -> str:
    """The program's name: that of its file, or of its module."""
    words = budget.script.split(" ")
    if words[0] == "-m" and len(words) > 1:
        return words[1]
    return "the program" if words[0] == "-c" else words[0].rpartition("/")[2]


def sentence(budget: Budget) -> str:
    """``train.py took 12.3 s (plus 1.5 s of profiling): 65.0 % training (600 iterations, ...``."""
    parts = sorted((budget.of(part) for part in _OWN), key=lambda one: -one.ns)
    named = ", ".join(
        f"{format_percent(share_of(one, budget))} {_named(one)}" for one in parts[:_PARTS] if one.ns
    )
    own = own_ns(budget)
    took, profiler = (format_duration(ns * NS) for ns in (own, _profiling_ns(budget)))
    path, space, words = budget.script.partition(" ")
    script = path.rpartition("/")[2] + space + words
    reports_ns = budget.wall_ns - own - _profiling_ns(budget)
    reports = f", and {format_duration(reports_ns * NS)} for the reports" if reports_ns else ""
    return f"{script} took {took} (plus {profiler} of profiling{reports}): {named}."


def _profiling_ns(budget: Budget) -> int:
    """What profiling added; a report does not know yet what the reports will take."""
    return sum(one.ns for one in budget.part(PROFILER) if one.name != REPORTS)


def _named(spent: Spent) -> str:
    if spent.part in (ITERATIONS, CALLS) and spent.count:
        noun = {ITERATIONS: "iteration", CALLS: "call"}[spent.part]
        each = format_duration(spent.ns * NS / spent.count)
        what = {ITERATIONS: "training", CALLS: spent.part}[spent.part]
        return f"{what} ({plural(spent.count, noun)}, {each} each)"
    return spent.part


class _Part(NamedTuple):
    """A part of the time in all iterations, how often it came, and what is in it."""

    name: str
    ns: float
    times: float = 0
    inner: Sequence[_Part] = ()


def budget_rows(
    budget: Budget, summary: Summary | None = None, least: float = _LEAST
) -> Iterator[BudgetRow]:
    """The parts, the largest first, each with what is in it; and the whole."""
    own, script = own_ns(budget), script_name(budget)

    def rows(part: _Part, level: int = 0) -> Iterator[BudgetRow]:
        share = part.ns / own if own else 0.0
        yield BudgetRow(part.name, level, part.ns * NS, share, part.times)
        for one in part.inner:
            yield from rows(one, level + 1)

    parts = [budget.of(part) for part in _OWN if budget.part(part)]
    for one in sorted(parts, key=lambda one: -one.ns):
        spent, least_ns = budget.part(one.part), least * own
        inner = [*_phases(one, summary, least_ns), *_names(spent, least_ns)]
        name = f"{script}'s own code" if one.part == REST else one.part
        several = any(part.name for part in spent)
        yield from rows(_Part(name, one.ns, 0 if several else _count(one), inner))
    yield BudgetRow(script, -1, own * NS, 1.0)
    yield from rows(_Part("profiling (added)", _profiling_ns(budget)))


def _count(spent: Spent) -> int:
    return 0 if spent.part in (START, IMPORTS, REST) else spent.count


def _largest(spent: Iterable[Spent], least_ns: float) -> list[Spent]:
    return sorted((one for one in spent if one.ns >= least_ns), key=lambda one: -one.ns)[:_NAMES]


def _names(spent: Sequence[Spent], least_ns: float) -> Iterator[_Part]:
    """What is in a part: the largest, each with what is beneath it, and all others."""
    named = _outermost(spent)
    told = _largest(named, least_ns)
    for one in told:
        beneath = [part for part in spent if part.name.startswith(one.name + BENEATH)]
        inner = [
            _Part(part.name.partition(BENEATH)[2], part.ns, _count(part))
            for part in _largest(beneath, least_ns)
        ]
        left_ns = one.ns - sum(part.ns for part in inner)
        if inner and left_ns:
            inner.append(_Part(f"{one.name} itself, and others", left_ns))
        yield _Part(one.name, one.ns, _count(one), inner)
    for one in [one for one in spent if not one.name and one.ns][:1] if told else ():
        yield _Part("elsewhere", one.ns, _count(one))
    rest = [one for one in named if one not in told]
    if told and (ns := sum(one.ns for one in rest)):
        yield _Part(plural(len(rest), "other"), ns)


def _outermost(spent: Sequence[Spent]) -> list[Spent]:
    """What has a name, with the time and count of all beneath it."""
    found: dict[str, Spent] = {}
    for one in spent:
        outer = one.name.partition(BENEATH)[0]
        if outer:
            known = found.get(outer, Spent(one.part, outer, 0))
            count = known.count + one.count
            found[outer] = Spent(one.part, outer, known.ns + one.ns, count)
    return list(found.values())


def _phases(spent: Spent, summary: Summary | None, least_ns: float) -> Iterator[_Part]:
    """Phases of the trials that these are, rows of each phase, and trials that were not timed."""
    if summary is None or spent.part not in (ITERATIONS, CALLS):
        return
    profiled = summary.totals.profiled
    trains = summary.recording.settings.phase == "train"
    if profiled is None or not profiled.mean_s or trains != (spent.part == ITERATIONS):
        return
    count = summary.recording.n_trials
    added = _added(summary)
    phases = {str(name): float(s) for name, s in summary.phases["total_s"].items()}
    if not summary.several_phases:
        phases = {next(iter(phases)): profiled.mean_s}
    phases = {name: (s - added.get(name, 0.0)) * count / NS for name, s in phases.items()}
    rest_ns, others = spent.ns - sum(phases.values()), spent.count - count
    are_others = others > 0 and rest_ns > 0
    if not are_others:  # what is around the trials, or the price of a call that is not exact
        last = OUTSIDE if OUTSIDE in phases else list(phases)[-1]
        phases[last] += rest_ns
    if not summary.several_phases:
        for name, ns in phases.items():
            yield from _layers(summary, name, ns, least_ns)
    else:
        left_ns = 0.0
        for name, ns in sorted(phases.items(), key=lambda one: -one[1]):
            if ns < least_ns:
                left_ns += ns
                continue
            inner = list(_layers(summary, name, ns, least_ns))
            yield _Part(_OUTSIDE if name == OUTSIDE else name, ns, inner=inner)
        if left_ns:
            yield _Part("other phases", left_ns)
    if are_others:
        yield _Part(f"{plural(others, 'other')}, not timed by row", rest_ns, others)


def _price_ns(summary: Summary) -> float:
    """What recording a call adds to a trial."""
    return summary.recording.conditions.call_ns or 0.0


def _added(summary: Summary) -> dict[str, float]:
    """Seconds that recording added between the functions of each phase.

    Rows hold hardly any of it: their clock reads are next to the functions. Which call added how
    much is not known, so that each phase has a part by the time that passed between its functions.
    """
    calls = summary.layers.groupby("phase")["calls"].sum()
    between = summary.phases["framework_s"].fillna(0.0)
    between = between[[name in calls.index for name in between.index]]
    whole_s = float(between.sum())
    if not whole_s:
        return {}
    part = min(1.0, _price_ns(summary) * NS * float(calls.sum()) / whole_s)
    return {str(name): part * float(seconds) for name, seconds in between.items()}


def _layers(summary: Summary, phase: str, phase_ns: float, least_ns: float) -> Iterator[_Part]:
    """The hottest rows of a phase, and what else there is in it."""
    count = summary.recording.n_trials
    layers = summary.layers[summary.layers["phase"] == phase]
    times_ns = (layers["mean_s"] * count / NS).sort_values(ascending=False, kind="stable")
    told_ns = times_ns.head(_LAYERS)
    told_ns = told_ns[told_ns >= least_ns]
    if not told_ns.sum():
        return
    for at, ns in told_ns.items():
        one = layers.loc[at]
        yield _Part(f"{one['path']} {short(one['function'])}", ns, one["calls"] * count)
    others_ns = times_ns.sum() - told_ns.sum()
    between_ns = phase_ns - times_ns.sum()
    for name, ns in (("other rows", others_ns), ("between functions", between_ns)):
        if ns >= 1:
            yield _Part(name, ns)


def picture_of(budget: Budget) -> Iterator[Boxes]:
    """One bar: where the time of a whole program went."""
    rows = [row for row in budget_rows(budget) if row.level == 0][:-1]
    yield from bar(
        "Where the time of the program went",
        [
            (row.name, row.share, format_percent(row.share), series(at))
            for at, row in enumerate(rows)
            if row.share >= LEAST
        ],
    )


_COLUMNS = columns(
    """
part | | text 24
time seconds | | duration
share | | part
count | !1 | count_
each | !2 | duration_
""",
    part=lambda row: "  " * max(0, row.level) + row.name,
    count=lambda row: round(row.times) if row.times else None,
    each_s=lambda row: row.seconds / row.times if row.times else None,
)
_COLUMNS["share"] = replace(
    _COLUMNS["share"], bar=lambda row: row.share if row.level == 0 else None
)
