"""Changes an exported model so that it accepts any batch size."""

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

#: Name of the batch dimension in the model.
BATCH = "batch"


def take_any_batch(engine: OnnxRuntimeEngine) -> None:
    """Make an engine's model accept any batch size, if its outputs for a larger batch are correct.

    Raises:
        EngineError: The network or the model accepts only its batch size.
    """
    network = engine.network
    larger = larger_batch(network)
    try:
        expected = outputs_of(larger.model, larger.inputs)
    except Exception as error:  # from the network's code
        raise EngineError(f"the network accepts no other: {one_line(error)}") from error
    other = OnnxRuntimeEngine()
    try:
        other.start(larger, with_any_batch(engine.model, network, expected))
        largest = difference(expected, other.run(larger.inputs))
    except Exception as error:  # the runtime raises many kinds
        raise EngineError(f"the model has a fixed batch size: {one_line(error)}") from error
    if not largest.relative <= TOLERANCE:
        raise EngineError("for another batch size its outputs differ from Chainer's")
    engine.start(network, other.model)


def larger_batch(network: Network) -> Network:
    """Enlarge the batch of a network by one input, with other values.

    Raises EngineError if the inputs have no common batch size.
    """
    sizes = {x.shape[0] if x.ndim else 0 for x in network.inputs}
    if len(sizes) != 1 or 0 in sizes:
        raise EngineError("its inputs have no common batch size")
    others = other_inputs(network.inputs)
    pairs = zip(network.inputs, others, strict=True)
    inputs = tuple(np.concatenate([y, x[:1]]) for x, y in pairs)
    return replace(network, inputs=inputs)


def with_any_batch(model: Any, network: Network, outputs: Sequence[Any]) -> Any:
    """Copy a model and make its batch dimension variable.

    ``outputs`` are the network's for a larger batch: they show which outputs depend on its size.
    The copy may be wrong for other batch sizes than the model's.
    """
    import onnx

    batch = int(network.inputs[0].shape[0])
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*inferred.input, *inferred.output, *inferred.value_info]
    }
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes.update((name, list(tensor.dims)) for name, tensor in constants.items())
    for node in graph.node:
        change = _CHANGES.get(node.op_type)
        if change is None or node.input[1] not in constants:
            continue
        before, after = shapes.get(node.input[0]), shapes.get(node.output[0])
        if not before or not after:
            continue
        shape = change(before, after, batch)
        name = f"{node.name}<{BATCH}"
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), name))
        node.input[1] = name
    used = {name for node in graph.node for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:], graph.value_info[:]
    graph.initializer.extend(initializers)
    for value in graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    for value, array in zip(graph.output, outputs, strict=True):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value != array.shape[0]:
            dims[0].dim_param = BATCH
    write_origin(copy, replace(read_origin(copy), any_batch=True))
    return copy


def _reshape(before: list[int], after: list[int], batch: int) -> list[int]:
    """Shape argument of a Reshape node for any batch size, from its shapes for this batch."""
    if before[0] == after[0]:
        return [0, *after[1:]]  # 0 copies the size of the input
    return [-1, *after[1:]] if after[0] % batch == 0 and 0 not in after[1:] else after


def _expand(before: list[int], after: list[int], batch: int) -> list[int]:
    """Shape argument of an Expand node for any batch size."""
    same_batch = len(before) == len(after) and before[0] == after[0]
    return [1, *after[1:]] if same_batch else after


_CHANGES = {"Reshape": _reshape, "Expand": _expand}
