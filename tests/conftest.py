"""Fakes and hand-made recordings that the tests share."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis
import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import)
from chainer_profile.recording import Environment, Layer, Recording, Settings

# Examples take as long as they take: a busy machine is no failure.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.load_profile("here")


@dataclass
class FakeClock:
    """A clock that stands still until it is told to advance, and by read_ns at each read."""

    time_ns: int = 1_000_000
    read_ns: int = 0

    def now_ns(self) -> int:
        self.time_ns += self.read_ns
        return self.time_ns

    def advance(self, duration_ns: int) -> None:
        self.time_ns += duration_ns

    def resolution_ns(self, reads: int = 1000) -> int:
        return 1


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


FUNCTIONS = ("Convolution2DFunction", "FixedBatchNormalization", "ReLU")


def make_layers(n_layers: int) -> tuple[Layer, ...]:
    """Layers of a chain: convolution, batch normalisation and ReLU in turn."""
    return tuple(
        Layer(
            index=i,
            path=f"/res{i // 9 + 2}/{i // 3 % 3}/{('conv1', 'bn1', '')[i % 3]}".rstrip("/"),
            function=FUNCTIONS[i % 3],
            input_shapes=((1, 16, 32, 32), (16, 16, 3, 3)) if i % 3 == 0 else ((1, 16, 32, 32),),
            output_shapes=((1, 16, 32, 32),),
            dtype="float32",
        )
        for i in range(n_layers)
    )


def make_recording(
    n_layers: int = 6,
    n_trials: int = 100,
    n_clean: int = 10,
    seed: int = 0,
    framework_ns: int = 50_000,
    **changes: object,
) -> Recording:
    """A recording with gamma-distributed times; clean blocks of 5 alternate with profiled ones."""
    rng = np.random.default_rng(seed)
    scale = np.array([300_000, 100_000, 40_000])[np.arange(n_layers) % 3]
    self_ns = rng.gamma(400.0, scale / 400.0, (n_trials, n_layers)).astype(np.int64)
    trial_ns = self_ns.sum(axis=1) + framework_ns
    clean_ns = (rng.gamma(400.0, float(trial_ns.mean()) / 400.0, n_clean) * 0.99).astype(np.int64)
    is_clean = np.zeros(n_trials + n_clean, bool)
    for block in np.array_split(np.arange(n_clean), max(1, n_clean // 5)):
        if len(block):
            middle = int((block[0] + len(block) / 2) * (n_trials + n_clean) / max(1, n_clean))
            is_clean[middle - len(block) // 2 : middle - len(block) // 2 + len(block)] = True
    durations = np.empty(n_trials + n_clean, np.int64)
    durations[is_clean], durations[~is_clean] = clean_ns, trial_ns
    starts = np.concatenate([[0], np.cumsum(durations)[:-1]])
    values: dict[str, object] = {
        "layers": make_layers(n_layers),
        "self_ns": self_ns,
        "trial_ns": trial_ns,
        "start_ns": starts[~is_clean],
        "clean_ns": clean_ns,
        "clean_start_ns": starts[is_clean],
        "warmup_ns": trial_ns[:3],
        "settings": Settings(
            model="chain",
            input="random image, seed 0",
            input_shape=(1, 16, 32, 32),
            trials=n_trials,
            clean_trials=n_clean,
            warmups=3,
            seed=0,
            command="python profile.py --model chain",
        ),
        "environment": Environment(
            started="2026-01-02T03:04:05Z",
            system="Linux 6.1 x86_64",
            processor="A processor",
            physical_cores=2,
            usable_cores=2,
            memory_nbytes=8 << 30,
            python="CPython 3.11.7",
            chainer="7.8.1",
            numpy="2.4.6",
            profiler="0.1.0",
        ),
    }
    return Recording(**(values | changes))  # type: ignore[arg-type]
