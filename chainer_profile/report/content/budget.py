"""The time of a whole program -> what is said of it, the answer first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.record.budget import (
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
from chainer_profile.report.document import TOTAL, Column, Heading, Table, strong, text
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import printable, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.document import Block

#: Parts of the first sentence, names of a part, and layers of an iteration that are told.
_PARTS, _NAMES, _LAYERS = 3, 5, 5
_OWN = tuple(part for part in PARTS if part != PROFILER)
#: A name of a part, or a layer, that is less of the whole is told with others.
_LEAST, _LEAST_IN_SHORT = 0.001, 0.01


class BudgetRow(NamedTuple):
    """A line of the budget's table.

    Attributes:
        name: What the time went to.
        level: 0 for a part, 1 for what is in it, 2 for a layer; -1 for the whole.
        seconds: How much.
        share: That of the whole.
        times: How often; 0 where that says nothing.
        part: The part that it is in.
    """

    name: str
    level: int
    seconds: float
    share: float
    times: int = 0
    part: str = ""


def section(
    budget: Budget, summary: Summary | None = None, least: float = _LEAST, *, indent: bool = False
) -> Iterator[Block]:
    """The time of the program.

    Args:
        budget: Where it went.
        summary: Of the program's trials; they show what an iteration is made of.
        least: What is less of the whole is told with others.
        indent: Show what is in a part by its place, in place of the part's name before it.
    """
    yield text(strong(sentence(budget)))
    if budget.outcome != COMPLETE:
        how = "was killed" if budget.outcome == RUNNING else f"ended: {budget.outcome}"
        yield text(f"The program {printable(how)}.", note=True, below=True)
    if budget.untimed:
        counts = " and ".join(f"{format_count(n)} {what}" for what, n in budget.untimed.items())
        yield text(f"Not timed: {counts} in other threads.", note=True, below=True)
    rows = list(budget_rows(budget, summary, least))
    marks = [TOTAL if row.level < 0 else "" for row in rows]
    yield Table(_columns(indent), rows, "The program's time", marks)
    yield text(
        "Every moment belongs to one line, so that the parts add up to the whole"
        + (
            ". What is in an iteration is worked out: its part in the profiled ones, times all of "
            "their time."
            if any(row.level == 2 for row in rows)
            else "."
        )
    )


def overview(budget: Budget, summary: Summary | None = None) -> list[Block]:
    """The same in short, for a terminal."""
    return [
        Heading(2, "Where the program's time went"),
        *section(budget, summary, _LEAST_IN_SHORT, indent=True),
    ]


def sentence(budget: Budget) -> str:
    """``train.py took 12.3 s: 65.0 % 600 iterations of 13.3 ms, ...``."""
    parts = sorted((budget.of(part) for part in _OWN), key=lambda one: -one.ns)
    named = ", ".join(
        f"{format_percent(_share(one, budget))} {_named(one)}" for one in parts[:_PARTS] if one.ns
    )
    own, profiler = (format_duration(ns * NS) for ns in _own_and_profiler(budget))
    path, space, words = budget.script.partition(" ")
    script = path.rpartition("/")[2] + space + words
    reports_ns = sum(one.ns for one in budget.part(PROFILER) if one.name == REPORTS)
    reports = f"{format_duration(reports_ns * NS)} of that for" if reports_ns else "not counting"
    added = f"{profiler} more to measure it, {reports} the reports"
    return f"{printable(script)} took {own}, and {added}: {named}."


def _own_and_profiler(budget: Budget) -> tuple[int, int]:
    """Nanoseconds of the program's own, and of the profiler."""
    profiler = budget.of(PROFILER).ns
    return budget.wall_ns - profiler, profiler


def _named(spent: Spent) -> str:
    if spent.part in (ITERATIONS, CALLS) and spent.count:
        noun = {ITERATIONS: "iteration", CALLS: "call"}[spent.part]
        each = format_duration(spent.ns * NS / spent.count)
        return f"{plural(spent.count, noun)} of {each}"
    return spent.part


def _share(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own, _ = _own_and_profiler(budget)
    return spent.ns / own if own else 0.0


def budget_rows(
    budget: Budget, summary: Summary | None = None, least: float = _LEAST
) -> Iterator[BudgetRow]:
    """The parts, the largest first, each with what is in it; and the whole."""
    parts = [budget.of(part) for part in _OWN if budget.part(part)]
    for one in sorted(parts, key=lambda one: -one.ns):
        yield _row(one, one.part, 0, budget)
        if one.part in (ITERATIONS, CALLS) and summary is not None:
            for row in _inside(one, summary, budget, least):
                yield row._replace(part=one.part)
        for row in _names(budget.part(one.part), budget, least):
            yield row._replace(part=one.part)
    own, profiler = _own_and_profiler(budget)
    yield BudgetRow("the program", -1, own * NS, 1.0)
    yield BudgetRow("the profiler on top", 0, profiler * NS, profiler / own if own else 0.0)


def _row(spent: Spent, name: str, level: int, budget: Budget) -> BudgetRow:
    count = 0 if spent.part in (START, IMPORTS, REST) else spent.count
    if not level and any(one.name for one in budget.part(spent.part)):
        count = 0  # of several things
    return BudgetRow(name, level, spent.ns * NS, _share(spent, budget), count)


def _names(spent: Iterable[Spent], budget: Budget, least: float) -> Iterator[BudgetRow]:
    named = [one for one in spent if one.name]
    told = [one for one in named if _share(one, budget) >= least][:_NAMES]
    for one in told:
        yield _row(one, printable(one.name), 1, budget)
    rest = [one for one in named if one not in told]
    ns = sum(one.ns for one in rest)
    if told and rest and ns >= least * budget.wall_ns:
        share = _share(Spent("", "", ns), budget)
        yield BudgetRow(f"{format_count(len(rest))} others", 1, ns * NS, share)


def _inside(spent: Spent, summary: Summary, budget: Budget, least: float) -> Iterator[BudgetRow]:
    """Phases and the hottest layers of the trials that these are, where they were profiled."""
    profiled = summary.totals.profiled
    trains = summary.recording.settings.phase == "train"
    if profiled is None or not profiled.mean_s or trains != (spent.part == ITERATIONS):
        return
    layers = summary.layers.sort_values("mean_s", ascending=False, kind="stable")
    several = len(phases_of(summary)) > 1
    found = [
        (f"{row.path} {short(row.function)}" + (f", {row.phase}" if several else ""), row.mean_s, 2)
        for row in layers.head(_LAYERS).itertuples()
    ]
    if several:
        phases = summary.phases["total_s"].items()
        found = [*((f"{name}", float(s), 1) for name, s in phases), *found]
    for name, mean_s, level in found:
        part = mean_s / profiled.mean_s
        if part * _share(spent, budget) >= least:
            seconds, share = part * spent.ns * NS, part * _share(spent, budget)
            yield BudgetRow(printable(name), level, seconds, share)


def _columns(indent: bool) -> tuple[Column, ...]:
    def name(row: BudgetRow) -> str:
        if indent:
            return "  " * max(0, row.level) + row.name
        return f"{row.part}: {row.name}" if row.part else row.name

    return (
        Column("part", name, folds=24),
        Column("time", lambda row: format_duration(row.seconds)),
        Column(
            "share",
            lambda row: format_percent(row.share),
            bar=lambda row: row.share if row.level == 0 else None,
        ),
        Column("count", lambda row: format_count(row.times) if row.times else "", drop=1),
        Column(
            "each",
            lambda row: format_duration(row.seconds / row.times) if row.times else "",
            drop=2,
        ),
    )
