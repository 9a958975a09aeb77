"""The results of an engines run, and their JSON file."""

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
from chainer_profile.record.versioned import read_if_exists

FORMAT = "chainer-profile engines"
VERSION = 2
#: The file of the results, in the folder of the run.
RESULTS = "engines.json"
#: Fields of an engine that its recording contains, and fields of a run that Chainer's recording
#: contains. The JSON file does not repeat them.
_RECORDED = ("version", "clean_ns")
_RECORDED_OF_RUN = ("n_layers", "settings", "environment", "other_cpu")
_MAX_TRIALS_IN_A_ROUND, _MIN_ROUNDS = 10, 30


@dataclass(frozen=True)
class OutputDifference:
    """Difference of an engine's outputs from Chainer's."""

    #: Largest absolute difference; infinite if only one of two values is finite, or NaN.
    largest: float
    magnitude: float  #: Largest absolute value among Chainer's finite outputs.

    @property
    def relative(self) -> float:
        """Largest difference as a fraction of the largest output."""
        if not self.largest:
            return 0.0
        return self.largest / self.magnitude if self.magnitude else math.inf


@dataclass(frozen=True)
class Speedup:
    """Speed-up of one variant over another, with its 95 % interval."""

    factor: float
    low: float  #: Lower end of the interval; NaN if there are too few samples.
    high: float

    @property
    def is_faster(self) -> bool:
        """Whether the factor is above 1, and the interval too if it is known."""
        return self.factor > 1 and not self.low <= 1


@dataclass(eq=False)
class EngineResult:
    """The results of an engine."""

    name: str
    version: str = ""  #: Version of the engine; empty if unknown.
    folder: str = ""  #: Name of the folder of its recording; empty without a recording.
    prepare_s: float | None = None  #: Time of the preparation; None if it failed.
    #: Growth of the process's memory for the engine, up to its peak in the warm-up runs: weights
    #: and memory of a run. None if it was not measured.
    memory_nbytes: int | None = None
    #: Wall time of every trial, (trials,).
    clean_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block: int = 1  #: Trials per round.
    #: Differences from Chainer's outputs: for the input of the trials, for another input, with
    #: random numbers for constant parameters, and for the first input again after the trials.
    differences: tuple[OutputDifference, ...] = ()
    tolerance: float = 0.0  #: Largest allowed relative difference.
    worst_layer: str = ""  #: Description of the first layer that differs, if the engine reports it.
    error: str = ""  #: Why the engine failed; empty if it did not.
    install: str = ""  #: The command that installs a missing package.
    note: str = ""  #: Remarks, such as why there are no times of its nodes.

    @property
    def label(self) -> str:
        """Name of the engine in tables and texts."""
        return label_of(self.name)

    def add_note(self, text: str) -> None:
        self.note = "; ".join(filter(None, (self.note, text)))

    @property
    def measured(self) -> bool:
        """Whether the engine has trials and no error."""
        return len(self.clean_ns) > 0 and not self.error

    @property
    def wrong(self) -> bool:
        """Whether outputs differ by more than the tolerance."""
        return any(not d.relative <= self.tolerance for d in self.differences)

    @property
    def difference(self) -> OutputDifference | None:
        """The largest difference; None if outputs were not compared."""
        return max(self.differences, key=lambda d: (d.relative, d.largest), default=None)

    @property
    def statistics(self) -> Statistics | None:
        """Statistics of the trials; None without trials."""
        return describe(self.clean_ns) if len(self.clean_ns) else None


@dataclass(frozen=True, eq=False)
class EnginesRun:
    """All engines of a run, in the order of the tables."""

    engines: tuple[EngineResult, ...]
    n_layers: int = 0  #: Number of layers of Chainer in a forward pass.
    settings: Settings = field(default_factory=Settings)
    environment: Environment = field(default_factory=Environment)
    other_cpu: float | None = None  #: Mean number of cores that other programs used, if known.
    ended: str = COMPLETE  #: ``complete``, or why the trials ended early.

    @property
    def baseline(self) -> EngineResult | None:
        """Chainer's result; None without trials."""
        return next((engine for engine in self.measured if engine.name == BASELINE), None)

    @property
    def measured(self) -> tuple[EngineResult, ...]:
        """The engines with trials and without an error."""
        return tuple(engine for engine in self.engines if engine.measured)

    @property
    def others(self) -> tuple[EngineResult, ...]:
        """The engines without trials, or with an error."""
        return tuple(engine for engine in self.engines if not engine.measured)

    @property
    def right(self) -> tuple[EngineResult, ...]:
        """The measured engines with correct outputs."""
        return tuple(engine for engine in self.measured if not engine.wrong)

    @property
    def wrong(self) -> tuple[EngineResult, ...]:
        """The engines with outputs that differ from Chainer's by more than the tolerance."""
        return tuple(engine for engine in self.engines if engine.wrong)


def speedup(fast: EngineResult, slow: EngineResult) -> Speedup | None:
    """The speed-up of ``fast`` over ``slow``, as the median over rounds; None if not comparable."""
    if fast.wrong or slow.wrong or not (fast.measured and slow.measured):
        return None
    # If the machine is slow for a while, this affects both engines of a round.
    pairs = zip(round_medians(fast), round_medians(slow), strict=False)
    ratios = np.array([theirs / ours for ours, theirs in pairs if ours > 0])
    if not len(ratios):
        return None
    return Speedup(float(np.median(ratios)), *median_interval(ratios))


def round_medians(engine: EngineResult) -> list[float]:
    """Medians of an engine's trials in each round, in nanoseconds."""
    begins = range(0, len(engine.clean_ns), engine.block)
    return [float(np.median(engine.clean_ns[at : at + engine.block])) for at in begins]


def trials_in_a_round(trials: int) -> int:
    """Number of trials of an engine in a round, for a total number of trials."""
    return max(1, min(_MAX_TRIALS_IN_A_ROUND, trials // _MIN_ROUNDS))


def main_layer(covers: Sequence[int], layers: Sequence[Layer]) -> int:
    """Index of the layer with the most operations, which represents a group of fused layers."""
    return max(covers, key=lambda index: (layers[index].flops or 0, -index))


def write_json(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """Convert a run to JSON, without fields that its recordings contain."""
    content = {"format": FORMAT, "version": VERSION, "ended": run.ended}
    if BASELINE not in recordings:
        content |= {name: getattr(run, name) for name in _RECORDED_OF_RUN}
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
    """Read a run; :func:`with_recorded_fields` adds the fields that recordings contain."""
    run = read_if_exists(path, EnginesRun, FORMAT, VERSION, text_numbers=True, check=_check)
    if run is None:
        raise ProfileError(f"{path.parent} contains no run of engines (no {path.name})")
    return run


def _check(run: EnginesRun) -> None:
    """Raise ValueError for impossible results."""
    check_numbers(dataclasses.replace(run, engines=()))
    for engine in run.engines:
        check_folder_name(engine.folder)
        # A difference may be infinite.
        check_numbers(dataclasses.replace(engine, differences=()))
        if engine.clean_ns.min(initial=0) < 0:
            raise ValueError(f"clean_ns of {engine.name} contains {engine.clean_ns.min()}")


def with_recorded_fields(run: EnginesRun, recordings: Mapping[str, Recording]) -> EnginesRun:
    """Fill the fields of a run that its recordings contain, by the engines' names."""
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
    """Choose a folder name for each engine, of letters, digits, ``.``, ``_`` and ``-`` only."""
    folders: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "engine"
        candidates = chain([plain], (f"{plain}-{number}" for number in count(2)))
        folders[name] = next(each for each in candidates if each not in folders.values())
    return folders
