"""Makes an exported model take any batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.equality import TOLERANCE, difference, other_inputs, outputs_of
from chainer_profile.engines.onnx.nodes import read_origin, write_origin
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine

#: Name of the dimension.
BATCH = "batch"


def take_any_batch(engine: OnnxRuntimeEngine) -> None:
    """Make an engine's model take any batch size, if its outputs for a larger batch are right.

    Raises:
        EngineError: The network or the model takes this batch size alone.
    """
    network = engine.network
    larger = larger_batch(network)
    try:
        expected = outputs_of(larger.model, larger.inputs)
    except Exception as error:  # the network's own code
        raise EngineError(f"the network accepts no other: {one_line(error)}") from error
    other = OnnxRuntimeEngine()
    try:
        other.start(larger, with_any_batch(engine.model, network, expected))
        largest = difference(expected, other.run(larger.inputs))
    except Exception as error:  # the runtime's, of many kinds
        raise EngineError(f"the model has a fixed batch size: {one_line(error)}") from error
    if not largest.relative <= TOLERANCE:
        raise EngineError("for another batch size its outputs differ from Chainer's")
    engine.start(network, other.model)


def larger_batch(network: Network) -> Network:
    """The network with one more input in its batch, and other values."""
    sizes = {x.shape[0] if x.ndim else 0 for x in network.inputs}
    if len(sizes) != 1 or 0 in sizes:
        raise EngineError("its inputs have no common batch size")
    others = other_inputs(network.inputs)
    pairs = zip(network.inputs, others, strict=True)
    inputs = tuple(np.concatenate([y, x[:1]]) for x, y in pairs)
    return replace(network, inputs=inputs)


def with_any_batch(model: Any, network: Network, outputs: Sequence[Any]) -> Any:
    """A copy of a model for any batch size, which may be wrong for another than the model's."""
    import onnx

    batch = int(network.inputs[0].shape[0])
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*inferred.input, *inferred.output, *inferred.value_info]
    }
    made = type(model)()
    made.CopyFrom(model)
    graph = made.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes.update((name, list(tensor.dims)) for name, tensor in constants.items())
    for node in graph.node:
        change = _CHANGES.get(node.op_type)
        if change is None or node.input[1] not in constants:
            continue
        given, wanted = shapes.get(node.input[0]), shapes.get(node.output[0])
        if not given or not wanted:
            continue
        shape = change(given, wanted, batch)
        name = f"{node.name}<{BATCH}"
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), name))
        node.input[1] = name
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:], graph.value_info[:]
    graph.initializer.extend(kept)
    for value in graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    for value, array in zip(graph.output, outputs, strict=True):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value != array.shape[0]:
            dims[0].dim_param = BATCH
    write_origin(made, replace(read_origin(made), any_batch=True))
    return made


def _reshape(given: list[int], wanted: list[int], batch: int) -> list[int]:
    if given[0] == wanted[0]:
        return [0, *wanted[1:]]  # as many as there are
    return [-1, *wanted[1:]] if wanted[0] % batch == 0 and 0 not in wanted[1:] else wanted


def _expand(given: list[int], wanted: list[int], batch: int) -> list[int]:
    alike = len(given) == len(wanted) and given[0] == wanted[0]
    return [1, *wanted[1:]] if alike else wanted


_CHANGES = {"Reshape": _reshape, "Expand": _expand}
