"""What the engines share that compile an exported network for a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from chainer_profile.engines.onnx.nodes import Origin


class ExportedEngine:
    """An engine on an exported network, whose nodes are named after Chainer's layers."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._model: Any = None
        #: What the model says of Chainer's layers; None for a model that others exported.
        self._origin: Origin | None = None

    def _require_cpu(self, network: Network) -> None:
        if network.gpu:
            raise EngineError("it runs on CPUs only here: leave out --gpu")

    @property
    def _known(self) -> Network:
        assert self._network is not None, "prepare or load comes first"
        return self._network

    def _layers(self, names: Iterable[str]) -> tuple[int, ...]:
        """Indices of Chainer's layers that exported nodes of these names belong to, ascending."""
        assert self._origin is not None
        return tuple(sorted({index for name in names for index in self._origin.layers_of(name)}))

    def _profile_of(
        self, nodes: Sequence[EngineNode], node_ns: NDArray[Any], run_ns: NDArray[Any]
    ) -> EngineProfile:
        """The profile of nodes; layers that none of them does are gone."""
        done = {index for node in nodes for index in node.layers}
        gone = tuple(index for index in range(len(self._known.layers)) if index not in done)
        return EngineProfile(tuple(nodes), node_ns, run_ns, gone)
