"""A run of several engines -> ``engines.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import (
    format_duration,
    format_scientific,
    format_significant,
    plural,
)
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import speedup
from chainer_profile.report.columns import Column
from chainer_profile.report.content.engines_text import (
    EXPLAINED,
    about_lines,
    fusion_lines,
    interval_text,
    next_steps,
    node_columns,
    node_rows,
    note_lines,
    other_lines,
    table_columns,
    warnings,
    wrong_text,
)
from chainer_profile.report.content.gpu_text import gpu_rows
from chainer_profile.report.markdown_syntax import (
    address,
    bullets,
    code,
    columns_table,
    link,
    properties,
    text,
)
from chainer_profile.report.text import environment_rows, printable, weights_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording


def render(
    run: EnginesRun,
    recordings: Mapping[str, Recording],
    *,
    plot: str = "engines.png",
    table: str = "engines.csv",
) -> str:
    """The run as Markdown (GitHub's tables).

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
        plot: Address of the bar plot, as seen from the report.
        table: Address of the table with all digits, likewise.
    """
    parts = (
        _top(run),
        _engines(run, plot, table),
        _outputs(run),
        _fused(run, recordings),
        _next_steps(run),
        _method(run),
        _environment(run, recordings),
    )
    return "\n\n".join(block for part in parts for block in part) + "\n"


def _top(run: EnginesRun) -> Iterator[str]:
    title, how = about_lines(run)
    yield f"# {text(title)}"
    yield f"{text(how)}; {text(weights_text(run.settings))}."
    for line in warnings(run):
        yield f"> **Note:** {text(line)}"


def _engines(run: EnginesRun, plot: str, table: str) -> Iterator[str]:
    yield "## Engines"
    if run.measured:
        best = [engine.wrong for engine in run.measured]
        yield columns_table(table_columns(run), run.measured, bold=best)
        yield f"{EXPLAINED} All digits are in {link(table)}."
        yield f"![Bar plot of the time of a trial under every engine]({address(plot)})"
        yield (
            "*One bar an engine: the median of its trials. Its parts are the shares of the "
            "functions in the trials in which the engine timed its nodes, put to the scale of the "
            "median; a node that does several layers counts for the one of the most operations.*"
        )
    if len(right := [engine for engine in run.measured if not engine.wrong]) > 1:
        yield "### Speed-ups"
        yield "How many times as fast the row's engine is as the column's, as 95 % intervals:"
        yield columns_table(
            [Column("engine", lambda row: row.name, folds=8), *map(_versus, right)], right
        )
    if others := [*other_lines(run), *note_lines(run)]:
        yield bullets(map(text, others))


def _versus(slow: EngineResult) -> Column:
    def cell(engine: EngineResult) -> str:
        found = None if engine is slow else speedup(engine, slow)
        return "" if found is None else interval_text(found)

    return Column(f"vs {printable(slow.name)}", cell)


def _outputs(run: EnginesRun) -> Iterator[str]:
    compared = [e for e in run.engines if e.difference is not None and e.name != BASELINE]
    if not compared:
        return
    yield "## Outputs"
    yield (
        "Compared with Chainer's on the trials' input, on the same flipped along its last axis, "
        "and on the first again after the trials: the largest difference of all."
    )
    yield columns_table(_output_columns(), compared, bold=[engine.wrong for engine in compared])
    yield from (f"**{text(e.name)}**: {text(wrong_text(e))}." for e in run.wrong)


def _output_columns() -> list[Column]:
    def largest(engine: EngineResult) -> str:
        return "" if engine.difference is None else format_scientific(engine.difference.largest)

    def relative(engine: EngineResult) -> str:
        return "" if engine.difference is None else format_scientific(engine.difference.relative)

    def magnitude(engine: EngineResult) -> str:
        found = engine.difference
        return "" if found is None else format_significant(found.magnitude)

    return [
        Column("engine", lambda row: row.name, folds=8),
        Column("precision", lambda row: row.precision, folds=4),
        Column("largest difference", largest),
        Column("largest output", magnitude),
        Column("difference / output", relative),
        Column("tolerance", lambda row: format_scientific(row.tolerance)),
        Column("outputs", lambda row: "wrong" if row.wrong else "right", folds=5),
    ]


def _fused(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[str]:
    lines = fusion_lines(run, recordings)
    if not lines:
        return
    yield "## What became of the layers"
    yield (
        "Times are means of the trials in which an engine timed its own nodes: before is Chainer's "
        "time of the layers, after the node's."
    )
    yield bullets(map(text, lines))
    chainer = recordings.get(BASELINE)
    for engine in run.engines:
        recording = recordings.get(engine.name)
        if recording is None or engine.name == BASELINE:
            continue
        yield f"### {text(engine.name)}"
        yield columns_table(node_columns(), list(node_rows(run, recording, chainer)))
        if engine.folder:
            report = f"{engine.folder}/report.md"
            yield f"The report of {text(engine.name)} by itself: {link(report)}"


def _next_steps(run: EnginesRun) -> Iterator[str]:
    steps = list(next_steps(run))
    if steps:
        yield "## What to do next"
        yield bullets(map(text, steps))


def _method(run: EnginesRun) -> Iterator[str]:
    settings = run.settings
    yield "## Method"
    if settings.command:
        yield code(printable(settings.command))
    points = [
        "Each engine was given the same network, the same weights and the same input, and made "
        f"ready before the trials; that took {_prepared(run)}.",
        f"After {plural(settings.warmups, 'warm-up run')} of each the engines took turns in "
        "rounds, in an order that changes from round to round: an untimed run, then some timed "
        "ones. What slows the machine for a while slows all engines alike.",
        "A speed-up is the median over the rounds of the ratio of the two engines' medians in the "
        "round, and its interval is that of this median from order statistics.",
        "The times of nodes come from further trials, in which the engine's own profiling was on. "
        "A trial is the sum of its nodes and of what passed between them.",
    ]
    yield bullets(points)


def _prepared(run: EnginesRun) -> str:
    known = [e for e in run.engines if e.prepare_s is not None]
    return ", ".join(f"{text(e.name)} {format_duration(e.prepare_s)}" for e in known) or "no time"


def _environment(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[str]:
    rows = environment_rows(run.environment)
    rows += gpu_rows(recordings[BASELINE]) if BASELINE in recordings else []
    rows += [(e.name, e.version) for e in run.engines if e.version]
    if rows:
        yield "## Environment"
        yield properties(rows)
