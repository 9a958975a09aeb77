"""What came out of a run of several engines; as JSON what their recordings do not hold."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import Statistics, describe, median_interval
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import as_json
from chainer_profile.engines.catalogue import BASELINE, label_of
from chainer_profile.record.recording import COMPLETE, Environment, Layer, Recording, Settings
from chainer_profile.record.versioned import read_beside

FORMAT = "chainer-profile engines"
VERSION = 2
#: The file of a run, in its folder.
RESULTS = "engines.json"
#: What an engine's recording holds as well, and what Chainer's does.
_RECORDED = ("version", "clean_ns")
_RECORDED_OF_ALL = ("n_layers", "settings", "environment", "other_cpu")
#: Trials that an engine makes in a round at most, and rounds that there are to be at least.
_BLOCK, _ROUNDS = 10, 30


@dataclass(frozen=True)
class OutputDifference:
    """How far an engine's outputs are from Chainer's."""

    #: Largest absolute difference; infinite where only one of the two is finite, or a number.
    largest: float
    #: Largest absolute value among Chainer's finite outputs.
    magnitude: float
    #: The output with the largest difference.
    output: int = 0

    @property
    def relative(self) -> float:
        """The largest difference as a fraction of the largest output."""
        if not self.largest:
            return 0.0
        return self.largest / self.magnitude if self.magnitude else math.inf


@dataclass(frozen=True)
class Speedup:
    """How many times as fast one engine is as another."""

    factor: float
    #: The 95 % interval; NaN for fewer than 6 rounds.
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether it is faster beyond doubt, as far as there is an interval."""
        return self.factor > 1 and not self.low <= 1


@dataclass(eq=False)
class EngineResult:
    """One engine."""

    name: str
    #: Empty where it tells none.
    version: str = ""
    #: Name of the folder of its recording; empty where it has none.
    folder: str = ""
    #: None where that failed.
    prepare_s: float | None = None
    #: By how much the process grew for it, at its most in the warm-up runs: what it holds, weights
    #: of its own among it, and what a run takes beyond. None where not known.
    memory_nbytes: int | None = None
    #: Wall time of every trial, (trials,); the engines took turns in rounds of so many.
    clean_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block: int = 1
    #: On the trials' input, on a second one, for a copy of the network with drawn parameters where
    #: its own are all the same, and on the first again after the trials.
    differences: tuple[OutputDifference, ...] = ()
    tolerance: float = 0.0
    #: The layer at which its outputs leave Chainer's, in words, where that is known.
    worst_layer: str = ""
    error: str = ""
    #: The command that installs what it needs, where that is missing.
    install: str = ""
    #: What else is to be known, such as why there are no times of its nodes.
    note: str = ""

    @property
    def label(self) -> str:
        """What it is called where it is read."""
        return label_of(self.name)

    def add_note(self, text: str) -> None:
        self.note = "; ".join(filter(None, (self.note, text)))

    @property
    def measured(self) -> bool:
        """Whether it made trials and did not fail in them."""
        return len(self.clean_ns) > 0 and not self.error

    @property
    def wrong(self) -> bool:
        """Whether its outputs differ by more than the tolerance."""
        return any(not d.relative <= self.tolerance for d in self.differences)

    @property
    def difference(self) -> OutputDifference | None:
        """The largest difference; None where the outputs were not compared."""
        return max(self.differences, key=lambda d: (d.relative, d.largest), default=None)

    @property
    def statistics(self) -> Statistics | None:
        """Statistics of its trials; None where it made none."""
        return describe(self.clean_ns) if len(self.clean_ns) else None


@dataclass(frozen=True, eq=False)
class EnginesRun:
    """All engines of one run, in the order of the tables."""

    engines: tuple[EngineResult, ...]
    #: Chainer's layers in a forward pass.
    n_layers: int = 0
    settings: Settings = field(default_factory=Settings)
    environment: Environment = field(default_factory=Environment)
    #: Processor cores that other programs kept busy on average; None if not known.
    other_cpu: float | None = None
    #: ``complete``, or why the trials ended before.
    ended: str = COMPLETE

    @property
    def baseline(self) -> EngineResult | None:
        """Chainer; None where it made no trials."""
        found = (one for one in self.engines if one.name == BASELINE and one.measured)
        return next(found, None)

    @property
    def measured(self) -> tuple[EngineResult, ...]:
        """The engines that made trials."""
        return tuple(engine for engine in self.engines if engine.measured)

    @property
    def others(self) -> tuple[EngineResult, ...]:
        """The engines that did not, or failed in them."""
        return tuple(engine for engine in self.engines if not engine.measured)

    @property
    def right(self) -> tuple[EngineResult, ...]:
        """Of the engines that made trials those whose outputs are not wrong."""
        return tuple(engine for engine in self.measured if not engine.wrong)

    @property
    def wrong(self) -> tuple[EngineResult, ...]:
        """The engines whose outputs differ from Chainer's by more than the tolerance."""
        return tuple(engine for engine in self.engines if engine.wrong)


def speedup(fast: EngineResult, slow: EngineResult) -> Speedup | None:
    """How many times as fast an engine is as another one: the median of the rounds' ratios."""
    if fast.wrong or slow.wrong or not (fast.measured and slow.measured):
        return None
    # Round by round, so that what slows the machine for a while slows both.
    pairs = zip(round_medians(fast), round_medians(slow), strict=False)
    ratios = np.array([theirs / ours for ours, theirs in pairs if ours > 0])
    if not len(ratios):
        return None
    return Speedup(float(np.median(ratios)), *median_interval(ratios))


def round_medians(engine: EngineResult) -> list[float]:
    """The median of an engine's trials in every round, in nanoseconds."""
    begins = range(0, len(engine.clean_ns), engine.block)
    return [float(np.median(engine.clean_ns[at : at + engine.block])) for at in begins]


def trials_in_a_round(trials: int) -> int:
    """How many of so many trials an engine makes in each round."""
    return max(1, min(_BLOCK, trials // _ROUNDS))


def main_layer(covers: Sequence[int], layers: Sequence[Layer]) -> int:
    """Of some of Chainer's layers the one that stands for all: that of the most operations."""
    return max(covers, key=lambda index: (layers[index].flops or 0, -index))


def write_json(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """What the recordings of a run do not hold, as JSON."""
    content = {"format": FORMAT, "version": VERSION, "ended": run.ended}
    if BASELINE not in recordings:
        content |= {name: getattr(run, name) for name in _RECORDED_OF_ALL}
    content["engines"] = [
        {
            item.name: getattr(engine, item.name)
            for item in dataclasses.fields(engine)
            if item.name != "block" and not (engine.name in recordings and item.name in _RECORDED)
        }
        for engine in run.engines
    ]
    return as_json(content)


def read_json(path: Path) -> EnginesRun:
    """What a run's file holds; :func:`recorded` adds the rest."""
    found = read_beside(path, EnginesRun, FORMAT, VERSION, words=True)
    if found is None:
        raise ProfileError(f"{path.parent} contains no run of engines (no {path.name})")
    return found


def recorded(run: EnginesRun, recordings: Mapping[str, Recording]) -> EnginesRun:
    """A run with what its recordings hold, by the engines' names."""
    for engine in run.engines:
        if (one := recordings.get(engine.name)) is not None:
            own = one.settings.engine.removeprefix(engine.name).strip()
            engine.version = own or one.environment.chainer or ""
            engine.clean_ns = one.clean_ns
    if (one := recordings.get(BASELINE)) is not None:
        run = dataclasses.replace(
            run,
            n_layers=len(one.layers),
            settings=dataclasses.replace(one.settings, trials=one.settings.clean_trials),
            environment=one.environment,
            other_cpu=one.conditions.other_cpu,
        )
    for engine in run.engines:
        engine.block = trials_in_a_round(run.settings.trials)
    return run


def folder_names(names: Sequence[str]) -> dict[str, str]:
    """A folder's name for each engine: letters, digits, ``.``, ``_`` and ``-`` only."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "engine"
        number = 2
        unique = plain
        while unique in found.values():
            unique, number = f"{plain}-{number}", number + 1
        found[name] = unique
    return found
