"""Summary -> findings: doubts on the numbers, and steps that may save time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from chainer_profile.analyse.findings import WARNING, Finding, bracketed, option, sort_findings
from chainer_profile.analyse.gpu_checks import gpu_clock, no_held_trials, throttled
from chainer_profile.analyse.steps import steps
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.threads import slow_threads, unmeasured_threads, used_threads
from chainer_profile.analyse.unsteady import (
    unsteady,
    waiting,
)
from chainer_profile.analyse.values import (
    MUCH_DENORMAL,
    denormal_numbers,
    denormal_share,
    not_finite,
)
from chainer_profile.basics.describe import MIN_TRIALS
from chainer_profile.basics.units import format_count, format_percent, join_words, plural
from chainer_profile.record.recording import COMPLETE, INTERVAL, TIME_LIMIT, Recording

#: The recorder's overhead is a finding above this fraction of a trial.
HIGH_OVERHEAD = 0.02

Check = Callable[[Summary], Iterator[Finding]]


def check(summary: Summary) -> tuple[Finding, ...]:
    """All findings of a run: warnings, then steps, then notes."""
    checks = (*_OF_ALL_RUNS, *(() if summary.recording.by_means else _OF_EQUAL_TRIALS))
    findings = [finding for each in checks for finding in each(summary)]
    # Steps follow from rates, which denormal numbers lower.
    if denormal_share(summary) < MUCH_DENORMAL:
        findings += steps(summary)
    return sort_findings(findings)


def ending_text(recording: Recording) -> str:
    """Say after how many trials a run ended, and why; empty if it made all of them."""
    if recording.ended == COMPLETE:
        return ""
    n_trials, wanted = recording.n_trials, recording.settings.trials
    # A program sets no number of trials.
    total_of = f"{format_count(n_trials)} of " if wanted else ""
    return (
        f"The run ended after {total_of}{plural(wanted or n_trials, 'trial')}: {recording.ended}."
    )


def interrupted(summary: Summary) -> Iterator[Finding]:
    recording = summary.recording
    if recording.ended in (COMPLETE, TIME_LIMIT, INTERVAL):
        return
    advice = "Run it again for the remaining trials."
    if recording.ended.startswith("failed"):
        advice = "Fix that first: the network cannot be profiled as it is."
    elif recording.settings.trials:
        advice = "Run it again for the full number of trials."
    text = f"{ending_text(recording)} The results cover those trials."
    yield Finding("interrupted", WARNING, text, advice, off=math.inf)


def few_trials(summary: Summary) -> Iterator[Finding]:
    """Too few trials for an interval."""
    recording = summary.recording
    if recording.n_trials < MIN_TRIALS:
        more = bracketed(option(recording.settings, "trials", 1000))
        yield Finding(
            "few-trials",
            WARNING,
            f"{plural(recording.n_trials, 'trial')}: too few for a confidence interval and for "
            "reliable percentiles.",
            f"Run at least {MIN_TRIALS} trials, preferably 1,000{more}.",
            off=math.inf,
        )


def overhead(summary: Summary) -> Iterator[Finding]:
    added = summary.totals.overhead
    # Without an interval (NaN) a short run's noise would be called overhead.
    if added is not None and added.low > HIGH_OVERHEAD:
        yield Finding(
            "overhead",
            WARNING,
            f"The profiler adds {format_percent(added.fraction)} to a trial.",
            "Quote the unprofiled trials; the layers' times are too long by up to this share.",
        )


def held_back(summary: Summary) -> Iterator[Finding]:
    """Variables that make libraries use slower instructions than the processor has."""
    environment = summary.recording.environment
    variables = environment.variables
    if not variables:
        return
    kernels = ", ".join(library.kernels for library in environment.blas if library.kernels)
    ran = bracketed(f"BLAS ran {kernels} kernels" if kernels else "")
    were = "was" if len(variables) == 1 else "were"
    names = join_words(variable.partition("=")[0] for variable in variables)
    yield Finding(
        "held-back",
        WARNING,
        f"{join_words(variables)} {were} set: libraries may use slower instructions than this "
        f"processor has{ran}.",
        f"Unset {names} and run again, unless you want to measure exactly that.",
        off=math.inf,
    )


_OF_ALL_RUNS: tuple[Check, ...] = (
    *(not_finite, denormal_numbers, interrupted, unsteady, overhead, throttled),
    *(used_threads, unmeasured_threads, slow_threads),
)
#: Checks that need trials which do the same work.
_OF_EQUAL_TRIALS: tuple[Check, ...] = (few_trials, waiting, held_back, gpu_clock, no_held_trials)
