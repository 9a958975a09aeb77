"""What an engine made of Chainer's layers: its nodes, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_ms,
    format_percent,
    plural,
)
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.results import main_layer
from chainer_profile.report.document import Column
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Layer, Recording

#: Group of an engine's nodes that do none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Part of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
_MAX_NAME = 24
#: What an engine's own clock adds is said from this part of a trial on.
_MUCH = 0.05


@dataclass(frozen=True)
class NodeRow:
    """One node of an engine, and what became of Chainer's layers in it.

    Attributes:
        node: The engine's words for it; for layers that no node does any more, what they became.
        layers: The layers, each with its path.
        before_s: Chainer's mean self time of these layers, in seconds; of a layer that several
            nodes do it counts at the first of them. None where it is not known.
        after_s: The node's mean time.
    """

    node: str
    layers: str
    before_s: float | None
    after_s: float


@dataclass(frozen=True)
class Fusion:
    """What an engine made of Chainer's layers. Times are means in seconds.

    Attributes:
        layers: Number of Chainer's layers.
        nodes: Number of the engine's nodes.
        gone: Layers that no node does any more; None where the nodes do not say whose they are, as
            those of a file of others.
        before_s: Sum of Chainer's layers; None where it is not known.
        after_s: Sum of the nodes.
        overhead_s: What passed between the nodes.
        profiling: What the engine's own clock adds to a trial, as a fraction of it; None where
            that is not known.
    """

    layers: int
    nodes: int
    gone: int | None
    before_s: float | None
    after_s: float
    overhead_s: float
    profiling: float | None = None


def fusion(run: EnginesRun, recording: Recording, chainer: Recording | None) -> Fusion:
    """What an engine made of the layers.

    Args:
        run: The run.
        recording: The engine's recording.
        chainer: Chainer's, where there is one.
    """
    covered = {index for layer in recording.layers for index in layer.covers}
    nodes_s, runs = recording.self_ns.sum(axis=1), recording.trial_ns
    after_s = float(nodes_s.mean()) * NS
    return Fusion(
        layers=run.n_layers,
        nodes=len(recording.layers),
        gone=run.n_layers - len(covered) if covered else None,
        before_s=None if chainer is None else float(chainer.self_ns.sum(axis=1).mean()) * NS,
        after_s=after_s,
        overhead_s=0.0 if runs is None else float((runs - nodes_s).mean()) * NS,
        profiling=_profiling(recording),
    )


def _profiling(recording: Recording) -> float | None:
    runs, clean = recording.trial_ns, recording.clean_ns
    if runs is None or not len(runs) or not len(clean):
        return None
    return float(np.median(runs) / np.median(clean)) - 1


def fusion_text(found: Fusion) -> str:
    """The same in words: ``66 layers became 27 nodes: 5.421 ms -> 0.512 ms``."""
    if found.gone is None:  # a file of others
        nodes = f"{plural(found.nodes, 'node')}, {format_duration(found.after_s)}"
        between = f"{format_duration(found.overhead_s)} between them"
        said = f"{nodes}, and {between}; they do not say whose layers they are"
    else:
        said = f"{plural(found.layers, 'layer')} became {plural(found.nodes, 'node')}"
        if found.gone:
            said += f", and {format_count(found.gone)} of them nothing"
        if found.before_s is not None:
            said += f": {format_duration(found.before_s)} -> {format_duration(found.after_s)}"
        said += f", and {format_duration(found.overhead_s)} between the nodes"
    if found.profiling is not None and found.profiling >= _MUCH:
        said += f"; its own clock adds {format_percent(found.profiling)} to a trial"
    return said


def fusion_lines(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[str]:
    """A line for each engine that timed its nodes."""
    chainer = recordings.get(BASELINE)
    return [
        f"{printable(engine.name)}: {fusion_text(fusion(run, recordings[engine.name], chainer))}"
        for engine in run.engines
        if engine.name in recordings and engine.name != BASELINE
    ]


def node_rows(
    run: EnginesRun, recording: Recording, chainer: Recording | None
) -> Iterator[NodeRow]:
    """The nodes of an engine in their order, and behind them the layers that are gone.

    The times before add up to those of all of Chainer's layers, those after to the nodes'.

    Args:
        run: The run.
        recording: The engine's recording.
        chainer: Chainer's, where there is one.
    """
    layers = () if chainer is None else chainer.layers
    before_s = [] if chainer is None else (chainer.self_ns.mean(axis=0) * NS).tolist()
    means_s = (recording.self_ns.mean(axis=0) * NS).tolist()
    seen: set[int] = set()

    def time_before(indices: Sequence[int]) -> float | None:
        new = [index for index in indices if index not in seen]
        seen.update(indices)
        return sum(before_s[index] for index in new) if before_s else None

    # Where no node says whose it is, none is known to be of no layer.
    nothing = 0.0 if any(row.covers for row in recording.layers) else None
    for row, mean_s in zip(recording.layers, means_s, strict=True):
        before = time_before(row.covers) if row.covers else nothing
        yield NodeRow(printable(row.node), _listed(row.covers, layers), before, mean_s)
    gone = [index for index in range(run.n_layers) if index not in seen]
    if gone and seen:
        yield NodeRow("no node", _listed(gone, layers), time_before(gone), 0.0)


def _listed(indices: Sequence[int], layers: Sequence[Layer]) -> str:
    if not layers:
        return ", ".join(map(str, indices))
    return " + ".join(printable(f"{layers[i].label} {layers[i].path}") for i in indices)


def node_columns() -> list[Column]:
    """The columns of :func:`node_rows`."""
    return [
        Column("node", lambda row: row.node, folds=_MAX_NAME),
        Column("Chainer's layers", lambda row: row.layers or NOT_KNOWN, folds=_MAX_NAME),
        Column("before ms", lambda row: format_ms(row.before_s), "before [ms]"),
        Column("after ms", lambda row: format_ms(row.after_s), "after [ms]"),
    ]


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
    return [printable(name) for name in found]


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
