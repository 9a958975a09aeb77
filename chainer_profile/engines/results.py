"""The results of a run of several engines, and the JSON of those that no recording holds."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import Statistics, describe, median_interval
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import as_json
from chainer_profile.engines.catalogue import BASELINE, label_of
from chainer_profile.record.checking import check_folder_name, check_numbers
from chainer_profile.record.recording import COMPLETE, Environment, Layer, Recording, Settings
from chainer_profile.record.versioned import read_beside

FORMAT = "chainer-profile engines"
VERSION = 2
#: The file of a run, in its folder.
RESULTS = "engines.json"
#: Fields of an engine that its recording holds, and fields of a run that Chainer's does.
_RECORDED = ("version", "clean_ns")
_RECORDED_OF_ALL = ("n_layers", "settings", "environment", "other_cpu")
_MAX_TRIALS_IN_A_ROUND, _MIN_ROUNDS = 10, 30


@dataclass(frozen=True)
class OutputDifference:
    """How far an engine's outputs are from Chainer's."""

    #: Largest absolute difference; infinite if only one of two values is finite or a number.
    largest: float
    #: Largest absolute value among Chainer's finite outputs.
    magnitude: float

    @property
    def relative(self) -> float:
        """The largest difference as a fraction of the largest output."""
        if not self.largest:
            return 0.0
        return self.largest / self.magnitude if self.magnitude else math.inf


@dataclass(frozen=True)
class Speedup:
    """How many times as fast an engine is as another."""

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
    """The results of an engine."""

    name: str
    #: Empty if the engine has none.
    version: str = ""
    #: Name of the folder of its recording; empty if there is none.
    folder: str = ""
    #: None if preparing failed.
    prepare_s: float | None = None
    #: Most memory by which the process grew for the engine in its warm-up runs: its weights, and
    #: whatever a run allocates. None where it cannot be measured.
    memory_nbytes: int | None = None
    #: Wall time of every trial, (trials,).
    clean_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    #: Trials in a round.
    block: int = 1
    #: From Chainer's outputs on the trials' input, on another, with random numbers in place of
    #: constant parameters, and on the first input again after the trials.
    differences: tuple[OutputDifference, ...] = ()
    tolerance: float = 0.0
    #: The layer from which its outputs differ, in words, if the engine shows it.
    worst_layer: str = ""
    error: str = ""
    #: The command that installs a missing package.
    install: str = ""
    #: Remarks, such as why there are no times of its nodes.
    note: str = ""

    @property
    def label(self) -> str:
        """Its name in texts."""
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
        """Statistics of its trials; None if it made none."""
        return describe(self.clean_ns) if len(self.clean_ns) else None


@dataclass(frozen=True, eq=False)
class EnginesRun:
    """All engines of a run, in the order of the tables."""

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
        """Chainer; None if it made no trials."""
        return next((engine for engine in self.measured if engine.name == BASELINE), None)

    @property
    def measured(self) -> tuple[EngineResult, ...]:
        """The engines that made trials."""
        return tuple(engine for engine in self.engines if engine.measured)

    @property
    def others(self) -> tuple[EngineResult, ...]:
        """The engines that made no trials, or failed in them."""
        return tuple(engine for engine in self.engines if not engine.measured)

    @property
    def right(self) -> tuple[EngineResult, ...]:
        """The engines that made trials and whose outputs are right."""
        return tuple(engine for engine in self.measured if not engine.wrong)

    @property
    def wrong(self) -> tuple[EngineResult, ...]:
        """The engines whose outputs differ from Chainer's by more than the tolerance."""
        return tuple(engine for engine in self.engines if engine.wrong)


def speedup(fast: EngineResult, slow: EngineResult) -> Speedup | None:
    """How many times as fast an engine is as another: the median of the rounds' ratios."""
    if fast.wrong or slow.wrong or not (fast.measured and slow.measured):
        return None
    # Round by round: if the machine is slow for a while, both engines are.
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
    """How many of its trials an engine makes in a round."""
    return max(1, min(_MAX_TRIALS_IN_A_ROUND, trials // _MIN_ROUNDS))


def main_layer(covers: Sequence[int], layers: Sequence[Layer]) -> int:
    """The layer that stands for a group of them: that of the most operations."""
    return max(covers, key=lambda index: (layers[index].flops or 0, -index))


def write_json(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """A run as JSON, without the fields that its recordings hold."""
    content = {"format": FORMAT, "version": VERSION, "ended": run.ended}
    if BASELINE not in recordings:
        content |= {name: getattr(run, name) for name in _RECORDED_OF_ALL}
    content["engines"] = [
        {
            item.name: getattr(engine, item.name)
            for item in dataclasses.fields(EngineResult)
            if item.name != "block" and not (engine.name in recordings and item.name in _RECORDED)
        }
        for engine in run.engines
    ]
    return as_json(content)


def read_json(path: Path) -> EnginesRun:
    """The run in a file; :func:`recorded` adds the fields that recordings hold."""
    run = read_beside(path, EnginesRun, FORMAT, VERSION, words=True, check=_check)
    if run is None:
        raise ProfileError(f"{path.parent} contains no run of engines (no {path.name})")
    return run


def _check(run: EnginesRun) -> None:
    """Raise ValueError for results that no run has measured."""
    check_numbers(dataclasses.replace(run, engines=()))
    for engine in run.engines:
        check_folder_name(engine.folder)
        # A difference may be infinite.
        check_numbers(dataclasses.replace(engine, differences=()))
        if engine.clean_ns.min(initial=0) < 0:
            raise ValueError(f"clean_ns of {engine.name} contains {engine.clean_ns.min()}")


def recorded(run: EnginesRun, recordings: Mapping[str, Recording]) -> EnginesRun:
    """A run with the fields that its recordings hold, by the engines' names."""
    for engine in run.engines:
        if (recording := recordings.get(engine.name)) is not None:
            engine.version = (
                recording.environment.chainer
                if engine.name == BASELINE
                else recording.settings.engine.removeprefix(engine.name).strip()
            )
            engine.clean_ns = recording.clean_ns
    if (chainers := recordings.get(BASELINE)) is not None:
        settings = chainers.settings
        run = dataclasses.replace(
            run,
            n_layers=len(chainers.layers),
            settings=dataclasses.replace(settings, trials=settings.clean_trials),
            environment=chainers.environment,
            other_cpu=chainers.conditions.other_cpu,
        )
    for engine in run.engines:
        engine.block = trials_in_a_round(run.settings.trials)
    return run


def folder_names(names: Sequence[str]) -> dict[str, str]:
    """The name of each engine's folder: of letters, digits, ``.``, ``_`` and ``-`` only."""
    folders: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "engine"
        candidates = chain([plain], (f"{plain}-{number}" for number in count(2)))
        folders[name] = next(each for each in candidates if each not in folders.values())
    return folders
