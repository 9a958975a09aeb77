"""Recordings of constant times."""

from __future__ import annotations

import numpy as np

from chainer_profile.record.recording import Layer, Recording, Settings


def scaled(
    scale: list[float], names: list[str], framework_ns: int = 0, **settings: object
) -> Recording:
    """A recording of constant times in microseconds."""
    layers = tuple(
        Layer(i, f"/part{i // 2}/l{i}", name, "forward", ((1, 3),), ((1, 3),), "float32")
        for i, name in enumerate(names)
    )
    self_ns = np.tile((np.array(scale) * 1000).astype(np.int64), (50, 1))
    return Recording(
        layers,
        self_ns,
        trial_ns=self_ns.sum(axis=1) + framework_ns,
        clean_ns=np.full(10, self_ns[0].sum() + framework_ns),
        clean_start_ns=np.arange(10),
        start_ns=np.arange(50) + 10,
        settings=Settings(model="net", trials=50, **settings),  # type: ignore[arg-type]
    )
