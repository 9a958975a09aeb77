"""Names of nodes, and the information about Chainer's layers in an exported model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chainer_profile.basics.units import format_shapes, plural
from chainer_profile.basics.words import TYPED
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.record.parts import Shape
from chainer_profile.record.versioned import build

#: Key of :class:`Origin` in the metadata of a model.
METADATA = "chainer_profile"
_VERSION = 1
# 21_ReLU@/res4/0, followed by #1 for a node, :1 for an output of it, <1 for a constant input.
_NAME = re.compile(r"((\d+)_[^@]*@[^#:<]*)(?:#\d+)?")


def node_name(index: int, function: str, path: str) -> str:
    """Make the name of a node of a layer: ``21_ReLU@/res4/0``."""
    return f"{index}_{function}@{path}"


@dataclass(frozen=True)
class Origin:
    """The network from which a model was exported."""

    network: str  #: Name of the network.
    shapes: tuple[Shape, ...]  #: Shapes of the inputs.
    dtypes: tuple[str, ...]  #: Data types of the inputs.
    layers: tuple[tuple[str, str], ...]  #: Path and function of Chainer's layers, in order.
    #: For nodes that compute several layers, these layers by the node's name without ``#0``.
    covers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    any_batch: bool = False  #: Whether the first dimension of the inputs may have any size.

    @classmethod
    def of(cls, network: Network, covers: Mapping[str, tuple[int, ...]]) -> Origin:
        return cls(
            network=network.name,
            shapes=tuple(tuple(map(int, array.shape)) for array in network.inputs),
            dtypes=tuple(str(array.dtype) for array in network.inputs),
            layers=tuple((layer.path, layer.function) for layer in network.layers),
            covers=dict(covers),
        )

    def layers_of(self, name: str) -> tuple[int, ...]:
        """Find the indices of the layers of a node or tensor by its name; may be empty."""
        match = _NAME.match(name)
        return self.covers.get(match[1], (int(match[2]),)) if match else ()

    @classmethod
    def from_json(cls, text: str) -> Origin:
        try:
            content = json.loads(text)
            if content.pop("version") != _VERSION:
                raise EngineError(
                    "the file was written by another version of the profiler: export it again"
                )
            return build(cls, content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise EngineError("the file's information about Chainer's layers is damaged") from error

    def check(self, network: Network) -> None:
        """Raise EngineError if the model is from another network, or for other inputs."""
        wanted, begin = Origin.of(network, {}), int(self.any_batch)
        if [shape[begin:] for shape in self.shapes] != [shape[begin:] for shape in wanted.shapes]:
            raise EngineError(
                f"the file takes inputs of {format_shapes(self.shapes)}, but the network's "
                f"are {format_shapes(wanted.shapes)}: export it again with this batch size and "
                "input shape"
            )
        if self.dtypes != wanted.dtypes:
            raise EngineError(
                f"the file takes {' '.join(self.dtypes)}, but the network's inputs are "
                f"{' '.join(wanted.dtypes)}"
            )
        if self.layers != wanted.layers:
            name = f" ({self.network})" if self.network != network.name else ""
            raise EngineError(
                f"the file contains another network{name}: {self._difference(wanted)}"
            )

    def _difference(self, wanted: Origin) -> str:
        for index, (mine, other) in enumerate(zip(self.layers, wanted.layers, strict=False)):
            if mine != other:
                return (
                    f"its layer {index} is {mine[1]} at {mine[0]}, but the network's is {other[1]} "
                    f"at {other[0]}"
                )
        return (
            f"it has {plural(len(self.layers), 'layer')}, but the network has {len(wanted.layers)}"
        )


def write_origin(model: Any, origin: Origin) -> None:
    """Write the origin into an ONNX model."""
    del model.metadata_props[:]
    content = json.dumps({"version": _VERSION, **asdict(origin)})
    model.metadata_props.add(key=METADATA, value=content)
    model.doc_string = (
        f"{origin.network}: Chainer's network in test mode, inputs of "
        f"{format_shapes(origin.shapes)}{', or any batch' * origin.any_batch}; "
        "nodes are named after Chainer's layers"
    )


def read_origin(model: Any) -> Origin:
    """Read the origin in an ONNX model; raise EngineError for a model of another exporter."""
    for entry in model.metadata_props:
        if entry.key == METADATA:
            return Origin.from_json(entry.value)
    raise EngineError(
        "the file was made by another program, so the layers of its nodes are unknown: make "
        f"it with {TYPED} export FILE.onnx and this run's --model, --weights and --input-shape"
    )


def read_model(path: Path) -> Any:
    """Read an ONNX file."""
    import onnx

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except FileNotFoundError as error:
        raise EngineError(f"there is no file {path}") from error
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror})") from error
    except Exception as error:  # protobuf raises several kinds
        raise EngineError(f"{path} is damaged, or not an ONNX model") from error
    if not model.graph.node:
        raise EngineError(f"{path} is damaged, or not an ONNX model: it has no nodes")
    return model
