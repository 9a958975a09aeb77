"""Shared fakes and made-up recordings."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

# Tests run on all cores, so a second BLAS thread would only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import)
from chainer_profile.measure.clock import Clock
from chainer_profile.record.recording import (
    Calibration,
    Environment,
    Layer,
    LinkCalls,
    Recording,
    Settings,
)
from tests.fakes import load_cupy

CALIBRATION = Calibration(1e-3, 7e-4)

# Examples have no deadline, because the machine may be busy. CI draws many examples, always the
# same ones, so that only the commit can make it fail. Other runs draw a few new examples.
hypothesis.settings.register_profile(
    "here",
    deadline=None,
    max_examples=int(os.environ.get("DRAWS", 60 if os.environ.get("CI") else 20)),
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("here")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the modules of the tests from garbage collection, which every measured run calls."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the width of the terminal from commands."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def memory_given_back() -> Iterator[None]:
    """Check that malloc does not keep memory after a test, which would affect later tests."""
    yield
    memory = sys.modules.get("chainer_profile.kernels.memory")
    assert memory is None or not memory.is_kept()


@dataclass
class FakeClock:
    """A clock that moves by :meth:`advance`, and by ``read_ns`` at each reading."""

    time_ns: int = 1_000_000
    read_ns: int = 0
    device: Any = None
    used_ns: int = 0

    def now_ns(self) -> int:
        self.time_ns += self.read_ns
        return self.time_ns

    def cpu_ns(self) -> int:
        return self.used_ns

    def advance(self, duration_ns: int) -> None:
        self.time_ns += duration_ns

    def resolution_ns(self, reads: int = 1000) -> int:
        return 1

    def waiting(self) -> FakeClock | Clock:
        return self if self.device is None else Clock(self.now_ns, self.device).waiting()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fake CuPy."""
    return load_cupy(monkeypatch)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without BLAS libraries, so that runs do not compare numbers of threads."""
    from chainer_profile.measure import environment

    monkeypatch.setattr(environment, "collect", lambda *_: Environment(numpy="1"))


FUNCTIONS = ("Convolution2DFunction", "FixedBatchNormalization", "ReLU")


def make_layers(n_layers: int) -> tuple[Layer, ...]:
    """Make layers of a chain: convolution, batch normalisation, ReLU, and so on."""
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
    **changes: Any,
) -> Recording:
    """Make a recording with gamma-distributed times and unprofiled blocks of 5 trials."""
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
    values: dict[str, Any] = {
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
    return Recording(**values | changes)


_X, _W = (4, 8, 6, 6), (8, 8, 3, 3)
_CONV, _BN, _SGD = "Convolution2DFunction", "BatchNormalization", "MomentumSGD"
_LOSS = "loss", "SoftmaxCrossEntropy"

#: A training step of 3,000 us in 25 rows: phase, path, function, mean self time in us, input
#: shapes, and further fields.
_TRAINING: tuple[tuple[Any, ...], ...] = (
    ("forward", "/conv", _CONV, 200, (_X, _W), {"output_shapes": (_X,)}),
    ("forward", "/res/0/conv", _CONV, 300, (_X, _W), {}),
    ("forward", "/res/0/bn", _BN, 60, (_X, (8,), (8,)), {}),
    ("forward", "/res/0", "Add", 10, (_X, _X), {}),
    ("forward", "/res/1/conv", _CONV, 300, (_X, _W), {}),
    ("forward", "/res/1/bn", _BN, 60, (_X, (8,), (8,)), {}),
    ("forward", "/", "ReLU", 20, (_X,), {}),
    ("forward", "/fc", "LinearFunction", 30, ((4, 288), (10, 288), (10,)), {}),
    ("forward", *_LOSS, 20, ((4, 10), (4,)), {}),
    ("backward", "cleargrads", "cleargrads", 40, (), {}),
    ("backward", *_LOSS, 10, (), {"forward": 8}),
    ("backward", "/fc", "LinearFunction", 60, (), {"forward": 7}),
    ("backward", "/", "ReLU", 30, (), {"forward": 6}),
    ("backward", "/res/1/bn", _BN, 70, (), {"forward": 5}),
    ("backward", "/res/1/conv", _CONV, 600, (), {"forward": 4}),
    ("backward", "/res/0", "Add", 10, (), {"forward": 3}),
    ("backward", "/res/0/bn", _BN, 70, (), {"forward": 2}),
    ("backward", "/res/0/conv", _CONV, 580, (), {"forward": 1}),
    ("backward", "/res/0/conv", "gradient_accumulation", 30, (_X, _X), {}),
    ("backward", "/conv", _CONV, 300, (), {"forward": 0}),
    ("update", "optimizer", "WeightDecay", 80, (), {}),
    ("update", "/conv", _SGD, 20, (_W,), {}),
    ("update", "/fc", _SGD, 40, ((10, 288), (10,)), {"calls": 2}),
    ("update", "/res/0/bn", _SGD, 30, ((8,), (8,)), {"calls": 2}),
    ("update", "/res/0/conv", _SGD, 30, (_W,), {}),
)
_DATA = (
    ("data", "data", "SerialIterator", 300, (), {}),
    ("data", "data", "concat_examples", 100, (), {}),
)
TRAINING_LINKS = (
    LinkCalls("/", "Net", 1, 0),
    LinkCalls("/conv", "Convolution2D", 1, 576),
    LinkCalls("/res", "Stage", 1, 0),
    LinkCalls("/res/0", "Block", 1, 0),
    LinkCalls("/res/0/conv", "Convolution2D", 1, 576),
    LinkCalls("/res/0/bn", "BatchNormalization", 1, 16),
    LinkCalls("/res/1", "Block", 1, 0),
    LinkCalls("/res/1/conv", "Convolution2D", 1, 576),
    LinkCalls("/res/1/bn", "BatchNormalization", 1, 16),
    LinkCalls("/fc", "Linear", 1, 2890),
    LinkCalls("/unused", "Linear", 0, 100),
)


def make_training(
    n_trials: int = 40,
    *,
    data: bool = False,
    outside_us: int = 50,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Recording:
    """Make a recording of training steps with exact means.

    Trials alternate between 2 % above and 2 % below the means, which are exact for an even number.
    The rows take 3,000 us: 1,000 in forward, 1,800 in backward and 200 in update. Framework time is
    300, 250 and 100 us in these phases, and 50 us outside of them. Loading data adds 400 us.
    """
    rows = (_DATA if data else ()) + _TRAINING
    layers = []
    for index, (phase, path, function, _, shapes, more) in enumerate(rows):
        if "forward" in more:
            more = {"forward": more["forward"] + len(rows) - len(_TRAINING)}
        more = {"dtype": "float32", "input_shapes": shapes} | more
        layers.append(Layer(index, path, function, phase, **more))
    factor = np.where(np.arange(n_trials) % 2, 0.98, 1.02) * 1000

    def samples(*means_us: int) -> np.ndarray:
        return np.rint(np.outer(factor, means_us)).astype(np.int64)

    self_ns = samples(*(row[3] for row in rows))
    framework_ns = samples(100, 300, 250)
    trial_ns = self_ns.sum(axis=1) + framework_ns.sum(axis=1) + samples(outside_us)[:, 0]
    starts = np.concatenate([[0], np.cumsum(trial_ns)])
    values: dict[str, Any] = {
        "layers": tuple(layers),
        "self_ns": self_ns,
        # The update begins first, because it runs the loss function.
        "phases": ("update", "forward", "backward"),
        "framework_ns": framework_ns,
        "links": TRAINING_LINKS,
        "trial_ns": trial_ns,
        "start_ns": starts[:-1],
        "clean_ns": np.full(4, int(trial_ns.mean() * 0.99), np.int64),
        "clean_start_ns": starts[-1] + np.arange(4, dtype=np.int64),
    }
    usual = Settings(
        model="net",
        input="random images, seed 0",
        input_shape=_X,
        batchsize=4,
        phase="train",
        loss="softmax_cross_entropy",
        optimizer="MomentumSGD",
        train_mode=True,
        trials=n_trials,
        clean_trials=4,
        seed=0,
        command="python profile.py --phase train",
    )
    values["settings"] = replace(usual, **(settings or {}))
    return Recording(**values | changes)


@pytest.fixture(autouse=True, scope="session")
def quick_calibration() -> Iterator[None]:
    """Skip calibrations, which take 0.1 s. Tests of calibrations undo this."""
    from chainer_profile.measure import calibration, iteration_writer, layer_timer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_timer, "calibrate", lambda *_: CALIBRATION)
        for module in (iteration_writer, calibration):
            patch.setattr(module, "calibrated", lambda *_: CALIBRATION)
        yield
