"""The table of engines: its columns and rows, speed-ups, and ``engines.csv``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

from chainer_profile.basics import units
from chainer_profile.basics.describe import NS, Statistics
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import EngineResult, EnginesRun, Speedup, speedup
from chainer_profile.record.parts import BUSY_CORES
from chainer_profile.record.recording import Recording
from chainer_profile.report import unit
from chainer_profile.report.document import WRONG
from chainer_profile.report.tables import Column, Table, by_key, to_csv, with_content

# fmt: off
#: The columns of ``engines.csv``. One column ``speedup_vs_NAME`` for each engine follows.
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
#: The column of names that readers see; the file has the names that ``--engines`` takes.
ENGINE = replace(COLUMNS["engine"], value=attrgetter("label"))
#: Columns that readers see, before the speed-ups and after them.
_FIRST = ("mean", "median")
_LAST = ("p95", "iterations_per_s", "memory", "relative_difference", "version")
_LEGEND = (
    "Speed-ups are medians over rounds in which the engines take turns. The difference is the "
    "largest difference of an output as a fraction of the largest output.",
)
#: The columns of the comparison of outputs.
OUTPUT_COLUMNS = (
    *(ENGINE, COLUMNS["largest_difference"], Column("magnitude", "largest output", unit.NUMBER)),
    COLUMNS["relative_difference"].headed("difference / output"),
    *(COLUMNS[key] for key in ("tolerance", "outputs")),
)


class NodeTimes(NamedTuple):
    """An engine's nodes, and the mean times of a trial in which the engine timed them."""

    nodes: int
    gone: int | None  #: Layers that no node computes; None if nodes do not name their layers.
    nodes_s: float  #: Sum over the nodes.
    between_s: float


def node_times(run: EnginesRun, recording: Recording) -> NodeTimes:
    covered = {index for layer in recording.layers for index in layer.covers}
    nodes_ns, trials_ns = recording.self_ns.sum(axis=1), recording.trial_ns
    between_ns = 0.0 if trials_ns is None else float((trials_ns - nodes_ns).mean())
    gone = run.n_layers - len(covered) if covered else None
    return NodeTimes(len(recording.layers), gone, float(nodes_ns.mean()) * NS, between_ns * NS)


def crowded(run: EnginesRun) -> bool:
    """Whether other programs left the engines fewer cores than they compute on."""
    cores, other = run.environment.usable_cores, run.other_cpu or 0.0
    if other < BUSY_CORES or not cores:
        return False
    return other + min(run.settings.threads or cores, cores) >= cores + BUSY_CORES


def speedups_over_chainer(run: EnginesRun) -> list[tuple[EngineResult, Speedup]]:
    """The other engines with right outputs and their speed-ups over Chainer, the fastest first."""
    if run.baseline is None:
        return []
    found = [(engine, speedup_over(engine, run.baseline)) for engine in run.right]
    known = [(engine, gain) for engine, gain in found if gain is not None]
    return sorted(known, key=lambda pair: -pair[1].factor)


def speedup_over(engine: EngineResult, slow: EngineResult) -> Speedup | None:
    """The speed-up over another engine; None over itself and if outputs are wrong."""
    return None if engine is slow else speedup(engine, slow)


def speedup_text(engine: EngineResult, slow: EngineResult) -> str:
    """The speed-up: ``10.8x``, or ``wrong outputs``; empty over itself."""
    gain = speedup_over(engine, slow)
    if engine.wrong:
        return "wrong outputs"
    return "" if gain is None else units.format_factor(gain.factor)


def _interval_text(engine: EngineResult, slow: EngineResult) -> str:
    """The 95 % interval of the speed-up: ``10.5x to 11.1x``."""
    gain = speedup_over(engine, slow)
    return "" if gain is None else units.format_interval(gain.low, gain.high, units.format_factor)


def _factor(engine: EngineResult, slow: EngineResult) -> float | None:
    gain = speedup_over(engine, slow)
    return None if gain is None else gain.factor


def _speedup_column(
    slow: EngineResult,
    cell: Callable[[EngineResult, EngineResult], Any] = speedup_text,
    column_unit: unit.Unit = unit.FIGURE,
    file: str = "",
) -> Column:
    """A column with the engines' speed-ups over ``slow``; ``file`` is its name in CSV."""

    def value(row: SimpleNamespace) -> Any:
        return cell(row.engine, slow)

    return Column(
        f"vs_{slow.name}", f"vs {slow.label}", column_unit, value=value, file=file, unknown=""
    )


def engine_columns(run: EnginesRun) -> list[Column]:
    """The columns that readers see, with speed-ups over each engine that made trials."""
    versus, baseline = [], run.baseline
    if baseline is not None:
        versus.append(_speedup_column(baseline))
        if not crowded(run):
            interval = _speedup_column(baseline, _interval_text).headed("95 %", "95 % interval")
            versus.append(replace(interval, drop=6))
    others = [engine for engine in run.right if engine is not baseline]
    versus += [replace(_speedup_column(slow), drop=1) for slow in others]
    return [ENGINE, *(COLUMNS[key] for key in _FIRST), *versus, *(COLUMNS[key] for key in _LAST)]


def engine_table(run: EnginesRun) -> Table:
    """The engines that made trials, one row each."""
    rows = engine_rows(run, run.measured)
    columns = with_content(engine_columns(run), rows)
    return Table(columns, rows, "The engines", row_marks(rows), _LEGEND, anchors=row_anchors(run))


def speedup_table(run: EnginesRun) -> Table:
    """The speed-up of each engine with right outputs over each other one, with intervals."""
    columns = [
        replace(_speedup_column(slow, _interval_text), drop=i) for i, slow in enumerate(run.right)
    ]
    return Table([ENGINE, *columns], engine_rows(run, run.right), "Speed-ups")


def row_marks(rows: Iterable[SimpleNamespace]) -> list[str]:
    """For each row, the mark of wrong outputs or none."""
    return [WRONG if row.engine.wrong else "" for row in rows]


def row_anchors(run: EnginesRun) -> list[str]:
    """The anchors of the table's rows, to which the bars of the picture link."""
    return [f"engine-{index}" for index in range(len(run.measured))]


def engine_rows(
    run: EnginesRun,
    engines: Iterable[EngineResult],
    recordings: Mapping[str, Recording] | None = None,
) -> list[SimpleNamespace]:
    """A row for each engine, with a field for each of :data:`COLUMNS`."""
    return [_row(run, engine, (recordings or {}).get(engine.name)) for engine in engines]


def _row(run: EnginesRun, engine: EngineResult, recording: Recording | None) -> SimpleNamespace:
    statistics, difference = engine.statistics, engine.difference
    fields = dict.fromkeys((*Statistics.__annotations__, *NodeTimes._fields)) | vars(engine)
    fields |= vars(statistics) if statistics else {}
    fields |= node_times(run, recording)._asdict() if recording else {}
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
    return SimpleNamespace(**fields)


def engines_csv(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """The engines as CSV; see :data:`COLUMNS`.

    Column ``speedup_vs_NAME`` has the speed-up of the row's engine over that engine. It is empty
    for an engine with wrong outputs.
    """
    versus = [
        _speedup_column(slow, _factor, unit.NUMBER, f"speedup_vs_{unit.safe(slow.name)}")
        for slow in run.measured
    ]
    return to_csv([*COLUMNS.values(), *versus], engine_rows(run, run.engines, recordings))
