"""The engine ``chainer-fast``: :func:`chainer_profile.accelerate` measured beside the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chainer_profile.engines.protocol import EngineError, EngineProfile, Network
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from chainer_profile.kernels.accelerate import accelerate


class FastEngine(ChainerEngine):
    """Chainer's own forward pass on faster kernels, by NumPy alone."""

    name = "chainer-fast"

    def __init__(self) -> None:
        super().__init__()
        self._is_fast = False

    def prepare(self, network: Network) -> None:
        """Nothing has to be made ready."""
        if network.gpu:
            raise EngineError("has kernels for the CPU alone")
        if network.precision != "fp32":
            raise EngineError("computes in fp32 only: leave out --precision")
        super().prepare(network)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Within it Chainer is fast: putting kernels in its place takes a while."""
        with accelerate():
            self._is_fast = True
            try:
                yield
            finally:
                self._is_fast = False

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass."""
        if self._is_fast:
            return super().run(inputs)
        with self.block():
            return super().run(inputs)

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of Chainer's layers under the recorder."""
        with self.block():
            return super().layers(inputs, trials)
