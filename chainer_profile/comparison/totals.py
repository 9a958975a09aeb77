"""The totals of a comparison: the whole program, the trial, and the parts of a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from chainer_profile.comparison.judge import VALUES, Judge
from chainer_profile.comparison.programs import WHOLE, whole_program
from chainer_profile.comparison.sides import Side
from chainer_profile.record.recording import Recording

#: Names of the totals. CPU time is the process's time in an unprofiled trial.
CLEAN, CPU, PROFILED = "unprofiled trial", "CPU time", "profiled trial"
LAYERS, FRAMEWORK = "layers", "framework"


def totals_of(sides: Sequence[Side], judge: Judge) -> pd.DataFrame:
    """The table of the whole program, the trial and its parts; only totals that all runs have."""
    runs = [run for side in sides for run in side.runs]
    clean = all(len(run.clean_ns) for run in runs)
    timed = all(run.trial_ns is not None for run in runs)
    # The headline of a network is a median. Parts of a trial are means if its rows are means.
    by_medians = replace(judge, by_means=False)
    # Other programs slow the calibration, but they do not change CPU time.
    by_itself = replace(by_medians, ends=(1.0, 1.0))
    parts: tuple[tuple[str, bool, Judge, Callable[[Recording], Any]], ...] = (
        (CLEAN, clean, by_medians, lambda run: run.clean_ns),
        (CPU, not any(map(without_cpu, runs)), by_itself, lambda run: run.clean_cpu_ns),
        (PROFILED, timed, judge, lambda run: run.trial_ns),
        (LAYERS, not any(run.settings.inclusive for run in runs), judge, _layers_ns),
        (FRAMEWORK, timed, judge, lambda run: run.trial_ns - _layers_ns(run)),
    )
    tables = {
        name: judged_by.totals(
            *([samples_of(run) / side.inputs for run in side.runs] for side in sides)
        )
        for name, is_measured, judged_by, samples_of in parts
        if is_measured and len({run.settings.phase for run in runs}) == 1
    }
    if all(side.programs for side in sides):
        whole = whole_program(sides[0].programs, sides[1].programs, judge)
        tables = {WHOLE: whole, **tables}
    table = pd.concat(tables.values()) if tables else pd.DataFrame(columns=list(VALUES))
    table.index = pd.Index(list(tables), name="total")
    return table


def _layers_ns(run: Recording) -> Any:
    return run.self_ns.sum(axis=1)


def without_cpu(run: Recording) -> str:
    """Why the CPU times of a run's unprofiled trials cannot be compared; empty if they can."""
    if run.clean_cpu_ns is None or not len(run.clean_cpu_ns):
        return (
            "its unprofiled trials have no CPU times, which a gate on CPU time needs: "
            "profile it again"
        )
    if np.median(run.clean_cpu_ns) <= 0:
        return "its trials take less CPU time than this system's clock can resolve"
    return ""
