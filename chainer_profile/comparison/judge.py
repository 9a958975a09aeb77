"""Times of two sides -> a table of times, ratios and verdicts: faster, slower or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.comparison.significance import (
    COMMON_SPREAD,
    DEGREES,
    FASTER,
    LEVEL,
    MIN_COMMON,
    MIN_TRIALS,
    ONCE,
    SAME,
    SLOWER,
    UNCLEAR,
    UNKNOWN,
    Floats,
    Groups,
    Ints,
    Judged,
    common_part,
    discovery_corrected,
    judge_repeated,
    judge_runs,
    log_ratio,
    repeated_variance,
    spread,
    t_quantile,
    typical,
)

#: Columns of a table of verdicts.
VALUES = ("before_s", "after_s", "ratio", "low", "high", "p_value", "verdict")


@dataclass(frozen=True)
class Judge:
    """Decides whether times differ; see :mod:`.compare` for the rules."""

    min_effect: float  #: The smallest change that matters, as a fraction.
    #: The smallest and largest ratio of times that a change of the machine's speed may explain.
    ends: tuple[float, float]
    several: bool  #: Whether a side has several runs.
    window_s: float  #: The smallest difference of a layer's times that the clock can resolve.
    by_means: bool = False  #: Whether the time of a run is the mean of its trials, not the median.

    def layers(
        self, before: Sequence[Ints], after: Sequence[Ints], groups: Groups
    ) -> tuple[pd.DataFrame, float]:
        """Return a table of times, ratios and verdicts of layers, and the noise from run to run.

        Each side has the samples of its runs, (trials, layers). The noise is
        :attr:`.compare.Comparison.run_spread`.
        """
        # The machine may explain the change that layers of one function and shape share. This part
        # is limited by the change of the calibrations and by the usual differences between runs.
        times = times_ns(before, self.by_means), times_ns(after, self.by_means)
        ratios = log_ratio(*times)
        common, correction = common_part(ratios, groups)
        low, high = np.log(self.ends)
        if self.several:
            logs = [_run_logs(runs, self.by_means) for runs in (before, after)]
            parts = [_run_parts(side, groups) for side in logs]
            # The shared parts vary within a side, so they also vary between the sides.
            error = np.sqrt(repeated_variance(*parts) * sum(1 / len(part) for part in parts))
            usual = t_quantile(len(before) + len(after) - 2) * error
            shift = np.clip(common, np.minimum(low, -usual), np.maximum(high, usual))
            judged = judge_repeated(
                logs[0] - parts[0], logs[1] - parts[1], shift, groups.function, correction
            )
            half = (judged.high - judged.low)[np.isfinite(ratios)] / 2
            of_runs = float(np.median(half)) if len(half) else 0.0
        else:
            run_spread = spread(ratios, groups, np.minimum(*times), max(high, -low))
            usual = t_quantile(DEGREES) * COMMON_SPREAD
            shift = np.clip(common, min(low, -usual), max(high, usual))
            judged = judge_runs(before[0], after[0], run_spread, shift, self.by_means)
            of_runs = float(np.median(run_spread))
        table = self._table(times, judged, discovery_corrected(judged.p_value), self.window_s)
        if self._too_few(before, after):
            table["verdict"] = UNKNOWN
        return table, of_runs

    def totals(self, before: Sequence[Ints], after: Sequence[Ints]) -> pd.DataFrame:
        """The table of one total, from samples of each run, (trials,).

        The machine's change of speed explains as much of the total's change as possible.
        """
        before, after = ([samples[:, None] for samples in side] for side in (before, after))
        times = times_ns(before, self.by_means), times_ns(after, self.by_means)
        shift = np.clip(log_ratio(*times), *np.log(self.ends))
        if self.several:
            first, second = (_run_logs(runs, self.by_means) for runs in (before, after))
            judged = judge_repeated(first, second, shift)
        else:
            error = np.full(1, COMMON_SPREAD)
            judged = judge_runs(before[0], after[0], error, shift, self.by_means)
        table = self._totals_table(times, judged)
        if self._too_few(before, after):
            table["verdict"] = UNKNOWN
        return table

    def programs(self, before: Floats, after: Floats) -> pd.DataFrame:
        """The table of parts of whole programs; the arguments have the shape (runs, parts).

        Times are means of the runs, so that parts add up. With one run of each program the noise is
        unknown, so there is neither an interval nor a verdict. The verdict is :data:`UNKNOWN` for a
        part that a side lacks.
        """
        times = before.mean(axis=0), after.mean(axis=0)
        ratios = log_ratio(*times)
        if self.several:
            logs = [log_ratio(np.ones_like(side), side) for side in (before, after)]
            # Student's test compares means of logarithms: shift them to logarithms of means.
            for side, mean in zip(logs, times, strict=True):
                side += log_ratio(np.ones_like(mean), mean) - side.mean(axis=0)
            judged = judge_repeated(logs[0], logs[1], np.clip(ratios, *np.log(self.ends)))
            table = self._totals_table(times, judged)
        else:
            nothing = np.full(len(ratios), np.nan)
            judged = Judged(ratios, nothing, nothing, nothing, np.zeros(len(ratios)))
            table = self._totals_table(times, judged)
            table["verdict"] = ONCE
        table.loc[np.isnan(judged.log_ratio), "verdict"] = UNKNOWN
        return table

    def _totals_table(self, times: tuple[Floats, Floats], judged: Judged) -> pd.DataFrame:
        """The table of totals. Changes that the machine may explain are :data:`UNCLEAR`."""
        table = self._table(times, judged, discovery_corrected(judged.p_value), 0.0)
        differs = self._matters(judged.log_ratio) & ((judged.low > 0) | (judged.high < 0))
        table.loc[differs & (table["verdict"] == SAME), "verdict"] = UNCLEAR
        return table

    def _too_few(self, before: Sequence[Ints], after: Sequence[Ints]) -> bool:
        return not self.several and min(len(before[0]), len(after[0])) < MIN_TRIALS

    def _matters(self, log_ratio: Floats) -> NDArray[np.bool_]:
        matters: NDArray[np.bool_] = np.abs(log_ratio) > np.log1p(self.min_effect)
        return matters

    def _table(
        self, times: tuple[Floats, Floats], judged: Judged, p_values: Floats, window_s: float
    ) -> pd.DataFrame:
        """The table of times, ratios and verdicts. Intervals include the machine's part."""
        low = judged.low - np.maximum(judged.shift, 0)
        high = judged.high - np.minimum(judged.shift, 0)
        significant = (
            (p_values < LEVEL)
            & self._matters(judged.log_ratio)
            & self._matters(judged.log_ratio - judged.shift)
            & ((low > 0) | (high < 0))
            & (np.abs(times[1] - times[0]) * NS > window_s)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = times[1] / times[0]
        changed = np.where(judged.log_ratio > 0, SLOWER, FASTER)
        return pd.DataFrame(
            {
                "before_s": times[0] * NS,
                "after_s": times[1] * NS,
                "ratio": ratio,
                "low": np.exp(low),
                "high": np.exp(high),
                "p_value": p_values,
                "verdict": np.where(significant, changed, SAME),
            }
        )


def times_ns(runs: Sequence[Ints], by_means: bool = False) -> Floats:
    """The time of each column, (columns,), from the samples of each run, (trials, columns).

    The time is the median of a run, or its mean, and the geometric mean over several runs.
    """
    times = np.array([typical(samples, by_means) for samples in runs])
    if len(times) == 1:
        single: Floats = times[0]
        return single
    timed = (times > 0).all(axis=0)
    logs = np.log(np.where(timed, times, 1.0))
    means: Floats = np.where(timed, np.exp(logs.mean(axis=0)), times.mean(axis=0))
    return means


def _run_logs(runs: Sequence[Ints], by_means: bool) -> Floats:
    """Logarithms of the times of runs, (runs, columns); NaN for times that are not positive."""
    times = np.array([typical(samples, by_means) for samples in runs])
    return log_ratio(np.ones_like(times), times)


def _run_parts(logs: Floats, groups: Groups) -> Floats:
    """The deviation of each run from the mean run that similar layers share, (runs, columns)."""
    # With few layers, the shared part would be the layer itself.
    if logs.shape[1] < MIN_COMMON:
        return np.zeros_like(logs)
    return np.array([common_part(row - logs.mean(axis=0), groups)[0] for row in logs])
