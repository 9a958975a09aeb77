"""Networks drawn by a seed: what ordinary Chainer code does, in any order.

``drawn(seed)`` gives a network and its inputs. Layers are drawn one after another, each on values
that are there, mostly the latest; what Chainer does not take is left out.
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

#: Makes one value of others.
Layer = Callable[..., Any]


def shuffled(x: Any) -> Any:
    """Channels in another order."""
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


class Drawn(chainer.ChainList):
    """A network of steps: the numbers of the values it takes, and its function or link's number."""

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


class Drawing:
    """A network that is being drawn, and its values so far."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[Any]) -> None:
        self.rng, self.model = rng, Drawn()
        self.values = [chainer.as_variable(x) for x in inputs]

    def among(self, *ways: Any) -> Any:
        return ways[self.rng.integers(len(ways))]

    def add(self, layer: Layer, *sources: int) -> int:
        """The number of the new value."""
        value = layer(*(self.values[n] for n in sources))
        # ONNX Runtime's maximum of NaN and 0 is 0, Chainer's is NaN.
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
        """With a number, an array, or a mask that is always the same."""
        n = float(np.round(self.rng.uniform(-2, 2), 2))
        shape = self.among((), (1,), x.shape[-1:], (1, *x.shape[1:]))
        a = self.rng.uniform(-1, 1, shape).astype(x.dtype)
        fixed = np.broadcast_to(self.rng.random(x.shape[1:]) < 0.5, x.shape)
        ways: list[Layer] = [lambda x: x + n, lambda x: n - x, lambda x: x * n]
        ways += [lambda x: x + a, lambda x: x * a, lambda x: F.where(fixed, x, F.tanh(x))]
        layer: Layer = self.among(*ways)
        return layer

    def convolution(self, x: Any) -> Any:
        groups, dilate = self.among(1, 1, 1, x.shape[1], 2), self.among(1, 2)
        size, stride = self.among(1, 1, 2, 3, 3), self.among(1, 1, 2, 3)
        pad, out = self.among(0, size // 2, 1), groups * self.among(1, 2, 3, 4)
        sizes = x.shape[1], out, size, stride, pad, self.among(True, False)
        return L.Convolution2D(*sizes, dilate=dilate, groups=groups)

    def pooling(self) -> Layer:
        size, stride, cover = self.among(1, 2, 3), self.among(1, 2, 2, 3), self.among(True, False)
        pad = self.among(0, 0, 1) if size > 1 else 0
        if cover or self.among(True, False):
            return lambda x: F.max_pooling_2d(x, size, stride, pad, cover_all=cover)
        return lambda x: F.average_pooling_2d(x, size, stride, pad)

    # -- steps: each adds layers behind a value

    def layer(self, at: int) -> None:
        x = self.values[at]
        make: Any = self.among(
            *2 * [lambda: self.among(*ACTIVATIONS)],
            *2 * [lambda: self.arithmetic(x)],
            *4 * [lambda: self.among(*SHAPES)],
            *2 * [self.pooling],
            lambda: L.BatchNormalization(x.shape[1]),
            lambda: self.among(L.Scale, L.Bias)(1, x.shape[1:2]),
            *2 * [lambda: L.Linear(int(np.prod(x.shape[1:])), self.among(2, 4, 9))],
        )
        self.add(make(), at)

    def block(self, at: int) -> None:
        """A convolution, and what usually follows one."""
        at = self.add(self.convolution(self.values[at]), at)
        if self.among(True, False):
            at = self.add(L.BatchNormalization(self.values[at].shape[1]), at)
        if self.among(True, False):
            self.add(F.relu, at)

    def join(self, at: int) -> None:
        """Two values of one shape."""
        shape = self.values[at].shape
        alike = [n for n, value in enumerate(self.values) if value.shape == shape]
        self.add(self.among(*SUMS), at, self.among(*alike))

    def residual(self, at: int) -> None:
        """Up to two convolutions, with and without normalisation, on each way to a sum."""
        channels, ends = self.values[at].shape[1], [at, at]
        for way in (0, 1):
            for _ in range(self.among(0, 1, 1, 2)):
                size = self.among(1, 3)
                make = L.Convolution2D(channels, channels, size, pad=size // 2)
                ends[way] = self.add(make, ends[way])
                following = self.among(L.BatchNormalization(channels), F.relu)
                ends[way] = self.add(following, ends[way])
        end = self.add(self.among(*SUMS[:4]), *self.among(ends, ends[::-1]))
        if self.among(True, False):
            self.add(F.relu, end)


def drawn(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs, arrays."""
    np.random.seed(seed)  # noqa: NPY002 (Chainer's initialisers draw from it)
    rng = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(["f", "f", "f", "f", "d", "e"]))
    with chainer.using_config("dtype", dtype), in_test_mode():
        inputs = _inputs(rng, dtype)
        d = Drawing(rng, inputs)
        if dtype != inputs[0].dtype:
            d.add(L.EmbedID(11, int(rng.integers(2, 5))), 0)
        for _ in range(int(rng.integers(2, 14))):
            step = d.among(*9 * [d.layer], *3 * [d.block], *2 * [d.join, d.residual])
            real = [n for n, value in enumerate(d.values) if value.dtype.kind == "f"]
            with suppress(Exception):  # Chainer does not take this shape
                step(d.among(real[-1], d.among(*real)))
        if not d.model.steps:
            d.add(F.identity, 0)
    made = range(len(inputs), len(d.values))
    d.model.outputs = [made[-1], *(int(n) for n in rng.choice(made, int(rng.integers(0, 3))))]
    # Where no parameter is drawn, normalisations do nothing.
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
