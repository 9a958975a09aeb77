"""Engines that take exact times on a fake clock, and made-up results of races."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chainer_profile.engines.engine_recording import engine_recording
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile
from chainer_profile.engines.results import EngineResult, EnginesRun, OutputDifference
from chainer_profile.record.recording import Environment, Layer, Recording, Settings
from tests.conftest import FakeClock, make_layers

X = np.arange(6, dtype=np.float32).reshape(1, 6)


def double(x):
    return x * 2


def profile(times_us, covers, run_us, trials=4):
    """Profile of nodes with constant times, each with the layers that it covers."""
    nodes = tuple(EngineNode(f"n{i}", "Fused", layers) for i, layers in enumerate(covers))
    node_ns = np.tile(np.array(times_us, np.int64) * 1000, (trials, 1))
    return EngineProfile(nodes, node_ns, np.full(trials, run_us * 1000, np.int64))


@dataclass
class FakeEngine:
    """An engine that applies a function, in ``run_ns`` on the clock."""

    clock: FakeClock
    run_ns: int = 100
    name: str = "fake"
    function: Callable[[Any], Any] = double
    fails_at: int | None = None
    fails_to_prepare: str = ""
    node_profile: EngineProfile | None = None
    log: list[str] = field(default_factory=list)
    calls: int = 0
    layer_trials: int = 0

    def prepare(self, network):
        self.clock.advance(1_000_000)
        if self.fails_to_prepare:
            raise EngineError(self.fails_to_prepare)

    def run(self, inputs):
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("out\nof order")
        self.log.append(self.name)
        self.clock.advance(self.run_ns)
        return (self.function(*inputs),)

    def layers(self, inputs, trials):
        self.layer_trials = trials
        return self.node_profile


ENVIRONMENT = Environment(
    processor="A processor", usable_cores=2, python="CPython 3.11.7", chainer="1.0"
)
SETTINGS = Settings(
    model="chain",
    input="random image, seed 0",
    input_shape=(1, 16, 32, 32),
    trials=60,
    clean_trials=60,
    warmups=10,
    seed=0,
    threads=1,
    command="python profile.py engines --model chain",
)


def layers(n_layers=6):
    """Layers of Chainer: convolution, normalisation, ReLU. Convolutions have most of the work."""
    return tuple(
        Layer(**{**vars(layer), "flops": 600 if layer.index % 3 == 0 else 6, "macs": 300})
        for layer in make_layers(n_layers)
    )


def result(name, time_us, **changes):
    """Result of an engine with 60 trials in 30 rounds, whose times vary by up to 3 %."""
    values = {
        "name": name,
        "version": "1.0",
        "folder": name,
        "prepare_s": 0.5,
        "clean_ns": np.repeat(time_us * (1000 + np.arange(30) % 7 * 10 - 30), 2).astype(np.int64),
        "block": 2,
        "differences": (OutputDifference(2e-6, 2.0), OutputDifference(1e-6, 2.0)),
        "tolerance": 1e-4,
    }
    return EngineResult(**(values | changes))


def _trials(time_us):
    clean_ns = result("", time_us).clean_ns
    starts = np.cumsum(clean_ns) * 2
    return {"clean_ns": clean_ns, "clean_start_ns": starts, "environment": ENVIRONMENT}


def chainer_recording(node_profile, settings, **race_results):
    """Recording of Chainer with these node times."""
    times = {"self_ns": node_profile.node_ns, "trial_ns": node_profile.run_ns}
    return Recording(
        layers()[: len(node_profile.nodes)], settings=settings, **times, **race_results
    )


def recordings():
    """Chainer with 1,000 us in six layers and 200 us between them; an engine with three nodes."""
    unfused = profile([400, 100, 50, 350, 80, 20], [(i,) for i in range(6)], 1200)
    chainer = chainer_recording(unfused, SETTINGS, **_trials(1000))
    fused = profile([60, 5, 30], [(0, 1, 2), (), (3, 4)], 100)
    settings = Settings(**{**vars(SETTINGS), "engine": "fast 1.0"})
    fused = EngineProfile(fused.nodes, fused.node_ns, fused.run_ns, gone=(5,))
    fast = replace(engine_recording(fused, layers(), settings), **_trials(100))
    return {"chainer": chainer, "fast": fast}


def fast(**changes):
    """Recording of the fast engine, with 40 profiled and 30 unprofiled trials."""
    recording = recordings()["fast"]
    values = {
        "self_ns": np.tile(recording.self_ns, (10, 1)),
        "trial_ns": np.tile(recording.trial_ns, 10),
        "clean_ns": np.full(30, 90_000),
        "clean_start_ns": np.arange(30) * 90_000,
    }
    return replace(recording, **(values | changes))


def make_run(*more, **changes):
    """A run of Chainer, an engine ten times as fast, and further results."""
    chainer = result("chainer", 1000, differences=(OutputDifference(0.0, 2.0),))
    values = {
        "engines": (chainer, result("fast", 100), *more),
        "n_layers": 6,
        "settings": SETTINGS,
        "environment": ENVIRONMENT,
    }
    return EnginesRun(**(values | changes))


MISSING = EngineResult("absent", error="not installed", install="pip install absent")
WRONG = result(
    "hasty",
    50,
    folder="",
    differences=(OutputDifference(0.5, 2.0),),
    worst_layer="the first layer that differs is 3_Convolution2DFunction at /res2/1/conv1",
)
