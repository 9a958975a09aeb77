"""Recordings of engines that fuse layers of Chainer into nodes."""

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
    """Make the recording of an engine. A node takes the time of its layers, times a factor.

    Args:
        nodes: Indices of Chainer's layers in each node; empty for a node of the engine itself.
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


def groups_of_three(n_layers: int = 24) -> list[tuple[int, ...]]:
    """Nodes that each fuse convolution, batch normalisation and ReLU."""
    return [(index, index + 1, index + 2) for index in range(0, n_layers, 3)]


def chainer_run(seed: int = 1, n_layers: int = 24, **changes: Any) -> Recording:
    """Recording of Chainer in which convolutions have most of the operations."""
    recording = run(seed, n_layers, **changes)
    layers = [
        replace(layer, flops=10 if layer.index % 3 else 1000 + layer.index)
        for layer in recording.layers
    ]
    return replace(recording, layers=tuple(layers))
