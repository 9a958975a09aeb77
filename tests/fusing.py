"""Recordings of engines that do several of Chainer's layers in one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile.record.recording import Layer, Recording
from tests.comparing import run

ENGINE = "onnxruntime 1.31.1"


def engine_run(
    chainer: Recording,
    nodes: Sequence[Sequence[int]],
    factor: float = 0.125,
    engine: str = ENGINE,
    **changes: Any,
) -> Recording:
    """What an engine would record of the same network, each node's time by a factor of its layers'.

    Nodes name Chainer's layers that each does; one of none is the engine's own.
    """
    layers, columns = [], []
    for index, covers in enumerate(nodes):
        covered = [chainer.layers[at] for at in covers]
        main = max(covered, key=lambda layer: layer.flops or 0) if covered else None
        layers.append(
            Layer(
                index=index,
                path=main.path if main else "reorder",
                function=" + ".join(layer.function for layer in covered) or "Reorder",
                flops=sum(layer.flops or 0 for layer in covered),
                covers=tuple(covers),
                node=f"Node {index}",
            )
        )
        samples = chainer.self_ns[:, list(covers)] if covers else chainer.self_ns[:, :1]
        columns.append(np.rint(samples.sum(axis=1) * factor).astype(np.int64))
    self_ns = np.stack(columns, axis=1)
    values: dict[str, Any] = {
        "layers": tuple(layers),
        "self_ns": self_ns,
        "trial_ns": self_ns.sum(axis=1) + 7_000,
        "clean_ns": np.rint(chainer.clean_ns * factor).astype(np.int64),
        "settings": replace(chainer.settings, engine=engine),
        "memory": None,
    }
    return replace(chainer, **values | changes)


def in_threes(n_layers: int = 24) -> list[tuple[int, ...]]:
    """Nodes that do convolution, batch normalisation and ReLU at once."""
    return [(at, at + 1, at + 2) for at in range(0, n_layers, 3)]


def chainer_run(seed: int = 1, n_layers: int = 24, **changes: Any) -> Recording:
    """A recording of Chainer whose convolutions have by far the most operations."""
    recording = run(seed, n_layers, **changes)
    layers = [
        replace(layer, flops=10 if layer.index % 3 else 1000 + layer.index)
        for layer in recording.layers
    ]
    return replace(recording, layers=tuple(layers))
