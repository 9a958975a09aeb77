"""Batch normalisations in an ONNX model, folded into the convolutions before them.

OpenVINO does the same by itself, but the nodes that it makes for it have names of no use.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def fold_normalisations(model: Any) -> None:
    """Fold every normalisation that is all that takes a convolution's output.

    The convolution then gives the normalisation's output and has its name.

    Args:
        model: An ONNX model, which is changed.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses: dict[str, int] = {value.name: 1 for value in graph.output}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    makers = {name: node for node in graph.node for name in node.output}

    def array(name: str) -> Any:
        return numpy_helper.to_array(constants[name]).astype(np.float64)

    folded = []
    for node in graph.node:
        if node.op_type != "BatchNormalization":
            continue
        convolution = makers.get(node.input[0])
        if convolution is None or convolution.op_type != "Conv" or uses[node.input[0]] != 1:
            continue
        taken = (*convolution.input[1:], *node.input[1:])
        if any(name not in constants for name in taken):
            continue
        weight = array(convolution.input[1])
        bias = array(convolution.input[2]) if len(convolution.input) > 2 else 0.0
        gamma, beta, mean, variance = map(array, node.input[1:])
        eps = helper.get_node_attr_value(node, "epsilon")
        factor = gamma / np.sqrt(variance + eps)
        dtype = helper.tensor_dtype_to_np_dtype(constants[convolution.input[1]].data_type)
        names = [f"{node.name}<{number}" for number in (1, 2)]
        arrays = [
            weight * factor.reshape(-1, *([1] * (weight.ndim - 1))),
            beta + (bias - mean) * factor,
        ]
        graph.initializer.extend(
            numpy_helper.from_array(one.astype(dtype), name)
            for one, name in zip(arrays, names, strict=True)
        )
        convolution.name = node.name
        convolution.input[1:] = names
        convolution.output[:] = node.output
        folded.append(node)
    for node in folded:
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    parts = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(parts)
