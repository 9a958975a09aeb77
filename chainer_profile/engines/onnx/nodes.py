"""What an exported model says of itself: whose layer each node is, and what network it is for."""

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

#: Where a model keeps what :class:`Origin` says.
METADATA = "chainer_profile"
_VERSION = 1
# 21_ReLU@/res4/0, then #1 for a node, :1 for one of its outputs, <1 for a constant input.
_NAME = re.compile(r"((\d+)_[^@]*@[^#:<]*)(?:#\d+)?")


def node_name(index: int, function: str, path: str) -> str:
    """Name of a node by its layer: ``21_ReLU@/res4/0``."""
    return f"{index}_{function}@{path}"


@dataclass(frozen=True)
class Origin:
    """Where an exported model comes from."""

    network: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    #: Path and function of Chainer's layers, in order.
    layers: tuple[tuple[str, str], ...]
    #: Layers that nodes do by their names without ``#0``, where it is not the one in the name.
    covers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Whether the first dimension of its inputs may be any.
    any_batch: bool = False

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
        """Indices of the layers that a node or tensor of this name belongs to; empty for none."""
        match = _NAME.match(name)
        if match is None:
            return ()
        return self.covers.get(match[1], (int(match[2]),))

    def to_json(self) -> str:
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Origin:
        try:
            found = json.loads(text)
            if found.pop("version") != _VERSION:
                raise EngineError(
                    "the file was written by another version of the profiler: export it again"
                )
            return build(cls, found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise EngineError("the file's information about Chainer's layers is damaged") from error

    def check(self, network: Network) -> None:
        """Check that the model is one of this network, for inputs of these shapes."""
        given, begin = Origin.of(network, {}), int(self.any_batch)
        if [shape[begin:] for shape in self.shapes] != [shape[begin:] for shape in given.shapes]:
            raise EngineError(
                f"the file takes inputs of {format_shapes(self.shapes)}, but the network's "
                f"are {format_shapes(given.shapes)}: export it again with this batch size and "
                "input shape"
            )
        if self.dtypes != given.dtypes:
            raise EngineError(
                f"the file takes {' '.join(self.dtypes)}, but the network's inputs are "
                f"{' '.join(given.dtypes)}"
            )
        if self.layers != given.layers:
            name = f" ({self.network})" if self.network != network.name else ""
            raise EngineError(f"the file contains another network{name}: {self._difference(given)}")

    def _difference(self, given: Origin) -> str:
        for index, (mine, other) in enumerate(zip(self.layers, given.layers, strict=False)):
            if mine != other:
                return (
                    f"its layer {index} is {mine[1]} at {mine[0]}, but the network's is {other[1]} "
                    f"at {other[0]}"
                )
        return (
            f"it has {plural(len(self.layers), 'layer')}, but the network has {len(given.layers)}"
        )


def write_origin(model: Any, origin: Origin) -> None:
    """Put it into an ONNX model."""
    del model.metadata_props[:]
    model.metadata_props.add(key=METADATA, value=origin.to_json())
    model.doc_string = (
        f"{origin.network}: Chainer's network in test mode, inputs of "
        f"{format_shapes(origin.shapes)}{', or any batch' * origin.any_batch}; "
        "nodes are named after Chainer's layers"
    )


def read_origin(model: Any) -> Origin:
    """What an ONNX model's metadata say; a model that others exported is refused."""
    for entry in model.metadata_props:
        if entry.key == METADATA:
            return Origin.from_json(entry.value)
    raise EngineError(
        "the file was made by another program, so it does not say whose layer each node is: make "
        f"it with {TYPED} export"
    )


def read_model(path: Path) -> Any:
    """The model in an ONNX file."""
    import onnx

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except FileNotFoundError as error:
        raise EngineError(f"there is no file {path}") from error
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror})") from error
    except Exception as error:  # protobuf's, of several kinds
        raise EngineError(f"{path} is damaged, or not an ONNX model") from error
    if not model.graph.node:
        raise EngineError(f"{path} is damaged, or not an ONNX model: it has no nodes")
    return model
