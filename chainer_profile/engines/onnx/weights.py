"""Comparing the weights in an exported model with the network's."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainer_profile.engines.equality import host_copies


def other_parameter(model: Any, network: Any) -> str:
    """The path of the first parameter with other values in an ONNX model; empty if all are equal.

    Only parameters with the exporter's names are compared: other programs may have changed the
    model.
    """
    import onnx
    from onnx_chainer.onnx_helper import cleanse_param_name

    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for path, parameter in sorted(network.namedparams(include_uninit=False)):
        tensor = tensors.get(cleanse_param_name(path))
        if tensor is None or tuple(tensor.dims) != parameter.shape:
            continue
        (own,) = host_copies((parameter.array,))
        if not np.array_equal(onnx.numpy_helper.to_array(tensor), own, equal_nan=True):
            return str(path)
    return ""
