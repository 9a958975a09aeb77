"""An engine's times, node by node -> a Recording like any other."""

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

#: Bytes that a row has where it is a single layer.
_OF_A_LAYER = (
    *("nbytes_read", "nbytes_written"),
    *("input_nbytes", "parameter_nbytes", "output_nbytes"),
)


def engine_recording(
    profile: EngineProfile, layers: Sequence[Layer], settings: Settings
) -> Recording:
    """A recording whose rows are the nodes of an engine."""
    _check(profile, len(layers))
    # Time outside of the nodes is the runtime's overhead, as framework time is Chainer's.
    return Recording(
        layers=node_rows(profile.nodes, layers),
        self_ns=profile.node_ns,
        trial_ns=profile.run_ns,
        settings=settings,
    )


def _check(profile: EngineProfile, n_layers: int) -> None:
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
        raise EngineError(f"it names layer {unknown[0]}, of {plural(n_layers, 'layer')}")
    if lost := sorted(set(range(n_layers)) - done - set(profile.gone)):
        raise EngineError(f"it does not say what became of layer {lost[0]}")
    if (times < 0).any():
        raise EngineError("it reports a negative time")
    if (times.sum(axis=1) > runs).any():
        raise EngineError("its nodes took longer than the whole run")


def node_rows(nodes: Sequence[EngineNode], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The rows of an engine's nodes, each named after all of its layers."""
    times_done = Counter(index for node in nodes for index in set(node.layers))
    rows = []
    for number, node in enumerate(nodes):
        words = f"{node.kind} {node.name}".strip()
        covers = tuple(sorted(set(node.layers)))
        if not covers:
            rows.append(Layer(number, "/", node.kind or node.name, node=words))
            continue
        done = [layers[index] for index in covers]
        row = Layer(
            index=number,
            path=layers[main_layer(covers, layers)].path,
            function=JOIN.join(layer.function for layer in done),
            input_shapes=done[0].input_shapes,
            output_shapes=done[-1].output_shapes,
            dtype=done[-1].dtype,
            covers=covers,
            node=words,
        )
        # A layer that several nodes do has no work in any of them.
        if all(times_done[index] == 1 for index in covers):
            row = replace(
                row,
                flops=_sum([layer.flops for layer in done]),
                macs=_sum([layer.macs for layer in done]),
                work_is_about=any(layer.work_is_about for layer in done),
            )
            if len(done) == 1:
                row = replace(row, **{name: getattr(done[0], name) for name in _OF_A_LAYER})
        rows.append(row)
    return tuple(rows)


def _sum(values: Sequence[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
