"""A run of several engines -> what is said of it, the verdict first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.analyse.checks import BUSY_CORES
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_factor,
    format_ms,
    format_nbytes,
    format_scientific,
    format_significant,
    plural,
)
from chainer_profile.basics.words import PROG
from chainer_profile.engines.catalogue import BASELINE, FAST
from chainer_profile.engines.results import EngineResult, EnginesRun, speedup
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report import document
from chainer_profile.report.columns import properties
from chainer_profile.report.content.engine_nodes import fusion_lines, node_columns, node_rows
from chainer_profile.report.content.gpu_text import gpu_rows
from chainer_profile.report.document import (
    Code,
    Column,
    Figure,
    Heading,
    file,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import (
    environment_lines,
    environment_rows,
    model_name,
    printable,
    settings_text,
    weights_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from chainer_profile.engines.results import OutputDifference, Speedup
    from chainer_profile.record.recording import Recording
    from chainer_profile.report.document import Block

#: The table with all digits, and the picture.
CSV, PLOT = "engines.csv", "engines.png"
#: In place of a speed-up.
WRONG = "wrong outputs"
_MAX_NAME = 24


# -- the report, and what of it the terminal shows


def report(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[Block]:
    """The report of a run.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
    """
    title, how = about_lines(run)
    return [
        Heading(1, title),
        *_verdict(run),
        text(f"{how}; {weights_text(run.settings)}."),
        *_engines(run),
        *_steps(run),
        *_outputs(run),
        *_fused(run, recordings),
        *_method(run),
        *_environment(run, recordings),
    ]


def overview(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[Block]:
    """What the terminal shows of it."""
    for line in about_lines(run):
        yield text(line, below=True)
    yield from _verdict(run)
    if run.measured:
        yield replace(_table(run), legend=[("", explained(run))])
    for line in [*other_lines(run), *note_lines(run)]:
        yield text(line, below=True)
    for at, line in enumerate(fusion_lines(run, recordings)):
        yield text(line, below=at > 0)
    for at, line in enumerate(next_steps(run)):
        yield text(line, below=at > 0)
    for at, line in enumerate(environment_lines(run.environment)):
        yield text(line, aside=True, below=at > 0)


def verdict(run: EnginesRun) -> str:
    """The answer: ``openvino is 12x as fast as chainer: 4.7 ms -> 0.39 ms.``"""
    baseline = run.baseline
    if baseline is None or baseline.statistics is None:
        return f"{plural(len(run.measured), 'engine')} ran, and Chainer did not."
    before = format_duration(baseline.statistics.median_s)
    known = _speedups(run, baseline)
    if not known:
        return f"No other engine ran beside {_name(baseline)}: {before} a trial."
    faster = _surely_faster(known)
    if not faster:
        return f"No engine is faster than {_name(baseline)} beyond doubt: {before} a trial."
    best, gain = faster[0]
    assert best.statistics is not None
    after = format_duration(best.statistics.median_s)
    if crowded(run):
        return (
            f"{_name(best)} was {format_factor(gain.factor)} as fast as {_name(baseline)}, "
            f"{before} a trial and {after}, while other programs kept the cores: how it is without "
            "them is not known."
        )
    said = interval_text(gain)
    within = "" if said == NOT_KNOWN else f", 95 % interval {said}"
    return (
        f"{_name(best)} is {format_factor(gain.factor)} as fast as {_name(baseline)}: {before} a "
        f"trial, and {after}{within}."
    )


def crowded(run: EnginesRun) -> bool:
    """Whether other programs left the engines fewer cores than they compute on."""
    cores, other = run.environment.usable_cores, run.other_cpu or 0.0
    if other < BUSY_CORES or not cores:
        return False
    return other + min(run.settings.threads or cores, cores) >= cores + BUSY_CORES


def _speedups(run: EnginesRun, baseline: EngineResult) -> list[tuple[EngineResult, Speedup]]:
    """The other engines that are right, with how many times as fast they are as Chainer."""
    found = [(one, speedup(one, baseline)) for one in run.right if one is not baseline]
    return [(one, gain) for one, gain in found if gain is not None]


def _surely_faster(
    known: list[tuple[EngineResult, Speedup]],
) -> list[tuple[EngineResult, Speedup]]:
    """Those that are faster beyond doubt, as far as there is an interval; the fastest first."""
    faster = [(one, gain) for one, gain in known if gain.factor > 1 and not gain.low <= 1]
    return sorted(faster, key=lambda pair: -pair[1].factor)


def _verdict(run: EnginesRun) -> Iterator[Block]:
    yield text(strong(verdict(run)))
    for line in [*warnings(run), *wrong_lines(run)]:
        yield text(line, note=True, below=True)


def _table(run: EnginesRun) -> Table:
    marks = [document.WRONG if engine.wrong else "" for engine in run.measured]
    return Table(table_columns(run), run.measured, "The engines", marks)


def _engines(run: EnginesRun) -> Iterator[Block]:
    yield Heading(2, "Engines")
    if run.measured:
        yield _table(run)
        yield text(explained(run))
        # By itself, since a page leaves out what names a file beside it.
        yield text("All digits are in ", file(CSV), ".")
        yield Figure(
            PLOT,
            "Bar plot of the time of a trial under every engine",
            "One bar an engine: the median of its trials. Its parts are the shares of the "
            "functions in the trials in which the engine timed its nodes, put to the scale of the "
            "median; a node that does several layers counts for the one of the most operations.",
        )
    if len(run.right) > 1 and not crowded(run):
        yield Heading(3, "Speed-ups")
        yield text("How many times as fast the row's engine is as the column's, as 95 % intervals:")
        columns = [
            Column(f"vs {_name(slow)}", _interval_versus(slow), drop=at)
            for at, slow in enumerate(run.right)
        ]
        yield Table([Column("engine", _name, folds=8), *columns], run.right, "Speed-ups")
    if others := [*other_lines(run), *note_lines(run)]:
        yield points(others)


def _outputs(run: EnginesRun) -> Iterator[Block]:
    compared = [e for e in run.engines if e.difference is not None and e.name != BASELINE]
    if not compared:
        return
    yield Heading(2, "Outputs")
    yield text(
        "Compared with Chainer's on the trials' input, on another one, for a copy of the network "
        "with drawn numbers in place of parameters that are all the same, as initial "
        "normalisations are, and again after the trials: the largest difference of all."
    )
    marks = [document.WRONG if engine.wrong else "" for engine in compared]
    yield Table(_output_columns(), compared, "Outputs", marks)


def _output_columns() -> list[Column]:
    def of(name: str, form: Callable[[float], str]) -> Callable[[EngineResult], str]:
        def cell(engine: EngineResult) -> str:
            found = engine.difference
            return "" if found is None else form(getattr(found, name))

        return cell

    return [
        Column("engine", _name, folds=8),
        Column("precision", lambda row: row.precision, folds=9),
        Column("largest difference", of("largest", format_scientific)),
        Column("largest output", of("magnitude", format_significant)),
        Column("difference / output", of("relative", format_scientific)),
        Column("tolerance", lambda row: format_scientific(row.tolerance)),
        Column("outputs", lambda row: "wrong" if row.wrong else "right", folds=7),
    ]


def _fused(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[Block]:
    lines = fusion_lines(run, recordings)
    if not lines:
        return
    yield Heading(2, "What became of the layers")
    yield text(
        "Times are means of the trials in which an engine timed its own nodes: before is Chainer's "
        "time of the layers, after the node's."
    )
    yield points(lines)
    chainer = recordings.get(BASELINE)
    for engine in run.engines:
        recording = recordings.get(engine.name)
        if recording is None or engine.name == BASELINE:
            continue
        yield Heading(3, engine.name)
        nodes = list(node_rows(run, recording, chainer))
        yield Table(node_columns(), nodes, f"The nodes of {engine.name}")
        if engine.folder:
            yield text(
                f"The report of {engine.name} by itself: ", file(f"{engine.folder}/report.md")
            )


def _steps(run: EnginesRun) -> Iterator[Block]:
    steps = list(next_steps(run))
    if steps:
        yield Heading(2, "What to do next")
        yield points(steps)


def _method(run: EnginesRun) -> Iterator[Block]:
    settings = run.settings
    yield Heading(2, "Method")
    if settings.command:
        yield Code(printable(settings.command))
    known = [e for e in run.engines if e.prepare_s is not None]
    took = ", ".join(f"{_name(e)} {format_duration(e.prepare_s)}" for e in known) or "no time"
    yield points(
        [
            "Each engine was given the same network, the same weights and the same input, and made "
            f"ready before the trials; that took {took}.",
            f"After {plural(settings.warmups, 'warm-up run')} of each the engines took turns in "
            "rounds, in an order that changes from round to round: an untimed run, then some timed "
            "ones. What slows the machine for a while slows all engines alike.",
            "A speed-up is the median over the rounds of the ratio of the two engines' medians in "
            "the round, and its interval is that of this median from order statistics.",
            "The times of nodes come from further trials, in which the engine's own profiling was "
            "on. A trial is the sum of its nodes and of what passed between them.",
        ]
    )


def _environment(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[Block]:
    rows = environment_rows(run.environment)
    rows += gpu_rows(recordings[BASELINE]) if BASELINE in recordings else []
    rows += [(_name(e), printable(e.version)) for e in run.engines if e.version]
    if rows:
        yield Heading(2, "Environment")
        yield properties(rows, "The machine and its software")


# -- what was run


def about_lines(run: EnginesRun) -> list[str]:
    """What was run, and how, in two lines."""
    settings = run.settings
    threads = "" if settings.threads is None else f", {plural(settings.threads, 'thread')}"
    trials = plural(settings.trials, "trial")
    return [
        f"{model_name(settings)} under {plural(len(run.measured), 'engine')}",
        f"{settings_text(settings)}{threads}; {trials} of each, in turn",
    ]


def ended_line(run: EnginesRun) -> str:
    """A sentence for trials that ended early; empty where they did not."""
    if run.ended == COMPLETE:
        return ""
    counts = [len(engine.clean_ns) for engine in run.measured]
    made = f"{format_count(min(counts))} to {format_count(max(counts))}" if counts else "0"
    return f"The trials ended before all were made ({printable(run.ended)}): {made} of each engine."


def warnings(run: EnginesRun) -> list[str]:
    """A sentence for each thing that makes the times doubtful."""
    found = [line] if (line := ended_line(run)) else []
    if run.other_cpu is not None and run.other_cpu >= BUSY_CORES:
        cores = run.environment.usable_cores
        of = f" of {plural(cores, 'core')}" if cores else ""
        found.append(
            f"Other programs kept {run.other_cpu:.1f}{of} busy during the trials, which makes long "
            "trials slower than short ones: close them and run again."
        )
    return found


# -- the table of engines


def table_columns(run: EnginesRun) -> list[Column]:
    """The columns of the engines that made trials; one for each of them to be compared with."""
    baseline = run.baseline
    versus = [
        Column(f"vs {_name(slow)}", _versus(slow), drop=0 if slow is baseline else 1)
        for slow in run.right
    ]
    if baseline is not None and not crowded(run):
        at = run.right.index(baseline) + 1
        versus.insert(at, Column("95 %", _interval_versus(baseline), "95 % interval", drop=2))
    memory = [Column("memory", _of_memory, "Memory", drop=4)] if _knows_memory(run) else []
    return [
        Column("engine", _name, folds=_MAX_NAME),
        Column("version", lambda row: printable(row.version) or NOT_KNOWN, folds=8, drop=3),
        Column("precision", lambda row: row.precision, folds=9, drop=6),
        Column("mean ms", _time("mean_s"), "Average Time [ms]"),
        Column("median ms", _time("median_s"), "Median [ms]"),
        Column("p95 ms", _time("p95_s"), "p95 [ms]", drop=5),
        Column("iterations/s", _rate, "Iterations/s", drop=4),
        *memory,
        *versus,
        Column("difference", _difference, "Largest difference", drop=7),
    ]


def _name(engine: EngineResult) -> str:
    return printable(engine.name)


def _time(name: str) -> Callable[[EngineResult], str]:
    def cell(engine: EngineResult) -> str:
        statistics = engine.statistics
        return NOT_KNOWN if statistics is None else format_ms(getattr(statistics, name))

    return cell


def _rate(engine: EngineResult) -> str:
    statistics = engine.statistics
    if statistics is None or not statistics.mean_s:
        return NOT_KNOWN
    return format_significant(1 / statistics.mean_s)


def _versus(slow: EngineResult) -> Callable[[EngineResult], str]:
    def cell(engine: EngineResult) -> str:
        return factor_text(engine, slow)

    return cell


def _interval_versus(slow: EngineResult) -> Callable[[EngineResult], str]:
    def cell(engine: EngineResult) -> str:
        found = None if engine is slow else speedup(engine, slow)
        return "" if found is None else interval_text(found)

    return cell


def factor_text(engine: EngineResult, slow: EngineResult) -> str:
    """How many times as fast an engine is as another one; empty for itself."""
    if engine.wrong:
        return WRONG
    found = None if engine is slow else speedup(engine, slow)
    return "" if found is None else format_factor(found.factor)


def interval_text(found: Speedup) -> str:
    """The interval of a factor: ``10.5x to 11.1x``."""
    if math.isnan(found.low):
        return NOT_KNOWN
    return f"{format_factor(found.low)} to {format_factor(found.high)}"


def _difference(engine: EngineResult) -> str:
    if engine.name == BASELINE:
        return ""
    return NOT_KNOWN if engine.difference is None else format_scientific(engine.difference.relative)


# -- what else is to be known


def other_lines(run: EnginesRun) -> list[str]:
    """A line for each engine that made no trials: why, and how to get it."""
    return [other_line(engine) for engine in run.others]


def other_line(engine: EngineResult) -> str:
    """Why an engine made no trials, and how to get it."""
    if engine.install:
        return f"{_name(engine)}: {printable(engine.error)}: {printable(engine.install)}"
    return f"{_name(engine)}: {printable(engine.error) or 'made no trials'}"


def wrong_lines(run: EnginesRun) -> list[str]:
    """A line for each engine whose outputs are wrong: the figures, and the layer."""
    return [f"{_name(engine)}: {wrong_text(engine)}" for engine in run.wrong]


def wrong_text(engine: EngineResult) -> str:
    """How wrong an engine's outputs are."""
    found = engine.difference
    assert found is not None
    worst = f"; {printable(engine.worst_layer)}" if engine.worst_layer else ""
    return f"wrong outputs: they differ by {_figures(found)}, above {_allowed(engine)}{worst}"


def _figures(found: OutputDifference) -> str:
    return (
        f"up to {format_scientific(found.largest)}, which is {format_scientific(found.relative)} "
        f"of the largest output ({format_significant(found.magnitude)})"
    )


def _allowed(engine: EngineResult) -> str:
    return f"the tolerance of {format_scientific(engine.tolerance)}"


def note_lines(run: EnginesRun) -> list[str]:
    """What else is to be known of engines that made trials."""
    notes = [f"{_name(e)}: {printable(e.note)}" for e in run.measured if e.note]
    return notes + [_served(e) for e in run.measured if e.served_per_s is not None]


def _served(engine: EngineResult) -> str:
    """Throughput, as against one run after another."""
    assert engine.served_per_s is not None
    assert engine.statistics is not None
    gain = format_factor(engine.served_per_s * engine.statistics.median_s)
    rate = format_significant(engine.served_per_s)
    at_a_time = f"{_name(engine)}: {engine.jobs} runs at a time: {rate} iterations/s"
    return f"{at_a_time}, {gain} as many as one by one"


_EXPLAINED = (
    "Speed-ups are medians over the rounds of the trials, in which the engines take turns; the "
    "difference is the largest one of an output, as a fraction of the largest output."
)
_MEMORY = (
    " Memory is by how much the process grew for the engine, at its most in a run, weights of its "
    "own among it; the network's were there before."
)


def explained(run: EnginesRun) -> str:
    """What the columns of the table mean."""
    return _EXPLAINED + _MEMORY if _knows_memory(run) else _EXPLAINED


def _of_memory(engine: EngineResult) -> str:
    return format_nbytes(engine.memory_nbytes)


def _knows_memory(run: EnginesRun) -> bool:
    return any(engine.memory_nbytes is not None for engine in run.measured)


# -- what to do


def next_steps(run: EnginesRun) -> Iterator[str]:
    """Which engine to take, and how: a sentence or two each."""
    for engine in run.wrong:
        yield f"Do not use {_name(engine)} as it is: {wrong_text(engine)}."
    if crowded(run):
        yield "Close the other programs, or wait for them, and run again: then one can be chosen."
    elif run.baseline is not None:
        yield from _which(run.baseline, _speedups(run, run.baseline))
    for engine in run.others:
        if engine.install:
            yield f"{_name(engine)} was not tried; {printable(engine.install)} installs it."


def _which(baseline: EngineResult, known: list[tuple[EngineResult, Speedup]]) -> Iterator[str]:
    if not known:
        return
    faster = _surely_faster(known)
    if not faster:
        yield f"No engine is faster than {_name(baseline)} here beyond doubt: stay with it."
        return
    best, gain = faster[0]
    said = interval_text(gain)
    interval = "" if said == NOT_KNOWN else f" (95 % interval {said})"
    yield (
        f"Take {_name(best)}: it is {format_factor(gain.factor)} as fast as {_name(baseline)}"
        f"{interval}. {_how(best)}"
    )
    for engine, _ in faster[1:2]:
        lead = speedup(best, engine)
        if lead is not None and not lead.low > 1:
            yield (
                f"{_name(engine)} is as fast as far as these trials can tell: take which suits "
                f"you better. {_how(engine)}"
            )
    factors = {engine.name: gain.factor for engine, gain in known}
    if best.name != FAST and factors.get(FAST, 0.0) > 1:
        yield (
            f"Where nothing may be installed beside Chainer, {FAST} gives "
            f"{format_factor(factors[FAST])}. {_HOW[FAST]}"
        )


_HOW = {
    FAST: "In Python: with chainer_profile.accelerate(): around the calls of the network.",
    "onnxruntime": f"{PROG} export writes the ONNX file that it runs.",
    "openvino": (
        f"{PROG} export writes an ONNX file, which it reads. Its time is that of an infer request "
        "on shared tensors; compiled(x) takes 10 to 15 % more."
    ),
}


def _how(engine: EngineResult) -> str:
    return _HOW.get(engine.name, f"--save-engine of {PROG} engines keeps it, where it can be kept.")
