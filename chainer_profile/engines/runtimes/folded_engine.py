"""The engine ``folded``: :func:`chainer_profile.optimize` measured beside the others."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import replacing
from chainer_profile.engines.equality import in_test_mode, outputs_of
from chainer_profile.engines.folded.optimize import optimize
from chainer_profile.engines.protocol import (
    EngineError,
    EngineNode,
    EngineProfile,
    Network,
)
from chainer_profile.engines.runtimes.chainer_engine import synchronize
from chainer_profile.networks.weights import load_weights

if TYPE_CHECKING:
    from pathlib import Path

    from chainer_profile.engines.folded.fold import Node


class FoldedEngine:
    """The network as :func:`chainer_profile.optimize` gives it. Its files are Chainer's."""

    name = "folded"
    suffix = ".npz"

    def __init__(self) -> None:
        self._model: Any = None
        self._layers = 0
        self._xp: Any = np

    @property
    def version(self) -> str:
        """Chainer's version, and that of NumPy or CuPy."""
        arrays = "NumPy" if self._xp is np else "CuPy"
        return f"Chainer {chainer.__version__}, {arrays} {self._xp.__version__}"

    def prepare(self, network: Network) -> None:
        """Fold a copy of the network.

        Raises:
            EngineError: The network's calls depend on its data, or the precision is not float32.
        """
        if network.precision != "fp32":
            raise EngineError(
                f"folds in fp32 only, as NumPy has no fast {network.precision}: leave out "
                "--precision"
            )
        self._take(network)
        self._model.plan(network.inputs)

    def _take(self, network: Network) -> None:
        self._model = optimize(network.model)
        # Chainer gives every parameter a gradient as large as it, which no engine needs.
        self._model.cleargrads()
        self._layers = len(network.layers)
        self._xp = chainer.backend.get_array_module(*network.inputs)

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass."""
        outputs = outputs_of(self._model, inputs)
        synchronize(outputs)
        return outputs

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of the nodes of the plan; None on a GPU, where the host only launches them."""
        plan = self._model.plan(inputs)
        if not isinstance(inputs[0], np.ndarray):
            return None
        stamps: list[int] = []

        def read() -> None:
            stamps.append(perf_counter_ns())

        runs = []
        with in_test_mode():
            for _ in range(trials):
                begin = perf_counter_ns()
                self._model.timed(inputs, read)
                runs.append(perf_counter_ns() - begin)
        spans = np.diff(np.array(stamps, np.int64).reshape(trials, -1), axis=1)
        own = [EngineNode("input", "copy"), EngineNode("output", "copy")]
        nodes = [own[0], *(_engine_node(step.node) for step in plan.steps), own[1]]
        # A view of another array takes no time.
        real = [True, *(step.end > step.begin for step in plan.steps), True]
        kept = tuple(node for node, is_real in zip(nodes, real, strict=True) if is_real)
        done = {index for node in kept for index in node.layers}
        return EngineProfile(
            kept,
            np.ascontiguousarray(spans[:, np.array(real)]),
            np.array(runs, np.int64),
            tuple(index for index in range(self._layers) if index not in done),
        )

    def save(self, path: Path) -> None:
        """Save the network's parameters with Chainer's ``save_npz``."""
        with replacing(path) as file:
            chainer.serializers.save_npz(file, self._model)

    def load(self, network: Network, path: Path) -> None:
        """Fold the network with the parameters of a file of ``save_npz``.

        Raises:
            EngineError: The file cannot be read, or is of another network.
        """
        self._take(network)
        try:
            load_weights(self._model, path)
        except ProfileError as error:
            raise EngineError(str(error)) from error
        self._model.plan(network.inputs)

    def intermediates(self, inputs: tuple[Any, ...]) -> dict[int, Any]:
        """What the nodes give, by the last layer of each."""
        return {
            max(node.layers): array
            for node, array in self._model.plan(inputs).intermediates(inputs)
            if node.layers
        }


def _engine_node(node: Node) -> EngineNode:
    kinds = "+".join([node.kind, *(after.kind for after in node.after)])
    # A change of shape outside of all functions is no layer.
    name = f"{min(node.layers)}_{node.kind}" if node.layers else node.kind
    return EngineNode(name, kinds, tuple(sorted(node.layers)))
