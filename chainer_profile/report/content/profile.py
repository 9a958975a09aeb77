"""Summary -> the report of a run: one list of sections, from which each form takes its own.

The order is: the answer, the next step, the results, then what a course requires of a report
(experiment, environment, methodology), and an appendix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.words import TRY
from chainer_profile.report import document as doc
from chainer_profile.report.content import answer as first
from chainer_profile.report.content import layer_section as by_layer
from chainer_profile.report.content import method
from chainer_profile.report.content import pass_section as passes
from chainer_profile.report.content import result_section as result
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.budget import picture_of
from chainer_profile.report.content.budget import section as program_section
from chainer_profile.report.content.layer_section import TableOptions
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.text import Row, model_name, printable, run_lines, script_name


@dataclass(frozen=True)
class ReportTitle:
    """A report's title, author and course; empty ones are omitted."""

    title: str = ""
    author: str = ""
    course: str = ""

    @property
    def heading(self) -> str:
        """The title on one line; may be empty."""
        return printable(self.title.strip())

    def rows(self) -> list[Row]:
        """Rows for author and course, without empty ones."""
        rows = (("Author", self.author), ("Course", self.course))
        return [(name, printable(value.strip())) for name, value in rows if value.strip()]


def subject(summary: Summary, related: RelatedResults | None) -> str:
    """The name of the network, after the name of its program if it ran in one."""
    model, program = model_name(summary.recording.settings), related and related.program
    return f"{script_name(program.budget.script)} ({model})" if program else model


def sections(
    summary: Summary, related: RelatedResults | None = None, options: TableOptions | None = None
) -> list[doc.Section]:
    """The sections of a run's report, in order.

    Args:
        summary: The run.
        related: The advice and the program's time, if known.
        options: The options of the terminal's tables; None for the defaults.
    """
    options = options or TableOptions()
    advice, program = (related.advice, related.program) if related else (None, None)
    by, trial = options.group_by, "" if program is None else "A trial"
    if advice is not None:  # omit findings that advise to try what was tried
        tried_by = f" {TRY} " if advice.script else " advise "
        findings = (finding for finding in summary.findings if tried_by not in finding.to_do)
        summary = replace(summary, findings=tuple(findings))
    # A terminal shows either the layers or the tree of links, and the requested groups.
    layers = doc.Section("The layers", by_layer.layers(summary, options), (doc.FULL,))
    tree = doc.Section("The tree of links", result.tree(summary, options), (doc.FULL,))
    groups = result.groups(summary, options) if by else ()
    has_links = int(summary.links.index.str.startswith("/").sum()) > 1
    tree_forms = (doc.FULL,) if has_links and not options.tree and by != "link" else ()
    return [
        doc.Section("", _program(summary, program), (doc.REPORT, doc.PAGE)),
        doc.Section("", _what_was_run(summary), (doc.FULL,)),
        doc.Section(trial, first.answer(summary, advice, program), (doc.FULL, doc.REPORT)),
        doc.Section(trial, _first_of_page(summary, advice, program), (doc.PAGE,)),
        doc.Section("Next step for improvement", first.steps(summary)),
        doc.Section("What was tried", tried(advice, program, below_answer=True) if advice else ()),
        doc.Section("Notes on this run", first.notes(summary), (doc.FULL, doc.REPORT)),
        doc.Section("Result", result.whole_trial(summary)),
        doc.Section("", by_layer.bars(summary), (doc.REPORT,)),
        doc.Section("On the GPU", result.device(summary)),
        doc.Section("By phase", result.phases(summary)),
        tree if options.tree else layers,
        doc.Section("The layers", by_layer.on_page(summary), (doc.PAGE,)),
        doc.Section("", by_layer.hot_layers(summary), (doc.FULL, doc.PAGE)),
        doc.Section("Hotspots", by_layer.hotspots(summary), (doc.REPORT,)),
        doc.Section(f"By {by}", groups, (doc.FULL,)),
        doc.Section("By function", result.by_function(summary), (doc.REPORT, doc.PAGE)),
        doc.Section("Inside the layers", passes.inside(summary)),
        doc.Section("", passes.inside_layers(summary), (doc.FULL, doc.PAGE)),
        replace(tree, forms=tree_forms),
        doc.Section("By link", result.tree_on_page(summary), (doc.PAGE,)),
        doc.Section("Work and limits", passes.work(summary)),
        doc.Section("CPU time and page faults", passes.counters(summary), (doc.FULL, doc.PAGE)),
        doc.Section("Memory", passes.memory(summary), (doc.FULL, doc.REPORT)),
        doc.Section("Memory", passes.memory_on_page(summary), (doc.PAGE,)),
        doc.Section("Experiment description", method.experiment(summary)),
        doc.Section("Environment", method.environment(summary)),
        doc.Section("Methodology", method.method(summary)),
        doc.Section("Appendix: command", method.command(summary)),
        doc.Section("Appendix: layers", by_layer.by_layer(summary), (doc.REPORT,)),
        doc.Section("Appendix: nodes", by_layer.by_node(summary), (doc.FULL, doc.REPORT)),
        doc.Section("Appendix: columns", by_layer.glossary(summary), (doc.PAGE,)),
    ]


def overview(
    summary: Summary, related: RelatedResults | None = None, **table_options: Any
) -> Iterator[doc.Block]:
    """The report for a terminal; ``table_options`` are arguments of :class:`TableOptions`."""
    return doc.blocks_in_form(doc.FULL, sections(summary, related, TableOptions(**table_options)))


def _what_was_run(summary: Summary) -> Iterator[doc.Block]:
    yield from doc.below(run_lines(summary.recording))
    if summary.recording.settings.engine:
        engine = printable(summary.recording.settings.engine)
        yield doc.text(doc.strong(f"engine: {engine}; each row is one of its nodes"), below=True)


def _program(summary: Summary, program: ProgramTime | None) -> Iterator[doc.Block]:
    """The time of the program in which the run was recorded; nothing without a program."""
    if program is not None:
        yield from picture_of(program.budget)
        yield from program_section(program, summary)


def _first_of_page(
    summary: Summary, advice: Advice | None, program: ProgramTime | None
) -> Iterator[doc.Block]:
    """The answer with its picture and the slowest layers, then warnings and notes that open."""
    yield from (block for block in first.answer(summary, advice, program) if not block.note)
    yield from by_layer.bars(summary)
    yield by_layer.hottest(summary)
    yield from first.foldable_findings(summary)


def report(
    summary: Summary,
    title: ReportTitle | None = None,
    *,
    related: RelatedResults | None = None,
    prepared: Sequence[doc.Section] = (),
) -> list[doc.Block]:
    """The blocks of ``report.md``.

    Args:
        summary: The run.
        title: Title and author; without a title, the report has the run's name.
        related: The advice and the program's time, if known.
        prepared: The report's sections, if they were made before.
    """
    title = title or ReportTitle()
    heading = title.heading or f"Layer-wise profile of {subject(summary, related)}"
    return [
        doc.Heading(1, heading),
        *(doc.text(doc.strong(name), f": {value}") for name, value in title.rows()),
        *doc.blocks_in_form(doc.REPORT, prepared or sections(summary, related)),
    ]
