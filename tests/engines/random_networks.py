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
from chainer_profile.engines.equality import other_inputs
from chainer_profile.engines.protocol import EngineError, flat_arrays
from tests.engines.exporting import network_of, output

#: Makes one value of others: of the network itself and of values.
Layer = Callable[..., Any]
#: Draws layers.
Step = Callable[["Drawing"], None]


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

    def value(self, accepts: Callable[[Any], bool]) -> int | None:
        """The number of a value, the latest more often than others."""
        fit = [n for n, value in enumerate(self.values) if accepts(value)]
        if not fit:
            return None
        return fit[-1] if self.chance(0.5) else int(self.rng.choice(fit))

    def link(self, made: Any) -> str:
        """A new link's name."""
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
        return name

    def add(self, of: tuple[int, ...], layer: Layer) -> None:
        self.values.append(layer(self.model, *(self.values[n] for n in of)))
        self.layers.append((of, layer))


def is_image(value: Any) -> bool:
    return bool(value.ndim == 4 and value.dtype.kind == "f" and min(value.shape) > 0)


def is_matrix(value: Any) -> bool:
    return bool(value.ndim == 2 and value.dtype.kind == "f")


def is_real(value: Any) -> bool:
    return bool(value.dtype.kind == "f")


def has_channels(value: Any) -> bool:
    return bool(is_real(value) and value.ndim > 1)


def _calls(name: str) -> Layer:
    return lambda model, x: model[name](x)


def on(accepts: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Step]:
    """A step on one value of a kind: it gives layers, the one on the other, or none."""

    def step(draw: Callable[[Drawing, Any], Any]) -> Step:
        def drawn(d: Drawing) -> None:
            at = d.value(accepts)
            layers = [] if at is None else draw(d, d.values[at])
            for layer in layers if isinstance(layers, list) else [layers]:
                d.add((at,), layer)  # type: ignore[arg-type]
                at = len(d.values) - 1

        return drawn

    return step


@on(is_image)
def convolution(d: Drawing, x: Any) -> Any:
    size, stride, dilate = d.among(1, 1, 2, 3, 3), d.among(1, 1, 2, 3), d.among(1, 1, 1, 2)
    pad = d.among(0, size // 2, 1, 2)
    if min(x.shape[2:]) + 2 * pad < (size - 1) * dilate + 1:
        return []
    groups = d.among(1, 1, 1, x.shape[1], 2)
    groups = groups if x.shape[1] % groups == 0 else 1
    out = groups * d.among(1, 2, 3, 4)
    link = L.Convolution2D(
        *(x.shape[1], out, size, stride, pad, d.chance(0.5)), dilate=dilate, groups=groups
    )
    if link.b is not None:
        link.b.array[...] = d.array(out)
    layers = [_calls(d.link(link))]
    if d.chance(0.4):
        layers.append(_calls(d.link(L.BatchNormalization(out, dtype=d.dtype))))
    if d.chance(0.5):
        layers.append(lambda model, x: F.relu(x))
    if len(layers) == 1 or d.chance(0.5):
        return layers

    def block(model: Any, x: Any) -> Any:
        for layer in layers:
            x = layer(model, x)
        return x

    return block


@on(lambda v: is_image(v) or is_matrix(v))
def normalization(d: Drawing, x: Any) -> Any:
    return _calls(d.link(L.BatchNormalization(x.shape[1], dtype=d.dtype)))


@on(is_real)
def elementwise(d: Drawing, x: Any) -> Any:
    f = d.among(F.relu, F.relu, F.sigmoid, F.tanh, F.leaky_relu, F.identity, F.dropout, abs)
    return lambda model, x: f(x)


@on(is_real)
def scalar(d: Drawing, x: Any) -> Any:
    number = float(np.round(d.rng.uniform(-2, 2), 2))
    kind = d.among("+", "*", "-", "scale", "bias", "array")
    if kind == "array":
        array = d.array(*d.among((), (1,), x.shape[-1:], (1, *x.shape[1:])))
        return d.among(lambda model, x: x + array, lambda model, x: x * array)
    if kind in ("scale", "bias") and x.ndim > 1:
        size = x.shape[1:2]
        link = L.Scale(1, size) if kind == "scale" else L.Bias(1, size)
        for parameter in link.params():
            parameter.array = d.array(*size)
        return _calls(d.link(link))
    if kind == "+":
        return lambda model, x: x + number
    if kind == "-":
        return lambda model, x: number - x
    return lambda model, x: x * number


@on(is_image)
def pooling(d: Drawing, x: Any) -> Any:
    size, stride, cover = d.among(1, 2, 3), d.among(1, 2, 2, 3), d.chance(0.6)
    pad = d.among(0, 0, 1) if size > 1 else 0
    if min(x.shape[2:]) + 2 * pad < size:
        return []
    if d.chance(0.6):
        return lambda model, x: F.max_pooling_2d(x, size, stride, pad, cover_all=cover)
    return lambda model, x: F.average_pooling_2d(x, size, stride, pad)


def join(d: Drawing) -> None:
    """A sum or product of two values of one shape, a concatenation, a maximum, a choice."""
    at = d.value(is_real)
    if at is None:
        return
    shape = d.values[at].shape
    other = d.value(lambda v: is_real(v) and v.shape == shape)
    assert other is not None
    factor = d.among(1, 1, 0.5)
    kinds: tuple[Layer, ...] = (
        lambda model, x, y: x + y,
        lambda model, x, y: x * factor + y,
        lambda model, x, y: x + factor * F.relu(y),
        lambda model, x, y: F.relu(x) * factor + y,
        lambda model, x, y: x * F.sigmoid(y),
        lambda model, x, y: x - y,
        lambda model, x, y: F.maximum(x, y),
        lambda model, x, y: F.concat([x, y], axis=1),
        lambda model, x, y: F.add(x, y, F.tanh(x)),
    )
    if len(shape) < 2:
        kinds = kinds[:7]
    d.add((at, other), d.among(*kinds))


def branches(d: Drawing) -> None:
    """Two ways from one value that come together again: a residual block of any kind."""
    at = d.value(is_image)
    if at is None:
        return
    ends = []
    for _ in range(2):
        end = at
        for _ in range(d.among(0, 1, 1, 2, 3)):
            d.add((end,), _same_shape(d, d.values[end].shape[1]))
            end = len(d.values) - 1
        ends.append(end)
    factor = d.among(None, None, 0.5)
    d.rng.shuffle(ends)
    if factor is None:
        d.add(tuple(ends), lambda model, x, y: x + y)
    else:
        d.add(tuple(ends), lambda model, x, y: x * factor + y)
    if d.chance(0.5):
        d.add((len(d.values) - 1,), lambda model, x: F.relu(x))


def _same_shape(d: Drawing, channels: int) -> Layer:
    kind = d.among("conv", "conv", "bn", "relu", "number", "view")
    if kind == "conv":
        size = d.among(1, 3)
        return _calls(d.link(L.Convolution2D(channels, channels, size, pad=size // 2)))
    if kind == "bn":
        return _calls(d.link(L.BatchNormalization(channels, dtype=d.dtype)))
    if kind == "relu":
        return lambda model, x: F.relu(x)
    if kind == "view":
        return lambda model, x: F.reshape(F.tanh(F.reshape(x, (len(x), -1))), x.shape)
    number = float(np.round(d.rng.uniform(-2, 2), 2))
    return lambda model, x: x + number


@on(is_image)
def squeeze(d: Drawing, x: Any) -> Any:
    """Squeeze and excitation."""
    c = x.shape[1]
    down, up = d.link(L.Linear(c, 2)), d.link(L.Linear(2, c))

    def layer(model: Any, x: Any) -> Any:
        s = F.average_pooling_2d(x, x.shape[2:])
        s = F.sigmoid(model[up](F.relu(model[down](F.reshape(s, (len(x), c))))))
        return x * F.broadcast_to(F.reshape(s, (len(x), c, 1, 1)), x.shape)

    return layer


@on(has_channels)
def shape_change(d: Drawing, x: Any) -> Any:
    kinds: list[Layer] = [
        lambda model, x: F.reshape(x, (len(x), -1)),
        lambda model, x: F.flatten(x) if x.ndim < 2 else F.reshape(x, (x.shape[0], -1, 1)),
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
        ]
        if x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
            kinds.append(lambda model, x: F.space2depth(x, 2))
        if x.shape[1] % 2 == 0:
            kinds.append(_shuffled)
        kinds += 2 * [lambda model, x: F.reshape(x, (len(x), x.shape[2], x.shape[1], x.shape[3]))]
    else:
        size = int(np.prod(x.shape[1:]))
        for side in (2, 3, 4):
            if size % (side * side) == 0:
                kinds += 3 * [lambda model, x, n=side: F.reshape(x, (len(x), -1, n, n))]
    return d.among(*kinds)


def _shuffled(model: Any, x: Any) -> Any:
    """Channels in another order."""
    halves = F.reshape(x, (len(x), 2, -1, *x.shape[2:]))
    return F.reshape(F.transpose(halves, (0, 2, 1, 3, 4)), x.shape)


def split(d: Drawing) -> None:
    at = d.value(lambda v: has_channels(v) and v.shape[1] % 2 == 0)
    if at is not None:
        d.add((at,), lambda model, x: F.split_axis(x, 2, axis=1)[0])
        d.add((at,), lambda model, x: F.split_axis(x, 2, axis=1)[1])


@on(has_channels)
def linear(d: Drawing, x: Any) -> Any:
    if x.ndim == 3 and d.chance(0.6):
        name = d.link(L.Linear(x.shape[2], d.among(2, 4)))
        return lambda model, x: model[name](x, n_batch_axes=2)
    size = int(np.prod(x.shape[1:]))
    return _calls(d.link(L.Linear(size, d.among(2, 4, 9), nobias=d.chance(0.3))))


@on(is_real)
def mask(d: Drawing, x: Any) -> Any:
    """What is chosen by the signs of values, or by a mask that is always the same."""
    fixed = d.rng.random(x.shape[1:]) < 0.5
    return d.among(
        lambda model, x: F.where(np.broadcast_to(fixed, x.shape), x, F.tanh(x)),
        lambda model, x: F.clipped_relu(x, 0.5),
        lambda model, x: F.maximum(x, F.tanh(x)),
    )


@on(lambda v: is_real(v) and v.ndim == 3)
def product(d: Drawing, x: Any) -> Any:
    return lambda model, x: F.matmul(F.softmax(F.matmul(x, x, transb=True), axis=2), x)


STEPS = (
    *(convolution, convolution, convolution, normalization, elementwise, elementwise, scalar),
    *(scalar, pooling, join, join, join, branches, branches, squeeze, shape_change, shape_change),
    *(shape_change, split, linear, linear, mask, product),
)


class Drawn(chainer.Chain):
    """A network that was drawn; ``forward`` runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Any = None

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, inputs)


class OldStyle(Drawn):
    """The same in the style of Chainer up to 4."""

    def __call__(self, *inputs: Any) -> Any:
        return self.run(self, inputs)


class _Run:
    """Runs the layers of a drawing; copies of a network share it."""

    def __init__(self, drawing: Drawing, outputs: Any) -> None:
        self._layers, self._outputs = list(drawing.layers), outputs

    def __deepcopy__(self, memo: Any) -> _Run:
        return self

    def __call__(self, model: Any, inputs: tuple[Any, ...]) -> Any:
        values = [chainer.as_variable(x) for x in inputs]
        for of, layer in self._layers:
            values.append(layer(model, *(values[n] for n in of)))
        return self._outputs(values)


def drawn(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs, arrays."""
    kept = np.random.get_state()  # noqa: NPY002 (Chainer's initialisers draw from it)
    np.random.seed(seed)  # noqa: NPY002
    try:
        return _drawn(np.random.default_rng(seed))
    finally:
        np.random.set_state(kept)  # noqa: NPY002


def _drawn(rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
    dtype = rng.choice(["f", "f", "f", "f", "d", "e"])
    kind = rng.choice(["images", "images", "images", "matrix", "sequence", "two", "ids"])
    batch = int(rng.integers(1, 4))
    with chainer.using_config("dtype", np.dtype(dtype)):
        model = OldStyle() if rng.random() < 0.2 else Drawn()
        inputs = _inputs(rng, kind, batch, dtype)
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            d = Drawing(rng, model, np.dtype(dtype), [chainer.as_variable(x) for x in inputs])
            if kind == "ids":
                name = d.link(L.EmbedID(11, int(rng.integers(2, 5))))
                d.add((0,), _calls(name))
            for _ in range(int(rng.integers(2, 12))):
                before = len(d.values)
                d.among(*STEPS)(d)
                too_large = any(v.size > 20000 for v in d.values[before:])
                empty = any(v.size == 0 for v in d.values[before:])
                if too_large or empty:
                    del d.layers[len(d.layers) - (len(d.values) - before) :], d.values[before:]
        if len(d.values) == len(inputs):
            d.add((0,), lambda model, x: F.identity(x))
        made = range(len(inputs), len(d.values))
        chosen = [len(d.values) - 1]
        chosen += [int(n) for n in rng.choice(made, int(rng.integers(0, 3)))]
        model.run = _Run(d, _form(rng, chosen))
    return model, inputs


def _inputs(rng: Any, kind: str, batch: int, dtype: str) -> tuple[Any, ...]:
    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    if kind == "matrix":
        return (normal(batch, int(rng.choice([3, 4, 9, 16]))),)
    if kind == "sequence":
        return (normal(batch, int(rng.integers(2, 6)), 4),)
    if kind == "ids":
        return (rng.integers(0, 11, (batch, int(rng.integers(2, 6)))).astype("i"),)
    sides = int(rng.integers(4, 9)), int(rng.integers(4, 9))
    image = normal(batch, int(rng.integers(1, 5)), *sides)
    return (image, normal(*image.shape)) if kind == "two" else (image,)


def _form(rng: Any, chosen: list[int]) -> Callable[[list[Any]], Any]:
    if len(chosen) == 1:
        return lambda values: values[chosen[0]]
    if rng.random() < 0.5:
        return lambda values: tuple(values[n] for n in chosen)
    return lambda values: {f"y{number}": values[n] for number, n in enumerate(chosen)}


# -- what an engine gives for them

#: The largest difference that is right, by the bytes of a number, as a part of the largest one.
TOLERANCES = {2: 2e-2, 4: 1e-3, 8: 1e-9}


def differences(expected: Any, got: Any) -> list[str]:
    """How outputs differ, in words."""
    ours, theirs = flat_arrays(expected), flat_arrays(got)
    if type(expected) is not type(got) or len(ours) != len(theirs):
        return [f"{type(got).__name__} of {len(theirs)} for {type(expected).__name__}"]
    found = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            found.append(f"output {number} is {b.dtype}{b.shape} in place of {a.dtype}{a.shape}")
            continue
        if not a.size:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            found.append(f"output {number} has other infinite numbers")
            continue
        most = abs(np.where(finite, x, 0)).max() or 1.0
        off = abs(np.where(finite, x - np.where(finite, y, 0), 0)).max() / most
        if not off <= TOLERANCES.get(a.dtype.itemsize, 0):
            found.append(f"output {number} is off by {off:.2g}")
    return found


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
            expected = output(model, *given)
            found.wrong += differences(expected, engine.run(given))
        return found
