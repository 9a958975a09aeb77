"""The facts of a run, which the table of a sweep is made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from chainer_profile.basics.paths import above
from chainer_profile.basics.units import format_input
from chainer_profile.record.parts import LinkCalls, Settings


@dataclass(frozen=True)
class Digest:
    """What a run was, and what came out. Numbers not known are NaN or None, texts empty.

    The latency is of the unprofiled trials, or else of the profiled ones.
    """

    settings: Settings = field(default_factory=Settings)
    started: str = ""
    #: Or the GPU.
    processor: str = ""
    threads: int | None = None
    #: Kind of the network's blocks, such as ``basic``.
    blocks: str = ""
    parameters: int | None = None
    #: Peak allocated in a trial, excluding what existed before it.
    memory_nbytes: int | None = None
    #: Number of the trials that the latency is of, and whether these are unprofiled ones.
    timed: int = 0
    clean: bool = True
    mean_s: float = math.nan
    std_s: float = math.nan
    median_s: float = math.nan
    fps: float = math.nan

    @property
    def input_text(self) -> str:
        """The input's shape; of an image with three channels height and width: ``1024x2048``."""
        shape = self.settings.input_shape[1:]
        return format_input(shape) if shape else ""


@dataclass(frozen=True)
class Run:
    """One run of a sweep, whose cases may fail.

    The name is that of its folder below the sweep's, such as ``resnet20-cpu-b1``.
    """

    name: str
    digest: Digest
    machine: str = ""
    error: str = ""


def machines_of(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Names of the machines, and their processors, in the order in which they come."""
    known = (run for run in runs if not run.error)
    return list(dict.fromkeys((run.machine, run.digest.processor) for run in known))


def several_machines(runs: Sequence[Run]) -> bool:
    """Whether runs come from more than one machine."""
    return len({machine for machine, _ in machines_of(runs)}) > 1


def block_kind(links: Sequence[LinkCalls]) -> str:
    """Kinds of the network's blocks: ``basic``, ``bottleneck``; empty where it has none."""
    # A block is a link that has links of its own, is in no other block, and has a number for a name
    # (/res2/0) or a class of which the name ends with Block. Its kind is that name without Block.
    paths = [link.path for link in links]
    parents = {above(path) for path in paths}
    kinds: dict[str, None] = {}
    blocks: list[str] = []
    for link in links:
        named = link.path.rpartition("/")[2].isdecimal() or link.kind.endswith("Block")
        inside = any(link.path.startswith(f"{block}/") for block in blocks)
        if not named or inside or link.path not in parents:
            continue
        blocks.append(link.path)
        kinds.setdefault((link.kind.removesuffix("Block") or link.kind).lower())
    return "+".join(kinds)
