"""Networks drawn by a seed, for engines: what ordinary Chainer code does, in any order.

``drawn(seed)`` gives a network and its inputs. Layers are drawn one after another, each on values
that are there, mostly the latest; the network is run while it is drawn, to know shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.equality import difference, in_test_mode, other_inputs, outputs_of
from chainer_profile.engines.protocol import EngineError
from tests.engines.exporting import network_of

#: Makes one value of others: of the network itself and of values.
Layer = Callable[..., Any]


@dataclass
class Drawing:
    """A network that is being drawn."""

    rng: np.random.Generator
    model: chainer.Chain
    dtype: Any
    #: The variables that are there.
    values: list[Any]
    #: How each of those beyond the inputs is made: of which values, and by what.
    layers: list[tuple[tuple[int, ...], Layer]] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def among(self, *ways: Any) -> Any:
        return ways[self.rng.integers(len(ways))]

    def array(self, *shape: int) -> Any:
        return self.rng.uniform(-1, 1, shape).astype(self.dtype)

    def number(self) -> float:
        return float(np.round(self.rng.uniform(-2, 2), 2))

    def value(self, accepts: Callable[[Any], bool]) -> int | None:
        """The number of a value, the latest more often than others."""
        fit = [n for n, value in enumerate(self.values) if accepts(value)]
        if not fit:
            return None
        return fit[-1] if self.chance(0.5) else int(self.rng.choice(fit))

    def link(self, made: Any) -> Layer:
        """The call of a new link."""
        name = f"l{len(list(self.model.children()))}"
        for link in made.links():
            if isinstance(link, L.BatchNormalization) and self.chance(0.9):
                size = link.avg_mean.shape
                link.avg_mean[...] = self.rng.normal(0, 0.3, size)
                link.avg_var[...] = self.rng.uniform(0.5, 1.5, size)
                link.gamma.array[...] = self.rng.uniform(0.5, 1.5, size)
                link.beta.array[...] = self.rng.normal(0, 0.3, size)
        with self.model.init_scope():
            setattr(self.model, name, made)
        return lambda model, *given, **more: model[name](*given, **more)

    def add(self, of: tuple[int, ...], *layers: Layer) -> int:
        """The number of the last value of layers, the one on the other."""
        for layer in layers:
            self.values.append(layer(self.model, *(self.values[n] for n in of)))
            self.layers.append((of, layer))
            of = (len(self.values) - 1,)
        return of[0]


def is_real(value: Any) -> bool:
    return bool(value.dtype.kind == "f")


def is_image(value: Any) -> bool:
    return bool(value.ndim == 4 and is_real(value) and min(value.shape) > 0)


def has_channels(value: Any) -> bool:
    return bool(is_real(value) and value.ndim > 1)


# -- layers on one value

Layers = list[Layer]


def convolution(d: Drawing, x: Any) -> Layers:
    size, stride, dilate = d.among(1, 1, 2, 3, 3), d.among(1, 1, 2, 3), d.among(1, 1, 1, 2)
    pad = d.among(0, size // 2, 1, 2)
    if min(x.shape[2:]) + 2 * pad < (size - 1) * dilate + 1:
        return []
    groups = d.among(1, 1, 1, x.shape[1], 2)
    groups = groups if x.shape[1] % groups == 0 else 1
    out = groups * d.among(1, 2, 3, 4)
    sizes = x.shape[1], out, size, stride, pad, d.chance(0.5)
    link = L.Convolution2D(*sizes, dilate=dilate, groups=groups)
    if link.b is not None:
        link.b.array[...] = d.array(out)
    layers = [d.link(link)]
    if d.chance(0.4):
        layers.append(d.link(L.BatchNormalization(out, dtype=d.dtype)))
    if d.chance(0.5):
        layers.append(lambda model, x: F.relu(x))
    return layers


def normalization(d: Drawing, x: Any) -> Layers:
    return [d.link(L.BatchNormalization(x.shape[1], dtype=d.dtype))]


def elementwise(d: Drawing, x: Any) -> Layers:
    f = d.among(F.relu, F.relu, F.sigmoid, F.tanh, F.leaky_relu, F.identity, F.dropout, abs)
    return [lambda model, x: f(x)]


def scalar(d: Drawing, x: Any) -> Layers:
    number = d.number()
    array = d.array(*d.among((), (1,), x.shape[-1:], (1, *x.shape[1:])))
    ways: Layers = [
        lambda model, x: x + number,
        lambda model, x: number - x,
        lambda model, x: x * number,
        lambda model, x: x + array,
        lambda model, x: x * array,
    ]
    if x.ndim > 1 and d.chance(0.3):
        link = d.among(L.Scale, L.Bias)(1, x.shape[1:2])
        for parameter in link.params():
            parameter.array = d.array(*parameter.shape)
        ways = [d.link(link)]
    return [d.among(*ways)]


def pooling(d: Drawing, x: Any) -> Layers:
    size, stride, cover = d.among(1, 2, 3), d.among(1, 2, 2, 3), d.chance(0.6)
    pad = d.among(0, 0, 1) if size > 1 else 0
    if min(x.shape[2:]) + 2 * pad < size:
        return []
    if d.chance(0.6):
        return [lambda model, x: F.max_pooling_2d(x, size, stride, pad, cover_all=cover)]
    return [lambda model, x: F.average_pooling_2d(x, size, stride, pad)]


def squeeze(d: Drawing, x: Any) -> Layers:
    """Squeeze and excitation."""
    c = x.shape[1]
    down, up = d.link(L.Linear(c, 2)), d.link(L.Linear(2, c))

    def layer(model: Any, x: Any) -> Any:
        s = F.average_pooling_2d(x, x.shape[2:])
        s = F.sigmoid(up(model, F.relu(down(model, F.reshape(s, (len(x), c))))))
        return x * F.broadcast_to(F.reshape(s, (len(x), c, 1, 1)), x.shape)

    return [layer]


def shuffled(model: Any, x: Any) -> Any:
    """Channels in another order."""
    halves = F.reshape(x, (len(x), 2, -1, *x.shape[2:]))
    return F.reshape(F.transpose(halves, (0, 2, 1, 3, 4)), x.shape)


def shape_change(d: Drawing, x: Any) -> Layers:
    kinds: Layers = [
        lambda model, x: F.reshape(x, (len(x), -1)),
        lambda model, x: F.reshape(x, (x.shape[0], -1, 1)),
        lambda model, x: F.expand_dims(x, 1) if x.ndim < 4 else x[:, ::2],
        lambda model, x: x[:, :1],
        lambda model, x: F.flip(x, 1),
    ]
    if x.ndim == 4:
        kinds += [
            lambda model, x: F.transpose(x, (0, 2, 3, 1)),
            lambda model, x: F.transpose(x, (0, 1, 3, 2)),
            lambda model, x: F.mean(x, axis=(2, 3)),
            lambda model, x: F.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)), "constant"),
            lambda model, x: F.reshape(x, (len(x), x.shape[2], x.shape[1], x.shape[3])),
        ]
        if x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
            kinds.append(lambda model, x: F.space2depth(x, 2))
        if x.shape[1] % 2 == 0:
            kinds.append(shuffled)
    for side in (2, 3, 4):
        if x.ndim < 4 and int(np.prod(x.shape[1:])) % (side * side) == 0:
            kinds += 3 * [lambda model, x, n=side: F.reshape(x, (len(x), -1, n, n))]
    return [d.among(*kinds)]


def linear(d: Drawing, x: Any) -> Layers:
    if x.ndim == 3 and d.chance(0.6):
        call = d.link(L.Linear(x.shape[2], d.among(2, 4)))
        return [lambda model, x: call(model, x, n_batch_axes=2)]
    size = int(np.prod(x.shape[1:]))
    return [d.link(L.Linear(size, d.among(2, 4, 9), nobias=d.chance(0.3)))]


def mask(d: Drawing, x: Any) -> Layers:
    """What is chosen by the signs of values, or by a mask that is always the same."""
    fixed = d.rng.random(x.shape[1:]) < 0.5
    ways: Layers = [
        lambda model, x: F.where(np.broadcast_to(fixed, x.shape), x, F.tanh(x)),
        lambda model, x: F.clipped_relu(x, 0.5),
        lambda model, x: F.maximum(x, F.tanh(x)),
    ]
    return [d.among(*ways)]


def product(d: Drawing, x: Any) -> Layers:
    return [lambda model, x: F.matmul(F.softmax(F.matmul(x, x, transb=True), axis=2), x)]


# -- layers on several values, or that give several


def join(d: Drawing, at: int) -> None:
    """A sum or product of two values of one shape, a concatenation, a maximum, a choice."""
    shape = d.values[at].shape
    other = d.value(lambda v: is_real(v) and v.shape == shape)
    assert other is not None
    factor = d.among(1, 1, 0.5)
    kinds: Layers = [
        lambda model, x, y: x + y,
        lambda model, x, y: x * factor + y,
        lambda model, x, y: x + factor * F.relu(y),
        lambda model, x, y: F.relu(x) * factor + y,
        lambda model, x, y: x * F.sigmoid(y),
        lambda model, x, y: x - y,
        lambda model, x, y: F.maximum(x, y),
        lambda model, x, y: F.concat([x, y], axis=1 if len(shape) > 1 else 0),
        lambda model, x, y: F.add(x, y, F.tanh(x)),
    ]
    d.add((at, other), d.among(*kinds))


def branches(d: Drawing, at: int) -> None:
    """Two ways from one value that come together again: a residual block of any kind."""
    ends = [at, at]
    for way in (0, 1):
        for _ in range(d.among(0, 1, 1, 2, 3)):
            ends[way] = d.add((ends[way],), same_shape(d, d.values[at].shape[1]))
    factor = d.among(None, None, 0.5)
    d.rng.shuffle(ends)
    end = d.add(tuple(ends), lambda model, x, y: x + y if factor is None else x * factor + y)
    if d.chance(0.5):
        d.add((end,), lambda model, x: F.relu(x))


def same_shape(d: Drawing, channels: int) -> Layer:
    number, size = d.number(), d.among(1, 3)
    ways: list[Callable[[], Layer]] = [
        *2 * [lambda: d.link(L.Convolution2D(channels, channels, size, pad=size // 2))],
        lambda: d.link(L.BatchNormalization(channels, dtype=d.dtype)),
        lambda: lambda model, x: F.relu(x),
        lambda: lambda model, x: x + number,
        lambda: lambda model, x: F.reshape(F.tanh(F.reshape(x, (len(x), -1))), x.shape),
    ]
    way: Callable[[], Layer] = d.among(*ways)
    return way()


def split(d: Drawing, at: int) -> None:
    d.add((at,), lambda model, x: F.split_axis(x, 2, axis=1)[0])
    d.add((at,), lambda model, x: F.split_axis(x, 2, axis=1)[1])


def on_one(draw: Callable[[Drawing, Any], Layers]) -> Callable[[Drawing, int], None]:
    def step(d: Drawing, at: int) -> None:
        d.add((at,), *draw(d, d.values[at]))

    return step


#: Draws layers on a value that is accepted; how often.
STEPS: list[tuple[Callable[[Any], bool], Callable[[Drawing, int], None]]] = [
    *3 * [(is_image, on_one(convolution))],
    (lambda v: is_image(v) or (is_real(v) and v.ndim == 2), on_one(normalization)),
    *2 * [(is_real, on_one(elementwise))],
    *2 * [(is_real, on_one(scalar))],
    (is_image, on_one(pooling)),
    (is_image, on_one(squeeze)),
    *3 * [(has_channels, on_one(shape_change))],
    *2 * [(has_channels, on_one(linear))],
    (is_real, on_one(mask)),
    (lambda v: is_real(v) and v.ndim == 3, on_one(product)),
    *3 * [(is_real, join)],
    *2 * [(is_image, branches)],
    (lambda v: has_channels(v) and v.shape[1] % 2 == 0, split),
]


class Drawn(chainer.Chain):
    """A network that was drawn; copies of it share what ``run`` does."""

    run: Any = None

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, inputs)


class OldStyle(Drawn):
    """The same in the style of Chainer up to 4."""

    def __call__(self, *inputs: Any) -> Any:
        return self.run(self, inputs)


def drawn(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs, arrays."""
    kept = np.random.get_state()  # noqa: NPY002 (Chainer's initialisers draw from it)
    np.random.seed(seed)  # noqa: NPY002
    try:
        return _drawn(np.random.default_rng(seed))
    finally:
        np.random.set_state(kept)  # noqa: NPY002


def _drawn(rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
    dtype = np.dtype(rng.choice(["f", "f", "f", "f", "d", "e"]))
    with chainer.using_config("dtype", dtype), in_test_mode():
        model = OldStyle() if rng.random() < 0.2 else Drawn()
        inputs = _inputs(rng, dtype)
        d = Drawing(rng, model, dtype, [chainer.as_variable(x) for x in inputs])
        if dtype != inputs[0].dtype:
            d.add((0,), d.link(L.EmbedID(11, int(rng.integers(2, 5)))))
        for _ in range(int(rng.integers(2, 12))):
            before = len(d.values)
            accepts, step = d.among(*STEPS)
            if (at := d.value(accepts)) is not None:
                step(d, at)
            if any(v.size > 20000 or v.size == 0 for v in d.values[before:]):
                del d.layers[before - len(inputs) :], d.values[before:]
        if not d.layers:
            d.add((0,), lambda model, x: F.identity(x))
    made = range(len(inputs), len(d.values))
    chosen = [made[-1], *(int(n) for n in rng.choice(made, int(rng.integers(0, 3))))]
    named = rng.random() < 0.5

    def run(model: Any, given: tuple[Any, ...]) -> Any:
        values = [chainer.as_variable(x) for x in given]
        for of, layer in d.layers:
            values.append(layer(model, *(values[n] for n in of)))
        found = [values[n] for n in chosen]
        if len(found) == 1:
            return found[0]
        return {f"y{n}": value for n, value in enumerate(found)} if named else tuple(found)

    model.run = run
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


# -- what an engine gives for them

#: The largest difference that is right, by the bytes of a number, as a part of the largest one.
TOLERANCES = {2: 2e-2, 4: 1e-3, 8: 1e-9}


@dataclass
class Outcome:
    """What came of a network: what was wrong, and why it was refused, if it was."""

    wrong: list[str] = field(default_factory=list)
    refused: str = ""


def check_exported(seed: int, name: str = "onnxruntime") -> Outcome:
    """Draw a network, run it under an engine of that name, and compare it on two inputs."""
    with np.errstate(all="ignore"):
        model, inputs = drawn(seed)
        engine = ENGINES[name].make()
        try:
            engine.prepare(network_of(model, *inputs, threads=1))
        except EngineError as error:
            return Outcome(refused=str(error).partition("@")[0])
        found = Outcome()
        for given in (inputs, other_inputs(inputs)):
            pairs = zip(outputs_of(model, given), engine.run(given), strict=True)
            for number, (ours, theirs) in enumerate(pairs):
                kinds = [f"{one.dtype}{one.shape}" for one in (ours, theirs)]
                if kinds[0] != kinds[1]:
                    found.wrong.append(f"output {number} is {kinds[1]} in place of {kinds[0]}")
                    continue
                apart = difference((ours,), (theirs,))
                off = apart.largest / (apart.magnitude or 1.0)
                if not off <= TOLERANCES.get(ours.dtype.itemsize, 0):
                    found.wrong.append(f"output {number} is off by {off:.2g}")
        return found
