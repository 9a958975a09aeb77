"""Calls -> fewer nodes: what is linear goes into the convolutions, what follows them is done there.

Batch normalization in test mode, and additions and multiplications of a scalar or of a number per
channel, are affine, ``y = scale * x + shift`` by channel. Such a node goes

- into the convolution or linear layer before it: ``W' = scale * W``, ``b' = scale * b + shift``;
- or into the ones behind it: ``W' = W * scale``, ``b' = b + W . shift``, where a convolution's
  padding, which is zero behind the affine node, becomes ``-shift / scale`` before it. An average
  pooling that counts its padding hands the node on to what follows.

All of that is exact but for rounding; products are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from chainer_profile.engines.trace import Call, Trace, Value

Kind = Literal[
    "convolution",
    "linear",
    "affine",
    "relu",
    "sigmoid",
    "sum",
    "product",
    "max_pooling",
    "average_pooling",
    "space_to_depth",
    "reshape",
    "call",
]

#: Beyond this many times the scale a shift is not put into paddings: too much would be rounded off.
_MOST_BORDER = 100.0
#: What may follow within the node that makes its input.
_FOLLOWERS = ("relu", "affine", "sum")
_LEADERS = (
    *("convolution", "linear", "affine", "relu", "sum", "product"),
    *("max_pooling", "average_pooling"),
)


@dataclass(eq=False)
class Node:
    """One step of the folded network.

    Attributes:
        kind: What it does.
        layers: Indices of Chainer's layers that it does.
        names: Chainer's names of their functions.
        inputs: The values that it takes; of a ``sum`` or ``product`` two.
        outputs: What it gives, one value but for a ``call``.
        weight: Of a convolution (out, in, height, width), of a linear layer (out, in).
        bias: Its bias (out,), if any.
        scale: Of an affine node, (channels,) or (); None for 1.
        shift: The same; None for 0.
        border: What a convolution's or pooling's padding holds, (channels,) or (); None for 0.
        ksize: Of a pooling, height and width.
        stride: Of a convolution or pooling.
        pad: The same.
        dilate: Of a convolution.
        block: Of a space to depth, side of the pixels that become channels.
        call: The call itself, of a ``call``.
        after: What is done to the result, in order; their first input is the one before.
        passes_on: Of an average pooling: whether an affine node before it is done behind it.
    """

    kind: Kind
    layers: tuple[int, ...]
    names: tuple[str, ...]
    inputs: list[Value]
    outputs: list[Value | None]
    weight: Any = None
    bias: Any = None
    scale: Any = None
    shift: Any = None
    border: Any = None
    ksize: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilate: tuple[int, int] = (1, 1)
    block: int = 1
    call: Call | None = None
    after: list[Node] = field(default_factory=list)
    passes_on: bool = False

    @property
    def output(self) -> Value:
        """The value that it gives."""
        value = self.outputs[0]
        assert value is not None
        return value

    @property
    def takes(self) -> list[Value]:
        """All values that it takes, those of what follows within it too."""
        return self.inputs + [value for node in self.after for value in node.inputs[1:]]

    @property
    def channels(self) -> int:
        """Number of channels of its input."""
        return self.inputs[0].shape[1]


def nodes_of(trace: Trace) -> list[Node]:
    """The calls of a pass, each as a node; calls that give the same every time are none."""
    return [_node(call) for call in trace.calls if call.outputs]


def fold(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """Put nodes into others as far as that can be done.

    Args:
        nodes: From :func:`nodes_of`; they are changed.
        outputs: Values that the network gives, which have to be there as they are.

    Returns:
        The nodes in an order in which they can run.
    """
    graph = _Graph(list(nodes), {value.number for value in outputs})
    graph.fold_into_before()
    graph.fold_into_behind()
    graph.follow()
    return graph.nodes


class _Graph:
    """The nodes, and who takes what."""

    def __init__(self, nodes: list[Node], kept: set[int]) -> None:
        self.nodes = nodes
        self._kept = kept

    def _takers(self, value: Value) -> list[Node]:
        return [node for node in self.nodes if value in node.takes]

    def _maker(self, value: Value) -> Node | None:
        return next((node for node in self.nodes if value in node.outputs), None)

    def _only_taker(self, node: Node) -> Node | None:
        """The one node that takes a node's output, where nothing else needs it."""
        takers = [] if node.output.number in self._kept else self._takers(node.output)
        return takers[0] if len(takers) == 1 else None

    def fold_into_before(self) -> None:
        """Affine nodes into the convolution or linear layer before them."""
        for node in list(self.nodes):
            if node.kind not in ("convolution", "linear"):
                continue
            while (affine := self._only_taker(node)) is not None and affine.kind == "affine":
                scale, shift = _by_channel(affine, node.weight.shape[0])
                node.weight = (node.weight.T * scale).T
                bias = 0.0 if node.bias is None else node.bias
                node.bias = bias * scale + shift
                node.outputs = affine.outputs
                self._absorb(node, affine)

    def fold_into_behind(self) -> None:
        """Affine nodes into all the convolutions and linear layers behind them."""
        for affine in [node for node in self.nodes if node.kind == "affine"]:
            if len(affine.output.shape) not in (2, 4):
                continue
            chains = self._acceptors(affine, affine.output, _border(affine))
            if not chains:
                continue
            for node in chains:
                _take_in(node, affine)
                node.inputs = [
                    affine.inputs[0] if value is affine.output else value for value in node.inputs
                ]
            self.nodes.remove(affine)

    def _acceptors(self, affine: Node, value: Value, border: Any) -> list[Node]:
        """The nodes that an affine node of this value goes into; empty if some do not take it."""
        found: list[Node] = []
        takers = [] if value.number in self._kept else self._takers(value)
        for node in takers:
            if node.border is not None or (border is None and node.pad != (0, 0)):
                return []
            found.append(node)
            if node.kind == "average_pooling":
                behind = self._acceptors(affine, node.output, border)
                if not behind:
                    return []
                found += behind
            elif node.kind not in ("convolution", "linear"):
                return []
        return found

    def follow(self) -> None:
        """What is done element by element right behind a node is done within it."""
        for node in list(self.nodes):
            if node.kind not in _LEADERS or node not in self.nodes:
                continue
            while (next_ := self._only_taker(node)) is not None and self._may_follow(node, next_):
                at = self.nodes.index(next_)
                if next_.inputs[0] is not node.output:
                    next_.inputs.reverse()
                self.nodes[at] = node
                self.nodes.remove(node)  # its earlier place
                node.after += [next_, *next_.after]
                node.outputs = next_.outputs
                _count(node, next_)

    def _may_follow(self, node: Node, next_: Node) -> bool:
        if next_.kind not in _FOLLOWERS or next_.output.shape != node.output.shape:
            return False
        # It may take the output as the second operand of something within it.
        if node.output not in next_.inputs:
            return False
        if next_.kind != "sum":
            return True
        if next_.inputs[0] is next_.inputs[1]:
            return False
        # Of two nodes that are added, the later one takes the sum.
        other = next_.inputs[0 if next_.inputs[1] is node.output else 1]
        maker = self._maker(other)
        return maker is None or self.nodes.index(maker) < self.nodes.index(node)

    def _absorb(self, node: Node, other: Node) -> None:
        _count(node, other)
        self.nodes.remove(other)


def _count(node: Node, other: Node) -> None:
    node.layers += other.layers
    node.names += other.names


def _take_in(node: Node, affine: Node) -> None:
    """Have a node take what an affine node takes, in place of what that gives."""
    node.border = _border(affine) if node.pad != (0, 0) else None
    if node.kind != "average_pooling":
        scale, shift = _by_channel(affine, node.weight.shape[1])
        by_input = (slice(None), *([None] * (node.weight.ndim - 2)))
        added = (node.weight * shift[by_input]).reshape(len(node.weight), -1).sum(axis=1)
        node.weight = node.weight * scale[by_input]
        node.bias = added + (0.0 if node.bias is None else node.bias)
    else:
        node.passes_on = True
    node.layers = tuple(sorted({*node.layers, *affine.layers}))
    node.names = affine.names + node.names


def _by_channel(affine: Node, channels: int) -> tuple[Any, Any]:
    """Scale and shift of an affine node in float64, (channels,) each."""
    scale = 1.0 if affine.scale is None else affine.scale
    shift = 0.0 if affine.shift is None else affine.shift
    ones = np.ones(channels)
    return scale * ones, shift * ones


def _border(affine: Node) -> Any:
    """What a padding has to hold before an affine node, to be zero behind it; None if it cannot."""
    scale, shift = _by_channel(affine, affine.channels)
    if (abs(shift) > _MOST_BORDER * abs(scale)).any() or not scale.all():
        return None
    return -shift / scale


# -- calls as nodes


def _node(call: Call) -> Node:
    made = _NODES.get(call.name)
    node = made(call) if made is not None and _is_plain(call) else None
    if node is None:
        node = _new("call", call, *call.takes)
        node.call = call
    return node


def _is_plain(call: Call) -> bool:
    """Whether it is Chainer's own function, with one output of the type of its first input."""
    values = [source for source in call.inputs if isinstance(source, Value)]
    own = type(call.function).__module__.startswith("chainer.functions.")
    (first, *others) = call.outputs
    return (
        own
        and not call.held
        and first is not None
        and not others
        and first.dtype.kind == "f"
        and all(value.dtype == first.dtype for value in values)
    )


def _new(kind: Kind, call: Call, *values: Value, **fields: Any) -> Node:
    layers, names = ((call.index,), (call.name,)) if call.index >= 0 else ((), ())
    return Node(kind, layers, names, list(values), list(call.outputs), **fields)


def _arrays(call: Call) -> Iterator[Any]:
    """What a call takes, arrays as NumPy's in float64."""
    for source in call.inputs:
        yield source if isinstance(source, Value) else _numbers(source)


def _numbers(source: Any) -> Any:
    get = getattr(source, "get", None)  # of an array on a GPU
    return np.asarray(source if get is None else get(), np.float64)


def _convolution(call: Call) -> Node | None:
    x, weight, *bias = _arrays(call)
    f = call.function
    if not isinstance(x, Value) or isinstance(weight, Value) or f.groups != 1 or f.cover_all:
        return None
    if any(isinstance(b, Value) for b in bias):
        return None
    return _new(
        "convolution",
        call,
        x,
        weight=weight,
        bias=bias[0] if bias else None,
        ksize=weight.shape[2:],
        stride=(f.sy, f.sx),
        pad=(f.ph, f.pw),
        dilate=(f.dy, f.dx),
    )


def _linear(call: Call) -> Node | None:
    x, weight, *bias = _arrays(call)
    if not isinstance(x, Value) or isinstance(weight, Value) or x.shape[1:] != weight.shape[1:]:
        return None
    if any(isinstance(b, Value) for b in bias):
        return None
    return _new("linear", call, x, weight=weight, bias=bias[0] if bias else None)


def _normalization(call: Call) -> Node | None:
    x, *arrays = _arrays(call)
    axis = call.function.axis
    axes = {4: (0, 2, 3), 2: (0,)}.get(len(x.shape))
    if axes is None or (axis is not None and tuple(axis) != axes):
        return None
    if any(isinstance(a, Value) or a.shape != x.shape[1:2] for a in arrays):
        return None
    gamma, beta, mean, var = arrays
    scale = gamma / np.sqrt(var + call.function.eps)
    return _new("affine", call, x, scale=scale, shift=beta - mean * scale)


def _by_channels(value: Value, array: Any) -> Any:
    """An array that goes with a value's channels, as (channels,) or (); None for any other."""
    if array.size == 1 and array.ndim <= len(value.shape):
        return array.reshape(())
    shape = (1,) * (len(value.shape) - array.ndim) + array.shape
    if len(value.shape) in (2, 4) and shape == (
        *(1, value.shape[1]),
        *(1,) * (len(value.shape) - 2),
    ):
        return array.reshape(-1)
    return None


def _two(kind: Literal["sum", "product"], call: Call) -> Node | None:
    """A sum or a product: of two values, or of a value and numbers."""
    first, second = _arrays(call)
    out = call.outputs[0]
    assert out is not None
    if isinstance(first, Value) and isinstance(second, Value):
        shapes = {first.shape, second.shape}
        alike = len(shapes) == 1 or (kind == "product" and _spread(first, second))
        if not alike or len(out.shape) not in (2, 4):
            return None
        pair = (first, second) if first.shape == out.shape else (second, first)
        return _new(kind, call, *pair)
    value, array = (first, second) if isinstance(first, Value) else (second, first)
    numbers = _by_channels(value, array) if value.shape == out.shape else None
    if numbers is None:
        return None
    return _new("affine", call, value, **{"shift" if kind == "sum" else "scale": numbers})


def _spread(first: Value, second: Value) -> bool:
    """Whether one of two values is broadcast to the other along axes of length 1."""
    return len(first.shape) == len(second.shape) == 4 and (
        np.broadcast_shapes(first.shape, second.shape) in (first.shape, second.shape)
    )


def _constant(kind: Literal["shift", "scale"], call: Call) -> Node | None:
    value = call.function.value
    x = call.inputs[0]
    if not isinstance(value, (int, float, np.number)) or isinstance(value, complex):
        return None
    return _new("affine", call, x, **{kind: np.float64(value)})


def _max_pooling(call: Call) -> Node | None:
    f = call.function
    (x,) = call.inputs
    # Every window has to hold something beside padding.
    if f.ndim != 2 or f.return_indices or any(p >= k for p, k in zip(f.pad, f.ksize, strict=True)):
        return None
    return _new("max_pooling", call, x, ksize=f.ksize, stride=f.stride, pad=f.pad)


def _average_pooling(call: Call) -> Node | None:
    f = call.function
    size, stride, pad = (f.kh, f.kw), (f.sy, f.sx), (f.ph, f.pw)
    return _new("average_pooling", call, call.inputs[0], ksize=size, stride=stride, pad=pad)


_NODES: dict[str, Callable[[Call], Node | None]] = {
    "Convolution2DFunction": _convolution,
    "LinearFunction": _linear,
    "FixedBatchNormalization": _normalization,
    "Add": lambda call: _two("sum", call) if len(call.inputs) == 2 else None,
    "Mul": lambda call: _two("product", call),
    "AddConstant": lambda call: _constant("shift", call),
    "MulConstant": lambda call: _constant("scale", call),
    "ReLU": lambda call: _new("relu", call, call.inputs[0]),
    "Sigmoid": lambda call: _new("sigmoid", call, call.inputs[0]),
    "MaxPoolingND": _max_pooling,
    "AveragePooling2D": _average_pooling,
    "Space2Depth": lambda call: _new("space_to_depth", call, call.inputs[0], block=call.function.r),
    "Reshape": lambda call: _new("reshape", call, call.inputs[0]),
}
