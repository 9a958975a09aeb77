"""Does an engine give what Chainer gives? And if not, from which layer on?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np

from chainer_profile.basics.units import format_shape, plural
from chainer_profile.engines.protocol import EngineError, flat_arrays
from chainer_profile.engines.results import OutputDifference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from chainer_profile.engines.protocol import Network
    from chainer_profile.record.recording import Layer

#: The largest difference that is right, as a fraction of the largest output, by precision: some
#: tens of roundings of its digits.
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}


#: The same of Chainer's own numbers by their bytes, for those of whole networks.
_BY_BYTES = {2: TOLERANCES["fp16"], 4: TOLERANCES["fp32"], 8: 1e-10}


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
    """How far outputs are from the expected ones.

    Args:
        expected: Chainer's outputs: arrays, on the host or on a GPU.
        got: The engine's, in the same order.

    Returns:
        The largest difference of all numbers. Where both are the same infinity, or both no number,
        there is none; where only one of them is, it is infinite.

    Raises:
        EngineError: Their number, or a shape, is another.
    """
    if len(expected) != len(got):
        raise EngineError(
            f"gives {plural(len(got), 'output')}, and Chainer {plural(len(expected), 'output')}"
        )
    largest, magnitude, where = 0.0, 0.0, 0
    pairs = zip(host_copies(expected), host_copies(got), strict=True)
    for index, (ours, theirs) in enumerate(pairs):
        if ours.shape != theirs.shape:
            raise EngineError(
                f"output {index} has the shape {format_shape(theirs.shape)}, and Chainer's "
                f"{format_shape(ours.shape)}"
            )
        if not ours.size:
            continue
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
        alike = finite | (a == b) | (np.isnan(a) & np.isnan(b))
        most = float(np.where(alike, apart, np.inf).max())
        known = np.abs(a[np.isfinite(a)])
        magnitude = max(magnitude, float(known.max(initial=0.0)))
        if most > largest:
            largest, where = most, index
    return OutputDifference(largest, magnitude, where)


def chainer_intermediates(network: Network) -> dict[int, NDArray[Any]]:
    """The first output of each of Chainer's layers, copied, by the index of the layer.

    Args:
        network: The network; it is called once, in test mode.
    """
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
    """Where an engine leaves Chainer, in words.

    Args:
        expected: Chainer's outputs by index of the layer; see :func:`chainer_intermediates`.
        got: The engine's, as far as it tells them.
        layers: Chainer's layers.
        tolerance: The largest relative difference that is right.

    Returns:
        The first layer, in the order of the calls, that differs by more than the tolerance, or else
        the one with the largest difference.
    """
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
        return "no layer that the engine shows differs: the difference arises in fused layers only"
    return (
        "no layer that the engine shows differs by more than the tolerance; the largest difference "
        f"is that of {_named(layers[worst])}"
    )


def _named(layer: Layer) -> str:
    return f"{layer.label} at {layer.path}"
