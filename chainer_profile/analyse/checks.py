"""Summary -> findings: what a reader should know before believing a number, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.counted import trial_counters
from chainer_profile.analyse.findings import NOTE, WARNING, Finding, bracketed, in_order, option
from chainer_profile.analyse.grouping import OUTSIDE, place_of_most
from chainer_profile.analyse.rules import Facts, Rules
from chainer_profile.analyse.steps import steps
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.threads import THREADS, blas_threads
from chainer_profile.analyse.values import MUCH_DENORMAL, VALUES, denormal_share
from chainer_profile.basics.describe import MIN_TRIALS, halves_differ
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import format_count, format_percent, plural
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    GpuState,
    Recording,
)

#: Half width of the median trial's 95 % interval, as a fraction of it, above which trials are few.
WIDE_INTERVAL = 0.02
#: More trials than these are never advised; runs that vary more need a quieter machine.
MOST_TRIALS = 20_000
#: pyperf's limit: a standard deviation of this part of the mean is called unstable.
UNSTABLE = 0.10
#: Change of the mean over the run, and of the first trials against the others, worth a finding.
DRIFT = 0.05
SLOW_START = 0.05
#: Part of a trial that the recorder adds, and cores that other programs use, worth a finding.
HIGH_OVERHEAD = 0.02
BUSY_CORES = 0.25
#: Part of a training step outside of its phases worth a finding.
MUCH_OUTSIDE = 0.05
#: Change of a GPU's clock worth a finding.
CLOCK_CHANGE = 0.05
#: Part of the wall time in which the thread did not run, worth a finding.
MUCH_OFF = 0.05
#: A mean of trials that is so many times the headline, or less than that part of it, is far off.
FAR = 3.0
#: Lower clocks that somebody has chosen are no fault; they make runs comparable.
_CHOSEN = "clocks set by an application"

CHECKS = Rules()


def check(summary: Summary) -> tuple[Finding, ...]:
    """All findings of a run: warnings, then what may take less time, then notes."""
    of_programs = summary.recording.by_means
    findings = [
        *VALUES.findings(summary, of_programs),
        *CHECKS.findings(summary, of_programs),
        *THREADS.findings(summary, of_programs),
        *steps(summary),
    ]
    # What could be tried goes by rates that denormal numbers lower.
    is_spoiled = denormal_share(summary) >= MUCH_DENORMAL
    return in_order(
        finding
        for finding in findings
        if isinstance(finding, Finding) and not (is_spoiled and finding.changes)
    )


# -- the trials


@CHECKS.warning(
    "{ending} The results cover those trials.",
    {
        "failed": "Fix that first: the network cannot be profiled as it is.",
        "-failed all": "Run it again for the full number of trials.",
        "-failed -all": "Run it again for the remaining trials.",
    },
    of_programs=True,
)
def _interrupted(summary: Summary) -> Iterator[Facts]:
    ended = summary.recording.ended
    if ended not in (COMPLETE, TIME_LIMIT, INTERVAL):
        all_trials = summary.recording.settings.trials
        failed, ending = ended.startswith("failed"), ending_text(summary.recording)
        yield {"ending": ending, "failed": failed, "all": all_trials, "off": math.inf}


def ending_text(recording: Recording) -> str:
    """After how many trials a run ended, and why; empty where it made all of them."""
    if recording.ended == COMPLETE:
        return ""
    made, wanted = recording.n_trials, recording.settings.trials
    # A program has no number of its own.
    of = f"{format_count(made)} of " if wanted else ""
    return f"The run ended after {of}{plural(wanted or made, 'trial')}: {recording.ended}."


@CHECKS.warning(
    "{run.n_trials:trial}: too few for a confidence interval and for reliable percentiles.",
    f"Run at least {MIN_TRIALS} trials, preferably 1,000{{option}}.",
)
def _few_trials(summary: Summary) -> Iterator[Facts]:
    if summary.recording.n_trials < MIN_TRIALS:
        more = option(summary.recording.settings, "trials", 1000)
        yield {"option": bracketed(more), "off": math.inf}


@CHECKS.warning(
    "The 95 % interval is +/- {widths}.",
    {
        "more": f"About {{more}} would narrow it to {format_percent(WIDE_INTERVAL, 0)}{{options}}.",
        "-more": "They vary too much for more trials to help. Close other programs and run again.",
    },
    code="few-trials",
)
def _wide_interval(summary: Summary) -> Iterator[Facts]:
    totals, settings = summary.totals, summary.recording.settings
    timed = {"unprofiled": totals.clean, "profiled": totals.profiled}
    wide = {kind: of for kind, of in timed.items() if of and of.half_width > WIDE_INTERVAL}
    if summary.recording.n_trials < MIN_TRIALS or not wide:
        return
    # The width falls with the root of the number of trials.
    needed = {
        kind: math.ceil(of.count * (of.half_width / WIDE_INTERVAL) ** 2)
        for kind, of in wide.items()
    }
    names = {"unprofiled": "clean_trials", "profiled": "trials"}
    options = " ".join(option(settings, names[kind], n) for kind, n in needed.items()).strip()
    few_enough = max(needed.values()) <= MOST_TRIALS
    yield {
        "widths": [
            f"{format_percent(of.half_width)} of the median of the "
            f"{plural(of.count, f'{kind} trial')}"
            for kind, of in wide.items()
        ],
        "more": [plural(n, f"{kind} trial") for kind, n in needed.items()] if few_enough else [],
        "options": bracketed(options),
        "off": max((of.half_width for of in wide.values() if of is totals.trial), default=0.0),
    }


@CHECKS.warning(
    "The trials vary: their standard deviation is {totals.profiled.spread:%0} of the mean, and the "
    "slowest took {totals.profiled.max_s:s} (median {totals.profiled.median_s:s}).",
    "Close other programs and run again. Report the median; a few slow trials distort the mean.",
)
def _unstable(summary: Summary) -> Iterator[Facts]:
    trial = summary.totals.profiled
    if trial is not None and trial.spread >= UNSTABLE:
        yield {"off": abs(trial.mean_s / trial.median_s - 1) if trial.median_s else math.inf}


@CHECKS.warning(
    "The second half of the run was {change:%} {direction} than the first.",
    "The machine changed during the run (heat, clock frequency, other programs). Run again on a "
    "quiet machine.",
)
def _drift(summary: Summary) -> Iterator[Facts]:
    walls = _many_trials(summary)
    if walls is None:
        return
    change, certain = halves_differ(walls)
    if abs(change) >= DRIFT and certain:
        direction = "slower" if change > 0 else "faster"
        yield {"change": abs(change), "direction": direction, "off": abs(change)}


@CHECKS.warning(
    "The first {count} trials were {excess:%0} slower than the rest: a warm-up of "
    "{warmups:trial} was too short.",
    {
        "option": "Use more warm-up trials ({option}).",
        "-option -later": "Compare the medians.",
        "later": "Compare the medians, or profile later in the training.",
    },
)
def _short_warmup(summary: Summary) -> Iterator[Facts]:
    walls = _many_trials(summary)
    if walls is None:
        return
    count = min(50, max(5, len(walls) // 20))
    excess = float(np.median(walls[:count]) / np.median(walls[count:]) - 1)
    # One slow trial is chance; most of the first ones above nearly all others are not.
    high = np.quantile(walls[count:], 0.9)
    if excess < SLOW_START or (walls[:count] > high).mean() <= 0.5:
        return
    settings = summary.recording.settings
    warmups = len(summary.recording.warmup_ns) or settings.warmups
    more = option(settings, "warmups", max(2 * warmups, warmups + 2 * count))
    yield {
        "count": count,
        "excess": excess,
        "warmups": warmups,
        "option": more if warmups >= settings.warmups else "",
        "later": not (more or settings.engine),
        "off": excess * count / len(walls),
    }


def _many_trials(summary: Summary) -> NDArray[np.int64] | None:
    """The profiled trials, if they are enough for one part to be compared with another."""
    walls = summary.recording.trial_ns
    few = walls is None or len(walls) < 2 * MIN_TRIALS or not np.median(walls)
    return None if few else walls


@CHECKS.warning(
    "Profiling made a trial {totals.overhead.fraction:%} slower.",
    "Report the unprofiled trials; the layers' times are too long by up to this share.",
    of_programs=True,
)
def _overhead(summary: Summary) -> Iterator[Facts]:
    overhead = summary.totals.overhead
    # Without an interval (NaN) a short run's noise would be called overhead.
    if overhead is not None and overhead.low > HIGH_OVERHEAD:
        yield {}


@CHECKS.warning(
    "The mean of the {trials} is {mean_s:s}, {ratio:%0} of the median of "
    "{totals.trial.median_s:s}.",
    "The machine was disturbed in some of them. Close other programs and run again.",
)
def _far_off(summary: Summary) -> Iterator[Facts]:
    """The mean of trials in the report that is farthest from the headline, if it is far."""
    totals, counted = summary.totals, trial_counters(summary.recording)
    if totals.trial is None or not totals.trial.median_s:
        return
    median_s = totals.trial.median_s
    means = {
        "unprofiled trials": totals.clean.mean_s if totals.clean else 0.0,
        "profiled trials": totals.profiled.mean_s if totals.profiled else 0.0,
        "trials that counted CPU time": counted.wall_s if counted else 0.0,
    }
    ratios = {trials: mean_s / median_s for trials, mean_s in means.items() if mean_s > 0}
    trials = max(ratios, key=lambda trials: abs(math.log(ratios[trials])))
    ratio = ratios[trials]
    if not 1 / FAR < ratio < FAR:
        mean_s = means[trials]
        yield {"trials": trials, "mean_s": mean_s, "ratio": ratio, "off": abs(ratio - 1)}


@CHECKS.note(
    "{share:%} of the trial is spent outside its phases ({phases}).",
    "No layer contains this time. Look at what the training loop does around the step.",
    of_programs=True,
)
def _outside_of_phases(summary: Summary) -> Iterator[Facts]:
    recording = summary.recording
    # On a GPU this is the rest of the wall clock beside the device's times: no loop's doing.
    if not recording.phases or recording.trial_ns is None or recording.on_device:
        return
    share = float(summary.phases["share"].get(OUTSIDE, 0.0))
    if share >= MUCH_OUTSIDE:
        yield {"share": share, "phases": ", ".join(summary.phase_names)}


# -- the machine


@CHECKS.warning(
    "Other programs kept {cores} busy during the trials.",
    "They slow the trials and make them vary. Close them and run again.",
    of_programs=True,
)
def _busy(summary: Summary) -> Iterator[Facts]:
    used = summary.recording.conditions.other_cpu
    if used is not None and used >= BUSY_CORES:
        cores = summary.recording.environment.usable_cores
        yield {"cores": cores_text(used, cores), "off": used / (cores or 1)}


def cores_text(used: float, cores: int | None) -> str:
    """Cores that are used, of those that there are: ``1.3 of 2 cores``."""
    return f"{used:.1f} of {plural(cores, 'core')}" if cores else f"{used:.1f} cores"


@CHECKS.warning(
    "The thread did not run in {trial.off_share:%0} of the wall time of the counters pass: it "
    "{why} times a trial{mostly}.",
    {
        "preempted": "Other programs used the processor. Compare CPU times (cpu_ms), or run on a "
        "quiet machine.",
        "-preempted": "It waited for a disk, a lock or another thread, so faster arithmetic would "
        "not help.",
    },
)
def _disturbed(summary: Summary) -> Iterator[Facts]:
    trial, layers = trial_counters(summary.recording), summary.layers
    # With several threads the calling one waits for the others.
    if trial is None or blas_threads(summary.recording) > 1 or not trial.off_share >= MUCH_OFF:
        return
    off_s, mostly = (layers["counted_s"] - layers["cpu_s"]).clip(lower=0), ""
    place = place_of_most(off_s, trial.wall_s - trial.cpu_s)
    if place is not None:
        label = layers["label"][place]
        mostly = fill("; most of that in {label} ({off_s:s})", label=label, off_s=off_s[place])
    preempted = trial.preemptions >= trial.waits
    why = f"was preempted {trial.preemptions:.1f}" if preempted else f"waited {trial.waits:.1f}"
    severity = WARNING if preempted else NOTE
    facts = {"trial": trial, "preempted": preempted, "why": why, "mostly": mostly}
    yield facts | {"severity": severity, "off": trial.off_share}


@CHECKS.warning(
    "{variables} {variables:was|were} set: libraries may use slower instructions than this "
    "processor has{kernels}.",
    "Unset {names} and run again, unless you want to measure exactly that.",
)
def _held_back(summary: Summary) -> Iterator[Facts]:
    environment = summary.recording.environment
    variables = environment.variables
    if variables:
        kernels = ", ".join(library.kernels for library in environment.blas if library.kernels)
        yield {
            "variables": list(variables),
            "kernels": bracketed(f"BLAS ran {kernels} kernels" if kernels else ""),
            "names": [variable.partition("=")[0] for variable in variables],
            "off": math.inf,
        }


# -- a GPU


@CHECKS.warning(
    "The GPU had lowered its clocks ({reasons}){clock}.",
    "Its layers can be faster than this. Cool it, or raise its power limit; to compare runs, fix "
    "a clock that it can hold (nvidia-smi --lock-gpu-clocks).",
    of_programs=True,
)
def _throttled(summary: Summary) -> Iterator[Facts]:
    if reasons := _throttles(summary.recording):
        before, after = _clocks(summary.recording)
        clock = f"; its clock was {_clock_change(before, after)}" if before else ""
        off = abs(after / before - 1) if before else math.inf
        yield {"reasons": ", ".join(reasons), "clock": clock, "off": off}


@CHECKS.warning(
    "The GPU's clock {moved} by {change:%}: {clocks}.",
    {
        "rose": "An idle GPU has a low clock and raises it during the warm-up. If the first trials "
        "are slower than later ones, use more warm-up trials.",
        "-rose": "Times before and after the change differ. Fix the clock (nvidia-smi "
        "--lock-gpu-clocks), or let the GPU warm up longer.",
    },
)
def _gpu_clock(summary: Summary) -> Iterator[Facts]:
    before, after = _clocks(summary.recording)
    rose = after > before
    # Reasons for lower clocks say that it fell.
    if abs(after - before) > CLOCK_CHANGE * before and (rose or not _throttles(summary.recording)):
        change, moved = abs(after / before - 1), "rose" if rose else "fell"
        facts = {"moved": moved, "rose": rose, "change": change}
        severity, clocks = NOTE if rose else WARNING, _clock_change(before, after)
        yield facts | {"clocks": clocks, "severity": severity, "off": change}


def _states(recording: Recording) -> list[GpuState]:
    states = recording.conditions.gpu_before, recording.conditions.gpu_after
    return [state for state in states if state is not None]


def _throttles(recording: Recording) -> list[str]:
    """Reasons for which the GPU lowered its clocks, but for clocks that somebody chose."""
    reasons = dict.fromkeys(reason for state in _states(recording) for reason in state.throttle)
    return [reason for reason in reasons if reason != _CHOSEN]


def _clocks(recording: Recording) -> tuple[int, int]:
    """The GPU's clock before and after the trials in MHz; 0 where both are not known."""
    clocks = [state.sm_mhz for state in _states(recording) if state.sm_mhz]
    return (clocks[0], clocks[1]) if len(clocks) == 2 else (0, 0)


def _clock_change(before: int, after: int) -> str:
    return f"{format_count(before)} MHz before the warm-up, {format_count(after)} MHz at the end"


@CHECKS.note(
    "No trial could be held back until all of it was launched, so it is unknown how long the GPU "
    "works and how long it waits.",
    "The network waits for the GPU midway, or launches more than the GPU's queue holds. Read the "
    "layers' times as work and waiting together, or look at a trace of Nsight Systems "
    "(docs/gpu.md).",
)
def _no_held_trials(summary: Summary) -> Iterator[Facts]:
    use, recording = summary.device, summary.recording
    # A run that was cut short has not come to them, and one with rows by link makes none.
    by_link = use is None or use.busy_s is not None or recording.by_link
    if not by_link and recording.ended == COMPLETE:
        yield {}
