"""Runs -> changes of their times, each faster, slower or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.views import Displayable
from chainer_profile.comparison.fused import Fusion, engine_name, merged, row_number, short_name
from chainer_profile.comparison.judge import Judge
from chainer_profile.comparison.programs import (
    WHOLE,
    parts_of_programs,
    program_differences,
)
from chainer_profile.comparison.run_differences import (
    Difference,
    Movement,
    allowance,
    differences,
    movements,
)
from chainer_profile.comparison.sides import Key, Side, check, is_same, keys, prepared
from chainer_profile.comparison.significance import (
    FASTER,
    ONCE,
    SLOWER,
    UNCLEAR,
    UNKNOWN,
    Groups,
)
from chainer_profile.comparison.totals import CPU, PROFILED, totals_of, without_cpu
from chainer_profile.record.recording import Layer, Recording

MIN_EFFECT = 0.02
#: A difference must exceed this multiple of the time that the recorder measures for no work.
MIN_WINDOWS = 2
#: A slower layer fails a gate only if it takes more than this fraction of the layers' time.
GATE_SHARE = 0.01

# Layers are matched by link path, function and phase; the first such call matches the first one of
# the other run, and so on. Times are medians, which a few disturbed trials do not change. A program
# shows means, which add up to its time. A layer is faster or slower if all of this holds: a test
# says so, corrected for the number of layers (significance.py); the change exceeds the least
# effect, with and without the part that the machine's own change of speed explains; the 95 %
# interval of its ratio, that part included, does not contain 1; and the clock resolves the
# difference.


@dataclass(frozen=True)
class Slower:
    """A reason for which a gate fails: time after over time before, with its 95 % interval."""

    name: str  #: ``unprofiled trial``, or a layer: ``27_ReLU at /res3``.
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Displayable):
    """A run compared with another, or several with several. Ratios are time after over before.

    Attributes:
        before: The runs to compare with.
        after: The runs to judge.
        min_effect: Changes smaller than this fraction count as noise.
        totals: Times of the ``whole program``, if the runs are of programs, and of a whole trial,
            as far as all runs have them, indexed by name (``unprofiled trial``,
            ``CPU time``, ``profiled trial``, ``layers``, ``framework``), with the columns
            ``before_s``, ``after_s``, ``ratio``, ``low``, ``high``, ``p_value`` and ``verdict`` of
            :attr:`layers`. The verdict :data:`UNCLEAR` means that the time changed, but so did the
            machine's speed, and :data:`ONCE` that each program ran once. A trial has no row where
            the trials are of different phases.
        layers: The matched layers in the order of the first run. Columns: ``path``, ``function``,
            ``phase``, ``covers`` (Chainer's layers that the row combines; empty between runs of
            Chainer), ``before_index``, ``after_index``, ``before_s`` and ``after_s`` (medians, of
            programs means; of several runs their geometric mean), ``before_share`` and
            ``after_share`` (of the sum of these times), ``ratio`` with the ends ``low`` and
            ``high`` of its 95 % interval, which allows for the machine's own change, ``p_value``
            (corrected), and ``verdict``:
            :data:`FASTER`, :data:`SLOWER`, :data:`.significance.SAME`, or :data:`UNKNOWN` for too
            few trials.
        parts: The parts of the whole program, such as ``imports``; see
            :func:`.parts_of_programs`. Empty for runs of networks.
        only_before: Layers of the first run without a counterpart in the second.
        only_after: Layers of the second run without a counterpart in the first.
        differences: Other differences: network, input, machine, versions.
        movements: Changes of the machine's speed and load, as far as they were measured.
        run_spread: Noise of the median layer's ratio from run to run. With several runs, the half
            width of its 95 % interval; otherwise its standard deviation, estimated from the scatter
            of the layers.
        fusion: How layers were combined into common rows, since an engine fuses some of them; None
            between runs of Chainer. The runs of both sides have the combined rows.
    """

    before: Side
    after: Side
    min_effect: float
    totals: pd.DataFrame
    layers: pd.DataFrame
    parts: pd.DataFrame
    only_before: tuple[Layer, ...]
    only_after: tuple[Layer, ...]
    differences: tuple[Difference, ...]
    movements: tuple[Movement, ...]
    run_spread: float
    fusion: Fusion | None = None

    @property
    def by_input(self) -> bool:
        """Whether times are per input, because the batch sizes differ."""
        return self.before.inputs != self.after.inputs

    @property
    def several(self) -> bool:
        """Whether a side has several runs, so that their variance is measured."""
        return len(self.before.runs) + len(self.after.runs) > 2

    @property
    def moved(self) -> bool:
        """Whether the machine itself was faster or slower in one of the runs."""
        return self.same_place and any(movement.moved for movement in self.movements)

    @property
    def other_machine(self) -> bool:
        """Whether the runs are of different machines."""
        return any(difference.of_machine for difference in self.differences)

    @property
    def same_place(self) -> bool:
        """Whether the runs have the same machine, device, BLAS and number of BLAS threads."""
        return not any(difference.of_place for difference in self.differences)

    @property
    def same_run(self) -> bool:
        """Whether a run is on both sides."""
        return any(is_same(a, b) for a in self.before.runs for b in self.after.runs)

    @property
    def of_programs(self) -> bool:
        """Whether both sides are runs of programs."""
        return self.headline == WHOLE

    @property
    def by_means(self) -> bool:
        """Whether the times of layers are means of trials, not medians."""
        return self.before.by_means

    @property
    def judged(self) -> bool:
        """Whether the layers have verdicts; False if there are too few trials."""
        return not (self.layers["verdict"] == UNKNOWN).any()

    @property
    def changed(self) -> pd.DataFrame:
        """The layers that became faster or slower."""
        return self.layers[self.layers["verdict"].isin((FASTER, SLOWER))]

    @property
    def unmatched(self) -> tuple[tuple[Side, tuple[Layer, ...]], ...]:
        """Each side with the layers that only it has."""
        return (self.before, self.only_before), (self.after, self.only_after)

    @property
    def headline(self) -> str:
        """Name of the first total, which is the one to quote; empty without totals.

        It is the whole program, or else the unprofiled trial if all runs have such trials.
        """
        return str(self.totals.index[0]) if len(self.totals) else ""

    def enough_trials(self, cpu: bool = False) -> bool:
        """Whether every total that a gate judges has a verdict; see :meth:`slower_than`."""
        gated = self._gated(cpu)["verdict"]
        return (cpu or self.judged) and not (gated == UNKNOWN).any()

    def unclear(self, fraction: float, cpu: bool = False) -> bool:
        """Whether a total of a gate is slower by more than this fraction, for an unclear reason.

        The machine may have become slower, or programs ran only once.
        """
        gated = self._gated(cpu)
        slower = gated["ratio"] > 1 + fraction
        return bool((gated["verdict"].isin((UNCLEAR, ONCE)) & slower).any())

    def _gated(self, cpu: bool) -> pd.DataFrame:
        """The totals that a gate judges: the headline and a program's trial, or the CPU time."""
        names = [CPU] if cpu else [self.headline, *[PROFILED] * self.of_programs]
        return self.totals[self.totals.index.isin(names)]

    def check_cpu(self) -> None:
        """Raise an error if a gate cannot judge CPU times.

        Raises:
            ProfileError: A run has none, or the trials are not of the same kind.
        """
        for side in (self.before, self.after):
            for run in side.runs:
                if why := without_cpu(run):
                    raise ProfileError(f"{side.name}: {why}")
        if CPU not in self.totals.index:
            raise ProfileError("CPU times of trials of different phases cannot be compared")

    def slower_than(self, fraction: float, cpu: bool = False) -> list[Slower]:
        """The program, trial and layers that are significantly slower by more than this fraction.

        Only layers that take more than 1 % of the time in either run count. For CPU times, only the
        trial counts. With too few trials the list is empty.
        """
        if not self.enough_trials(cpu):
            return []
        totals = self._gated(cpu)
        layers = self.layers.head(0) if cpu else self.layers
        large = layers[["before_share", "after_share"]].max(axis=1) > GATE_SHARE
        failed = []
        for table in (totals, layers[large]):
            slower = (table["verdict"] == SLOWER) & (table["ratio"] > 1 + fraction)
            for row in table[slower].itertuples():
                name = str(row.Index)
                if table is not totals:
                    number = row_number(row.before_index, row.covers)
                    name = f"{number}_{short_name(row.function)} at {row.path}"
                failed.append(Slower(name, row.ratio, row.low, row.high))
        return failed


def compare(
    before: Recording | Side, after: Recording | Side, min_effect: float = MIN_EFFECT
) -> Comparison:
    """Compare two runs layer by layer, or two groups of repeated runs.

    Args:
        before: The run, or runs, to compare with.
        after: The run, or runs, to judge.
        min_effect: Changes smaller than this fraction count as noise.

    Raises:
        ProfileError: A run contains no trial, the runs of a side measured different things, the
            sides have no layer in common, or an engine ran another network.
    """
    given = [
        side if isinstance(side, Side) else Side(name, (side,))
        for side, name in ((before, "before"), (after, "after"))
    ]
    for side in given:
        check(side)
    sides = prepared(given)
    engines = any(run.settings.engine for side in sides for run in side.runs)
    if engines:
        runs = iter(merged([run for side in sides for run in side.runs]))
        sides = [replace(side, runs=tuple(next(runs) for _ in side.runs)) for side in sides]
    first, second = (side.runs[0] for side in sides)
    indices = keys(first), keys(second)
    common = [key for key in indices[0] if key in indices[1]]
    if not common:
        raise ProfileError(_nothing_common(first, second))
    programs = [side.programs for side in sides]
    others = (*program_differences(*programs), *differences(first, second))
    # Calibrations measure the machine's speed by other work on a GPU than on a CPU.
    same_work = (first.settings.device == "cpu") == (second.settings.device == "cpu")
    moved = tuple(movements(sides[0].runs, sides[1].runs)) if same_work else ()
    judge = _judge(sides, min_effect, () if any(other.of_place for other in others) else moved)
    layers, run_spread = _layers(
        sides, [[index[key] for key in common] for index in indices], judge
    )
    fusion = None
    if engines:
        rows = [len(side.runs[0].layers) for side in given]
        names = engine_name(first), engine_name(second)
        fusion = Fusion(*names, before_rows=rows[0], after_rows=rows[1], groups=len(common))
    return Comparison(
        before=sides[0],
        after=sides[1],
        min_effect=min_effect,
        totals=totals_of(sides, judge),
        layers=layers,
        parts=parts_of_programs(programs[0], programs[1], judge),
        only_before=_only(first, *indices),
        only_after=_only(second, *reversed(indices)),
        differences=others,
        movements=moved,
        run_spread=run_spread,
        fusion=fusion,
    )


def _only(run: Recording, own: dict[Key, int], others: dict[Key, int]) -> tuple[Layer, ...]:
    """The layers of a run that the other run does not have."""
    return tuple(run.layers[index] for key, index in own.items() if key not in others)


def _judge(sides: Sequence[Side], min_effect: float, moved: Sequence[Movement]) -> Judge:
    windows_ns = [
        (run.conditions.window_ns or 0.0) / side.inputs for side in sides for run in side.runs
    ]
    return Judge(
        min_effect=min_effect,
        ends=allowance(moved),
        several=len(windows_ns) > 2,
        window_s=MIN_WINDOWS * NS * max(windows_ns),
        by_means=sides[0].by_means,
    )


def _layers(
    sides: Sequence[Side], indices: Sequence[list[int]], judge: Judge
) -> tuple[pd.DataFrame, float]:
    """The table of matched layers, from their indices on both sides, and ``run_spread``."""
    common = [sides[0].runs[0].layers[index] for index in indices[0]]
    layers = pd.DataFrame(
        {
            "path": [layer.path for layer in common],
            "function": [layer.function for layer in common],
            "phase": [layer.phase for layer in common],
            "covers": [layer.covers for layer in common],
            "before_index": indices[0],
            "after_index": indices[1],
        }
    )
    samples: list[list[Any]] = [
        [run.self_ns[:, at] / side.inputs for run in side.runs]
        for side, at in zip(sides, indices, strict=True)
    ]
    table, run_spread = judge.layers(samples[0], samples[1], layer_groups(common))
    layers = layers.join(table)
    for name, side in zip(("before", "after"), sides, strict=True):
        layers[f"{name}_share"] = [side.share(index) for index in layers[f"{name}_index"]]
    return layers, run_spread


def layer_groups(layers: Sequence[Layer]) -> Groups:
    """Group layers with the same function and phase, and also with the same input shapes."""

    def numbers(names: Sequence[tuple[object, ...]]) -> NDArray[np.int64]:
        number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([number_of[name] for name in names], np.int64)

    kinds = [(layer.function, layer.phase) for layer in layers]
    shapes = [(*kind, x.input_shapes) for kind, x in zip(kinds, layers, strict=True)]
    return Groups(shape=numbers(shapes), function=numbers(kinds))


def _nothing_common(before: Recording, after: Recording) -> str:
    phases = [sorted({layer.phase for layer in run.layers}) for run in (before, after)]
    if not set(phases[0]) & set(phases[1]):
        return (
            f"the runs have no phase in common: {', '.join(phases[0])}, and {', '.join(phases[1])}"
        )
    first, second = before.layers[0], after.layers[0]
    return (
        "the runs have no layer in common, by path and function: the first layer is "
        f"{first.function} at {first.path}, and {second.function} at {second.path}"
    )
