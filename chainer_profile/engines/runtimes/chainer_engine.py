"""Chainer as an engine: unchanged, which is the baseline, and with faster kernels."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import chainer

from chainer_profile.engines.equality import outputs_of
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network
from chainer_profile.kernels.accelerate import Accelerated, accelerate, kernels_now
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.runner import run
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Recording, Settings


class ChainerEngine:
    """Chainer's forward pass."""

    name = "chainer"
    recording: Recording | None = None  #: The recording of the last call of :meth:`layers`.

    @property
    def version(self) -> str:
        return str(chainer.__version__)

    def prepare(self, network: Network) -> None:
        self._model = network.model
        self._clock = clock_of(device_of(network.model))

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        outputs = outputs_of(self._model, inputs)
        if self._clock.device is not None:
            self._clock.device.synchronize()
        return outputs

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        recording = run(
            make_step("forward", self._model, inputs),
            Settings(trials=trials, clean_trials=0, warmups=1),
            clock=self._clock,
            memory=False,
            choose_threads=False,
        )
        self.recording = recording
        assert recording.trial_ns is not None
        nodes = tuple(
            EngineNode(layer.label, layer.function, (layer.index,)) for layer in recording.layers
        )
        return EngineProfile(nodes, recording.self_ns, recording.trial_ns)


class FastEngine(ChainerEngine):
    """Chainer's forward pass with faster NumPy kernels."""

    name = "chainer-fast"

    def prepare(self, network: Network) -> None:
        if network.gpu:
            raise EngineError("has kernels only for the CPU")
        super().prepare(network)

    def block(self) -> Accelerated:
        """Replace the kernels once for several runs, because the replacement takes time."""
        return accelerate()

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        with nullcontext() if kernels_now() else self.block():
            return super().run(inputs)

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        with self.block():
            return super().layers(inputs, trials)
