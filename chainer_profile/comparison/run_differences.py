"""Differences between runs in settings, software and machine, and in the machine's speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from chainer_profile.basics.units import format_nbytes, format_shape
from chainer_profile.record.recording import Recording

#: The machine's speed has changed if its own work took longer or shorter by such fractions, on
#: average or at any moment.
MOVED, MOVED_MOMENT = 0.03, 0.10
#: The engine of a run that names none.
_CHAINER = "Chainer"
PRODUCT, COPY, OTHERS = "matrix product", "copy", "other programs"


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in both runs; a value is empty if a run has none."""

    name: str
    before: str
    after: str

    @property
    def of_machine(self) -> bool:
        """Whether the runs are of different machines."""
        return self.name in _MACHINE

    @property
    def of_place(self) -> bool:
        """Whether the machine's fixed work is other work, too."""
        return self.of_machine or self.name in _PLACE


@dataclass(frozen=True)
class Movement:
    """How the machine itself changed between two runs. Ratios are time after over time before."""

    #: The measure: the time of the machine's own ``matrix product`` or ``copy``, or ``other
    #: programs``, by which a run takes longer that shares the cores with them.
    name: str
    ratio: float  #: The second run over the first, each on average.
    #: The least and largest ratio of any moment of the second run to any of the first; with several
    #: runs of a side the ratio and 1.
    low: float
    high: float

    @property
    def moved(self) -> bool:
        """Whether the machine was faster or slower at some moment or on average."""
        average = max(self.ratio, 1 / self.ratio)
        return average > 1 + MOVED or max(self.high, 1 / self.low) > 1 + MOVED_MOMENT


_SWITCH: dict[bool | None, str] = {True: "on", False: "off", None: ""}
#: Values that may differ, by their names; None if a run has no such value.
_SETTINGS: dict[str, Callable[[Recording], object]] = {
    "network": attrgetter("settings.model"),
    "engine": lambda run: run.settings.engine or _CHAINER,
    "phase": attrgetter("settings.phase"),
    "input": lambda run: run.settings.input_shape and format_shape(run.settings.input_shape),
    "batch": attrgetter("settings.batchsize"),
    "times": lambda run: "inclusive" if run.settings.inclusive else "self times",
    "data type": attrgetter("settings.dtype"),
    "train mode": lambda run: _SWITCH[run.settings.train_mode],
    "backprop in forward": lambda run: _SWITCH[run.settings.with_graph],
    "loss": attrgetter("settings.loss"),
    "optimizer": attrgetter("settings.optimizer"),
    "kernels": lambda run: run.settings.fast or "Chainer's own",
    "freed memory": lambda run: "kept" if run.settings.keep_memory else "given back",
    "TF32": lambda run: run.environment.gpu and _SWITCH[run.environment.gpu.tf32],
    "system": attrgetter("environment.system"),
    "Python": attrgetter("environment.python"),
    "Chainer": attrgetter("environment.chainer"),
    "NumPy": attrgetter("environment.numpy"),
    "CuPy": attrgetter("environment.cupy"),
    "profiler": attrgetter("environment.profiler"),
    "variables": lambda run: ", ".join(run.environment.variables),
    "memory": lambda run: (
        format_nbytes(run.environment.memory_nbytes) if run.environment.memory_nbytes else ""
    ),
}
_MACHINE: dict[str, Callable[[Recording], object]] = {
    "processor": attrgetter("environment.processor"),
    "cores": attrgetter("environment.usable_cores"),
    "GPU": lambda run: run.environment.gpu and run.environment.gpu.name,
}
#: With another value of these, the machine's fixed work is other work.
_PLACE: dict[str, Callable[[Recording], object]] = {
    "device": attrgetter("settings.device"),
    "BLAS": lambda run: ", ".join(
        f"{lib.name} {lib.version} x{lib.threads}" for lib in run.environment.blas
    ),
    "BLAS kernels": lambda run: ", ".join(
        lib.kernels for lib in run.environment.blas if lib.kernels
    ),
}
#: Values that count only if both runs have them: runs on a CPU and a GPU differ in the device, and
#: older recordings have no kernels.
_IN_BOTH = ("GPU", "BLAS kernels")


def differences(before: Recording, after: Recording) -> Iterator[Difference]:
    """The differences, in the order of reports, without commits, dates and numbers of trials."""
    for name, value_of in (_SETTINGS | _PLACE | _MACHINE).items():
        values = [str(value_of(run) or "") for run in (before, after)]
        if values[0] != values[1] and (name not in _IN_BOTH or all(values)):
            yield Difference(name, *values)


def movements(before: Sequence[Recording], after: Sequence[Recording]) -> Iterator[Movement]:
    """How the machine changed from the runs of one side to those of the other."""
    sides = before, after
    several = len(before) + len(after) > 2
    if all(run.conditions.calibrations for side in sides for run in side):
        for name, field in ((PRODUCT, "product_s"), (COPY, "copy_s")):
            first, second = (
                [
                    float(getattr(each, field))
                    for run in side
                    for each in run.conditions.calibrations
                ]
                for side in sides
            )
            if min(first + second) > 0:
                low, high = min(second) / max(first), max(second) / min(first)
                yield _movement(name, first, second, None if several else (low, high))
    stretched = [[_stretch(run) for run in side] for side in sides]
    if not any(math.isnan(value) for side in stretched for value in side):
        first, second = stretched
        yield _movement(OTHERS, first, second, None if several else (1 / first[0], second[0]))


def _movement(
    name: str, before: Sequence[float], after: Sequence[float], ends: tuple[float, float] | None
) -> Movement:
    ratio = float(np.mean(after) / np.mean(before))
    low, high = ends or (min(1.0, ratio), max(1.0, ratio))
    return Movement(name, ratio, low, high)


def _stretch(recording: Recording) -> float:
    """How many times as long a run takes because others use the cores; NaN if not measured."""
    other, cores = recording.conditions.other_cpu, recording.environment.usable_cores
    if other is None or not cores:
        return float("nan")
    threads = [recording.settings.threads or 1, *(x.threads for x in recording.environment.blas)]
    needed = min(cores, recording.settings.threads or max(threads))
    return max(1.0, needed / max(cores - other, 0.25))


def allowance(movements: Sequence[Movement]) -> tuple[float, float]:
    """The least and largest ratio, with 1 between, by which the machine may have changed times."""
    # Other programs slow the machine's own work, and leave fewer cores: the factors multiply.
    low = high = 1.0
    shared = (1.0, 1.0)
    for movement in movements:
        if movement.name == OTHERS:
            shared = movement.low, movement.high
        else:
            low, high = min(low, movement.low), max(high, movement.high)
    return low * shared[0], high * shared[1]
