"""Makes a Recording from an engine's times of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chainer_profile.basics.units import plural
from chainer_profile.basics.words import JOIN
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile
from chainer_profile.engines.results import main_layer
from chainer_profile.record.recording import Layer, Recording, Settings

#: Fields that only a row of a single layer has.
_SINGLE_LAYER_FIELDS = (
    *("nbytes_read", "nbytes_written"),
    *("input_nbytes", "parameter_nbytes", "output_nbytes"),
)


def engine_recording(
    profile: EngineProfile, layers: Sequence[Layer], settings: Settings
) -> Recording:
    """Make a recording with the nodes of an engine as rows.

    Framework time is the time outside the nodes, which is the overhead of the engine.

    Raises:
        EngineError: The profile contradicts itself or the layers.
    """
    _check(profile, len(layers))
    return Recording(
        layers=node_rows(profile.nodes, layers),
        self_ns=profile.node_ns,
        trial_ns=profile.run_ns,
        settings=settings,
    )


def _check(profile: EngineProfile, n_layers: int) -> None:
    """Raise EngineError if a profile contradicts itself or the number of layers."""
    nodes, times, runs = profile.nodes, profile.node_ns, profile.run_ns
    if times.dtype != np.int64 or runs.dtype != np.int64:
        raise EngineError("its times are not int64 nanoseconds")
    if not nodes or runs.ndim != 1 or times.shape != (len(runs), len(nodes)) or not len(runs):
        raise EngineError(
            f"it reports times of shape {times.shape} and {runs.shape} for "
            f"{plural(len(nodes), 'node')}"
        )
    done = {index for node in nodes for index in node.layers}
    if unknown := sorted((done | set(profile.gone)) - set(range(n_layers))):
        raise EngineError(f"it names layer {unknown[0]}, but there are {plural(n_layers, 'layer')}")
    if lost := sorted(set(range(n_layers)) - done - set(profile.gone)):
        raise EngineError(f"layer {lost[0]} is neither in a node nor gone")
    if (times < 0).any():
        raise EngineError("it reports a negative time")
    if (times.sum(axis=1) > runs).any():
        raise EngineError("its nodes took longer than the whole run")


def node_rows(nodes: Sequence[EngineNode], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Make a row for each node; its function joins the functions of all layers of the node."""
    node_counts = Counter(index for node in nodes for index in set(node.layers))
    rows = []
    for number, node in enumerate(nodes):
        description = f"{node.kind} {node.name}".strip()
        covers = tuple(sorted(set(node.layers)))
        if not covers:
            rows.append(Layer(number, "/", node.kind or node.name, node=description))
            continue
        covered = [layers[index] for index in covers]
        row = Layer(
            index=number,
            path=layers[main_layer(covers, layers)].path,
            function=JOIN.join(layer.function for layer in covered),
            input_shapes=covered[0].input_shapes,
            output_shapes=covered[-1].output_shapes,
            dtype=covered[-1].dtype,
            covers=covers,
            node=description,
        )
        # If several nodes compute a layer, the share of each is unknown.
        if all(node_counts[index] == 1 for index in covers):
            row = replace(
                row,
                flops=_sum([layer.flops for layer in covered]),
                macs=_sum([layer.macs for layer in covered]),
                work_is_about=any(layer.work_is_about for layer in covered),
            )
            if len(covered) == 1:
                (layer,) = covered
                row = replace(row, **{name: getattr(layer, name) for name in _SINGLE_LAYER_FIELDS})
        rows.append(row)
    return tuple(rows)


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum of values; None if one of them is unknown."""
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
