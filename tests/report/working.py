"""A hand-made recording whose layers have work, limits and memory, for tests of renderers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import (
    Layer,
    MachineLimits,
    MemoryUse,
    PhaseMemory,
    Recording,
    Settings,
)
from tests.conftest import make_recording, make_training

LIMITS = MachineLimits("k", "cpu", "2026-01-02T03:04:05Z", 2, 1e11, None, 2e10, 8e9, 1 << 28)


def with_work(recording: Recording, **changes: Any) -> Recording:
    """Every layer but the last with 10 million operations and 600 kB a layer number."""
    layers = tuple(
        replace(
            layer,
            flops=10_000_000 * (layer.index + 1),
            macs=5_000_000 * (layer.index + 1),
            nbytes_read=400_000,
            nbytes_written=200_000,
        )
        for layer in recording.layers[:-1]
    )
    layers += recording.layers[-1:]
    count = len(layers)
    memory = MemoryUse(
        peak_nbytes=tuple(1024 * (index + 1) for index in range(count)),
        retained_nbytes=tuple(512 * (-1) ** index for index in range(count)),
        parameter_nbytes=4096,
        input_nbytes=2048,
        high_water_nbytes=1 << 20,
        high_water_layer=1,
        phases=tuple(
            PhaseMemory(phase, (1 << 20) >> place, 1024 - 2048 * place)
            for place, phase in enumerate(dict.fromkeys(layer.phase for layer in layers))
        ),
    )
    known = {"layers": layers, "limits": LIMITS, "memory": memory}
    return replace(recording, **(known | changes))


def working(**changes: Any) -> Summary:
    """A forward run."""
    return summarise(with_work(make_recording(), **changes)) if changes else _working()


def training(**changes: Any) -> Summary:
    """A training step."""
    return summarise(with_work(make_training(), **changes)) if changes else _training()


# Tests read these and change nothing in them.


@lru_cache
def _working() -> Summary:
    return summarise(with_work(make_recording()))


@lru_cache
def _training() -> Summary:
    return summarise(with_work(make_training()))


# Recordings of constant times


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
