"""What the kernels pass found: what a GPU ran for every layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """One kernel, copy or fill of a GPU, in the trials of the kernels pass.

    Attributes:
        name: Its name; ``memcpy HTOD`` and so on for copies, ``memset`` for fills.
        row: Index of the layer that launched it; None where no layer did, or it is not known.
        count: How often it ran in all trials of the pass.
        time_ns: How long it ran in all of them, in nanoseconds on the GPU's clock.
    """

    name: str
    row: int | None
    count: int
    time_ns: int


@dataclass(frozen=True)
class Kernels:
    """What the kernels pass found. Kernels of other threads have no layer.

    Attributes:
        trials: Number of its trials, which are of the recording's kind.
        kernels: Those of a layer together, in the order in which they were first launched; last
            those that no layer launched.
        dropped: Records that CUPTI had no room for.
        method: What looked: ``cupti-python 13.4.0``.
        problem: Why nothing was seen; empty where something was.
    """

    trials: int = 0
    kernels: tuple[Kernel, ...] = ()
    dropped: int = 0
    method: str = ""
    problem: str = ""
