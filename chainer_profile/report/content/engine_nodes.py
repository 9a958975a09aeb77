"""What an engine made of Chainer's layers: its nodes, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.engines.results import main_layer
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Recording

#: Group of an engine's nodes that do none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Part of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
_MAX_NAME = 24
#: What an engine's own clock adds is said from this part of a trial on.
_MUCH = 0.05


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
    """What an engine made of the layers."""
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
