"""What the engines share that compile an exported network for a CPU."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.onnx.files import layer_outputs
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from chainer_profile.engines.onnx.fusion import Step
    from chainer_profile.engines.onnx.nodes import Origin


class ExportedEngine:
    """An engine on an exported network, whose nodes are named after Chainer's layers.

    A runtime says what it cannot do (``_check``), makes its model of an exported one or of a file
    (``_converted``, ``_read``), tells whose layers the model's nodes are (``_described``), and
    compiles it (``_compile``).

    Attributes:
        title: What messages call the runtime.
    """

    title = ""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._model: Any = None
        self._compiled: Any = None
        #: What the model says of Chainer's layers; None for a model that others exported.
        self._origin: Origin | None = None
        #: The nodes of the network as it was exported, by which its parts are found again.
        self._steps: list[Step] = []

    # -- what a runtime does in its own way

    def _check(self, network: Network) -> None:
        """Refuse what the runtime cannot do, before anything is exported."""
        if network.gpu:
            raise EngineError("it runs on CPUs only here: leave out --gpu")

    def _converted(self, exported: Any) -> Any:
        """The runtime's model of an exported one."""
        return exported

    def _read(self, path: Path) -> Any:
        """The runtime's model in a file."""
        raise NotImplementedError

    def _described(self, model: Any, network: Network) -> tuple[Origin | None, list[Step]]:
        """What a model says of itself, after a check that it is for this network."""
        raise NotImplementedError

    def _compile(self, model: Any, **settings: Any) -> Any:
        """Compile a model; nothing but the settings may change what is measured."""
        raise NotImplementedError

    def _tensors(self, names: Sequence[str], inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Arrays within the model by their names, as far as it still has them."""
        raise NotImplementedError

    # -- getting ready

    def prepare(self, network: Network) -> None:
        """Export the network and compile it.

        Raises:
            EngineError: It cannot be exported, or the runtime cannot run it.
        """
        from chainer_profile.engines.onnx.export import export_model

        self._check(network)
        self._start(network, self._converted(export_model(network)))

    def load(self, network: Network, path: Path) -> None:
        """Make the engine ready from a file; weights and all are the file's.

        Raises:
            EngineError: The file cannot be read, or is not for this network and its inputs.
        """
        self._check(network)
        self._start(network, self._read(path))

    def _start(self, network: Network, model: Any) -> None:
        self._network = network
        self._origin, self._steps = self._described(model, network)
        self._model = model
        self._compiled = self._compile(model)

    @property
    def _known(self) -> Network:
        assert self._network is not None, "prepare or load comes first"
        return self._network

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Turn the runtime's exceptions, of many kinds, into one that says what it cannot do."""
        try:
            yield
        except Exception as error:
            raise EngineError(f"{self.title} cannot {what} it: {one_line(error)}") from error

    # -- layers

    def intermediates(self, inputs: tuple[Any, ...]) -> dict[int, Any]:
        """Output arrays by index of Chainer's layer, of those that have nodes."""
        if self._origin is None:
            return {}
        names = layer_outputs(self._steps, self._origin)
        arrays = self._tensors(list(dict.fromkeys(names.values())), inputs)
        return {index: arrays[name] for index, name in names.items() if name in arrays}

    def _layers_of(self, steps: Iterable[int]) -> tuple[int, ...]:
        """Indices of Chainer's layers that steps of the exported network belong to, ascending."""
        if self._origin is None:
            return ()
        names = [self._steps[place].name for place in steps]
        return tuple(sorted({index for name in names for index in self._origin.layers_of(name)}))

    def _profile_of(
        self, nodes: Sequence[EngineNode], node_ns: NDArray[Any], run_ns: NDArray[Any]
    ) -> EngineProfile:
        """The profile of nodes; layers that none of them does are gone."""
        done = {index for node in nodes for index in node.layers}
        gone = tuple(index for index in range(len(self._known.layers)) if index not in done)
        return EngineProfile(tuple(nodes), node_ns, run_ns, gone)
