"""A run of several engines -> ``engines.csv``: one row an engine, with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_exact, format_exact_ms
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import speedup
from chainer_profile.report.content.engine_nodes import fusion
from chainer_profile.report.csv_file import safe, table_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording

#: The columns and what they mean. Behind them there is one ``speedup_vs_NAME`` an engine.
COLUMNS = {
    "engine": "Name of the engine",
    "version": "Its version",
    "precision": "What it computed in",
    "network": "Name of the network",
    "batch": "Inputs per trial",
    "device": "cpu, gpu:0 and so on",
    "trials": "Number of trials",
    "mean_ms": "Mean time of a trial; empty for an engine that made none",
    "std_ms": "Its standard deviation (with trials - 1)",
    "ci95_low_ms": "Lower end of the 95 % interval of the median; empty where the trials are too "
    "few for one",
    "ci95_high_ms": "Upper end",
    "median_ms": "Median time",
    "p95_ms": "95th percentile",
    "p99_ms": "99th percentile",
    "min_ms": "Smallest time",
    "max_ms": "Largest time",
    "iterations_per_s": "One over the mean",
    "prepare_s": "Seconds that making the engine ready took",
    "memory_nbytes": "Bytes by which the process grew for the engine, at its most in a warm-up run",
    "jobs": "Runs at a time where several were tried",
    "served_per_s": "Runs a second then",
    "outputs": "right, or wrong where they differ from Chainer's by more than the tolerance",
    "largest_difference": "Largest absolute difference of an output from Chainer's",
    "relative_difference": "The same as a fraction of the largest output",
    "tolerance": "The largest relative difference that is right",
    "layers": "Number of Chainer's layers",
    "nodes": "Number of the engine's nodes; empty where it did not time them",
    "gone": "Number of layers that no node does any more",
    "nodes_ms": "Sum of the mean times of the nodes",
    "between_ms": "Mean time between the nodes, in the trials in which they were timed",
    "worst_layer": "Where wrong outputs begin, where that is known",
    "error": "Why the engine did not run, or ran no further",
    "install": "The command that installs what it needs",
    "note": "What else is to be known",
}
_TIMES = {
    "mean_ms": "mean_s",
    "std_ms": "std_s",
    "ci95_low_ms": "ci_low_s",
    "ci95_high_ms": "ci_high_s",
    "median_ms": "median_s",
    "p95_ms": "p95_s",
    "p99_ms": "p99_s",
    "min_ms": "min_s",
    "max_ms": "max_s",
}


def render(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """The table as text; see :data:`COLUMNS`.

    A speed-up is how many times as fast the row's engine is as the column's. It is empty for an
    engine with wrong outputs.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
    """
    versus = {f"speedup_vs_{safe(slow.name)}": slow for slow in run.measured}
    rows = []
    for engine in run.engines:
        row = _row(run, engine, recordings.get(engine.name), recordings.get(BASELINE))
        for name, slow in versus.items():
            found = None if slow is engine else speedup(engine, slow)
            row[name] = "" if found is None else format_exact(found.factor)
        rows.append(row)
    return table_text([*COLUMNS, *versus], rows)


def _row(
    run: EnginesRun, engine: EngineResult, recording: Recording | None, chainer: Recording | None
) -> dict[str, str]:
    statistics, difference, settings = engine.statistics, engine.difference, run.settings
    row = dict.fromkeys(COLUMNS, "") | {
        "engine": safe(engine.name),
        "version": safe(engine.version),
        "precision": safe(engine.precision),
        "network": safe(settings.model),
        "batch": str(settings.batchsize),
        "device": safe(settings.device),
        "trials": str(len(engine.clean_ns)),
        "prepare_s": "" if engine.prepare_s is None else format_exact(engine.prepare_s),
        "memory_nbytes": "" if engine.memory_nbytes is None else str(engine.memory_nbytes),
        "layers": str(run.n_layers),
        "worst_layer": safe(engine.worst_layer),
        "error": safe(engine.error),
        "install": safe(engine.install),
        "note": safe(engine.note),
    }
    if statistics is not None:
        for name, attribute in _TIMES.items():
            row[name] = format_exact_ms(getattr(statistics, attribute))
        if statistics.mean_s:
            row["iterations_per_s"] = format_exact(1 / statistics.mean_s)
    if engine.served_per_s is not None:
        row["jobs"] = str(engine.jobs)
        row["served_per_s"] = format_exact(engine.served_per_s)
    if difference is not None:
        row["outputs"] = "wrong" if engine.wrong else "right"
        row["largest_difference"] = format_exact(difference.largest)
        row["relative_difference"] = format_exact(difference.relative)
        row["tolerance"] = format_exact(engine.tolerance)
    if recording is not None:
        found = fusion(run, recording, chainer)
        row["nodes"] = str(found.nodes)
        gone = 0 if engine.name == BASELINE else found.gone
        row["gone"] = "" if gone is None else str(gone)
        row["nodes_ms"] = format_exact_ms(found.after_s)
        row["between_ms"] = format_exact_ms(found.overhead_s)
    return row
