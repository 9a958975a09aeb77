"""What the page shows of other engines that ran the same network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics.units import NOT_KNOWN, format_factor, format_scientific
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import speedup
from chainer_profile.report.content.engines_text import (
    EXPLAINED,
    WRONG,
    NodeRow,
    function_shares,
    fusion,
    fusion_text,
    interval_text,
    next_steps,
    node_rows,
    other_lines,
    warnings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording


@dataclass(frozen=True)
class EngineRow:
    """One engine. Times are seconds a trial; texts are shown as they are.

    Attributes:
        name: What the reader calls it: ``onnxruntime``.
        version: Its version; empty where it tells none.
        precision: What it computed in: ``fp32``, ``bf16``.
        mean_s: Mean time of a trial.
        median_s: Its median.
        p95_s: Its 95th percentile.
        speedup: How many times as fast it is as Chainer, in words: ``3.41x (3.38 to 3.44)``.
        difference: How far its outputs are from Chainer's, as a fraction of the largest.
        note: What else is to be said; empty for nothing.
        by_function: Time of the layers by Chainer's name of the function, in seconds a trial;
            empty where it is not known.
    """

    name: str
    version: str
    precision: str
    mean_s: float
    median_s: float
    p95_s: float
    speedup: str = ""
    difference: str = ""
    note: str = ""
    by_function: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Nodes:
    """What became of Chainer's layers under an engine.

    Attributes:
        name: The engine.
        text: How many layers became how many nodes, and their times.
        rows: Every node with its layers.
    """

    name: str
    text: str
    rows: tuple[NodeRow, ...]


@dataclass(frozen=True)
class Engines:
    """All engines of a run.

    Attributes:
        rows: The engines, in the order to show.
        notes: Sentences about how they ran, and what did not run.
        steps: What to do next, in sentences.
        nodes: The nodes of the engines that timed them.
    """

    rows: tuple[EngineRow, ...]
    notes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    nodes: tuple[Nodes, ...] = ()


def from_run(run: EnginesRun, recordings: Mapping[str, Recording]) -> Engines:
    """Take from a run of several engines what the page shows.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
    """
    chainer = recordings.get(BASELINE)
    nodes = []
    for engine in run.engines:
        recording = recordings.get(engine.name)
        if recording is not None and engine.name != BASELINE:
            text = fusion_text(fusion(run, recording, chainer))
            rows = tuple(node_rows(run, recording, chainer))
            nodes.append(Nodes(engine.name, text, rows))
    return Engines(
        tuple(_row(run, engine, recordings) for engine in run.measured),
        (*warnings(run), *([EXPLAINED] if run.measured else []), *other_lines(run)),
        tuple(next_steps(run)),
        tuple(nodes),
    )


def _row(run: EnginesRun, engine: EngineResult, recordings: Mapping[str, Recording]) -> EngineRow:
    statistics, difference = engine.statistics, engine.difference
    assert statistics is not None
    recording = recordings.get(engine.name)
    shares = {} if recording is None else function_shares(recording, recordings.get(BASELINE))
    outputs = ""
    if engine.name != BASELINE and difference is not None:
        outputs = format_scientific(difference.relative)
        outputs += f", above {format_scientific(engine.tolerance)}" if engine.wrong else ""
    return EngineRow(
        engine.name,
        engine.version,
        engine.precision,
        statistics.mean_s,
        statistics.median_s,
        statistics.p95_s,
        _speedup(run, engine),
        outputs,
        engine.note,
        # To the scale of the trials in which nothing else was timed.
        tuple((name, share * statistics.median_s) for name, share in shares.items() if share),
    )


def _speedup(run: EnginesRun, engine: EngineResult) -> str:
    if engine.wrong:
        return WRONG
    if run.baseline is None or engine is run.baseline:
        return ""
    found = speedup(engine, run.baseline)
    if found is None:
        return NOT_KNOWN
    interval = interval_text(found)
    return format_factor(found.factor) + (f" ({interval})" if interval != NOT_KNOWN else "")
