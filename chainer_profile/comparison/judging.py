"""Samples of two sides -> times, ratios and verdicts, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from chainer_profile.basics.describe import NS
from chainer_profile.comparison.significance import (
    Groups,
    Judged,
    common_part,
    discovery_corrected,
    judge_repeated,
    judge_runs,
    repeated_variance,
    spread,
    t_quantile,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "not significant", "not known"
LEVEL = 0.05
#: Trials that one run of each must have for a verdict.
MIN_TRIALS = 4
#: Standard deviation of the ratio of single runs' totals, beside what the machine accounts for.
TOTAL_SPREAD = 0.01
#: From so many layers on, what a run's layers have in common is told from what each does by itself.
_MIN_COMMON = 10
VALUES = ("before_s", "after_s", "ratio", "low", "high", "p_value", "verdict")


def medians_ns(runs: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Medians of the columns of samples, (columns,); of several runs their geometric mean."""
    medians = np.array([np.median(samples, axis=0) for samples in runs])
    if len(medians) == 1:
        single: NDArray[np.float64] = medians[0]
        return single
    known = (medians > 0).all(axis=0)
    logs = np.log(np.where(known, medians, 1.0))
    means: NDArray[np.float64] = np.where(known, np.exp(logs.mean(axis=0)), medians.mean(axis=0))
    return means


@dataclass(frozen=True)
class Judge:
    """How columns of samples are judged.

    Attributes:
        min_effect: The least change that matters, as a fraction.
        ends: Between which ratios the machine itself may have changed the times.
        several: Whether there are several runs of a side.
        window_s: What the clock can tell apart.
    """

    min_effect: float
    ends: tuple[float, float]
    several: bool
    window_s: float

    def layers(
        self,
        before: Sequence[NDArray[np.int64]],
        after: Sequence[NDArray[np.int64]],
        groups: Groups,
    ) -> tuple[pd.DataFrame, float]:
        """Times, ratios and verdicts of layers, and how ratios spread from run to run.

        What the machine accounts for is what layers of one function and shape have in common, as
        far as its own work was as much slower or faster.
        """
        times = medians_ns(before), medians_ns(after)
        ratios = _logs(times[1]) - _logs(times[0])
        common = common_part(ratios, groups)
        if self.several:
            logs = [_run_logs(runs) for runs in (before, after)]
            parts = [_run_parts(side, groups) for side in logs]
            shift = np.clip(common, *self._common_ends(parts))
            judged = judge_repeated(logs[0] - parts[0], logs[1] - parts[1], shift)
            half = (judged.high - judged.low)[np.isfinite(ratios)] / 2
            typical = float(np.median(half)) if len(half) else 0.0
        else:
            run_spread = spread(ratios, groups)
            judged = judge_runs(
                before[0], after[0], run_spread, np.clip(common, *np.log(self.ends))
            )
            typical = float(np.median(run_spread))
        corrected = discovery_corrected(judged.p_value)
        return self._table(times, judged, corrected, before, after, self.window_s), typical

    def _common_ends(
        self, parts: Sequence[NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Between what the machine may have shifted layers, also by what runs of a side differ."""
        low, high = np.log(self.ends)
        degrees = sum(map(len, parts)) - 2
        error = np.sqrt(repeated_variance(parts[0], parts[1]) * sum(1 / len(p) for p in parts))
        beyond = t_quantile(degrees) * error
        return np.minimum(low, -beyond), np.maximum(high, beyond)

    def totals(
        self,
        before: Sequence[NDArray[np.int64]],
        after: Sequence[NDArray[np.int64]],
    ) -> pd.DataFrame:
        """The same of one column, a total; the machine accounts for all that it can."""
        before, after = ([samples[:, None] for samples in side] for side in (before, after))
        times = medians_ns(before), medians_ns(after)
        shift = np.clip(_logs(times[1]) - _logs(times[0]), *np.log(self.ends))
        if self.several:
            logs = [_run_logs(runs) for runs in (before, after)]
            judged = judge_repeated(logs[0], logs[1], shift)
        else:
            judged = judge_runs(before[0], after[0], np.full(1, TOTAL_SPREAD), shift)
        return self._table(times, judged, judged.p_value, before, after, 0.0)

    def _table(
        self,
        times: tuple[NDArray[np.float64], NDArray[np.float64]],
        judged: Judged,
        p_values: NDArray[np.float64],
        before: Sequence[NDArray[np.int64]],
        after: Sequence[NDArray[np.int64]],
        window_s: float,
    ) -> pd.DataFrame:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = times[1] / times[0]
        least = np.log1p(self.min_effect)
        own = judged.log_ratio - judged.shift
        with np.errstate(invalid="ignore"):
            significant = (
                (p_values < LEVEL)
                & (np.abs(judged.log_ratio) > least)
                & (np.abs(own) > least)
                & (np.sign(own) == np.sign(judged.log_ratio))
                & ((judged.low > 0) | (judged.high < 0))
                & (np.abs(times[1] - times[0]) * NS > window_s)
            )
        verdict = np.where(significant, np.where(judged.log_ratio > 0, SLOWER, FASTER), SAME)
        if not self.several and min(len(before[0]), len(after[0])) < MIN_TRIALS:
            verdict = np.full(len(ratio), UNKNOWN)
        return pd.DataFrame(
            {
                "before_s": times[0] * NS,
                "after_s": times[1] * NS,
                "ratio": ratio,
                "low": np.exp(judged.low),
                "high": np.exp(judged.high),
                "p_value": p_values,
                "verdict": verdict,
            }
        )


def _logs(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of times; NaN of those that are not above 0."""
    return np.where(times > 0, np.log(np.where(times > 0, times, 1.0)), np.nan)


def _run_parts(logs: NDArray[np.float64], groups: Groups) -> NDArray[np.float64]:
    """What each run's layers have in common beyond the average of the runs, (runs, columns).

    Nothing for few layers: what they have in common would be what each of them is.
    """
    if logs.shape[1] < _MIN_COMMON:
        return np.zeros_like(logs)
    return np.array([common_part(row - logs.mean(axis=0), groups) for row in logs])


def _run_logs(runs: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Logarithms of the medians of runs, (runs, columns)."""
    return np.array([_logs(np.median(samples, axis=0)) for samples in runs])
