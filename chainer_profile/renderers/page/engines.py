"""What the page shows of other engines that ran the same network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineRow:
    """One engine. Times are seconds a trial; texts are shown as they are.

    Attributes:
        name: What the reader calls it: ``onnxruntime``.
        version: Its version; empty where it tells none.
        precision: What it computed in: ``fp32``, ``bf16``.
        mean_s: Mean time of a trial.
        median_s: Its median.
        p95_s: Its 95th percentile.
        speedup: How many times as fast it is as Chainer, in words: ``3.41x (3.38 to 3.44)``.
        difference: How far its outputs are from Chainer's, in words.
        note: What else is to be said; empty for nothing.
        by_function: Time of the layers by Chainer's name of the function, in seconds a trial;
            empty where it is not known.
    """

    name: str
    version: str
    precision: str
    mean_s: float
    median_s: float
    p95_s: float
    speedup: str = ""
    difference: str = ""
    note: str = ""
    by_function: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Engines:
    """All engines of a run.

    Attributes:
        rows: The engines, in the order to show.
        notes: Sentences about how they ran, and what did not run.
    """

    rows: tuple[EngineRow, ...]
    notes: tuple[str, ...] = ()
