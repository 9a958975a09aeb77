"""Exports a Chainer network as an ONNX model with nodes named after Chainer's layers.

``onnx_chainer``, which is installed with Chainer, converts one function at a time. This module
names the layer of each node, and refuses a function that ONNX cannot express. Python code between
functions may read numbers, which become constants in the model. To find such code, the caller must
compare outputs for other inputs (:mod:`..equality`).
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import chainer
import chainer.functions as F
import onnx

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.units import format_shapes
from chainer_profile.engines.equality import in_test_mode, other_inputs
from chainer_profile.engines.onnx.nodes import Origin, node_name, write_origin
from chainer_profile.engines.protocol import EngineError, Network, leaves
from chainer_profile.measure.hooks import WalkHook
from chainer_profile.record.recording import Layer, Shape

#: The newest version of ONNX's operators that the exporter supports. Newer runtimes accept it.
OPSET = 11


def export_model(network: Network) -> onnx.ModelProto:
    """Export a network in test mode as an ONNX model for inputs of exactly these shapes.

    Nodes and tensors between them are named ``21_ReLU@/res4/0``, with ``#0``, ``#1``, ... if a
    layer needs several nodes. The inputs are named ``input``, or ``input_0``, ``input_1``, ...; the
    outputs ``output``, or ``output_0``, ``output_1``, ... Parameters are initializers, not inputs.
    The model also contains an :class:`.nodes.Origin`.

    Raises:
        EngineError: The network cannot be exported.
    """
    # This run initialises the parameters, and finds the functions of the network.
    calls = _calls_of(network, network.inputs)
    if difference := _difference(calls.names, [layer.function for layer in network.layers]):
        raise EngineError(f"the network does not always make the same calls: {difference}")
    try:
        others = _calls_of(network, other_inputs(network.inputs))
    except Exception as error:  # from the network's code
        raise EngineError(
            f"the network fails on other inputs of this shape: {one_line(error)}"
        ) from error
    if difference := _difference(calls.names, others.names):
        raise EngineError(f"the network's calls depend on its data: {difference}")
    return _Exporter(network).export(calls.kinds)


def _calls_of(network: Network, inputs: Sequence[Any]) -> _Calls:
    """Record the calls of a forward pass."""
    calls = _Calls(needs_graph=False)
    with calls.hook, in_test_mode():
        network.model(*inputs)
    return calls


@dataclass(eq=False)
class _Call:
    """A function call, with its nested calls."""

    function: str
    input_shapes: tuple[Shape, ...]
    inner: list[_Call] = field(default_factory=list)
    #: Index of the layer; None for a call that only the exporter makes.
    index: int | None = None

    def layers(self) -> Iterator[int]:
        """Yield the indices of the layers of this call and of the nested calls."""
        if self.index is not None:
            yield self.index
        for call in self.inner:
            yield from call.layers()


class _Calls:
    """Records all calls in order, and keeps their function objects alive."""

    def __init__(self, needs_graph: bool) -> None:
        #: Names of the functions' classes, by which the exporter finds converters.
        self.kinds: set[str] = set()
        self.hook = WalkHook(self._begin, self._end)
        self._needs_graph = needs_graph
        self._calls: list[_Call] = []
        self._running: list[_Call] = []
        #: Calls by the identity of the function object. The object is stored, too, to stay alive.
        self._by_function: dict[int, tuple[Any, _Call]] = {}

    @property
    def names(self) -> list[str]:
        return [call.function for call in self._calls]

    def _begin(self, function: Any, in_data: tuple[Any, ...], *_: Any) -> None:
        # The exporter wraps some operations that are not function nodes in its own functions.
        exporters_name = getattr(function, "custom_function_node_name", None)
        shapes = tuple(tuple(map(int, array.shape)) for array in in_data if array is not None)
        call = _Call(exporters_name or function._impl_name, shapes)
        if self._running:
            self._running[-1].inner.append(call)
        elif self._needs_graph and not chainer.config.enable_backprop:
            raise EngineError(
                f"{call.function}, call {len(self._calls)}, runs in no_backprop_mode: remove this "
                "mode from the network, because functions without a graph cannot be exported"
            )
        if not exporters_name:
            self._calls.append(call)
        self._running.append(call)
        for node in (function, getattr(function, "function", None)):  # an old-style function
            if node is not None:
                self._by_function[id(node)] = node, call
                self.kinds.add(type(node).__name__)

    def _end(self, *_: Any) -> None:
        self._running.pop()

    def find(self, function: Any) -> _Call:
        """Find the call of a function object; for an unknown one, make a call without layers."""
        _, call = self._by_function.get(id(function), (None, None))
        return call or _Call(type(function).__name__, ())

    def match(self, layers: Sequence[Layer]) -> None:
        """Set the layer index of each call; raise EngineError if a layer has no call."""
        # The exporter passes variables to the network, but the profiled run passed arrays. So
        # arithmetic on inputs, mostly at the beginning, is a call here but not a layer.
        waiting = list(layers)
        for call in reversed(self._calls):
            if not waiting:
                return
            layer = waiting[-1]
            if call.function == layer.function and _same_inputs(
                call.function, call.input_shapes, layer.input_shapes
            ):
                call.index = waiting.pop().index
        if waiting:
            layer = waiting[-1]
            raise EngineError(
                "the network treats a chainer.Variable differently from an array: given a "
                f"Variable it does not call {layer.function} of "
                f"{format_shapes(layer.input_shapes)} (layer {layer.label} at {layer.path})"
            )


class _ExportedNetwork:
    """Wraps a network for the exporter: the outputs are a list of distinct variables."""

    def __init__(self, network: Network, calls: _Calls) -> None:
        self._network, self._calls = network, calls
        self.namedlinks, self.namedparams = network.model.namedlinks, network.model.namedparams
        #: Set by the call, which shows the number of outputs; the exporter reads it after the call.
        self.output_names: list[str] = []

    def __call__(self, *inputs: Any) -> list[Any]:
        with self._calls.hook:
            outputs = list(leaves(self._network.model(*inputs)))
        for output in outputs:
            if not isinstance(output, chainer.Variable):
                raise EngineError(
                    f"the network returns a {type(output).__name__}, but only a chainer.Variable "
                    "can be exported"
                )
        self._calls.match(self._network.layers)
        self.output_names += _names("output", len(outputs))
        seen: set[int] = set()
        for index, output in enumerate(outputs):
            if id(output) in seen or output.creator_node is None:
                outputs[index] = F.identity(output)
            seen.add(id(output))
        return outputs


class _Exporter:
    """Exports one network by ``onnx_chainer``, and names nodes after layers."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._calls = _Calls(needs_graph=True)
        #: For nodes that compute several layers, these layers by the name of the node.
        self._covers: dict[str, tuple[int, ...]] = {}
        #: Number of nodes without a layer.
        self._n_extra = 0

    def export(self, kinds: set[str]) -> onnx.ModelProto:
        """Export the network; ``kinds`` are the names of its functions' classes."""
        import onnx_chainer
        from onnx_chainer import mapping

        from chainer_profile.engines.onnx.converters import CONVERTERS

        if not sys.modules["onnx_chainer.export"]._available:
            raise EngineError(
                "onnx_chainer was imported without onnx, or before chainer_profile: import "
                "chainer_profile first"
            )
        network = self._network
        model = _ExportedNetwork(network, self._calls)
        converters = {**mapping.converters, **CONVERTERS}
        input_names = _names("input", len(network.inputs))
        # The exporter warns that it is experimental, and that it was tested with older versions.
        with Replacements() as replacements, warnings.catch_warnings():
            replacements.put(chainer, "disable_experimental_feature_warning", True)
            warnings.simplefilter("ignore")
            try:
                exported = onnx_chainer.export(
                    model,
                    list(network.inputs),
                    graph_name=network.name or "network",
                    opset_version=OPSET,
                    input_names=input_names,
                    output_names=model.output_names,
                    external_converters={
                        kind: self._converter(kind, converters.get(kind))
                        for kind in kinds | converters.keys()
                    },
                )
            except EngineError:
                raise
            except Exception as error:
                raise EngineError(f"the ONNX exporter failed: {one_line(error)}") from error
        _tidy(exported, input_names)
        write_origin(exported, Origin.of(network, self._covers))
        return exported

    def _converter(
        self, kind: str, original: Callable[[Any], Sequence[Any]] | None
    ) -> Callable[[Any], list[Any]]:
        """Wrap a converter of functions so that it names nodes after the layer.

        Without an original converter, the first call raises EngineError.
        """

        def convert(params: Any) -> list[Any]:
            call = self._calls.find(params.func)
            layers = tuple(sorted(call.layers()))
            first = self._network.layers[layers[0]] if layers else None
            where = f" (layer {first.label} at {first.path})" if first else ""
            if original is None:
                raise EngineError(f"the ONNX exporter does not know {kind}{where}")
            try:
                nodes = list(original(params))
            except Exception as error:
                raise EngineError(
                    f"the ONNX exporter cannot express {kind}{where}: {one_line(error)}"
                ) from error
            if first:
                label = node_name(first.index, call.function, first.path)
                if len(layers) > 1:
                    self._covers[label] = layers
            else:
                self._n_extra += 1
                label = f"{call.function} {self._n_extra}"
            for number, node in enumerate(nodes):
                node.name = label if len(nodes) == 1 else f"{label}#{number}"
            return nodes

        return convert


#: Chainer swaps the inputs of these operations if the first one is an array: ``x + b`` is then
#: ``b.__radd__(x)``.
_SWAPPED = ("Add", "Mul")


def _same_inputs(function: str, some: Sequence[Shape], others: Sequence[Shape]) -> bool:
    """Whether a function has inputs of the same shapes; operands may be swapped."""
    if function in _SWAPPED:
        return sorted(some) == sorted(others)
    return tuple(some) == tuple(others)


def _names(name: str, count: int) -> list[str]:
    """Number a name: ``input``, or ``input_0`` and ``input_1`` for a count of 2."""
    return [name] if count == 1 else [f"{name}_{number}" for number in range(count)]


def _difference(names: Sequence[str], others: Sequence[str]) -> str:
    """Describe the difference of two sequences of calls; empty if they are equal."""
    for index, (name, other) in enumerate(zip(names, others, strict=False)):
        if name != other:
            return f"call {index} is {name} in one run and {other} in another"
    if len(names) != len(others):
        return f"there are {len(names)} calls in one run and {len(others)} in another"
    return ""


def _tidy(model: Any, inputs: list[str]) -> None:
    """Convert constants to initializers, name tensors after their nodes, and check the model."""
    graph = model.graph
    # A link that is called twice has duplicate initializers for its statistics.
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(onnx.helper.get_node_attr_value(node, "value"))
            tensor.name = node.output[0]
            constants[tensor.name] = tensor
        else:
            nodes.append(node)

    names = {value.name: value.name for value in graph.output}
    for node in nodes:
        for number, name in enumerate(node.output):
            names.setdefault(name, node.name if len(node.output) == 1 else f"{node.name}:{number}")
    used = []
    for node in nodes:
        for number, name in enumerate(node.input):
            if name in constants and name not in names:
                # The exporter names parameters by their paths, and other constants by numbers.
                is_parameter = name.startswith("param_")
                names[name] = name if is_parameter else f"{node.name}<{number}"
                constants[name].name = names[name]
                used.append(constants[name])
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    values = [value for value in graph.input if value.name in inputs]
    for target, items in ((graph.node, nodes), (graph.initializer, used), (graph.input, values)):
        copies = [copy.copy(item) for item in items]
        del target[:]
        target.extend(copies)
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise EngineError(f"the ONNX exporter's model is not valid: {one_line(error)}") from error
