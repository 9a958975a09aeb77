"""Find differences between runs in settings, software, machine, and the machine's speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from chainer_profile.basics.units import format_nbytes, format_shape
from chainer_profile.record.recording import Recording

#: The machine's speed changed if its calibration changed by these fractions: on average, or between
#: any two moments.
MOVED, MOVED_MOMENT = 0.03, 0.10
#: The engine of a run whose settings name none.
_CHAINER = "Chainer"
PRODUCT, COPY, OTHERS = "matrix product", "copy", "other programs"


@dataclass(frozen=True)
class Difference:
    """A setting or fact that differs between two runs; a value is empty if a run has none."""

    name: str
    before: str
    after: str

    @property
    def of_machine(self) -> bool:
        """Whether it is a difference between machines."""
        return self.name in _MACHINE

    @property
    def of_place(self) -> bool:
        """Whether it makes the calibrations of the runs incomparable."""
        return self.of_machine or self.name in _PLACE


@dataclass(frozen=True)
class Movement:
    """A change of the machine's speed between two runs. Ratios are time after over time before."""

    #: What was measured: a ``matrix product`` or ``copy`` as calibration, or the delay by ``other
    #: programs`` that use the cores.
    name: str
    ratio: float  #: Ratio of the means of both runs.
    #: Smallest ratio of any moment of the second run to any moment of the first. With several runs
    #: on a side, ``low`` and ``high`` are the ratio and 1, in order.
    low: float
    high: float

    @property
    def moved(self) -> bool:
        """Whether the machine was faster or slower at some moment or on average."""
        average = max(self.ratio, 1 / self.ratio)
        return average > 1 + MOVED or max(self.high, 1 / self.low) > 1 + MOVED_MOMENT


_SWITCH: dict[bool | None, str] = {True: "on", False: "off", None: ""}
#: Functions that get a value from a run, by name; they return None if a run has no such value.
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
#: If these differ, the runs' calibrations measured different work.
_PLACE: dict[str, Callable[[Recording], object]] = {
    "device": attrgetter("settings.device"),
    "BLAS": lambda run: ", ".join(
        f"{lib.name} {lib.version} x{lib.threads}" for lib in run.environment.blas
    ),
    "BLAS kernels": lambda run: ", ".join(
        lib.kernels for lib in run.environment.blas if lib.kernels
    ),
}
#: Values that are compared only if both runs have them. A run on a CPU has no GPU, and older
#: recordings have no kernels.
_IN_BOTH = ("GPU", "BLAS kernels")


def differences(before: Recording, after: Recording) -> Iterator[Difference]:
    """Yield the differences in the order of reports; ignores commits, dates, numbers of trials."""
    for name, value_of in (_SETTINGS | _PLACE | _MACHINE).items():
        values = [str(value_of(run) or "") for run in (before, after)]
        if values[0] != values[1] and (name not in _IN_BOTH or all(values)):
            yield Difference(name, *values)


def movements(before: Sequence[Recording], after: Sequence[Recording]) -> Iterator[Movement]:
    """Yield the changes of the machine's speed between the runs of both sides."""
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
    delays = [[_delay_factor(run) for run in side] for side in sides]
    if not any(math.isnan(factor) for side in delays for factor in side):
        first, second = delays
        yield _movement(OTHERS, first, second, None if several else (1 / first[0], second[0]))


def _movement(
    name: str, before: Sequence[float], after: Sequence[float], ends: tuple[float, float] | None
) -> Movement:
    ratio = float(np.mean(after) / np.mean(before))
    low, high = ends or (min(1.0, ratio), max(1.0, ratio))
    return Movement(name, ratio, low, high)


def _delay_factor(recording: Recording) -> float:
    """The factor by which other programs on the cores slow a run; NaN if not measured."""
    other, cores = recording.conditions.other_cpu, recording.environment.usable_cores
    if other is None or not cores:
        return float("nan")
    threads = [recording.settings.threads or 1, *(x.threads for x in recording.environment.blas)]
    needed = min(cores, recording.settings.threads or max(threads))
    return max(1.0, needed / max(cores - other, 0.25))


def allowance(movements: Sequence[Movement]) -> tuple[float, float]:
    """The smallest and largest ratio of times that the machine may explain; 1 is between them."""
    # Other programs slow the calibration and also occupy cores, so the factors are multiplied.
    low = high = 1.0
    shared = (1.0, 1.0)
    for movement in movements:
        if movement.name == OTHERS:
            shared = movement.low, movement.high
        else:
            low, high = min(low, movement.low), max(high, movement.high)
    return low * shared[0], high * shared[1]
