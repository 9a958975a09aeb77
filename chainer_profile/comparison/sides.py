"""The two sides of a comparison, and how their layers are matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.comparison.judge import times_ns
from chainer_profile.comparison.run_differences import differences
from chainer_profile.record.budget import Budget
from chainer_profile.record.recording import Recording

#: Path, function, phase and covered layers of a call, and the number of such calls before it.
Key = tuple[str, str, str, tuple[int, ...], int]


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison: a run, or several runs of the same thing.

    Attributes:
        name: The user's name for it.
        runs: Its runs, at least one.
        programs: The time budget of the program in each run; empty for runs of a network.
        inputs: Divisor of times: the batch size if it differs between the sides, otherwise 1.
        by_means: Whether the time of a layer is the mean of its trials, as in reports of programs,
            not the median.
    """

    name: str
    runs: tuple[Recording, ...]
    programs: tuple[Budget, ...] = ()
    inputs: int = 1
    by_means: bool = False

    def time_s(self, index: int) -> float:
        """Median (or mean) time of a layer; the geometric mean over several runs."""
        return float(self._times_ns[index]) * NS

    def share(self, index: int) -> float:
        """The time of a layer as a fraction of the sum over all layers."""
        whole = float(self._times_ns.sum())
        return float(self._times_ns[index]) / whole if whole else 0.0

    @cached_property
    def _times_ns(self) -> NDArray[np.float64]:
        return times_ns([run.self_ns for run in self.runs], self.by_means) / self.inputs


def check(side: Side) -> None:
    """Raise ProfileError unless the runs of a side have trials and measured the same thing."""
    first, *others = side.runs
    scripts = dict.fromkeys(budget.script for budget in side.programs)
    if len(scripts) > 1:
        raise ProfileError(f"{side.name}: its runs differ in program: {' and '.join(scripts)}")
    for run in side.runs:
        if not run.self_ns.size:
            raise ProfileError(f"{side.name} contains no complete profiled trial to compare")
    for other in others:
        for difference in differences(first, other):
            raise ProfileError(
                f"{side.name}: its runs differ in {difference.name}: "
                f"{difference.before or 'none'} and {difference.after or 'none'}"
            )
        if keys(other) != keys(first):
            raise ProfileError(f"{side.name}: its runs do not have the same layers")
    for run, other in combinations(side.runs, 2):
        if is_same(run, other):
            raise ProfileError(f"{side.name}: a run is given twice; record another run instead")


def prepared(sides: Sequence[Side]) -> list[Side]:
    """Set ``by_means`` and ``inputs`` so that the times of all sides are comparable.

    Uses means if any run has means. Divides times by the batch size if it differs.
    """
    by_means = any(run.by_means for side in sides for run in side.runs)
    batches = [side.runs[0].settings.batchsize for side in sides]
    is_by_input = all(batches) and len(set(batches)) > 1
    inputs = batches if is_by_input else [1] * len(sides)
    return [
        replace(side, inputs=n, by_means=by_means) for side, n in zip(sides, inputs, strict=True)
    ]


def is_same(a: Recording, b: Recording) -> bool:
    return a.environment.started == b.environment.started and np.array_equal(a.self_ns, b.self_ns)


def keys(recording: Recording) -> dict[Key, int]:
    """Map the :data:`Key` of each layer to its index."""
    # The key of a fused row includes Chainer's indices, because an engine may lack equal calls.
    seen: Counter[tuple[str, str, str, tuple[int, ...]]] = Counter()
    keys = {}
    for layer in recording.layers:
        name = (layer.path, layer.function, layer.phase, layer.covers)
        keys[(*name, seen[name])] = layer.index
        seen[name] += 1
    return keys
