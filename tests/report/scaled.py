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


def phased(
    *rows: tuple[str, str, str, int],
    calls: dict[int, int] | None = None,
    framework_us: int = 0,
    batchsize: int = 1,
) -> Recording:
    """Rows of path, function, phase and time in microseconds; two trials of a training."""
    layers = tuple(
        Layer(at, path, function, phase, calls=(calls or {}).get(at, 1))
        for at, (path, function, phase, _) in enumerate(rows)
    )
    self_ns = np.array([[us * 1000 for *_, us in rows]] * 2, np.int64)
    settings = Settings(batchsize=batchsize, phase="train")
    return Recording(
        layers, self_ns, trial_ns=self_ns.sum(axis=1) + framework_us * 1000, settings=settings
    )
