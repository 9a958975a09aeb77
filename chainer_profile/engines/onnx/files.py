"""ONNX files: reading them, and checking that they are for a network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chainer_profile.basics.units import format_shapes
from chainer_profile.engines.onnx.fusion import Step
from chainer_profile.engines.onnx.nodes import Origin, read_origin
from chainer_profile.engines.protocol import EngineError, Network


def read_file(path: Path) -> bytes:
    """The content of a file.

    Raises:
        EngineError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise EngineError(f"there is no file {path}") from error
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror})") from error


def read_model(path: Path) -> Any:
    """The model in an ONNX file.

    Raises:
        EngineError: It cannot be read, or is no ONNX model.
    """
    import onnx

    content = read_file(path)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's, of several kinds
        raise EngineError(f"{path} is damaged, or no ONNX model") from error
    if not model.graph.node:
        raise EngineError(f"{path} is damaged, or no ONNX model: it has no nodes")
    return model


def check_model(model: Any, network: Network) -> Origin | None:
    """What a model says of Chainer's layers, after a check that it is for this network.

    None for a model that was exported by others, whose inputs fit.

    Raises:
        EngineError: It is of another network, or takes other inputs.
    """
    origin = read_origin(model)
    if origin is not None:
        origin.check(network)
        return origin
    constants = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in constants]
    # A dimension without a number fits all.
    shapes = [
        tuple(
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in value.type.tensor_type.shape.dim
        )
        for value in values
    ]
    check_foreign(shapes, network)
    return None


def check_foreign(shapes: list[tuple[int | None, ...]], network: Network) -> None:
    """Check that a network's inputs fit a model of others; None stands for any number.

    Raises:
        EngineError: They do not.
    """
    given = [tuple(map(int, array.shape)) for array in network.inputs]
    fits = len(shapes) == len(given) and all(
        len(shape) == len(other) and all(n in (None, m) for n, m in zip(shape, other, strict=True))
        for shape, other in zip(shapes, given, strict=True)
    )
    if not fits:
        words = " ".join("x".join("?" if n is None else str(n) for n in shape) for shape in shapes)
        raise EngineError(
            f"the file takes inputs of {words}, and the network's are {format_shapes(tuple(given))}"
        )


def layer_outputs(steps: Iterable[Step], origin: Origin) -> dict[int, str]:
    """Name of the tensor that every layer with nodes gives, its first where it gives several."""
    return {index: step.outputs[0] for step in steps for index in origin.layers_of(step.name)[:1]}
