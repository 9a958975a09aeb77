"""The time of a whole program -> the section of its report, and its first screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.findings import WARNING
from chainer_profile.analyse.largest_parts import MAX_ROWS, largest_parts
from chainer_profile.analyse.program import (
    Part,
    ProgramTime,
    own_ns,
    program_findings,
    program_parts,
    sampling_error_s,
    share_of,
    tips,
)
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.unsteady import busy_warning
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.record.budget import (
    CALLS,
    ITERATIONS,
    PARTS,
    PROFILER,
    REPORTS,
    REST,
    RUNNING,
    TEST_CALLS,
    Budget,
    Spent,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report import unit
from chainer_profile.report.content.advice import screen_blocks
from chainer_profile.report.content.answer import format_finding, warnings_of_values
from chainer_profile.report.content.boxes import MIN_WIDTH, bar, series
from chainer_profile.report.document import TOTAL, Block, Boxes, Text, strong, text
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import ending, script_name, shorten

#: Parts in the first sentence, and findings below the table, at most.
_MAX_PARTS, _MAX_FINDINGS = 3, 3
#: Fewest rows of a first screen with one step, even if it is longer than the terminal, and with
#: several steps: a second step can save more than these rows name.
_MIN_ROWS, _MIN_ROWS_ABOVE_STEPS = 12, 8
#: Characters of a line after the part's name, and fewest characters of a name.
_CHARACTERS_OF_FIGURES, _MIN_NAME_CHARACTERS = 39, 24
#: Characters of the command on a first screen.
_MAX_COMMAND_CHARACTERS = 48
_PROGRAM_PARTS = tuple(part for part in PARTS if part != PROFILER)


class BudgetRow(NamedTuple):
    """A line of the table; the level is -1 for the whole, 0 for its parts, 1 for their parts."""

    name: str
    level: int
    seconds: float
    share: float
    times: float = 0  #: How often the part ran; 0 if that is unknown.
    sampled: bool = False


def section(program: ProgramTime, summary: Summary | None = None) -> Iterator[Block]:
    """The section of a report on the time of a program."""
    budget = program.budget
    yield from _opening(budget, sentence(budget))
    rows = list(budget_rows(program))
    marks = [TOTAL if row.level < 0 else "" for row in rows]
    yield Table(_columns(rows, budget), rows, f"The time of {script_name(budget.script)}", marks)
    note = "Indented lines add up to the line above them, and the parts to the whole."
    conditions = None if summary is None else summary.recording.conditions
    if conditions is not None and conditions.call_ns:
        price = units.format_duration(conditions.call_ns * NS)
        note += f" What profiling adds within iterations, {price} a call, is counted as profiling."
    yield text(note)
    # Findings on trials have their own section.
    for finding in program_findings(budget)[:_MAX_FINDINGS]:
        yield text(*format_finding(finding), below=True)


def overview(
    program: ProgramTime,
    summary: Summary | None = None,
    last: Iterable[Text] = (),
    *,
    advice: Advice | None = None,
    width: int = 80,
    fits: Callable[[list[Block]], bool] = lambda blocks: True,
) -> list[Block]:
    """The first screen of a program: its time, warnings, its largest parts and the next steps.

    Args:
        program: The time of the program.
        summary: The run of the network in the program, for warnings and steps.
        last: The last paragraphs.
        advice: The changes that were tried. They come first, and replace the steps of the run.
        width: Characters of a line.
        fits: Whether the blocks below these changes fit on the screen. Until they do, rows, and
            then steps, are omitted, but at least 8 rows remain above several steps, and 12 above
            the last one.
    """
    budget = program.budget
    tried: list[Block] = []
    took = f"{how_long(budget, _MAX_COMMAND_CHARACTERS)}."
    above = list(_opening(budget, took))
    if warning := busy_warning(budget.other_cpu, budget.cores):
        above.append(text(warning, note=True, below=True, lead=WARNING.capitalize()))
    above += [] if summary is None else warnings_of_values(summary)
    if advice is not None:
        tried = list(screen_blocks(advice, program))
        summary = None  # measured gains replace the estimated ones
    steps = [
        text("Also: " if number else "Next: ", *format_finding(finding), below=bool(number))
        for number, finding in enumerate(tips(program_findings(budget, summary)))
    ]
    beneath = [replace(block, below=bool(steps)) for block in last]

    def blocks(max_rows: int) -> list[Block]:
        name_width = width - _CHARACTERS_OF_FIGURES
        *rows, _whole, _profiling = budget_rows(program, max_rows, name_width)
        table = Table(_columns(rows, budget), rows, f"The time of {script_name(budget.script)}")
        return [*above, table, *steps, *beneath]

    while True:
        least = _MIN_ROWS_ABOVE_STEPS if len(steps) > 1 else _MIN_ROWS
        for max_rows in range(MAX_ROWS, least - 1, -1):
            if fits(shown := blocks(max_rows)):
                return [*tried, *shown]
        if len(steps) <= 1:
            return [*tried, *shown]
        steps.pop()


def _opening(budget: Budget, first: str) -> Iterator[Block]:
    """The first sentence, an early end of the program, and what was not timed."""
    yield text(strong(first))
    if budget.outcome != COMPLETE:
        how = "was killed" if budget.outcome == RUNNING else f"ended: {budget.outcome}"
        yield text(f"The program {how}.", note=True, below=True)
    if budget.untimed:
        counts = " and ".join(
            f"{units.format_count(n)} {noun}" for noun, n in budget.untimed.items()
        )
        yield text(f"Not timed: {counts} in other threads.", note=True, below=True)


def sentence(budget: Budget) -> str:
    """``train.py took 12.3 s (plus 1.5 s of profiling): 65.0 % training (600 iterations, ...``."""
    parts = sorted((budget.total(part) for part in _PROGRAM_PARTS), key=lambda spent: -spent.ns)
    largest = ", ".join(
        f"{units.format_percent(share_of(spent, budget))} {_part_text(spent)}"
        for spent in parts[:_MAX_PARTS]
        if spent.ns
    )
    return f"{how_long(budget)}: {largest}."


def how_long(budget: Budget, max_characters: int | None = None) -> str:
    """``train.py took 12.3 s (plus 1.5 s of profiling)``.

    ``max_characters`` limits the length of the command.
    """
    program_ns = own_ns(budget)
    took, profiler = (units.format_duration(ns * NS) for ns in (program_ns, _profiling_ns(budget)))
    path, space, arguments = budget.script.partition(" ")
    script = path.rpartition("/")[2] + space + arguments
    script = shorten(script, max_characters) if max_characters else script
    reports_ns = budget.wall_ns - program_ns - _profiling_ns(budget)
    reports = (
        f", and {units.format_duration(reports_ns * NS)} for the reports" if reports_ns else ""
    )
    return f"{script} took {took} (plus {profiler} of profiling{reports})"


def _profiling_ns(budget: Budget) -> int:
    """The time that profiling added, without the time to make reports."""
    return sum(spent.ns for spent in budget.accounts(PROFILER) if spent.name != REPORTS)


def _part_text(spent: Spent) -> str:
    """``training (600 iterations, 13 ms each)``, or the name of another part."""
    if spent.part in (ITERATIONS, CALLS, TEST_CALLS) and spent.count:
        name, noun = ("training", "iteration") if spent.part == ITERATIONS else (spent.part, "call")
        each = units.format_duration(spent.ns * NS / spent.count)
        return f"{name} ({units.plural(spent.count, noun)}, {each} each)"
    return spent.part


def budget_rows(
    program: ProgramTime, max_rows: int = MAX_ROWS, name_width: int | None = None
) -> Iterator[BudgetRow]:
    """Yield the largest parts, each followed by its own parts; the whole; and profiling.

    Args:
        program: The time of the program.
        max_rows: Most rows of parts.
        name_width: Most characters of a name, with its indentation; None for no limit.
    """
    budget = program.budget
    program_ns, script = own_ns(budget), script_name(budget.script)

    def rows(parts: Sequence[Part], level: int = 0) -> Iterator[BudgetRow]:
        for part in parts:
            name = f"{part.path} {part.name}" if part.path else part.name
            name = name.replace(REST, f"{script}'s own code")
            if name_width:
                # Paths of layers, and functions of one file, differ at their ends.
                cut = ending if part.path or part.sampled else shorten
                name = cut(name, max(_MIN_NAME_CHARACTERS, name_width - 2 * level))
            yield row(name, level, part.ns, part.count, part.sampled)
            yield from rows(part.inner, level + 1)

    def row(name: str, level: int, ns: float, count: float = 0, sampled: bool = False) -> BudgetRow:
        share = ns / program_ns if program_ns else 0.0
        return BudgetRow(name, level, ns * NS, share, count, sampled)

    yield from rows(largest_parts(program_parts(program), program_ns, max_rows))
    yield row(script, -1, program_ns)
    yield row("profiling (added)", 0, _profiling_ns(budget))


def picture_of(budget: Budget) -> Iterator[Boxes]:
    """A bar with the parts of a program's time."""
    rows = [row for row in budget_rows(ProgramTime(budget)) if row.level == 0][:-1]
    yield from bar(
        "Where the time of the program went",
        [
            (row.name, row.share, units.format_percent(row.share), series(index))
            for index, row in enumerate(rows)
            if row.share >= MIN_WIDTH
        ],
    )


_PART = Column(
    "part", "part", unit.TEXT, value=lambda row: "  " * max(0, row.level) + row.name, fold=24
)
# fmt: off
_FIGURES = (
    Column("time", "time", unit.SECONDS, field="seconds",
           mark=lambda row, cell: units.format_about(cell, row.sampled)),
    Column("share", "share", unit.PART, bar=lambda row: row.share if row.level == 0 else None),
    Column("count", "count", unit.COUNT, value=lambda row: round(row.times) if row.times else None,
           unknown="", drop=1),
    Column("each", "each", unit.SECONDS,
           value=lambda row: row.seconds / row.times if row.times else None, unknown="", drop=2),
)
# fmt: on


def _columns(rows: Iterable[BudgetRow], budget: Budget) -> list[Column]:
    """The table's columns; the first heading gives the precision of sampled times."""
    part = _PART
    if any(row.sampled for row in rows):
        part = replace(
            _PART, heading=f"part (~ sampled: 1 s within {sampling_error_s(budget):.1f} s)"
        )
    return [part, *_FIGURES]
