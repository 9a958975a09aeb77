"""The results of a sweep's cases, from which its table is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chainer_profile.basics.describe import describe
from chainer_profile.basics.paths import above
from chainer_profile.basics.units import format_input
from chainer_profile.record.recording import LinkCalls, Recording, Settings


@dataclass(frozen=True)
class CaseResult:
    """The result of one case of a sweep, or the reason if its run failed.

    Times and ``fps`` are of the unprofiled trials; without any, of the profiled trials. Unknown
    numbers are NaN or None, unknown texts are empty.
    """

    #: The name of its folder in the sweep's folder, such as ``resnet20-cpu-b1``.
    name: str
    settings: Settings = field(default_factory=Settings)
    machine: str = ""
    #: The reason if it failed.
    error: str = ""
    started: str = ""
    #: The processor, or the GPU.
    processor: str = ""
    threads: int | None = None
    #: Kind of the network's blocks, such as ``basic``.
    blocks: str = ""
    parameters: int | None = None
    #: Peak allocated in a trial, excluding what existed before it.
    memory_nbytes: int | None = None
    #: Number of the trials that these times are of, and whether they are unprofiled.
    timed: int = 0
    clean: bool = True
    mean_s: float = math.nan
    std_s: float = math.nan
    median_s: float = math.nan
    fps: float = math.nan

    @property
    def input_text(self) -> str:
        """The shape of an input; without the channels of an RGB image: ``1024x2048``."""
        shape = self.settings.input_shape[1:]
        return format_input(shape) if shape else ""


def result_of(name: str, recording: Recording, machine: str = "") -> CaseResult:
    """The result of a case, from its recording."""
    settings, environment = recording.settings, recording.environment
    clean = len(recording.clean_ns) > 0
    samples = recording.clean_ns if clean else recording.trial_ns
    times = None if samples is None or not len(samples) else describe(samples)
    gpu, batchsize = environment.gpu, settings.batchsize
    result = CaseResult(
        name,
        settings,
        machine,
        started=environment.started,
        processor=gpu.name if gpu is not None and gpu.name else environment.processor,
        threads=max((library.threads for library in environment.blas), default=None),
        blocks=block_kind(recording.links),
        parameters=sum(link.parameters for link in recording.links) or None,
        memory_nbytes=None if recording.memory is None else recording.memory.high_water_nbytes,
        clean=clean,
    )
    if times is None:
        return result
    fps = batchsize / times.mean_s if batchsize and times.mean_s else math.nan
    result = replace(result, timed=times.count, fps=fps, median_s=times.median_s)
    return replace(result, mean_s=times.mean_s, std_s=times.std_s)


def machines_of(results: Sequence[CaseResult]) -> list[tuple[str, str]]:
    """Pairs of a machine's name and its processor, each once; leaves out failed cases."""
    good = (result for result in results if not result.error)
    return list(dict.fromkeys((result.machine, result.processor) for result in good))


def several_machines(results: Sequence[CaseResult]) -> bool:
    """Whether the cases that did not fail ran on more than one machine."""
    return len({machine for machine, _ in machines_of(results)}) > 1


def block_kind(links: Sequence[LinkCalls]) -> str:
    """Kinds of the network's blocks, joined by ``+``: ``basic+bottleneck``; empty without any."""
    # A block is a link that contains links and is in no other block. Its own name is a number
    # (/res2/0), or the name of its class ends with Block. Its kind is the class without "Block".
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
