"""Summary -> the report of an experiment: one list of sections, which all its forms choose from.

``report.md`` has the parts that a course asks for: what was run, where, how, what came
out, what to do next, and an appendix. The page and the terminal begin with the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.findings import NOTE, WARNING
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_percent
from chainer_profile.record.budget import Budget
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, layer_anchor, link_anchor
from chainer_profile.report.content import answer as first
from chainer_profile.report.content import layer_section as by_layer
from chainer_profile.report.content import method
from chainer_profile.report.content import pass_section as passes
from chainer_profile.report.content import result_section as result
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.budget import picture_of, script_name
from chainer_profile.report.content.budget import section as program
from chainer_profile.report.content.layer_section import BRIEF_COLUMNS, Shown
from chainer_profile.report.document import (
    BRIEF,
    FULL,
    LAYERS,
    LINKS,
    PAGE,
    REPORT,
    WHOLE,
    Block,
    Heading,
    Lines,
    Section,
    below,
    file,
    numbered,
    shown_in,
    strong,
    text,
)
from chainer_profile.report.tables import Table, columns
from chainer_profile.report.text import Row, model_name, printable, run_lines

_NOTHING = "All layers took less time than the clock can resolve, so this run shows nothing."
#: What the report has in chapters of its own.
_CHAPTERS = (
    *("Experiment", "Environment", "Method", "A trial as a whole", "What to do next"),
    *("What was tried", "Command and versions"),
)
_BY_LAYER, _WORK = "By layer", "Work and memory by layer"
MOST_LAYERS = 10
#: A section whose table has more rows than this is for the appendix too.
_MAX_ROWS = 60
_MEANINGS = columns("csv | column | code\nmeaning | | text")


@dataclass(frozen=True)
class ReportTitle:
    """What a report says of itself; nothing is printed for what is empty."""

    title: str = ""
    author: str = ""
    course: str = ""

    @property
    def heading(self) -> str:
        """The title on one line; empty where none is given."""
        return printable(self.title.strip())

    def rows(self) -> list[Row]:
        """Author and course with their names, without what is empty."""
        rows = (("Author", self.author), ("Course", self.course))
        return [(name, printable(value.strip())) for name, value in rows if value.strip()]


@dataclass(frozen=True)
class Beside:
    """What was tried on a run's network, and the time of the program that it is of, if known."""

    advice: Advice | None = None
    budget: Budget | None = None


def heading_text(summary: Summary, title: ReportTitle, budget: Budget | None = None) -> str:
    """The report's title, on one line; it names the program that the run is of, if there is one."""
    return title.heading or f"Layer-wise profile of {_subject(summary, budget)}"


def _subject(summary: Summary, budget: Budget | None) -> str:
    model = model_name(summary.recording.settings)
    return model if budget is None else f"{script_name(budget)} ({model})"


def sections(
    summary: Summary, beside: Beside | None = None, shown: Shown | None = None
) -> list[Section]:
    """All that is told of a run, in its order; ``shown`` is what the terminal shows of it."""
    shown = shown or Shown()
    advice, by = beside.advice if beside else None, shown.group_by
    # The terminal has the groups that are asked for, and in place of the layers the tree of links.
    layers = Section("The layers", by_layer.layers(summary, shown), (BRIEF, FULL))
    if shown.tree:
        layers = Section("The tree of links", result.tree(summary, shown), (BRIEF, FULL))
    asked = result.groups(summary, shown) if by else ()
    by_link = (REPORT,) if shown.tree or by == "link" else (FULL, REPORT)
    return [
        Section("", _what_was_run(summary), (BRIEF, FULL)),
        Section("", first.opening(summary, shown.doubts), (BRIEF,)),
        Section("", first.answer(summary, advice, tried_alone=True), (FULL,)),
        Section("", result.phases_in_short(summary), (BRIEF,)),
        Section("What to do next", first.steps(summary)),
        Section("What was tried", tried(advice) if advice else ()),
        Section("A trial as a whole", result.whole_trial(summary)),
        Section("On the GPU", result.device(summary)),
        Section("By phase", result.phases(summary)),
        layers,
        Section("The layers", by_layer.picture(summary), (REPORT,)),
        Section("All layers", by_layer.on_page(summary), (PAGE,)),
        Section("Hotspots", result.hotspots(summary)),
        Section(f"By {by}", asked, (BRIEF, FULL)),
        Section("By function", result.by_function(summary), (REPORT, PAGE)),
        Section("Inside the layers", passes.inside(summary)),
        Section("By block", result.by_block(summary), (REPORT, PAGE) if by == "block" else WHOLE),
        Section("By link", result.by_link(summary), by_link),
        Section("Tree of links", result.tree_on_page(summary), (PAGE,)),
        Section("Work and limits", passes.work(summary, macs=shown.macs)),
        Section("CPU time and page faults", passes.counters(summary)),
        Section("Memory", passes.memory(summary), (FULL, REPORT)),
        Section("Memory", passes.memory_on_page(summary), (PAGE,)),
        Section("By node", by_layer.by_node(summary), (FULL, REPORT)),
        Section("", first.next_in_short(summary, advice, shown.doubts is None), (BRIEF,)),
        Section("What else was found", first.checks(summary, (NOTE,)), (FULL,)),
        Section("Experiment", method.experiment(summary)),
        Section("Environment", method.environment(summary)),
        Section("Method", method.method(summary)),
        Section("Command and versions", method.command_and_versions(summary)),
        Section(_BY_LAYER, by_layer.by_layer(summary), (REPORT,)),
        Section(_WORK, by_layer.work_by_layer(summary), (REPORT,)),
        Section("Columns", by_layer.glossary(summary), (PAGE,)),
    ]


def brief(
    summary: Summary, *, advice: Advice | None = None, doubts: int | None = 1, **asked: Any
) -> Iterator[Block]:
    """A first screen: what it takes, where it goes, the hottest layers, what to do.

    The other options are those of :class:`Shown`; groups are shown where some are asked for.
    """
    usual = Shown(limit=MOST_LAYERS, group_by="", usual=BRIEF_COLUMNS, doubts=doubts)
    return shown_in(BRIEF, sections(summary, Beside(advice), replace(usual, **asked)))


def overview(summary: Summary, *, advice: Advice | None = None, **asked: Any) -> Iterator[Block]:
    """All that a terminal shows; the other options are those of :class:`Shown`."""
    return shown_in(FULL, sections(summary, Beside(advice), Shown(**asked)))


def _what_was_run(summary: Summary) -> Iterator[Block]:
    yield from below(run_lines(summary.recording))
    if summary.recording.settings.engine:
        said = (
            f"engine: {printable(summary.recording.settings.engine)}; each row is one of its nodes"
        )
        yield text(strong(said), below=True)


def report(
    summary: Summary,
    title: ReportTitle | None = None,
    *,
    beside: Beside | None = None,
    made: Sequence[Section] = (),
) -> list[Block]:
    """``report.md``, its tables and figures numbered."""
    title = title or ReportTitle()
    budget = beside.budget if beside else None
    made = made or sections(summary, beside)
    parts = {one.title: one.in_form(REPORT) for one in made if REPORT in one.forms}
    result = [name for name in parts if name not in _CHAPTERS]
    many = {
        name
        for name, blocks in parts.items()
        if any(isinstance(block, Table) and len(block.rows) > _MAX_ROWS for block in blocks)
    }
    long = [name for name in result if name in (_BY_LAYER, _WORK, *many)]
    by_whom, checked = title.rows(), list(first.checks(summary, (WARNING, NOTE)))
    blocks: list[Block] = [
        Heading(1, heading_text(summary, title, budget)),
        *([Lines(by_whom)] if by_whom else []),
        *(program(budget, summary) if budget is not None else []),
        *first.answer(summary, beside.advice if beside else None),
        Heading(2, "1 Experiment description"),
        *parts["Experiment"],
        Heading(2, "2 Environment"),
        *parts["Environment"],
        Heading(2, "3 Methodology"),
        method.command(summary),
        *parts["Method"],
        Heading(2, "4 Result"),
        *parts["A trial as a whole"],
        *_under(parts, [name for name in result if name not in long]),
        Heading(2, "5 Next step for improvement"),
        *(parts["What to do next"] or [text(_NOTHING)]),
        *([text("Checks of this run found:"), *checked] if checked else []),
        *_under(parts, ["What was tried"]),
        Heading(2, "6 Appendix"),
        *_under(parts, ["Command and versions"]),
        *_under(parts, long),
        *_files(),
    ]
    return list(numbered(blocks))


def _under(parts: Mapping[str, list[Block]], names: Iterable[str]) -> list[Block]:
    said = ((name, parts[name]) for name in names if parts[name])
    return [block for name, blocks in said for block in (Heading(3, name), *blocks)]


def _files() -> Iterator[Block]:
    yield Heading(3, "Files beside this report")
    for what, name, times, described in (
        ("layers with all digits", LAYERS, "self times", LAYER_COLUMNS),
        ("links", LINKS, "means", LINK_COLUMNS),
    ):
        yield text(
            f"All {what} are in ",
            file(name),
            f". Its columns (times are {times} in milliseconds over the profiled trials):",
        )
        rows = [column for column in described.values() if column.csv]
        yield Table(_MEANINGS, rows, f"The columns of {name}")


def page(
    summary: Summary,
    beside: Beside | None = None,
    made: Sequence[Section] = (),
    title: ReportTitle | None = None,
) -> Iterator[Block]:
    """The page: what a reader wants first comes first."""
    advice, budget = (beside.advice, beside.budget) if beside else (None, None)
    yield Heading(1, (title and title.heading) or _subject(summary, budget))
    if budget is not None:
        yield from picture_of(budget)
        yield from program(budget, summary)
        yield Heading(2, "A trial")
    yield from (block for block in first.answer(summary, advice) if not block.note)
    yield from by_layer.bars(summary)
    yield by_layer.hottest(summary)
    yield from first.folded(summary)
    yield from shown_in(PAGE, made or sections(summary, beside))


def words_of(summary: Summary) -> dict[str, str]:
    """What pointing at a bar says, by the anchor of its row."""
    said = {
        layer_anchor(row.Index): f"{printable(row.label)} at {printable(row.path)}: "
        f"{LAYER_COLUMNS['median'].cell(row)} ms, {format_percent(row.share)}"
        for row in summary.layers.itertuples()
    }
    for row in summary.links.itertuples():
        anchor = link_anchor(summary, str(row.Index))
        said[anchor] = f"{printable(str(row.Index))}: {format_percent(row.share)}"
    return said
