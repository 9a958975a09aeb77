"""The time of a whole program -> what is said of it, the answer first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.program import program_findings, share_of
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
    Spent,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content.answer import finding_words
from chainer_profile.report.content.boxes import LEAST, bar, series
from chainer_profile.report.document import TOTAL, Heading, strong, text
from chainer_profile.report.tables import Table, columns
from chainer_profile.report.text import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.document import Block, Boxes

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
    note = "The lines below a line add up to it, and the parts to the whole."
    if summary is not None and summary.recording.by_link and any(row.level == 2 for row in rows):
        profiled = plural(summary.recording.n_trials, "profiled one")
        note += f" Times and counts within an iteration are extrapolated from {profiled}."
    yield text(note)
    yield from _beside(budget, least)
    # A report has what would shorten a trial in a section of its own.
    for one in program_findings(budget, summary if least > _LEAST else None)[:_STEPS]:
        yield text(*finding_words(one), below=True)


def _beside(budget: Budget, least: float) -> Iterator[Block]:
    """The functions beside Chainer in which the main thread was seen most."""
    own_ns = _own_and_profiler(budget)[0]
    found = [one for one in budget.looked if own_ns and one.ns >= least * own_ns]
    if found:
        own = columns(
            """
name | beside Chainer | code 24
time | time, about | duration
share | | part
""",
            time_s=lambda one: one.ns * NS,
            share=lambda one: one.ns / own_ns,
        )
        caption = "Functions beside Chainer's, by 100 looks a second at the main thread"
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
    own, profiler = (format_duration(ns * NS) for ns in _own_and_profiler(budget))
    path, space, words = budget.script.partition(" ")
    script = path.rpartition("/")[2] + space + words
    reports_ns = sum(one.ns for one in budget.part(PROFILER) if one.name == REPORTS)
    reports = f", {format_duration(reports_ns * NS)} of that for the reports" if reports_ns else ""
    return f"{script} took {own} (plus {profiler} of profiling{reports}): {named}."


def _own_and_profiler(budget: Budget) -> tuple[int, int]:
    """Nanoseconds of the program's own, and of the profiler."""
    profiler = budget.of(PROFILER).ns
    return budget.wall_ns - profiler, profiler


def _named(spent: Spent) -> str:
    if spent.part in (ITERATIONS, CALLS) and spent.count:
        noun = {ITERATIONS: "iteration", CALLS: "call"}[spent.part]
        each = format_duration(spent.ns * NS / spent.count)
        what = {ITERATIONS: "training", CALLS: spent.part}[spent.part]
        return f"{what} ({plural(spent.count, noun)}, {each} each)"
    return spent.part


def budget_rows(
    budget: Budget, summary: Summary | None = None, least: float = _LEAST
) -> Iterator[BudgetRow]:
    """The parts, the largest first, each with what is in it; and the whole."""
    parts = [budget.of(part) for part in _OWN if budget.part(part)]
    script = script_name(budget)
    for one in sorted(parts, key=lambda one: -one.ns):
        name = f"{script}'s own code" if one.part == REST else one.part
        yield _row(one, name, 0, budget)
        if one.part in (ITERATIONS, CALLS) and summary is not None:
            yield from _inside(one, summary, budget, least)
        yield from _names(budget.part(one.part), budget, least)
    own, profiler = _own_and_profiler(budget)
    yield BudgetRow(script, -1, own * NS, 1.0)
    yield BudgetRow("profiling, on top", 0, profiler * NS, profiler / own if own else 0.0)


def _row(spent: Spent, name: str, level: int, budget: Budget) -> BudgetRow:
    count = 0 if spent.part in (START, IMPORTS, REST) else spent.count
    if not level and any(one.name for one in budget.part(spent.part)):
        count = 0  # of several things
    return BudgetRow(name, level, spent.ns * NS, share_of(spent, budget), count)


def _names(spent: Sequence[Spent], budget: Budget, least: float) -> Iterator[BudgetRow]:
    """What is in a part: the largest, each with what is beneath it, and all others."""
    named = sorted(_outermost(spent), key=lambda one: -one.ns)
    told = [one for one in named if share_of(one, budget) >= least][:_NAMES]
    for one in told:
        yield _row(one, one.name, 1, budget)
        yield from _beneath(one, spent, budget, least)
    rest = [one for one in named if one not in told]
    ns = sum(one.ns for one in rest)
    elsewhere = [one for one in spent if not one.name and one.ns]
    if told and elsewhere:
        yield _row(elsewhere[0], "elsewhere", 1, budget)
    if told and ns:
        yield _sum(plural(len(rest), "other"), ns, 1, budget)


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


def _beneath(
    outer: Spent, spent: Sequence[Spent], budget: Budget, least: float
) -> Iterator[BudgetRow]:
    """What of the time of a package went to those that it imports."""
    inner = [one for one in spent if one.name.startswith(outer.name + BENEATH)]
    told = sorted(inner, key=lambda one: -one.ns)
    told = [one for one in told if share_of(one, budget) >= least][:_NAMES]
    if not told:
        return
    for one in told:
        yield _row(one, one.name.partition(BENEATH)[2], 2, budget)
    ns = outer.ns - sum(one.ns for one in told)
    if ns:
        yield _sum(f"{outer.name} itself, and others", ns, 2, budget)


def _sum(name: str, ns: int, level: int, budget: Budget) -> BudgetRow:
    return BudgetRow(name, level, ns * NS, share_of(Spent("", "", ns), budget))


def _inside(spent: Spent, summary: Summary, budget: Budget, least: float) -> Iterator[BudgetRow]:
    """Phases of the trials that these are, where they were profiled, and rows of each phase."""
    profiled = summary.totals.profiled
    trains = summary.recording.settings.phase == "train"
    if profiled is None or not profiled.mean_s or trains != (spent.part == ITERATIONS):
        return
    added = _added(summary)
    scale = spent.ns * NS / (profiled.mean_s - sum(added.values()))
    own_s = _own_and_profiler(budget)[0] * NS

    def row(name: str, level: int, mean_s: float, times: float = 0) -> BudgetRow:
        seconds = mean_s * scale
        return BudgetRow(name, level, seconds, seconds / own_s if own_s else 0.0, times)

    phases = [(str(name), float(s)) for name, s in summary.phases["total_s"].items()]
    several = summary.several_phases
    if not several:
        name = phases[0][0]
        phase_s = profiled.mean_s - added.get(name, 0.0)
        yield from _rows_of(summary, name, phase_s, row, least, 1, spent.count)
        return
    left = 0.0
    phases = [(name, phase_s - added.get(name, 0.0)) for name, phase_s in phases]
    for name, phase_s in sorted(phases, key=lambda one: -one[1]):
        phase = row(_OUTSIDE if name == OUTSIDE else name, 1, phase_s)
        if phase.share < least:
            left += phase_s
            continue
        yield phase
        yield from _rows_of(summary, name, phase_s, row, least, 2, spent.count)
    if left:
        yield row("other phases", 1, left)


def _added(summary: Summary) -> dict[str, float]:
    """Seconds that recording added between the functions of each phase.

    Rows hold hardly any of it: their clock reads are next to the functions. Which call added how
    much is not known, so that each phase has a part by the time that passed between its functions.
    """
    conditions = summary.recording.conditions
    if conditions.call_ns is None:
        return {}
    call_s = max(0.0, conditions.call_ns - (conditions.window_ns or 0.0)) * NS
    calls = summary.layers.groupby("phase")["calls"].sum()
    between = summary.phases["framework_s"].fillna(0.0)
    between = between[[name in calls.index for name in between.index]]
    whole_s = float(between.sum())
    if not whole_s:
        return {}
    part = min(1.0, call_s * float(calls.sum()) / whole_s)
    return {str(name): part * float(seconds) for name, seconds in between.items()}


def _rows_of(
    summary: Summary,
    phase: str,
    phase_s: float,
    row: Callable[[str, int, float, float], BudgetRow],
    least: float,
    level: int,
    count: int,
) -> Iterator[BudgetRow]:
    """The hottest rows of a phase, and what else there is in it."""
    layers = summary.layers[summary.layers["phase"] == phase]
    layers = layers.sort_values("mean_s", ascending=False, kind="stable")
    told_s = 0.0
    for one in layers.head(_LAYERS).itertuples():
        found = row(f"{one.path} {short(one.function)}", level, one.mean_s, one.calls * count)
        if found.share < least:
            break
        told_s += one.mean_s
        yield found
    if not told_s:
        return
    others_s = float(layers["mean_s"].sum()) - told_s
    between_s = phase_s - told_s - others_s
    for name, mean_s in (("other rows", others_s), ("between functions", between_s)):
        found = row(name, level, mean_s, 0)
        if found.seconds >= NS:
            yield found


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
