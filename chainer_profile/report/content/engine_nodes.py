"""What an engine made of Chainer's layers: its nodes, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_count, format_duration, format_percent, plural
from chainer_profile.engines.results import main_layer
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Recording

#: Group of an engine's nodes that do none of Chainer's layers.
OWN_STEPS = "the engine's own steps"
#: Part of a trial that no function or node has.
BETWEEN = "between the functions or nodes"
#: What an engine's own clock adds is said from this part of a trial on.
_MUCH = 0.05


@dataclass(frozen=True)
class Fusion:
    """What an engine made of Chainer's layers. Times are means.

    Attributes:
        nodes: Number of the engine's nodes.
        gone: Layers that no node does any more; None where the nodes do not say whose they are, as
            those of a file of others.
        nodes_s: Sum of the nodes.
        between_s: What passed between them.
    """

    nodes: int
    gone: int | None
    nodes_s: float
    between_s: float


def fusion(run: EnginesRun, recording: Recording) -> Fusion:
    """What an engine made of the layers."""
    covered = {index for layer in recording.layers for index in layer.covers}
    nodes_ns, runs_ns = recording.self_ns.sum(axis=1), recording.trial_ns
    between_ns = 0.0 if runs_ns is None else float((runs_ns - nodes_ns).mean())
    gone = run.n_layers - len(covered) if covered else None
    return Fusion(len(recording.layers), gone, float(nodes_ns.mean()) * NS, between_ns * NS)


def fusion_text(run: EnginesRun, recording: Recording, chainer: Recording | None) -> str:
    """The same in words: ``66 layers became 27 nodes: 5.421 ms -> 0.512 ms``."""
    found = fusion(run, recording)
    nodes, nodes_time = plural(found.nodes, "node"), format_duration(found.nodes_s)
    between = format_duration(found.between_s)
    if found.gone is None:
        said = f"{nodes}, {nodes_time}, and {between} between them; they do not say whose layers "
        said += "they are"
    else:
        said = f"{plural(run.n_layers, 'layer')} became {nodes}"
        if found.gone:
            said += f", and {format_count(found.gone)} of them nothing"
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
    return list(map(printable, found))


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
