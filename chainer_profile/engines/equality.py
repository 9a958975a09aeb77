"""Does an engine give what Chainer gives? And if not, from which layer on?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import chainer
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.units import format_shape, plural
from chainer_profile.engines.protocol import EngineError, Network, flat_arrays
from chainer_profile.engines.results import OutputDifference
from chainer_profile.record.recording import Layer

#: The largest difference that is right in float32, as a fraction of the largest output: some tens
#: of roundings of its digits.
TOLERANCE = 1e-4
#: The same of floats by their bytes.
_BY_BYTES = {2: 1e-2, 4: TOLERANCE, 8: 1e-10}


def tolerance(dtype: np.dtype[Any]) -> float:
    """The largest difference that is right in one type; whole numbers have to be the same."""
    return _BY_BYTES.get(dtype.itemsize, 0.0) if dtype.kind == "f" else 0.0


@contextmanager
def in_test_mode() -> Iterator[None]:
    """Within this, networks run for inference: in test mode, without a graph."""
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        yield


def outputs_of(model: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a network gives in test mode: arrays, on its device."""
    with in_test_mode():
        return flat_arrays(model(*inputs))


def host_copies(arrays: Sequence[Any]) -> tuple[NDArray[Any], ...]:
    """Copies of arrays on the host; engines may use the memory of their outputs again."""
    return tuple(
        np.array(array.get() if hasattr(array, "get") else array, copy=True) for array in arrays
    )


def difference(expected: Sequence[Any], got: Sequence[Any]) -> OutputDifference:
    """How far outputs are from the expected ones."""
    if len(expected) != len(got):
        raise EngineError(
            f"returns {plural(len(got), 'output')}, but Chainer {plural(len(expected), 'output')}"
        )
    largest, magnitude, where = 0.0, 0.0, 0
    pairs = zip(host_copies(expected), host_copies(got), strict=True)
    for index, (ours, theirs) in enumerate(pairs):
        if ours.shape != theirs.shape:
            raise EngineError(
                f"output {index} has shape {format_shape(theirs.shape)}, but Chainer's has "
                f"{format_shape(ours.shape)}"
            )
        if not ours.size:
            continue
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            apart = np.where(alike, 0.0, np.abs(a - b))
        most = float(np.where(np.isnan(apart), np.inf, apart).max())
        magnitude = max(magnitude, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
        if most > largest:
            largest, where = most, index
    return OutputDifference(largest, magnitude, where)


def chainer_intermediates(network: Network) -> dict[int, NDArray[Any]]:
    """The first output of each of Chainer's layers, copied, by the index of the layer."""
    from chainer_profile.measure.hooks import WalkHook

    outputs: dict[int, NDArray[Any]] = {}
    running: list[int] = []
    calls = count()

    def begin(*_: Any) -> None:
        running.append(next(calls))

    def end(function: Any, inputs: Any, given: tuple[Any, ...], frame: Any) -> None:
        (outputs[running.pop()],) = host_copies(given[:1])

    with ExitStack() as stack:
        stack.enter_context(in_test_mode())
        stack.enter_context(WalkHook(begin, end))
        network.model(*network.inputs)
    return outputs


def worst_layer(
    expected: Mapping[int, Any], got: Mapping[int, Any], layers: Sequence[Layer], tolerance: float
) -> str:
    """Where an engine leaves Chainer, in words."""
    worst, most = -1, 0.0
    for index in sorted(expected.keys() & got.keys()):
        theirs = np.asarray(got[index].get() if hasattr(got[index], "get") else got[index])
        ours = np.asarray(expected[index])
        if theirs.size != ours.size:
            continue  # the engine's own layout: nothing can be said
        relative = difference((ours,), (theirs.reshape(ours.shape),)).relative
        if not relative <= tolerance:
            return f"the first layer that differs is {_named(layers[index])}"
        if relative > most or math.isnan(relative):
            worst, most = index, relative
    if worst < 0:
        return "no layer that the engine shows differs, so the difference arises in fused layers"
    return (
        "no layer that the engine shows differs by more than the tolerance; the largest "
        f"difference is in {_named(layers[worst])}"
    )


def _named(layer: Layer) -> str:
    return f"{layer.label} at {layer.path}"


# -- what is kept of one input, or hidden by parameters, shows on others


def other_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Other valid inputs of the same shapes; what was kept of the first is wrong for them."""
    # Drawn from the numbers that are there, or between two of them, so that an index, a label or a
    # positive number stays valid. A permutation of them would have the same sums and extremes.
    rng = np.random.default_rng(0)
    return tuple(_other(array, rng) for array in inputs)


def _other(array: Any, rng: np.random.Generator) -> Any:
    xp = chainer.backend.get_array_module(array)
    known = np.asarray(array if xp is np else array.get()).reshape(-1)
    if not known.size:
        return array.copy()
    drawn = known[rng.integers(known.size, size=known.size)]
    if known.dtype.kind == "f":
        drawn = _between(drawn, known, rng)
    return xp.asarray(drawn.astype(known.dtype).reshape(array.shape))


def _between(drawn: Any, known: Any, rng: np.random.Generator) -> Any:
    finite = known[np.isfinite(known)].astype(np.float64)
    if not finite.size:
        return drawn
    if finite.min() == finite.max():
        return finite[0] + rng.standard_normal(known.size) * (abs(finite[0]) or 1.0)
    part = rng.uniform(0.25, 1.0, known.size)
    with np.errstate(invalid="ignore"):
        return part * drawn.astype(np.float64) + (1 - part) * rng.choice(finite, known.size)


def with_other_parameters(model: Any) -> Any:
    """A copy of a network with drawn numbers where a parameter's are all the same; None if none."""
    # Initial normalisations (scale 1, shift 0, mean 0, variance 1) and weights of zero hide what is
    # done wrongly with them.
    copied, rng = copy.deepcopy(model), np.random.default_rng(0)
    alike = [array for array in _arrays_of(copied) if bool((array == array.reshape(-1)[0]).all())]
    for array in alike:
        number = float(array.reshape(-1)[0])
        if number:
            drawn = number * rng.uniform(0.5, 1.5, array.shape)
        else:
            scale = np.sqrt(2 / array[0].size) if array.ndim > 1 else 0.3
            drawn = rng.normal(0, scale, array.shape)
        xp = chainer.backend.get_array_module(array)
        array[...] = xp.asarray(drawn, array.dtype)
    return copied if alike else None


def _arrays_of(model: Any) -> Iterator[Any]:
    """Floating-point parameters and persistent arrays."""
    known = chainer.get_array_types()
    for _, link in sorted(model.namedlinks()):
        for name in sorted(link._params | link._persistent):
            value = getattr(link, name)
            array = value.array if isinstance(value, chainer.Variable) else value
            if isinstance(array, known) and array.dtype.kind == "f" and array.size:
                yield array
