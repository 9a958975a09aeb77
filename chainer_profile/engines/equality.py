"""Compares an engine's outputs with Chainer's, and finds the first layer that differs.

Outputs are also compared for other inputs, to find an engine that depends on the inputs of its
preparation. If the network's parameters would hide an error, they are compared with others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import chainer
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.units import format_shape, plural
from chainer_profile.engines.protocol import EngineError, Network, flat_arrays
from chainer_profile.engines.results import OutputDifference
from chainer_profile.record.recording import Layer

#: Largest allowed difference of float32 outputs, as a fraction of the largest output. This is
#: several hundred times the rounding error of one operation.
TOLERANCE = 1e-4
_TOLERANCE_BY_NBYTES = {2: 1e-2, 4: TOLERANCE, 8: 1e-10}


def tolerance(dtype: np.dtype[Any]) -> float:
    """Largest allowed relative difference of outputs of a type; 0 for integers."""
    return _TOLERANCE_BY_NBYTES.get(dtype.itemsize, 0.0) if dtype.kind == "f" else 0.0


@contextmanager
def in_test_mode() -> Iterator[None]:
    """Run networks in test mode and without a graph, within the context."""
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        yield


def outputs_of(model: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Run a network in test mode; return its output arrays, on its device."""
    with in_test_mode():
        return flat_arrays(model(*inputs))


def host_copies(arrays: Sequence[Any]) -> tuple[NDArray[Any], ...]:
    """Copy arrays to the host, because engines may reuse the memory of their outputs."""
    return tuple(
        np.array(array.get() if hasattr(array, "get") else array, copy=True) for array in arrays
    )


def difference(expected: Sequence[Any], got: Sequence[Any]) -> OutputDifference:
    """Compare outputs with the expected outputs.

    Raises:
        EngineError: Their numbers or shapes differ.
    """
    if len(expected) != len(got):
        raise EngineError(
            f"returns {plural(len(got), 'output')}, but Chainer {plural(len(expected), 'output')}"
        )
    largest, magnitude = 0.0, 0.0
    pairs = zip(host_copies(expected), host_copies(got), strict=True)
    for index, (chainers, engines) in enumerate(pairs):
        if chainers.shape != engines.shape:
            raise EngineError(
                f"output {index} has shape {format_shape(engines.shape)}, but Chainer's has "
                f"{format_shape(chainers.shape)}"
            )
        a, b = chainers.astype(np.float64), engines.astype(np.float64)
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            distances = np.where(equal, 0.0, np.abs(a - b))
        distances[np.isnan(distances)] = np.inf
        largest = max(largest, float(distances.max(initial=0.0)))
        magnitude = max(magnitude, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
    return OutputDifference(largest, magnitude)


def chainer_intermediates(network: Network) -> dict[int, NDArray[Any]]:
    """Run the network; copy the first output of each of Chainer's layers, by the layer's index."""
    from chainer_profile.measure.hooks import WalkHook

    outputs: dict[int, NDArray[Any]] = {}
    running: list[int] = []
    calls = count()

    def end(function: Any, inputs: Any, given: tuple[Any, ...], frame: Any) -> None:
        (outputs[running.pop()],) = host_copies(given[:1])

    with in_test_mode(), WalkHook(lambda *_: running.append(next(calls)), end):
        network.model(*network.inputs)
    return outputs


def worst_layer(
    expected: Mapping[int, Any], got: Mapping[int, Any], layers: Sequence[Layer], tolerance: float
) -> str:
    """Describe the first layer that differs, or else the layer with the largest difference."""

    def named(index: int) -> str:
        return f"{layers[index].label} at {layers[index].path}"

    worst, largest = -1, 0.0
    for index in sorted(expected.keys() & got.keys()):
        (engines,) = host_copies((got[index],))
        chainers = np.asarray(expected[index])
        if engines.size != chainers.size:
            continue  # the engine's layout cannot be compared
        relative = difference((chainers,), (engines.reshape(chainers.shape),)).relative
        if not relative <= tolerance:
            return f"the first layer that differs is {named(index)}"
        if relative > largest or math.isnan(relative):
            worst, largest = index, relative
    if worst < 0:
        return "no layer that the engine reports differs, so fused layers cause the difference"
    return (
        "no layer that the engine reports differs by more than the tolerance; the largest "
        f"difference is in {named(worst)}"
    )


# -- other inputs and parameters, which reveal a faulty engine


def other_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make other valid inputs of the same shapes, to find constants that depend on the inputs."""
    # New values are values of the input, or numbers between two of them, so that indices, labels
    # and positive numbers stay valid. A permutation would have the same sum and extremes.
    rng = np.random.default_rng(0)
    return tuple(_drawn_like(array, rng) for array in inputs)


def _drawn_like(array: Any, rng: np.random.Generator) -> Any:
    """Make an array of the same shape and type from values of an array; floats also lie between."""
    xp = chainer.backend.get_array_module(array)
    values = np.asarray(array if xp is np else array.get()).reshape(-1)
    if not values.size:
        return array.copy()
    drawn = values[rng.integers(values.size, size=values.size)]
    finite = values[np.isfinite(values)].astype(np.float64)
    if values.dtype.kind == "f" and finite.size:
        drawn = _between(drawn, finite, rng)
    return xp.asarray(drawn.astype(values.dtype).reshape(array.shape))


def _between(drawn: Any, finite: Any, rng: np.random.Generator) -> Any:
    """Draw numbers between each ``drawn`` value and a finite one; around it if all are equal."""
    if finite.min() == finite.max():
        return finite[0] + rng.standard_normal(drawn.size) * (abs(finite[0]) or 1.0)
    part = rng.uniform(0.25, 1.0, drawn.size)
    with np.errstate(invalid="ignore"):
        return part * drawn.astype(np.float64) + (1 - part) * rng.choice(finite, drawn.size)


def with_other_parameters(model: Any) -> Any:
    """Copy a network, with random numbers for constant parameters; None without such parameters.

    Initial normalisations (scale 1, shift 0, mean 0, variance 1) and weights of zero hide errors.
    """
    copied, rng = copy.deepcopy(model), np.random.default_rng(0)
    constant = [array for array in _float_arrays(copied) if (array == array.reshape(-1)[0]).all()]
    for array in constant:
        number = float(array.reshape(-1)[0])
        if number:
            drawn = number * rng.uniform(0.5, 1.5, array.shape)
        else:
            scale = np.sqrt(2 / array[0].size) if array.ndim > 1 else 0.3
            drawn = rng.normal(0, scale, array.shape)
        xp = chainer.backend.get_array_module(array)
        array[...] = xp.asarray(drawn, array.dtype)
    return copied if constant else None


def _float_arrays(model: Any) -> Iterator[Any]:
    """Yield the floating-point parameters and persistent arrays that are not empty."""
    array_types = chainer.get_array_types()
    for _, link in sorted(model.namedlinks()):
        for name in sorted(link._params | link._persistent):
            value = getattr(link, name)
            array = value.array if isinstance(value, chainer.Variable) else value
            if isinstance(array, array_types) and array.dtype.kind == "f" and array.size:
                yield array
