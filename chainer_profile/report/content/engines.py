"""A run of several engines -> its blocks, the verdict first; and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace as Row
from typing import Any

import numpy as np

from chainer_profile.analyse.unsteady import BUSY_CORES
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS, Statistics
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.sentences import fill, first, say
from chainer_profile.basics.words import export_command_of
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.engines.catalogue import BASELINE, FAST, provider_of
from chainer_profile.engines.results import EngineResult, EnginesRun, Speedup, main_layer, speedup
from chainer_profile.record.recording import COMPLETE, Recording
from chainer_profile.report import document as doc
from chainer_profile.report import text as words
from chainer_profile.report import unit
from chainer_profile.report.columns import properties
from chainer_profile.report.content.comparison import layer_columns, unmatched_lines
from chainer_profile.report.tables import Column, Table, by_key, to_csv, with_content
from chainer_profile.report.text import interval_text

#: The files of the table and of the picture.
CSV, PLOT = "engines.csv", "engines.png"
#: In place of a speed-up.
WRONG = "wrong outputs"
#: Group of an engine's nodes that do none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Part of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
#: An engine's own clock that adds less than this part of a trial is not mentioned.
_LEAST_ADDED_SHARE = 0.05

# fmt: off
#: The columns of ``engines.csv``, behind which there is one ``speedup_vs_NAME`` an engine.
COLUMNS = by_key(
    Column("engine", "engine", unit.TEXT, "Name of the engine", field="name", fold=24),
    Column("version", "version", unit.TEXT, "Its version", unknown=units.NOT_KNOWN, fold=8, drop=3),
    Column("network", "network", unit.TEXT, "Name of the network"),
    Column("batch", "batch", unit.PLAIN, "Inputs per trial"),
    Column("device", "device", unit.TEXT, "cpu, gpu:0 and so on"),
    Column("trials", "trials", unit.PLAIN, "Number of trials"),
    Column("mean", "mean ms", unit.MS, full="Average Time [ms]",
           meaning="Mean time of a trial; empty for an engine that ran none"),
    Column("std", "std", unit.MS, "Its standard deviation (with trials - 1)"),
    Column("ci95_low", "ci95_low", unit.MS, field="ci_low_s",
           meaning="Lower end of the 95 % confidence interval of the median; empty for too few "
                   "trials"),
    Column("ci95_high", "ci95_high", unit.MS, "Upper end", field="ci_high_s"),
    Column("median", "median ms", unit.MS, "Median time"),
    Column("p95", "p95 ms", unit.MS, "95th percentile", drop=5),
    Column("p99", "p99", unit.MS, "99th percentile"),
    Column("min", "min", unit.MS, "Smallest time"),
    Column("max", "max", unit.MS, "Largest time"),
    Column("iterations_per_s", "iterations/s", unit.NUMBER, "One over the mean", drop=4),
    Column("prepare", "prepare", unit.SECONDS, "Seconds that preparing the engine took"),
    Column("memory", "memory", unit.BYTES, drop=4,
           meaning="Peak growth of the process in bytes for the engine, in a warm-up run",
           note="Memory is how much the process grew for the engine at its peak in a run, "
                "including the engine's own weights but not the network's."),
    Column("outputs", "outputs", unit.TEXT, fold=7,
           meaning="right, or wrong if they differ from Chainer's by more than the tolerance"),
    Column("largest_difference", "largest difference", unit.SCIENTIFIC,
           meaning="Largest absolute difference of an output from Chainer's"),
    Column("relative_difference", "difference", unit.SCIENTIFIC, full="Largest difference", drop=7,
           meaning="The same as a fraction of the largest output"),
    Column("tolerance", "tolerance", unit.SCIENTIFIC, "The largest accepted relative difference"),
    Column("layers", "layers", unit.PLAIN, "Number of Chainer's layers"),
    Column("nodes", "nodes", unit.PLAIN,
           meaning="Number of the engine's nodes; empty if it did not time them"),
    Column("gone", "gone", unit.PLAIN, "Number of layers that no node computes any more"),
    Column("nodes_time", "nodes_time", unit.MS, field="nodes_s", file="nodes_ms",
           meaning="Sum of the mean times of the nodes"),
    Column("between", "between", unit.MS,
           meaning="Mean time between the nodes, in the trials in which they were timed"),
    Column("worst_layer", "worst_layer", unit.TEXT,
           meaning="The layer where wrong outputs begin, if known"),
    Column("error", "error", unit.TEXT, "Why the engine did not run, or stopped"),
    Column("install", "install", unit.TEXT, "The command that installs what it needs"),
    Column("note", "note", unit.TEXT, "Other remarks"),
)
# fmt: on
#: The column of names to be read; a file keeps the name that --engines takes.
_ENGINE = replace(COLUMNS["engine"], value=attrgetter("label"))
#: The columns to be read, before the speed-ups and behind them.
_FIRST = ("mean", "median")
_THEN = ("p95", "iterations_per_s", "memory", "relative_difference", "version")
_LEGEND = (
    "Speed-ups are medians over rounds in which the engines take turns. The difference is the "
    "largest difference of an output as a fraction of the largest output.",
)
#: The same for the outputs.
_OUTPUTS = [
    *(_ENGINE, COLUMNS["largest_difference"], Column("magnitude", "largest output", unit.NUMBER)),
    COLUMNS["relative_difference"].headed("difference / output"),
    *(COLUMNS[key] for key in ("tolerance", "outputs")),
]


def _rows(
    run: EnginesRun,
    engines: Iterable[EngineResult],
    recordings: Mapping[str, Recording] | None = None,
) -> list[Row]:
    return [_row(run, engine, (recordings or {}).get(engine.name)) for engine in engines]


def _row(run: EnginesRun, engine: EngineResult, recording: Recording | None) -> Row:
    statistics, difference = engine.statistics, engine.difference
    fields = dict.fromkeys((*Statistics.__annotations__, *_FUSION)) | vars(engine)
    fields |= vars(statistics) if statistics else {}
    fields |= _fusion(run, recording) if recording else {}
    fields |= {
        "network": run.settings.model,
        "batch": run.settings.batchsize,
        "device": run.settings.device,
        "trials": len(engine.clean_ns),
        "iterations_per_s": 1 / statistics.mean_s if statistics and statistics.mean_s else None,
        "outputs": "" if difference is None else "wrong" if engine.wrong else "right",
        "largest_difference": difference and difference.largest,
        "relative_difference": difference and difference.relative,
        "magnitude": difference and difference.magnitude,
        "tolerance": engine.tolerance if difference else None,
        "layers": run.n_layers,
        "engine": engine,
        "label": engine.label,
    }
    if recording and engine.name == BASELINE:
        fields["gone"] = 0
    return Row(**fields)


def to_file(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """The engines as CSV; see :data:`COLUMNS`.

    A speed-up is how many times as fast the row's engine is as the column's. It is empty for an
    engine with wrong outputs.
    """
    versus = [
        replace(_versus(slow, _factor), unit=unit.NUMBER, file=f"speedup_vs_{unit.safe(slow.name)}")
        for slow in run.measured
    ]
    return to_csv([*COLUMNS.values(), *versus], _rows(run, run.engines, recordings))


def sections(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Section]:
    title, how = about_lines(run)
    both, in_report = (doc.BRIEF, doc.REPORT), (doc.REPORT,)
    table = [_table(run)] if run.measured else []
    remarks = [f"{engine.label}: {engine.note}" for engine in run.measured if engine.note]
    others = doc.listing([*map(other_line, run.others), *remarks])
    with_nodes = [e for e in run.engines if e.name in recordings and e.name != BASELINE]
    became = (
        f"{engine.label}: {_became(run, recordings[engine.name], recordings.get(BASELINE))}"
        for engine in with_nodes
    )
    environment = enumerate(words.environment_lines(run.environment))
    machine = [doc.text(line, aside=True, below=at > 0) for at, line in environment]
    return [
        doc.Section("", doc.below([title, how]), (doc.BRIEF,)),
        doc.Section("", [doc.text(doc.strong(verdict(run)))], both),
        doc.Section("", doc.below([*_warnings(run), *wrong_lines(run)], note=True), both),
        doc.Section("", [doc.text(f"{how}; {words.weights_text(run.settings)}.")], in_report),
        doc.Section("Engines", table, both),
        doc.Section("", _speed(run), in_report),
        doc.Section("" if table else "Engines", others, both),
        doc.Section("What to do next", doc.listing(_next_steps(run)), both),
        doc.Section("Outputs", _outputs(run), in_report),
        doc.Section("What became of the layers", doc.listing(became), both),
        doc.Section("", _nodes(with_nodes, recordings), in_report),
        doc.Section("Method", _method(run), in_report),
        doc.Section("Environment", _environment(run, recordings), in_report),
        doc.Section("", machine, (doc.BRIEF,)),
    ]


def report(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Block]:
    title, _ = about_lines(run)
    return [doc.Heading(1, title), *doc.shown_in(doc.REPORT, sections(run, recordings))]


def overview(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    return doc.shown_in(doc.BRIEF, sections(run, recordings))


#: The first of these that holds is the answer.
_VERDICTS = {
    "-name": "{measured:engine} ran, and Chainer did not.",
    "-others": "Only {name} ran: {before_s:s} a trial.",
    "-best": "No engine is significantly faster than {name}: {before_s:s} a trial.",
    "crowded": (
        "{best} was {factor:x} as fast as {name} ({after_s:s} a trial instead of {before_s:s}), "
        "but other programs kept the cores busy; the speed-up without them is unknown."
    ),
    "": (
        "{best} is {factor:x} as fast as {name}{sure}: {after_s:s} a trial instead of {before_s:s}."
    ),
}


def verdict(run: EnginesRun) -> str:
    """The answer: ``onnxruntime is 11x as fast as chainer: 0.43 ms a trial instead of 4.7 ms.``"""
    gains = _gains(run)
    facts: dict[str, Any] = {"measured": len(run.measured), "others": gains}
    facts["crowded"] = crowded(run)
    if (before := run.baseline) is not None and before.statistics is not None:
        facts |= {"name": before.label, "before_s": before.statistics.median_s}
    for best, gain in [pair for pair in gains if pair[1].sure][:1]:
        assert best.statistics is not None
        sure = interval_text(gain.low, gain.high, units.format_factor)
        facts |= {"best": best.label, "after_s": best.statistics.median_s}
        facts |= {"factor": gain.factor, "sure": sure and f" ({sure})"}
    return first(_VERDICTS, facts)


def crowded(run: EnginesRun) -> bool:
    """Whether other programs left the engines fewer cores than they compute on."""
    cores, other = run.environment.usable_cores, run.other_cpu or 0.0
    if other < BUSY_CORES or not cores:
        return False
    return other + min(run.settings.threads or cores, cores) >= cores + BUSY_CORES


def _gains(run: EnginesRun) -> list[tuple[EngineResult, Speedup]]:
    """The other engines that are right and how many times as fast as Chainer, the fastest first."""
    slow = [] if run.baseline is None else [run.baseline]
    gains = ((engine, _gain(engine, baseline)) for engine in run.right for baseline in slow)
    timed = [(engine, gain) for engine, gain in gains if gain is not None]
    return sorted(timed, key=lambda pair: -pair[1].factor)


def _gain(engine: EngineResult, slow: EngineResult) -> Speedup | None:
    """How many times as fast an engine is as another one; none of wrong ones and of itself."""
    return None if engine is slow else speedup(engine, slow)


def factor_text(engine: EngineResult, slow: EngineResult) -> str:
    """The same in words; empty for itself."""
    gain = _gain(engine, slow)
    return WRONG if engine.wrong else "" if gain is None else units.format_factor(gain.factor)


def _interval_text(engine: EngineResult, slow: EngineResult) -> str:
    """Its interval: ``10.5x to 11.1x``."""
    gain = _gain(engine, slow)
    return "" if gain is None else units.format_interval(gain.low, gain.high, units.format_factor)


def _factor(engine: EngineResult, slow: EngineResult) -> float | None:
    gain = _gain(engine, slow)
    return None if gain is None else gain.factor


def _versus(
    slow: EngineResult,
    shown: Callable[[EngineResult, EngineResult], Any] = factor_text,
    of: unit.Unit = unit.FIGURE,
    file: str = "",
) -> Column:
    """A column of how many times as fast engines are as this one."""

    def value(row: Row) -> Any:
        return shown(row.engine, slow)

    return Column(f"vs_{slow.name}", f"vs {slow.label}", of, value=value, file=file, unknown="")


def table_columns(run: EnginesRun) -> list[Column]:
    """The columns of the engines that made trials; one for each of them to be compared with."""
    versus, baseline = [], run.baseline
    if baseline is not None:
        versus.append(_versus(baseline))
        if not crowded(run):
            interval = _versus(baseline, _interval_text).headed("95 %", "95 % interval")
            versus.append(replace(interval, drop=6))
    versus += [replace(_versus(slow), drop=1) for slow in run.right if slow is not baseline]
    return [_ENGINE, *(COLUMNS[key] for key in _FIRST), *versus, *(COLUMNS[key] for key in _THEN)]


def _table(run: EnginesRun) -> Table:
    rows = _rows(run, run.measured)
    shown = with_content(table_columns(run), rows)
    return Table(shown, rows, "The engines", _marks(rows), _LEGEND, anchors=anchors_of(run))


def _marks(rows: Iterable[Row]) -> list[str]:
    return [doc.WRONG if row.engine.wrong else "" for row in rows]


def anchors_of(run: EnginesRun) -> list[str]:
    """The anchors of the rows of the engines that made trials, to which their bars lead."""
    return [f"engine-{at}" for at in range(len(run.measured))]


def _speed(run: EnginesRun) -> Iterator[doc.Block]:
    """The picture, and how many times as fast each engine is as each other one."""
    if run.measured:
        # In a paragraph of its own: a page leaves out those that name a file beside it.
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
        versus = [
            replace(_versus(slow, _interval_text), drop=at) for at, slow in enumerate(run.right)
        ]
        yield Table([_ENGINE, *versus], _rows(run, run.right), "Speed-ups")


def _outputs(run: EnginesRun) -> Iterator[doc.Block]:
    compared = [e for e in run.engines if e.difference is not None and e.name != BASELINE]
    if compared:
        yield doc.text(
            "The largest difference from Chainer's outputs in four comparisons: on the trials' "
            "input, on another input, with random numbers in place of uniform parameters (such as "
            "those of an initial normalisation), and again after the trials."
        )
        rows = _rows(run, compared)
        yield Table(_OUTPUTS, rows, "Outputs", _marks(rows))


def _nodes(
    engines: Iterable[EngineResult], recordings: Mapping[str, Recording]
) -> Iterator[doc.Block]:
    """The nodes of each engine, beside Chainer's layers."""
    for engine in engines:
        yield doc.Heading(3, engine.label)
        if BASELINE in recordings:
            yield from _groups(engine.name, recordings)
        if engine.folder:
            yield doc.text(
                f"The report on {engine.label} alone, with its nodes: ",
                doc.file(f"{engine.folder}/report.md"),
            )


def _groups(name: str, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    """The layers of Chainer and of an engine, as a comparison has them."""
    try:
        before, after = (Side(engine, (recordings[engine],)) for engine in (BASELINE, name))
        comparison = compare(before, after)
    except ProfileError:  # the nodes do not say whose layers they are
        return
    caption = f"The layers of {BASELINE} and of {name}"
    legend = ["Times are medians of the trials in which the engines timed their nodes."]
    yield Table(layer_columns(comparison), comparison.layers, caption, legend=legend)
    yield from map(doc.text, unmatched_lines(comparison))


def _method(run: EnginesRun) -> Iterator[doc.Block]:
    if run.settings.command:
        yield doc.Code(run.settings.command)
    prepared = [engine for engine in run.engines if engine.prepare_s is not None]
    times = (f"{units.format_duration(engine.prepare_s)} ({engine.label})" for engine in prepared)
    yield doc.points(
        [
            "Each engine got the same network, weights and input. Preparing them before the "
            f"trials took {', '.join(times) or 'no time'}.",
            f"After {units.plural(run.settings.warmups, 'warm-up run')} of each, the engines took "
            "turns in rounds whose order changes: one untimed run, then some timed ones. So a slow "
            "phase of the machine slows all engines alike.",
            "A speed-up is the median, over the rounds, of the ratio of the two engines' "
            "medians. Order statistics give its interval.",
            "The times of nodes come from additional trials with the engine's own profiling "
            "switched on. Such a trial is the sum of its nodes and of the time between them.",
        ]
    )


def _environment(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    rows = words.environment_rows(run.environment)
    rows += words.gpu_rows(recordings[BASELINE]) if BASELINE in recordings else []
    rows += [(e.label, e.version) for e in run.engines if e.version]
    if rows:
        yield properties(rows, "The machine and its software")


def about_lines(run: EnginesRun) -> list[str]:
    """The network and the engines, and how they ran, in two lines."""
    settings = run.settings
    threads = "" if settings.threads is None else f", {units.plural(settings.threads, 'thread')}"
    trials = units.plural(settings.trials, "trial")
    return [
        f"{words.model_name(settings)} under {units.plural(len(run.measured), 'engine')}",
        f"{words.settings_text(settings)}{threads}; {trials} of each, in turn",
    ]


def _warnings(run: EnginesRun) -> Iterator[str]:
    """A sentence for each thing that makes the times doubtful."""
    if run.ended != COMPLETE:
        made = words.ends_text([len(engine.clean_ns) for engine in run.measured] or [0])
        yield f"The trials ended early ({run.ended}): {made} of each engine."
    if run.other_cpu is not None and run.other_cpu >= BUSY_CORES:
        cores = run.environment.usable_cores
        of = f"of {units.plural(cores, 'core')}" if cores else "cores"
        yield (
            f"Other programs kept {run.other_cpu:.1f} {of} busy during the trials, which slows "
            "long trials more than short ones. Close them and run again."
        )


def other_line(engine: EngineResult) -> str:
    """Why an engine made no trials, and how to get it."""
    parts = (engine.label, engine.error or "made no trials", engine.install)
    return ": ".join(filter(None, parts))


def wrong_lines(run: EnginesRun) -> list[str]:
    """A line for each engine whose outputs are wrong: the figures, and the layer."""
    sentence = (
        "{label}: wrong outputs: they differ by up to {difference.largest:e} "
        "({difference.relative:e} of the largest output, {difference.magnitude:g}), more than the "
        "tolerance of {tolerance:e}{where}"
    )
    return [
        fill(
            sentence,
            label=engine.label,
            difference=engine.difference,
            tolerance=engine.tolerance,
            where=engine.worst_layer and f"; {engine.worst_layer}",
        )
        for engine in run.wrong
    ]


def _next_steps(run: EnginesRun) -> Iterator[doc.Words]:
    """Which engine to take, and how; why stands above."""
    for engine in run.wrong:
        yield (f"Do not use {engine.label} as it is.",)
    gains = [] if crowded(run) else _gains(run)
    faster = [engine for engine, gain in gains if gain.sure]
    if gains and not faster:
        yield (f"Stay with {BASELINE}.",)
    for best in faster[:1]:
        yield (f"Use {best.label}.", *_how(best, run))
        for engine in faster[1:2]:
            lead = speedup(best, engine)
            if lead is not None and not lead.low > 1:
                yield (
                    f"{engine.label} is equally fast within the accuracy of these trials: use the "
                    "one that suits you.",
                    *_how(engine, run),
                )
        for engine, gain in gains:
            if engine.name == FAST != best.name and gain.factor > 1:
                yield (
                    f"If you can install nothing but Chainer, {FAST} gives "
                    f"{units.format_factor(gain.factor)}.",
                    *_how(engine, run),
                )


def _how(engine: EngineResult, run: EnginesRun) -> doc.Words:
    """How to run a network under an engine."""
    if engine.name == FAST:
        return (" In Python, call the network within `with chainer_profile.accelerate():`.",)
    provider = provider_of(engine.name)
    if not provider and engine.name != "onnxruntime":
        return ()
    to_write = (
        " To write the ONNX file that it runs, run: ",
        doc.code(words.printable(export_command_of(run.settings.command))),
    )
    opened = f'. Open it with InferenceSession("net.onnx", providers=["{provider}"]).'
    return (*to_write, opened) if provider else to_write


#: What became of Chainer's layers, in mean times: nodes, and layers that no node computes any more
#: (None where the nodes do not say whose they are).
_FUSION = ("nodes", "gone", "nodes_s", "between_s")


def _fusion(run: EnginesRun, recording: Recording) -> dict[str, Any]:
    covered = {index for layer in recording.layers for index in layer.covers}
    nodes_ns, runs_ns = recording.self_ns.sum(axis=1), recording.trial_ns
    between_ns = 0.0 if runs_ns is None else float((runs_ns - nodes_ns).mean())
    gone = run.n_layers - len(covered) if covered else None
    figures = (len(recording.layers), gone, float(nodes_ns.mean()) * NS, between_ns * NS)
    return dict(zip(_FUSION, figures, strict=True))


#: What became of the layers in words: ``66 layers became 27 nodes: 5.421 ms -> 0.512 ms``.
_BECAME = {
    "-says": (
        "{nodes:node}, {nodes_s:s}, and {between_s:s} between them; they do not say which layers "
        "they compute"
    ),
    "says": "{layers:layer} became {nodes:node}",
    "says gone": " ({gone:layer} without a node)",
    "says before_s": ": {before_s:s} -> {nodes_s:s}",
    "says nodes": ", and {between_s:s} between the nodes",
    "added": "; its own clock adds {added:%} to a trial",
}


def _became(run: EnginesRun, recording: Recording, chainer: Recording | None) -> str:
    facts = _fusion(run, recording) | {"layers": run.n_layers}
    facts["says"] = facts["gone"] is not None
    if chainer is not None:
        facts["before_s"] = float(chainer.self_ns.sum(axis=1).mean()) * NS
    runs_ns, clean_ns = recording.trial_ns, recording.clean_ns
    if runs_ns is not None and len(runs_ns) and len(clean_ns):
        added = float(np.median(runs_ns) / np.median(clean_ns)) - 1
        facts["added"] = added if added >= _LEAST_ADDED_SHARE else None
    return say(_BECAME, facts, "")


def _functions(recording: Recording, chainer: Recording | None) -> Iterator[str]:
    """For each row of a recording the function that stands for it."""
    for row in recording.layers:
        if row.covers and chainer is not None:
            yield chainer.layers[main_layer(row.covers, chainer.layers)].function
        elif row.covers:
            yield row.function.partition(" + ")[0]
        else:
            yield OWN_STEPS if recording.settings.engine else row.function


def function_shares(recording: Recording, chainer: Recording | None) -> dict[str, float]:
    """Fractions of a trial by function and between these; none where trials took no time.

    They add up to 1. A node of several layers counts for its main one.
    """
    assert recording.trial_ns is not None
    whole = float(recording.trial_ns.mean())
    if not whole:
        return {}
    parts: Counter[str] = Counter()
    names = map(words.printable, _functions(recording, chainer))
    for name, mean in zip(names, recording.self_ns.mean(axis=0).tolist(), strict=True):
        parts[name] += mean / whole
    return dict(parts) | {BETWEEN: max(0.0, 1 - parts.total())}
