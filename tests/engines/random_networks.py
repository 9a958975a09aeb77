"""Networks drawn by a seed, for engines: what ordinary Chainer code does, in any order.

``drawn(seed)`` gives a network and its inputs. Layers are drawn one after another, each on values
that are there, mostly the latest; the network is run while it is drawn, and what Chainer does not
take is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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


def viewed(x: Any) -> Any:
    return F.reshape(F.tanh(F.reshape(x, (len(x), -1))), x.shape)


ACTIVATIONS: list[Layer] = [
    *(F.relu, F.relu, F.sigmoid, F.tanh, F.leaky_relu, F.identity, F.dropout, abs),
    lambda x: F.clipped_relu(x, 0.5),
    lambda x: F.maximum(x, F.tanh(x)),
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
    lambda x: F.split_axis(x, 2, axis=1)[0],
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


@dataclass
class Drawing:
    """A network that is being drawn."""

    rng: np.random.Generator
    model: chainer.Chain
    dtype: Any
    #: The variables that are there.
    values: list[Any]
    #: How each of those beyond the inputs is made: of which values, and by what; a link is named.
    layers: list[tuple[tuple[int, ...], Layer | str]] = field(default_factory=list)

    def among(self, *ways: Any) -> Any:
        return ways[self.rng.integers(len(ways))]

    def add(self, of: tuple[int, ...], layer: Layer) -> int:
        """The number of its value."""
        value = layer(*(self.values[n] for n in of))
        if not 0 < value.size <= 20000:
            raise ValueError("empty or too large")
        name = f"l{len(self.layers)}"
        if isinstance(layer, chainer.Link):
            with self.model.init_scope():
                setattr(self.model, name, layer)
        self.values.append(value)
        self.layers.append((of, name if isinstance(layer, chainer.Link) else layer))
        return len(self.values) - 1

    def number(self, x: Any) -> Layer:
        """Arithmetic with a number, or an array."""
        n = float(np.round(self.rng.uniform(-2, 2), 2))
        shape = self.among((), (1,), x.shape[-1:], (1, *x.shape[1:]))
        a = self.rng.uniform(-1, 1, shape).astype(self.dtype)
        ways: list[Layer] = [lambda x: x + n, lambda x: n - x, lambda x: x * n]
        ways += [lambda x: x + a, lambda x: x * a]
        fixed = self.rng.random(x.shape[1:]) < 0.5  # a mask that is always the same
        ways.append(lambda x: F.where(np.broadcast_to(fixed, x.shape), x, F.tanh(x)))
        layer: Layer = self.among(*ways)
        return layer

    def convolution(self, x: Any, out: int = 0) -> Any:
        """Of so many channels and the same sides, or of any."""
        if out:
            size = self.among(1, 3)
            return L.Convolution2D(x.shape[1], out, size, pad=size // 2)
        groups = self.among(1, 1, 1, x.shape[1], 2)
        size, stride, dilate = self.among(1, 1, 2, 3, 3), self.among(1, 1, 2, 3), self.among(1, 2)
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
        made: Any = self.among(
            *2 * [lambda: self.among(*ACTIVATIONS)],
            *2 * [lambda: self.number(x)],
            *4 * [lambda: self.among(*SHAPES)],
            *2 * [self.pooling],
            lambda: L.BatchNormalization(x.shape[1]),
            lambda: self.among(L.Scale, L.Bias)(1, x.shape[1:2]),
            *2 * [lambda: L.Linear(int(np.prod(x.shape[1:])), self.among(2, 4, 9))],
        )
        self.add((at,), made())

    def block(self, at: int) -> None:
        """A convolution, and what usually follows one."""
        at = self.add((at,), self.convolution(self.values[at]))
        if self.among(True, False):
            at = self.add((at,), L.BatchNormalization(self.values[at].shape[1]))
        if self.among(True, False):
            self.add((at,), F.relu)

    def join(self, at: int) -> None:
        """A sum or product of two values of one shape, a concatenation, a maximum."""
        shape = self.values[at].shape
        alike = [n for n, value in enumerate(self.values) if value.shape == shape]
        self.add((at, self.among(*alike)), self.among(*SUMS))

    def branches(self, at: int) -> None:
        """Two ways from one value that come together again: a residual block of any kind."""
        ends = [at, at]
        for way in (0, 1):
            for _ in range(self.among(0, 1, 1, 2, 3)):
                x = self.values[ends[way]]
                made: Any = self.among(
                    *2 * [lambda x=x: self.convolution(x, x.shape[1])],
                    lambda x=x: L.BatchNormalization(x.shape[1]),
                    lambda: F.relu,
                    lambda: viewed,
                )
                ends[way] = self.add((ends[way],), made())
        end = self.add(tuple(self.among(ends, ends[::-1])), self.among(*SUMS[:4]))
        if self.among(True, False):
            self.add((end,), F.relu)


class Drawn(chainer.Chain):
    """A network that was drawn; copies of it share what ``run`` does."""

    run: Any = None

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, inputs)


def drawn(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs, arrays."""
    np.random.seed(seed)  # noqa: NPY002 (Chainer's initialisers draw from it)
    rng = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(["f", "f", "f", "f", "d", "e"]))
    with chainer.using_config("dtype", dtype), in_test_mode():
        model, inputs = Drawn(), _inputs(rng, dtype)
        d = Drawing(rng, model, dtype, [chainer.as_variable(x) for x in inputs])
        if dtype != inputs[0].dtype:
            d.add((0,), L.EmbedID(11, int(rng.integers(2, 5))))
        for _ in range(int(rng.integers(2, 14))):
            step = d.among(*9 * [d.layer], *3 * [d.block], *2 * [d.join, d.branches])
            real = [n for n, value in enumerate(d.values) if value.dtype.kind == "f"]
            with suppress(Exception):  # Chainer does not take this shape
                step(d.among(real[-1], d.among(*real)))
        if not d.layers:
            d.add((0,), F.identity)
    made = range(len(inputs), len(d.values))
    chosen = [made[-1], *(int(n) for n in rng.choice(made, int(rng.integers(0, 3))))]

    def run(model: Any, given: tuple[Any, ...]) -> Any:
        values = [chainer.as_variable(x) for x in given]
        for of, layer in d.layers:
            call = model[layer] if isinstance(layer, str) else layer
            values.append(call(*(values[n] for n in of)))
        return values[chosen[0]] if len(chosen) == 1 else tuple(values[n] for n in chosen)

    model.run = run
    if rng.random() < 0.9:  # in the others normalisations do nothing
        model = with_other_parameters(model) or model
    return model, inputs


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
