"""Hand-made recordings for tests of renderers, with known times: with work, limits and memory, or
on a GPU.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import (
    Conditions,
    Environment,
    Gpu,
    GpuState,
    Layer,
    MachineLimits,
    MemoryUse,
    PhaseMemory,
    Recording,
    Settings,
)
from tests.conftest import make_layers, make_recording, make_training

_US = 1000
LIMITS = MachineLimits("k", "cpu", "2026-01-02T03:04:05Z", 2, 1e11, None, 2e10, 8e9, 1 << 28)


def with_work(recording: Recording, **changes: Any) -> Recording:
    """Give layer ``n``, except the last, 10 million operations and 600 kB times ``n``."""
    *others, last = recording.layers
    for i, layer in enumerate(others, 1):
        operations = {"flops": 10_000_000 * i, "macs": 5_000_000 * i}
        others[i - 1] = replace(layer, **operations, nbytes_read=400_000, nbytes_written=200_000)
    layers = (*others, last)
    peaks = tuple(1024 * i for i in range(1, len(layers) + 1))
    retained = tuple(512 * (-1) ** i for i in range(len(layers)))
    phases = tuple(
        PhaseMemory(phase, (1 << 20) >> place, 1024 - 2048 * place)
        for place, phase in enumerate(dict.fromkeys(layer.phase for layer in layers))
    )
    memory = MemoryUse(peaks, retained, 4096, 2048, 1 << 20, 1, phases=phases)
    work = {"layers": layers, "limits": LIMITS, "memory": memory}
    return replace(recording, **(work | changes))


# Tests read these and must not change them.


@lru_cache
def working() -> Summary:
    """Summarise a forward run."""
    return summarise(with_work(make_recording()))


@lru_cache
def training() -> Summary:
    """Summarise a training step."""
    return summarise(with_work(make_training()))


# Recordings of constant times


def scaled(
    times_us: list[float], names: list[str], framework_ns: int = 0, **settings: Any
) -> Recording:
    """Make a forward run in which each function takes the given time."""
    calls = enumerate(zip(names, times_us, strict=True))
    rows = ((f"/part{at // 2}/l{at}", name, "forward", us) for at, (name, us) in calls)
    return phased(*rows, framework_us=framework_ns / _US, phase="forward", **settings)


def phased(
    *rows: tuple[str, str, str, float],
    calls: dict[int, int] | None = None,
    framework_us: float = 0,
    **settings: Any,
) -> Recording:
    """Make a run, a training by default, from rows of path, function, phase and time in us."""
    shapes = ((1, 3),)
    layers = tuple(
        Layer(i, path, function, phase, shapes, shapes, "float32", calls=(calls or {}).get(i, 1))
        for i, (path, function, phase, _) in enumerate(rows)
    )
    self_ns = np.tile(np.int64([us * _US for *_, us in rows]), (50, 1))
    trial_ns = self_ns.sum(axis=1) + int(framework_us * _US)
    return Recording(
        layers,
        self_ns,
        trial_ns=trial_ns,
        start_ns=np.arange(50) + 10,
        clean_ns=trial_ns[:10],
        clean_start_ns=np.arange(10),
        settings=Settings(**{"model": "net", "phase": "train", "trials": 50, **settings}),
    )


# On a GPU

GPU = Gpu(0, "NVIDIA H200", "9.0", 150 * 10**9, "550.54.15", "12.4", "12.9", "8.9.7", tf32=False)
STATE = GpuState(1950, 1980, 3201, 45, 310.5)

#: Times of six layers in us: on the device, on the host, between the layers, busy. The device takes
#: 3,000 us for the layers and 900 us between them; it is busy for 600 us.
LAUNCH_BOUND = (
    (1000, 300, 200, 200, 300, 1000),
    (900, 200, 300, 400, 200, 1000),
    (400, 100, 100, 100, 100, 100),
    (200, 50, 50, 50, 50, 200),
)
#: The same with 30,000 us for the layers on the device and 30 us between them. The device is busy
#: for 29,400 us.
DEVICE_BOUND = (
    (10_000, 3000, 2000, 2000, 3000, 10_000),
    (900, 200, 300, 400, 200, 1000),
    (5, 5, 5, 5, 5, 5),
    (9800, 2940, 1960, 1960, 2940, 9800),
)


def make_device_recording(
    times: tuple[tuple[int, ...], ...] = LAUNCH_BOUND,
    *,
    wait_us: int = 100,
    n_trials: int = 100,
    n_held: int = 20,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Recording:
    """Make a forward run on a GPU with equal trials, which waits for the GPU at the end."""
    layer_ns, host_ns, gap_ns, busy_ns = (
        np.tile(np.int64(row) * _US, (n_trials, 1)) for row in times
    )
    given = make_recording(n_trials=n_trials)
    on_gpu = {"device": "gpu:0", "trials": n_trials, "command": "python profile.py --gpu 0"}
    nothing = {"system": "", "physical_cores": None, "memory_nbytes": None}
    given = replace(
        given,
        layers=make_layers(len(times[0])),
        self_ns=layer_ns,
        settings=replace(given.settings, **on_gpu | (settings or {})),
        environment=replace(given.environment, **nothing, cupy="13.6.0", gpu=GPU),
    )
    return _with_device_times(given, host_ns, gap_ns, busy_ns[:n_held], 900, wait_us, **changes)


def make_device_training(
    n_trials: int = 40, *, n_held: int = 20, settings: dict[str, Any] | None = None, **changes: Any
) -> Recording:
    """Make the training step of :func:`.conftest.make_training` on a GPU.

    The device takes 3,000 us for the layers, 600 us between them and 50 us after the last layer. It
    is busy for half of the layers' time. The host spends as much time in the layers' calls as the
    device.
    """
    given = make_training(n_trials, settings={"device": "gpu:0"} | (settings or {}))
    given = replace(given, environment=Environment(gpu=GPU))
    assert given.framework_ns is not None
    gaps = np.zeros_like(given.self_ns)
    gaps[:, 0] = given.framework_ns.sum(axis=1) - _REST_NS
    return _with_device_times(
        given, given.self_ns, gaps, given.self_ns[:n_held] // 2, 600, 100, **changes
    )


#: The device's time after the last layer.
_REST_NS = 50 * _US


def _with_device_times(
    given: Recording,
    host_ns: np.ndarray,
    gap_ns: np.ndarray,
    held_ns: np.ndarray,
    between_us: int,
    wait_us: int,
    /,
    **changes: Any,
) -> Recording:
    """Make a recording with times of host and device.

    The host takes ``between_us`` between the calls of layers. At the end it waits for the device.
    """
    launch_ns = host_ns.sum(axis=1) + between_us * _US
    trial_ns = launch_ns + wait_us * _US
    n_clean = len(given.clean_ns)
    on_gpu: dict[str, Any] = {
        "trial_ns": trial_ns,
        "start_ns": np.cumsum(trial_ns) - trial_ns,
        "clean_ns": np.full(n_clean, int(trial_ns.mean())),
        "clean_start_ns": int(trial_ns.sum()) + np.arange(n_clean),
        "host_ns": host_ns,
        "gap_ns": gap_ns,
        "launch_ns": launch_ns,
        "span_ns": given.self_ns.sum(axis=1) + gap_ns.sum(axis=1) + _REST_NS,
        "held_ns": held_ns if len(held_ns) else None,
        "held_span_ns": held_ns.sum(axis=1) + 60 * _US if len(held_ns) else None,
        "conditions": Conditions(gpu_before=STATE, gpu_after=STATE),
    }
    return replace(given, **(on_gpu | changes))
