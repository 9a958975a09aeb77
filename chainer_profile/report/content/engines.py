"""A run of several engines -> what is said of it, the verdict first, and its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from types import SimpleNamespace as Row
from typing import Any, NamedTuple

import numpy as np

from chainer_profile.analyse.checks import BUSY_CORES
from chainer_profile.basics.describe import NS, Statistics
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_factor,
    format_percent,
    format_scientific,
    format_significant,
    plural,
)
from chainer_profile.basics.words import TYPED
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.engines.catalogue import BASELINE, FAST, provider_of
from chainer_profile.engines.results import EngineResult, EnginesRun, Speedup, main_layer, speedup
from chainer_profile.record.recording import COMPLETE, Recording
from chainer_profile.report import document as doc
from chainer_profile.report import tables
from chainer_profile.report import text as words
from chainer_profile.report.columns import properties
from chainer_profile.report.content.comparison import layer_columns, unmatched_lines

#: The table, and the picture.
CSV, PLOT = "engines.csv", "engines.png"
#: In place of a speed-up.
WRONG = "wrong outputs"
#: Parts of a trial that pointing at a bar names.
_MOST_PARTS = 4
#: Group of an engine's nodes that do none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Part of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
#: What an engine's own clock adds is said from this part of a trial on.
_MUCH = 0.05

#: The columns of ``engines.csv``, behind which there is one ``speedup_vs_NAME`` an engine.
COLUMNS = tables.columns("""
engine name | | text 24 | Name of the engine
version | !3 | text? 8 | Its version
network | | text | Name of the network
batch | | plain | Inputs per trial
device | | text | cpu, gpu:0 and so on
trials | | plain | Number of trials
mean | mean ms = Average Time [ms] | ms? | Mean time of a trial; empty for an engine that ran none
std | | ms? | Its standard deviation (with trials - 1)
ci95_low ci_low_s | | ms? | Lower end of the 95 % confidence interval of the median; empty for too
  few trials
ci95_high ci_high_s | | ms? | Upper end
median | median ms = Median [ms] | ms? | Median time
p95 | p95 ms !5 | ms? | 95th percentile
p99 | | ms? | 99th percentile
min | | ms? | Smallest time
max | | ms? | Largest time
iterations_per_s | iterations/s = Iterations/s !4 | number? | One over the mean
prepare | | duration? | Seconds that preparing the engine took
memory | memory = Memory !4 | bytes? | Peak growth of the process in bytes for the engine, in a
  warm-up run
outputs | | text 7 | right, or wrong if they differ from Chainer's by more than the tolerance
largest_difference | largest difference | scientific? | Largest absolute difference of an output
  from Chainer's
relative_difference | difference = Largest difference !7 | scientific? | The same as a fraction of
  the largest output
tolerance | | scientific? | The largest accepted relative difference
layers | | plain | Number of Chainer's layers
nodes | | plain? | Number of the engine's nodes; empty if it did not time them
gone | | plain? | Number of layers that no node computes any more
nodes_time nodes_s nodes_ms | | ms? | Sum of the mean times of the nodes
between | | ms? | Mean time between the nodes, in the trials in which they were timed
worst_layer | | text | The layer where wrong outputs begin, if known
error | | text | Why the engine did not run, or stopped
install | | text | The command that installs what it needs
note | | text | Other remarks
""")
#: The column of names to be read; a file keeps the name that --engines takes.
_ENGINE = replace(COLUMNS["engine"], value=attrgetter("label"))
#: What is read of them: before the speed-ups and behind them.
_FIRST = ("mean", "median")
_THEN = ("p95", "iterations_per_s", "memory", "relative_difference", "version")
_LEGEND = (
    (
        "",
        "Speed-ups are medians over rounds in which the engines take turns. The difference is "
        "the largest difference of an output as a fraction of the largest output.",
    ),
    (
        "memory",
        "Memory is how much the process grew for the engine at its peak in a run, including "
        "the engine's own weights but not the network's.",
    ),
)
#: The same for the outputs.
_OUTPUTS = [
    *(_ENGINE, COLUMNS["largest_difference"]),
    *tables.columns("magnitude | largest output | number").values(),
    tables.headed(COLUMNS["relative_difference"], "difference / output"),
    *(COLUMNS[key] for key in ("tolerance", "outputs")),
]


def _rows(
    run: EnginesRun,
    engines: Iterable[EngineResult],
    recordings: Mapping[str, Recording] = MappingProxyType({}),
) -> list[Row]:
    return [_row(run, one, recordings.get(one.name)) for one in engines]


def _row(run: EnginesRun, engine: EngineResult, recording: Recording | None) -> Row:
    statistics, difference = engine.statistics, engine.difference
    fused = fusion(run, recording) if recording else None
    known = dict.fromkeys((*Statistics.__annotations__, *Fusion._fields)) | vars(engine)
    known |= vars(statistics) if statistics else {}
    known |= fused._asdict() if fused else {}
    known |= {
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
        "gone": fused and (0 if engine.name == BASELINE else fused.gone),
        "engine": engine,
        "label": engine.label,
    }
    return Row(**known)


def to_file(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """The engines as CSV; see :data:`COLUMNS`.

    A speed-up is how many times as fast the row's engine is as the column's. It is empty for an
    engine with wrong outputs.
    """
    factor, kind = attrgetter("factor"), tables.KINDS["number"]
    versus = [
        replace(_against(slow, factor), kind=kind, csv=f"speedup_vs_{tables.safe(slow.name)}")
        for slow in run.measured
    ]
    return tables.to_csv([*COLUMNS.values(), *versus], _rows(run, run.engines, recordings))


def sections(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Section]:
    title, how = about_lines(run)
    both = (doc.BRIEF, doc.REPORT)
    table = [_table(run)] if run.measured else []
    environment = enumerate(words.environment_lines(run.environment))
    return [
        doc.Section("", doc.below([title, how]), (doc.BRIEF,)),
        doc.Section("", _verdict(run), both),
        doc.Section("", [doc.text(f"{how}; {words.weights_text(run.settings)}.")], (doc.REPORT,)),
        doc.Section("Engines", table, both),
        doc.Section("", _speed(run), (doc.REPORT,)),
        doc.Section(
            "" if table else "Engines",
            doc.listing([*map(other_line, run.others), *note_lines(run)]),
            both,
        ),
        doc.Section("What to do next", doc.listing(next_steps(run)), both),
        doc.Section("Outputs", _outputs(run), (doc.REPORT,)),
        doc.Section("What became of the layers", doc.listing(fusion_lines(run, recordings)), both),
        doc.Section("", _nodes(run, recordings), (doc.REPORT,)),
        doc.Section("Method", _method(run), (doc.REPORT,)),
        doc.Section("Environment", _environment(run, recordings), (doc.REPORT,)),
        doc.Section(
            "", [doc.text(one, aside=True, below=at > 0) for at, one in environment], (doc.BRIEF,)
        ),
    ]


def report(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[doc.Block]:
    title, _ = about_lines(run)
    return [doc.Heading(1, title), *doc.shown_in(doc.REPORT, sections(run, recordings))]


def overview(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    return doc.shown_in(doc.BRIEF, sections(run, recordings))


def verdict(run: EnginesRun) -> str:
    """The answer: ``onnxruntime is 11x as fast as chainer: 0.43 ms a trial instead of 4.7 ms.``"""
    baseline = run.baseline
    if baseline is None or baseline.statistics is None:
        return f"{plural(len(run.measured), 'engine')} ran, and Chainer did not."
    before = format_duration(baseline.statistics.median_s)
    known = _speedups(run)
    if not known:
        return f"Only {baseline.label} ran: {before} a trial."
    faster = [pair for pair in known if pair[1].sure]
    if not faster:
        return f"No engine is significantly faster than {baseline.label}: {before} a trial."
    best, gain = faster[0]
    assert best.statistics is not None
    after = format_duration(best.statistics.median_s)
    if crowded(run):
        return (
            f"{best.label} was {format_factor(gain.factor)} as fast as {baseline.label} "
            f"({after} a trial instead of {before}), but other programs kept the cores busy; the "
            "speed-up without them is unknown."
        )
    said = interval_text(gain)
    within = "" if said == NOT_KNOWN else f" (95 % interval {said})"
    return (
        f"{best.label} is {format_factor(gain.factor)} as fast as {baseline.label}{within}: "
        f"{after} a trial instead of {before}."
    )


def crowded(run: EnginesRun) -> bool:
    """Whether other programs left the engines fewer cores than they compute on."""
    cores, other = run.environment.usable_cores, run.other_cpu or 0.0
    if other < BUSY_CORES or not cores:
        return False
    return other + min(run.settings.threads or cores, cores) >= cores + BUSY_CORES


def _speedups(run: EnginesRun) -> list[tuple[EngineResult, Speedup]]:
    """The other engines that are right and how many times as fast as Chainer, the fastest first."""
    found = [
        (one, gain)
        for one in run.right
        if run.baseline and one is not run.baseline and (gain := speedup(one, run.baseline))
    ]
    return sorted(found, key=lambda pair: -pair[1].factor)


def _verdict(run: EnginesRun) -> Iterator[doc.Block]:
    yield doc.text(doc.strong(verdict(run)))
    yield from doc.below([*warnings(run), *wrong_lines(run)], note=True)


def _table(run: EnginesRun) -> tables.Table:
    rows = _rows(run, run.measured)
    shown = tables.with_content(table_columns(run), rows)
    return tables.Table(shown, rows, "The engines", _marks(rows), _LEGEND, anchors=anchors_of(run))


def _marks(rows: Iterable[Row]) -> list[str]:
    return [doc.WRONG if row.outputs == "wrong" else "" for row in rows]


def anchors_of(run: EnginesRun) -> list[str]:
    """What the bars of the engines that made trials lead to: their rows."""
    return [f"engine-{at}" for at in range(len(run.measured))]


def words_of(run: EnginesRun, recordings: Mapping[str, Recording]) -> dict[str, str]:
    """What pointing at an engine's bars says, by the anchor of its row."""
    said = []
    for engine in run.measured:
        assert engine.statistics is not None
        parts = [format_duration(engine.statistics.median_s)]
        if run.baseline is not None:
            parts.append(factor_text(engine, run.baseline))
        if engine.name in recordings:
            found = function_shares(recordings[engine.name], recordings.get(BASELINE))
            most = sorted(found, key=lambda name: -found[name])[:_MOST_PARTS]
            parts += [f"{format_percent(found[name])} {name}" for name in most]
        said.append(f"{words.printable(engine.label)}: {', '.join(filter(None, parts))}")
    return dict(zip(anchors_of(run), said, strict=True))


def _speed(run: EnginesRun) -> Iterator[doc.Block]:
    """The picture, and how many times as fast each engine is as each other one."""
    if run.measured:
        # By itself, since a page leaves out what names a file beside it.
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
        versus = [_against(slow, interval_text, drop=at) for at, slow in enumerate(run.right)]
        yield tables.Table([_ENGINE, *versus], _rows(run, run.right), "Speed-ups")


def _outputs(run: EnginesRun) -> Iterator[doc.Block]:
    compared = [e for e in run.engines if e.difference is not None and e.name != BASELINE]
    if not compared:
        return
    yield doc.text(
        "The largest difference from Chainer's outputs in four comparisons: on the trials' "
        "input, on another input, with random numbers in place of uniform parameters (such as "
        "those of an initial normalisation), and again after the trials."
    )
    rows = _rows(run, compared)
    yield tables.Table(_OUTPUTS, rows, "Outputs", _marks(rows))


def _nodes(run: EnginesRun, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    """What each engine made of the layers."""
    for engine in _with_nodes(run, recordings):
        yield doc.Heading(3, engine.label)
        if BASELINE in recordings:
            yield from _groups(engine.name, recordings)
        if engine.folder:
            yield doc.text(
                f"The report on {engine.label} alone, with its nodes: ",
                doc.file(f"{engine.folder}/report.md"),
            )


def _with_nodes(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[EngineResult]:
    return [one for one in run.engines if one.name in recordings and one.name != BASELINE]


def _groups(name: str, recordings: Mapping[str, Recording]) -> Iterator[doc.Block]:
    """The layers of Chainer and of an engine, as a comparison has them."""
    try:
        before, after = (Side(one, (recordings[one],)) for one in (BASELINE, name))
        found = compare(before, after)
    except ProfileError:  # the nodes do not say whose layers they are
        return
    rows = f"The layers of {BASELINE} and of {name}"
    legend = [("", "Times are medians of the trials in which the engines timed their nodes.")]
    yield tables.Table(layer_columns(found), found.layers, rows, legend=legend)
    yield from map(doc.text, unmatched_lines(found))


def _method(run: EnginesRun) -> Iterator[doc.Block]:
    settings = run.settings
    if settings.command:
        yield doc.Code(settings.command)
    known = [e for e in run.engines if e.prepare_s is not None]
    took = ", ".join(f"{format_duration(e.prepare_s)} ({e.label})" for e in known) or "no time"
    yield doc.points(
        [
            "Each engine got the same network, weights and input. Preparing them before the "
            f"trials took {took}.",
            f"After {plural(settings.warmups, 'warm-up run')} of each, the engines took turns "
            "in rounds whose order changes: one untimed run, then some timed ones. So a slow "
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
    """What was run, and how, in two lines."""
    settings = run.settings
    threads = "" if settings.threads is None else f", {plural(settings.threads, 'thread')}"
    trials = plural(settings.trials, "trial")
    return [
        f"{words.model_name(settings)} under {plural(len(run.measured), 'engine')}",
        f"{words.settings_text(settings)}{threads}; {trials} of each, in turn",
    ]


def warnings(run: EnginesRun) -> list[str]:
    """A sentence for each thing that makes the times doubtful."""
    found = []
    if run.ended != COMPLETE:
        counts = [len(engine.clean_ns) for engine in run.measured]
        ends = sorted({min(counts, default=0), max(counts, default=0)})
        made = " to ".join(map(format_count, ends))
        found.append(f"The trials ended early ({run.ended}): {made} of each engine.")
    if run.other_cpu is not None and run.other_cpu >= BUSY_CORES:
        cores = run.environment.usable_cores
        of = f"of {plural(cores, 'core')}" if cores else "cores"
        found.append(
            f"Other programs kept {run.other_cpu:.1f} {of} busy during the trials, which slows "
            "long trials more than short ones. Close them and run again."
        )
    return found


def table_columns(run: EnginesRun) -> list[tables.Column]:
    """The columns of the engines that made trials; one for each of them to be compared with."""
    versus = []
    if (baseline := run.baseline) is not None:
        versus.append(_versus(baseline))
        if not crowded(run):
            interval = _against(baseline, interval_text, drop=6)
            versus.append(tables.headed(interval, "95 %", "95 % interval"))
    versus += [_versus(slow, drop=1) for slow in run.right if slow is not baseline]
    return [_ENGINE, *(COLUMNS[key] for key in _FIRST), *versus, *(COLUMNS[key] for key in _THEN)]


def _against(slow: EngineResult, said: Callable[[Speedup], Any], drop: int = 0) -> tables.Column:
    """A column of how many times as fast engines are as this one; nothing of itself."""

    def value(row: Row) -> Any:
        found = None if row.engine is slow else speedup(row.engine, slow)
        return None if found is None else said(found)

    column = tables.headed(tables.columns("versus | | figure")["versus"], f"vs {slow.label}")
    return replace(column, value=value, missing="", drop=drop)


def _versus(slow: EngineResult, drop: int = 0) -> tables.Column:
    """The same to read, where wrong engines are told of."""
    column = _against(slow, interval_text, drop)
    return replace(column, value=lambda row: factor_text(row.engine, slow))


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


def other_line(engine: EngineResult) -> str:
    """Why an engine made no trials, and how to get it."""
    parts = (engine.label, engine.error or "made no trials", engine.install)
    return ": ".join(filter(None, parts))


def wrong_lines(run: EnginesRun) -> list[str]:
    """A line for each engine whose outputs are wrong: the figures, and the layer."""
    return [f"{engine.label}: {wrong_text(engine)}" for engine in run.wrong]


def wrong_text(engine: EngineResult) -> str:
    found = engine.difference
    assert found
    worst = f"; {engine.worst_layer}" if engine.worst_layer else ""
    return (
        f"wrong outputs: they differ by up to {format_scientific(found.largest)} "
        f"({format_scientific(found.relative)} of the largest output, "
        f"{format_significant(found.magnitude)}), more than the tolerance of "
        f"{format_scientific(engine.tolerance)}{worst}"
    )


def note_lines(run: EnginesRun) -> list[str]:
    """What else is to be known of engines that made trials."""
    return [f"{one.label}: {one.note}" for one in run.measured if one.note]


def next_steps(run: EnginesRun) -> Iterator[str]:
    """Which engine to take, and how: a sentence or two each."""
    for engine in run.wrong:
        yield f"Do not use {engine.label} as it is: {wrong_text(engine)}."
    if crowded(run):
        yield (
            "Close the other programs, or wait for them to end, and run again to choose an engine."
        )
    elif known := _speedups(run):
        yield from _which(known)
    for engine in run.others:
        if engine.install:
            yield f"{engine.label} was not tried; {engine.install} installs it."


def _which(known: list[tuple[EngineResult, Speedup]]) -> Iterator[str]:
    faster = [pair for pair in known if pair[1].sure]
    if not faster:
        yield f"No engine is significantly faster than {BASELINE} here: stay with it."
        return
    best, gain = faster[0]
    factor = format_factor(gain.factor)
    yield f"Use {best.label}: it is {factor} as fast as {BASELINE}. {_how(best)}".rstrip()
    for engine, _ in faster[1:2]:
        lead = speedup(best, engine)
        if lead is not None and not lead.low > 1:
            yield (
                f"{engine.label} is equally fast within the accuracy of these trials: use the "
                f"one that suits you. {_how(engine)}"
            ).rstrip()
    factors = {engine.name: gain.factor for engine, gain in known}
    if best.name != FAST and factors.get(FAST, 0.0) > 1:
        yield (
            f"If you can install nothing but Chainer, {FAST} gives "
            f"{format_factor(factors[FAST])}. {_HOW[FAST]}"
        )


_HOW = {
    FAST: "In Python, call the network within `with chainer_profile.accelerate():`.",
    "onnxruntime": f"{TYPED} export writes the ONNX file that it runs.",
}


def _how(engine: EngineResult) -> str:
    if provider := provider_of(engine.name):
        return (
            f"{TYPED} export writes the ONNX file that it runs, with "
            f'InferenceSession(FILE, providers=["{provider}"]).'
        )
    return _HOW.get(engine.name, "")


class Fusion(NamedTuple):
    """What an engine made of Chainer's layers, in mean times; ``gone`` layers no node does."""

    nodes: int
    #: None where the nodes do not say whose they are.
    gone: int | None
    nodes_s: float
    between_s: float


def fusion_lines(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[str]:
    """A line for each engine that timed its nodes."""
    chainer = recordings.get(BASELINE)
    return [
        f"{engine.label}: {fusion_text(run, recordings[engine.name], chainer)}"
        for engine in _with_nodes(run, recordings)
    ]


def fusion(run: EnginesRun, recording: Recording) -> Fusion:
    covered = {index for layer in recording.layers for index in layer.covers}
    nodes_ns, runs_ns = recording.self_ns.sum(axis=1), recording.trial_ns
    between_ns = 0.0 if runs_ns is None else float((runs_ns - nodes_ns).mean())
    gone = run.n_layers - len(covered) if covered else None
    return Fusion(len(recording.layers), gone, float(nodes_ns.mean()) * NS, between_ns * NS)


def fusion_text(run: EnginesRun, recording: Recording, chainer: Recording | None) -> str:
    """What it made of them in words: ``66 layers became 27 nodes: 5.421 ms -> 0.512 ms``."""
    found = fusion(run, recording)
    nodes, nodes_time = plural(found.nodes, "node"), format_duration(found.nodes_s)
    between = format_duration(found.between_s)
    if found.gone is None:
        said = f"{nodes}, {nodes_time}, and {between} between them; they do not say which layers "
        said += "they compute"
    else:
        said = f"{plural(run.n_layers, 'layer')} became {nodes}"
        if found.gone:
            said += f" ({plural(found.gone, 'layer')} without a node)"
        if chainer is not None:
            before_s = float(chainer.self_ns.sum(axis=1).mean()) * NS
            said += f": {format_duration(before_s)} -> {nodes_time}"
        said += f", and {between} between the nodes"
    runs_ns, clean_ns = recording.trial_ns, recording.clean_ns
    if runs_ns is not None and len(runs_ns) and len(clean_ns):
        added = float(np.median(runs_ns) / np.median(clean_ns)) - 1
        if added >= _MUCH:
            said += f"; its own clock adds {format_percent(added)} to a trial"
    return said


def main_functions(recording: Recording, chainer: Recording | None) -> list[str]:
    """For each row of a recording the function that stands for it."""
    layers = () if chainer is None else chainer.layers
    found = []
    for row in recording.layers:
        if row.covers and layers:
            found.append(layers[main_layer(row.covers, layers)].function)
        elif row.covers:
            found.append(row.function.partition(" + ")[0])
        else:
            found.append(OWN_STEPS if recording.settings.engine else row.function)
    return list(map(words.printable, found))


def function_shares(recording: Recording, chainer: Recording | None) -> dict[str, float]:
    """Fractions of a trial by function, with what is between them; they add up to 1.

    A node of several layers counts for its main one. Nothing is found in trials that took no time.
    """
    assert recording.trial_ns is not None
    whole = float(recording.trial_ns.mean())
    if not whole:
        return {}
    parts: dict[str, float] = {}
    names = main_functions(recording, chainer)
    for name, mean in zip(names, recording.self_ns.mean(axis=0).tolist(), strict=True):
        parts[name] = parts.get(name, 0.0) + mean / whole
    return parts | {BETWEEN: max(0.0, 1 - sum(parts.values()))}
