"""Hand-made recordings of runs on a GPU, with times that are known by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import (
    Conditions,
    Environment,
    Gpu,
    GpuState,
    Recording,
    Settings,
)
from tests.conftest import make_layers, make_training

GPU = Gpu(
    number=0,
    name="NVIDIA H200",
    compute_capability="9.0",
    memory_nbytes=150_000_000_000,
    driver="550.54.15",
    driver_cuda="12.4",
    cuda="12.9",
    cudnn="8.9.7",
    tf32=False,
)
STATE = GpuState(1950, 1980, 3201, 45, 310.5)

#: Of six layers, in us: on the device, of the host, between the layers, busy. The device takes
#: 3,000 us for the layers and 900 us between them; busy it is for 600 us.
LAUNCH_BOUND = (
    (1000, 300, 200, 200, 300, 1000),
    (900, 200, 300, 400, 200, 1000),
    (400, 100, 100, 100, 100, 100),
    (200, 50, 50, 50, 50, 200),
)
#: The same, where the device takes 30,000 us for the layers and 30 us between them; busy it is for
#: 29,400 us.
DEVICE_BOUND = (
    (10_000, 3000, 2000, 2000, 3000, 10_000),
    (900, 200, 300, 400, 200, 1000),
    (5, 5, 5, 5, 5, 5),
    (9800, 2940, 1960, 1960, 2940, 9800),
)
#: Between the layers' calls the host takes 900 us, and the device 50 us behind the last layer.
_BETWEEN_US, _REST_US = 900, 50
_US = 1000


def make_device_recording(
    times: tuple[tuple[int, ...], ...] = LAUNCH_BOUND,
    *,
    wait_us: int = 100,
    n_trials: int = 100,
    n_held: int = 20,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Recording:
    """A forward run on a GPU whose trials are all alike.

    Args:
        times: See :data:`LAUNCH_BOUND`.
        wait_us: What the host waits for the device at the end.
        n_trials: Profiled trials.
        n_held: Held trials.
        settings: Fields of the settings that differ.
        **changes: Fields of the recording that differ.
    """
    layer_us, host_us, gap_us, busy_us = times
    span_us = sum(layer_us) + sum(gap_us) + _REST_US
    launch_us = sum(host_us) + _BETWEEN_US

    def rows(row: tuple[int, ...], count: int) -> np.ndarray:
        return np.tile(np.array(row, np.int64) * _US, (count, 1))

    def trials(value: int, count: int) -> np.ndarray:
        return np.full(count, value * _US, np.int64)

    trial_ns = trials(launch_us + wait_us, n_trials)
    clean_ns = trials(launch_us + wait_us, 10)
    values: dict[str, Any] = {
        "layers": make_layers(len(layer_us)),
        "self_ns": rows(layer_us, n_trials),
        "trial_ns": trial_ns,
        "start_ns": np.cumsum(trial_ns) - trial_ns,
        "host_ns": rows(host_us, n_trials),
        "gap_ns": rows(gap_us, n_trials),
        "launch_ns": trials(launch_us, n_trials),
        "span_ns": trials(span_us, n_trials),
        "held_ns": rows(busy_us, n_held) if n_held else None,
        "held_span_ns": trials(sum(busy_us) + 60, n_held) if n_held else None,
        "clean_ns": clean_ns,
        "clean_start_ns": int(trial_ns.sum()) + np.cumsum(clean_ns),
        "settings": Settings(
            **{
                "model": "chain",
                "input": "random image, seed 0",
                "input_shape": (1, 16, 32, 32),
                "device": "gpu:0",
                "trials": n_trials,
                "clean_trials": 10,
                "warmups": 3,
                "seed": 0,
                "command": "python profile.py --gpu 0",
            }
            | (settings or {})
        ),
        "environment": Environment(
            started="2026-01-02T03:04:05Z",
            processor="A processor",
            usable_cores=2,
            python="CPython 3.11.7",
            chainer="7.8.1",
            numpy="2.4.6",
            cupy="13.6.0",
            profiler="0.1.0",
            gpu=GPU,
        ),
        "conditions": Conditions(gpu_before=STATE, gpu_after=STATE),
    }
    return Recording(**(values | changes))


def make_device_training(
    n_trials: int = 40, *, n_held: int = 20, settings: dict[str, Any] | None = None, **changes: Any
) -> Recording:
    """The training step of :func:`.conftest.make_training` on a GPU.

    The device takes 3,000 us for the layers, 600 us between them and 50 us behind the last, and is
    busy for half of the layers' time. The host is in the layers' calls for as long as the device.
    """
    given = make_training(n_trials, settings={"device": "gpu:0"} | (settings or {}))
    assert given.trial_ns is not None
    assert given.framework_ns is not None
    framework = given.framework_ns.sum(axis=1)
    rest = np.full(n_trials, 50 * _US, np.int64)
    gaps = np.zeros_like(given.self_ns)
    gaps[:, 0] = framework - rest
    host = given.self_ns.copy()
    launch = host.sum(axis=1) + 600 * _US
    trial = launch + 100 * _US
    held = (given.self_ns // 2)[:n_held]
    known: dict[str, Any] = {
        "trial_ns": trial,
        "start_ns": np.cumsum(trial) - trial,
        "clean_ns": np.full(4, int(trial.mean()), np.int64),
        "clean_start_ns": int(trial.sum()) + np.arange(4, dtype=np.int64),
        "host_ns": host,
        "gap_ns": gaps,
        "launch_ns": launch,
        "span_ns": given.self_ns.sum(axis=1) + framework,
        "held_ns": held if n_held else None,
        "held_span_ns": held.sum(axis=1) if n_held else None,
        "environment": Environment(gpu=GPU),
        "conditions": Conditions(gpu_before=STATE, gpu_after=STATE),
    }
    return replace(given, **(known | changes))


def launching(**changes: Any) -> Summary:
    """A launch-bound forward run: 4,000 us of wall time, 600 us of work."""
    return summarise(make_device_recording(**changes))


def computing(**changes: Any) -> Summary:
    """A device-bound forward run: 30,200 us of wall time, 29,400 us of work."""
    return summarise(make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes))
