"""What the kernels pass says: what the GPU runs for every layer, and whether it adds up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.device_use import layer_device
from chainer_profile.analyse.timeline import FUNCTION
from chainer_profile.basics.describe import NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.timeline import Slice
    from chainer_profile.record.recording import Kernel, Recording


@dataclass(frozen=True)
class LayerKernel:
    """A kernel, copy or fill that the GPU runs for a layer, in a trial of the kernels pass.

    Attributes:
        layer_index: Index of the layer that launched it; None where no layer did, or it is not
            known.
        name: Its name; ``memcpy HTOD`` and so on for copies, ``memset`` for fills.
        count: How often it runs in a trial, mean.
        time_s: How long it runs in a trial, mean.
        share: Part of the time of all of them.
    """

    layer_index: int | None
    name: str
    count: float
    time_s: float
    share: float


@dataclass(frozen=True)
class KernelUse:
    """What the GPU runs in a trial, from the kernels pass.

    Attributes:
        method: What looked.
        trials: Number of the trials of that pass.
        problem: Why nothing was seen; empty where something was.
        dropped: Records that CUPTI had no room for.
        time_s: How long all kernels, copies and fills run in a trial, mean.
        known_share: Part of them, by their number, that have a layer; None without any.
        busy_share: What those of the layers take, as a part of the time that the GPU is busy in the
            layers when it never waits for the host; None where that is not known.
        kernels: Those of a layer together, in the order in which they were first launched; last
            those that no layer launched.
    """

    method: str
    trials: int
    problem: str
    dropped: int
    time_s: float
    known_share: float | None
    busy_share: float | None
    kernels: tuple[LayerKernel, ...]


def kernel_use(recording: Recording) -> KernelUse | None:
    """What the kernels pass says; None without one."""
    found = recording.kernels
    if found is None:
        return None
    whole_ns = sum(one.time_ns for one in found.kernels)
    count = sum(one.count for one in found.kernels)
    of_layers = [one for one in found.kernels if one.row is not None]
    busy_s = float(np.sum(layer_device(recording)["busy_s"]))
    layers_s = sum(one.time_ns for one in of_layers) * NS / max(1, found.trials)
    return KernelUse(
        method=found.method,
        trials=found.trials,
        problem=found.problem,
        dropped=found.dropped,
        time_s=whole_ns * NS / max(1, found.trials),
        known_share=sum(one.count for one in of_layers) / count if count else None,
        busy_share=layers_s / busy_s if busy_s > 0 and of_layers else None,
        kernels=tuple(
            LayerKernel(
                one.row,
                one.name,
                one.count / found.trials,
                one.time_ns * NS / found.trials,
                one.time_ns / whole_ns if whole_ns else math.nan,
            )
            for one in found.kernels
        ),
    )


def lay_out_kernels(recording: Recording, device: Slice) -> Iterator[tuple[int, int, Kernel]]:
    """Begins and ends of what the layers launched, in a trial laid out on the device.

    Only their lengths are known: those of a layer lie one behind the other, from the begin of the
    longest part of it in which no other layer runs, and shortened where they do not fit.

    Args:
        recording: The recording.
        device: The trial, from :func:`~.timeline.lay_out_device`.
    """
    found = recording.kernels
    by_row: dict[int | None, list[Kernel]] = {}
    for one in () if found is None else found.kernels:
        by_row.setdefault(one.row, []).append(one)
    for _, layer in device.walk((FUNCTION,)):
        kernels = by_row.get(layer.layer, [])
        if found is None or not kernels:
            continue
        edges = [layer.begin_ns]
        for inner in layer.inner:
            edges += [inner.begin_ns, inner.end_ns]
        parts = zip(edges[::2], [*edges[1::2], layer.end_ns], strict=True)
        begin, end = max(parts, key=lambda part: part[1] - part[0])
        lengths = [one.time_ns / found.trials for one in kernels]
        scale = min(1.0, (end - begin) / (sum(lengths) or 1.0))
        ends = [begin + round(at * scale) for at in np.cumsum([0.0, *lengths])]
        yield from zip(ends, ends[1:], kernels, strict=False)
