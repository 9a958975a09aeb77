"""A run of several engines -> its blocks, the answer first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import format_duration, plural
from chainer_profile.comparison.compare import compare
from chainer_profile.comparison.sides import Side
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import EngineResult, EnginesRun
from chainer_profile.record.recording import Recording
from chainer_profile.report import document as doc
from chainer_profile.report import text
from chainer_profile.report.columns import properties
from chainer_profile.report.content import engine_texts as texts
from chainer_profile.report.content.comparison_tables import layer_columns, unmatched_lines
from chainer_profile.report.content.engine_table import (
    OUTPUT_COLUMNS,
    crowded,
    engine_rows,
    engine_table,
    row_marks,
    speedup_table,
)
from chainer_profile.report.tables import Table

#: The files of the table and of the picture.
CSV, PLOT = "engines.csv", "engines.png"


def report(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Block]:
    """Make the report; ``recordings`` has the engines that timed their nodes, by name."""
    blocks = doc.blocks_in_form(doc.REPORT, _sections(run, recordings))
    return [doc.Heading(1, texts.title(run)), *blocks]


def overview(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    """The first screen."""
    return doc.blocks_in_form(doc.BRIEF, _sections(run, recordings))


def _sections(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Section]:
    title, how = texts.title(run), texts.how_it_ran(run)
    both, in_report = (doc.BRIEF, doc.REPORT), (doc.REPORT,)
    table = [engine_table(run)] if run.measured else []
    remarks = [f"{engine.label}: {engine.note}" for engine in run.measured if engine.note]
    others = doc.listing([*map(texts.other_line, run.others), *remarks])
    with_nodes = [e for e in run.engines if e.name in recordings and e.name != BASELINE]
    chainer = recordings.get(BASELINE)
    nodes = (
        f"{engine.label}: {texts.nodes_text(run, recordings[engine.name], chainer)}"
        for engine in with_nodes
    )
    warnings = [*texts.warnings(run), *texts.wrong_lines(run)]
    machine = text.environment_lines(run.environment)
    machine_lines = [doc.text(line, aside=True, below=i > 0) for i, line in enumerate(machine)]
    return [
        doc.Section("", doc.below([title, how]), (doc.BRIEF,)),
        doc.Section("", [doc.text(doc.strong(texts.verdict(run)))], both),
        doc.Section("", doc.below(warnings, note=True), both),
        doc.Section("", [doc.text(f"{how}; {text.weights_text(run.settings)}.")], in_report),
        doc.Section("Engines", table, both),
        doc.Section("", _speed(run), in_report),
        doc.Section("" if table else "Engines", others, both),
        doc.Section("What to do next", doc.listing(texts.next_steps(run)), both),
        doc.Section("Outputs", _outputs(run), in_report),
        doc.Section("What became of the layers", doc.listing(nodes), both),
        doc.Section("", _nodes(with_nodes, recordings), in_report),
        doc.Section("Method", _method(run), in_report),
        doc.Section("Environment", _environment(run, recordings), in_report),
        doc.Section("", machine_lines, (doc.BRIEF,)),
    ]


def _speed(run: EnginesRun) -> Iterator[doc.Block]:
    """The picture, and the speed-ups between all engines."""
    if run.measured:
        # In a paragraph of its own: a page omits paragraphs that name a file of the folder.
        yield doc.text("All digits are in ", doc.file(CSV), ".")
        yield doc.Figure(
            PLOT,
            "Bar plot of the time of a trial under every engine",
            "One bar for each engine: the median of its trials. The parts of a bar are the "
            "functions' shares in the trials that timed nodes, scaled to the median. A node "
            "that computes several layers counts for the one with the most operations.",
        )
    if len(run.right) > 1 and not crowded(run):
        yield doc.Heading(3, "Speed-ups")
        yield doc.text(
            "How many times as fast the row's engine is as the column's engine (95 % "
            "confidence intervals):"
        )
        yield speedup_table(run)


def _outputs(run: EnginesRun) -> Iterator[doc.Block]:
    compared = [e for e in run.engines if e.difference is not None and e.name != BASELINE]
    if compared:
        yield doc.text(
            "The largest difference from Chainer's outputs in four comparisons: on the trials' "
            "input, on another input, with random numbers in place of uniform parameters (such as "
            "those of an initial normalisation), and again after the trials."
        )
        rows = engine_rows(run, compared)
        yield Table(OUTPUT_COLUMNS, rows, "Outputs", row_marks(rows))


def _nodes(
    engines: Iterable[EngineResult], recordings: Mapping[str, Recording]
) -> Iterator[doc.Block]:
    """For each engine, a table of Chainer's layers with its nodes, and a link to its report."""
    for engine in engines:
        yield doc.Heading(3, engine.label)
        if BASELINE in recordings:
            yield from _compared_layers(engine.name, recordings)
        if engine.folder:
            yield doc.text(
                f"The report on {engine.label} alone, with its nodes: ",
                doc.file(f"{engine.folder}/report.md"),
            )


def _compared_layers(name: str, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    """A table of Chainer's layers and the same layers under an engine.

    Nothing if the engine's nodes do not name their layers.
    """
    try:
        before, after = (Side(engine, (recordings[engine],)) for engine in (BASELINE, name))
        comparison = compare(before, after)
    except ProfileError:  # the nodes do not name their layers
        return
    caption = f"The layers of {BASELINE} and of {name}"
    legend = ["Times are medians of the trials in which the engines timed their nodes."]
    yield Table(layer_columns(comparison), comparison.layers, caption, legend=legend)
    yield from map(doc.text, unmatched_lines(comparison))


def _method(run: EnginesRun) -> Iterator[doc.Block]:
    if run.settings.command:
        yield doc.Code(run.settings.command)
    prepared = [engine for engine in run.engines if engine.prepare_s is not None]
    times = (f"{format_duration(engine.prepare_s)} ({engine.label})" for engine in prepared)
    yield doc.points(
        [
            "Each engine got the same network, weights and input. Preparing them before the "
            f"trials took {', '.join(times) or 'no time'}.",
            f"After {plural(run.settings.warmups, 'warm-up run')} of each, the engines took "
            "turns in rounds whose order changes: one untimed run, then some timed ones. So a slow "
            "phase of the machine slows all engines equally.",
            "A speed-up is the median, over the rounds, of the ratio of the two engines' "
            "medians. Order statistics give its interval.",
            "The times of nodes come from additional trials with the engine's own profiling "
            "switched on. Such a trial is the sum of its nodes and of the time between them.",
        ]
    )


def _environment(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    rows = text.environment_rows(run.environment)
    rows += text.gpu_rows(recordings[BASELINE]) if BASELINE in recordings else []
    rows += [(e.label, e.version) for e in run.engines if e.version]
    if rows:
        yield properties(rows, "The machine and its software")
