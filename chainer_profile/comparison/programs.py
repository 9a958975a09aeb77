"""Compare whole programs: their times without the profiler, and the parts of these times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from chainer_profile.analyse.program import own_ns
from chainer_profile.comparison.judge import VALUES, Judge
from chainer_profile.comparison.run_differences import Difference
from chainer_profile.record.budget import IMPORTS, PARTS, PROFILER, RUNNING, START, Budget

#: Name of the total.
WHOLE = "whole program"
_COUNTS = ("before_count", "after_count")

Programs = Sequence[Budget]


def whole_program(before: Programs, after: Programs, judge: Judge) -> pd.DataFrame:
    """A table with one row for the whole program and the columns :data:`.judge.VALUES`."""
    times = [np.array([[own_ns(budget)] for budget in side], float) for side in (before, after)]
    return judge.programs(*times).set_axis(pd.Index([WHOLE], name="total"))


def parts_of_programs(before: Programs, after: Programs, judge: Judge) -> pd.DataFrame:
    """The table of a program's parts, which add up to it; the largest difference comes first.

    The columns are :data:`.judge.VALUES`, ``before_count`` and ``after_count``. The counts are the
    mean numbers of times that a part ran. Without programs there are no rows.
    """
    if not (before and after):
        return pd.DataFrame(columns=[*VALUES, *_COUNTS])
    sides = before, after
    names = [part for part in PARTS if part != PROFILER and any(_times_ns(part, *sides))]
    times = [np.array([[each.total(name).ns for name in names] for each in side]) for side in sides]
    table = judge.programs(*(side.astype(float) for side in times))
    for column, side in zip(_COUNTS, sides, strict=True):
        table[column] = [_mean_count(name, side) for name in names]
    table.index = pd.Index(names, name="part")
    differences = (table["after_s"] - table["before_s"]).abs()
    return table.loc[differences.sort_values(ascending=False, kind="stable").index]


def _times_ns(part: str, *sides: Programs) -> list[int]:
    return [budget.total(part).ns for side in sides for budget in side]


def _mean_count(part: str, programs: Programs) -> float:
    """How often a part ran on average; 0 for parts without a meaningful count."""
    if part in (START, IMPORTS):
        return 0.0
    return float(np.mean([budget.total(part).count for budget in programs]))


def program_differences(before: Programs, after: Programs) -> Iterator[Difference]:
    """Yield differences between the programs of the first runs, and between their endings."""
    if before and after:
        first, second = before[0], after[0]
        for name, values in (
            ("program", (first.script, second.script)),
            ("end of the program", (_outcome(first), _outcome(second))),
        ):
            if values[0] != values[1]:
                yield Difference(name, *values)


def _outcome(budget: Budget) -> str:
    return "killed" if budget.outcome == RUNNING else budget.outcome
