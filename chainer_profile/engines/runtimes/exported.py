"""What the engines share that compile an exported network for a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.files import replacing
from chainer_profile.engines.onnx.fusion import Step
from chainer_profile.engines.onnx.nodes import Origin, check_inputs
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network

#: Nodes, their int64 nanoseconds (trials, nodes), and those of the trials.
Timed = tuple[Sequence[EngineNode], NDArray[Any], NDArray[Any]]


class ExportedEngine:
    """An engine on an exported network, whose nodes are named after Chainer's layers."""

    #: What tables call it, which is the runtime's package; and what messages call it.
    name: str
    #: What its files end with.
    suffix: str
    title: str
    network: Network
    model: Any
    #: What the model says of Chainer's layers; None for a model that others exported.
    origin: Origin | None

    @property
    def version(self) -> str:
        return str(import_module(self.name).__version__).partition("-")[0]

    # -- what a runtime does in its own way

    #: Refuses a precision that it cannot compute in, before anything is exported.
    _check: Callable[[str], None]
    #: Its model of an exported one, or in a file.
    _converted: Callable[[Any], Any]
    _read: Callable[[Path], Any]
    #: What is written to save the model; the file that the user names comes last.
    _files: Callable[[Path], Mapping[Path, bytes]]
    #: Where a model comes from, and the nodes of the network as it was exported.
    _said: Callable[[Any], tuple[Origin | None, list[Step]]]
    #: Shapes of a model's inputs; None for a dimension that is not fixed.
    _shapes: Callable[[Any], list[tuple[int | None, ...]]]
    #: A model ready to run; nothing but the settings may change what is measured.
    _compiled: Callable[..., Any]
    #: Runs this compiled model from now on.
    _use: Callable[[Any], None]
    #: One forward pass; the outputs are new arrays.
    run: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    #: Arrays within the model by their names, as far as it still has them.
    _tensors: Callable[[Sequence[str], tuple[Any, ...]], dict[str, Any]]
    #: Times of its nodes.
    _timed: Callable[[tuple[Any, ...], int], Timed]

    # -- getting ready

    def prepare(self, network: Network) -> None:
        """Export the network and compile it."""
        from chainer_profile.engines.onnx.export import export_model

        self._refuse(network)
        self.start(network, self._converted(export_model(network)))

    def load(self, network: Network, path: Path) -> None:
        """Make the engine ready from a file; weights and all are the file's."""
        self._refuse(network)
        self.start(network, self._read(path))

    def _refuse(self, network: Network) -> None:
        if network.gpu:
            raise EngineError("it runs on CPUs only here: leave out --gpu")
        self._check(network.precision)

    def start(self, network: Network, model: Any) -> None:
        """Run a model of a network from now on."""
        origin, steps = self._said(model)
        if origin is None:
            check_inputs(self._shapes(model), network)
        else:
            origin.check(network)
        self.network, self.model, self.origin, self._steps = network, model, origin, steps
        self._use(self._compile(model))

    def save(self, path: Path) -> None:
        """Write the model into the files of this name."""
        for place, content in self._files(path).items():
            with replacing(place) as file:
                file.write(content)

    def _compile(self, model: Any, **settings: Any) -> Any:
        try:
            return self._compiled(model, **settings)
        except Exception as error:  # of many kinds
            raise EngineError(f"{self.title} cannot compile it: {one_line(error)}") from error

    # -- layers

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of its nodes; layers that none of them does are gone."""
        nodes, node_ns, run_ns = self._timed(inputs, trials)
        done = {index for node in nodes for index in node.layers}
        gone = tuple(index for index in range(len(self.network.layers)) if index not in done)
        return EngineProfile(tuple(nodes), node_ns, run_ns, gone)

    def intermediates(self, inputs: tuple[Any, ...]) -> dict[int, Any]:
        """Output arrays by index of Chainer's layer, of those that have nodes."""
        # A layer of several nodes gives what its last one does.
        names = {
            index: step.outputs[0] for step in self._steps for index in self._layers_at(step)[:1]
        }
        if not names:
            return {}
        arrays = self._tensors(list(dict.fromkeys(names.values())), inputs)
        return {index: arrays[name] for index, name in names.items() if name in arrays}

    def _node(self, name: str, kind: str, places: Iterable[int]) -> EngineNode:
        """A node that does these steps of the exported network."""
        layers = {index for place in places for index in self._layers_at(self._steps[place])}
        return EngineNode(name, kind, tuple(sorted(layers)))

    def _layers_at(self, step: Step) -> tuple[int, ...]:
        return () if self.origin is None else self.origin.layers_of(step.name)
