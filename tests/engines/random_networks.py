"""Random networks: operations of ordinary Chainer code in any order.

``random_network(seed)`` returns a network and its inputs. Each layer takes earlier values, mostly
the latest one. Layers that Chainer refuses are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.engines.equality import in_test_mode, with_other_parameters

#: A function of values.
Layer = Callable[..., Any]


def shuffled(x: Any) -> Any:
    """Shuffle channels."""
    halves = F.reshape(x, (len(x), 2, -1, *x.shape[2:]))
    return F.reshape(F.transpose(halves, (0, 2, 1, 3, 4)), x.shape)


ACTIVATIONS: list[Layer] = [
    *(F.relu, F.relu, F.sigmoid, F.tanh, F.leaky_relu, F.identity, F.dropout, abs),
    lambda x: F.clipped_relu(x, 0.5),
    lambda x: F.maximum(x, F.tanh(x)),
    lambda x: F.reshape(F.tanh(F.reshape(x, (len(x), -1))), x.shape),
]
SHAPES: list[Layer] = [
    lambda x: F.reshape(x, (len(x), -1)),
    lambda x: F.reshape(x, (len(x), -1, 1)),
    *((lambda x, n=n: F.reshape(x, (len(x), -1, n, n))) for n in (2, 3, 4)),
    lambda x: F.reshape(x, (len(x), x.shape[2], x.shape[1], x.shape[3])),
    lambda x: F.expand_dims(x, 1) if x.ndim < 4 else x[:, ::2],
    lambda x: x[:, :1],
    lambda x: F.flip(x, 1),
    lambda x: F.transpose(x, (0, 2, 3, 1)),
    lambda x: F.transpose(x, (0, 1, 3, 2)),
    lambda x: F.mean(x, axis=(2, 3)),
    lambda x: F.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)), "constant"),
    lambda x: F.space2depth(x, 2),
    shuffled,
    lambda x: F.split_axis(x, 2, axis=1)[1],
    lambda x: F.matmul(F.softmax(F.matmul(x, x, transb=True), axis=2), x),
]
SUMS: list[Layer] = [
    lambda x, y: x + y,
    lambda x, y: x * 0.5 + y,
    lambda x, y: x + 0.5 * F.relu(y),
    lambda x, y: F.relu(x) + y,
    lambda x, y: x * F.sigmoid(y),
    lambda x, y: x - y,
    lambda x, y: F.maximum(x, y),
    lambda x, y: F.concat([x, y], axis=1),
    lambda x, y: F.add(x, y, F.tanh(x)),
]


class RandomNetwork(chainer.ChainList):
    """A network of steps, each with indices of inputs and a function or the index of a link."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Sequence[int], Layer | int]] = []
        self.outputs: list[int] = []

    def forward(self, *inputs: Any) -> Any:
        values = [chainer.as_variable(x) for x in inputs]
        for sources, layer in self.steps:
            call = self[layer] if isinstance(layer, int) else layer
            values.append(call(*(values[n] for n in sources)))
        outputs = tuple(values[n] for n in self.outputs)
        return outputs if len(outputs) > 1 else outputs[0]


class NetworkBuilder:
    """Builds a random network, and computes its values."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[Any]) -> None:
        self.rng, self.model = rng, RandomNetwork()
        self.values = [chainer.as_variable(x) for x in inputs]

    def choice(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def add(self, layer: Layer, *sources: int) -> int:
        """Add a step; return the index of its value."""
        value = layer(*(self.values[n] for n in sources))
        # The maximum of NaN and 0 is 0 in ONNX Runtime, but NaN in Chainer.
        if not 0 < value.size <= 20000 or np.isnan(value.array).any():
            raise ValueError("empty, too large, or not a number")
        self.values.append(value)
        if isinstance(layer, chainer.Link):
            self.model.append(layer)
            self.model.steps.append((sources, len(self.model) - 1))
        else:
            self.model.steps.append((sources, layer))
        return len(self.values) - 1

    def arithmetic(self, x: Any) -> Layer:
        """Arithmetic with a number, an array or a constant mask."""
        n = float(np.round(self.rng.uniform(-2, 2), 2))
        shape = self.choice((), (1,), x.shape[-1:], (1, *x.shape[1:]))
        a = self.rng.uniform(-1, 1, shape).astype(x.dtype)
        fixed = np.broadcast_to(self.rng.random(x.shape[1:]) < 0.5, x.shape)
        operations: list[Layer] = [lambda x: x + n, lambda x: n - x, lambda x: x * n]
        operations += [lambda x: x + a, lambda x: x * a, lambda x: F.where(fixed, x, F.tanh(x))]
        layer: Layer = self.choice(*operations)
        return layer

    def convolution(self, x: Any) -> Any:
        groups, dilate = self.choice(1, 1, 1, x.shape[1], 2), self.choice(1, 2)
        size, stride = self.choice(1, 1, 2, 3, 3), self.choice(1, 1, 2, 3)
        pad, out = self.choice(0, size // 2, 1), groups * self.choice(1, 2, 3, 4)
        sizes = x.shape[1], out, size, stride, pad, self.choice(True, False)
        return L.Convolution2D(*sizes, dilate=dilate, groups=groups)

    def pooling(self) -> Layer:
        size, stride, cover = (
            self.choice(1, 2, 3),
            self.choice(1, 2, 2, 3),
            self.choice(True, False),
        )
        pad = self.choice(0, 0, 1) if size > 1 else 0
        if cover or self.choice(True, False):
            return lambda x: F.max_pooling_2d(x, size, stride, pad, cover_all=cover)
        return lambda x: F.average_pooling_2d(x, size, stride, pad)

    # -- steps: each adds layers after a value

    def layer(self, at: int) -> None:
        x = self.values[at]
        make: Any = self.choice(
            *2 * [lambda: self.choice(*ACTIVATIONS)],
            *2 * [lambda: self.arithmetic(x)],
            *4 * [lambda: self.choice(*SHAPES)],
            *2 * [self.pooling],
            lambda: L.BatchNormalization(x.shape[1]),
            lambda: self.choice(L.Scale, L.Bias)(1, x.shape[1:2]),
            *2 * [lambda: L.Linear(int(np.prod(x.shape[1:])), self.choice(2, 4, 9))],
        )
        self.add(make(), at)

    def block(self, at: int) -> None:
        """A convolution, perhaps with normalisation and activation."""
        at = self.add(self.convolution(self.values[at]), at)
        if self.choice(True, False):
            at = self.add(L.BatchNormalization(self.values[at].shape[1]), at)
        if self.choice(True, False):
            self.add(F.relu, at)

    def join(self, at: int) -> None:
        """Combine two values of the same shape."""
        shape = self.values[at].shape
        same_shape = [n for n, value in enumerate(self.values) if value.shape == shape]
        self.add(self.choice(*SUMS), at, self.choice(*same_shape))

    def residual(self, at: int) -> None:
        """A sum of two branches, each with up to two convolutions."""
        channels, ends = self.values[at].shape[1], [at, at]
        for branch in (0, 1):
            for _ in range(self.choice(0, 1, 1, 2)):
                size = self.choice(1, 3)
                make = L.Convolution2D(channels, channels, size, pad=size // 2)
                ends[branch] = self.add(make, ends[branch])
                following = self.choice(L.BatchNormalization(channels), F.relu)
                ends[branch] = self.add(following, ends[branch])
        end = self.add(self.choice(*SUMS[:4]), *self.choice(ends, ends[::-1]))
        if self.choice(True, False):
            self.add(F.relu, end)


def random_network(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """Make a random network and its input arrays."""
    np.random.seed(seed)  # noqa: NPY002 (Chainer's initialisers draw from it)
    rng = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(["f", "f", "f", "f", "d", "e"]))
    with chainer.using_config("dtype", dtype), in_test_mode():
        inputs = _inputs(rng, dtype)
        d = NetworkBuilder(rng, inputs)
        if dtype != inputs[0].dtype:
            d.add(L.EmbedID(11, int(rng.integers(2, 5))), 0)
        for _ in range(int(rng.integers(2, 14))):
            step = d.choice(*9 * [d.layer], *3 * [d.block], *2 * [d.join, d.residual])
            real = [n for n, value in enumerate(d.values) if value.dtype.kind == "f"]
            with suppress(Exception):  # Chainer does not take this shape
                step(d.choice(real[-1], d.choice(*real)))
        if not d.model.steps:
            d.add(F.identity, 0)
    made = range(len(inputs), len(d.values))
    d.model.outputs = [made[-1], *(int(n) for n in rng.choice(made, int(rng.integers(0, 3))))]
    # With initial parameters, normalisations have no effect.
    other = with_other_parameters(d.model) if rng.random() < 0.9 else None
    return other or d.model, inputs


def _inputs(rng: Any, dtype: Any) -> tuple[Any, ...]:
    kind = rng.choice(["images", "images", "images", "matrix", "sequence", "two", "ids"])
    batch, length = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    if kind == "ids":
        return (rng.integers(0, 11, (batch, length)).astype("i"),)
    shape = {
        "matrix": (batch, int(rng.choice([3, 4, 9, 16]))),
        "sequence": (batch, length, 4),
    }.get(kind, (batch, int(rng.integers(1, 5)), *rng.integers(4, 9, 2)))
    arrays = (rng.standard_normal(shape).astype(dtype) for _ in range(2 if kind == "two" else 1))
    return tuple(arrays)
