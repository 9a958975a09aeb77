"""A hand-made recording whose layers have work, limits and memory, for tests of renderers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import MachineLimits, MemoryUse, PhaseMemory, Recording
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
