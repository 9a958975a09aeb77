"""Whether the machine was steady during the trials, and the evidence if it was not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.counted import trial_counters
from chainer_profile.analyse.findings import NOTE, WARNING, Finding, bracketed, option
from chainer_profile.analyse.grouping import majority_label
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.threads import blas_threads
from chainer_profile.basics.describe import MIN_TRIALS, Statistics, halves_differ
from chainer_profile.basics.units import (
    format_duration,
    format_percent,
    join_words,
    plural,
)
from chainer_profile.record.parts import BUSY_CORES

#: The 95 % interval of the median trial is wide if its half width exceeds this fraction of it.
WIDE_INTERVAL = 0.02
#: Largest number of trials to advise; runs that vary more need a quieter machine.
MAX_TRIALS = 20_000
#: pyperf's limit: trials are unstable from this standard deviation, as a fraction of the mean.
UNSTABLE = 0.10
#: Smallest relative changes that are findings: drift of the mean, and slower first trials.
DRIFT = 0.05
SLOW_START = 0.05
#: Fraction of the wall time in which the thread did not run, from which that is a finding.
MUCH_OFF = 0.05
#: A mean of trials is far off above this multiple of the headline, or below its inverse.
FAR = 3.0
#: Pieces of evidence in the finding's text; the others follow as its evidence.
_MAX_IN_TEXT = 2


@dataclass(frozen=True)
class Evidence:
    """One sign of an unsteady machine."""

    text: str  #: A main clause without a full stop: ``other programs kept 1.3 of 2 cores busy``.
    off: float  #: Relative error of the headline that it may cause.
    advice: str = "Close other programs and run again."


def unsteady(summary: Summary) -> Iterator[Finding]:
    """One finding with all signs of an unsteady machine; without signs, one on a wide interval."""
    # Iterations of a program differ without any fault of the machine.
    signs = [_busy] if summary.recording.by_means else [*_SIGNS]
    evidence = [found for sign in signs if (found := sign(summary)) is not None]
    if evidence:
        yield _finding(evidence)
    elif not summary.recording.by_means:
        yield from _wide_interval(summary)


def _finding(evidence: list[Evidence]) -> Finding:
    """The finding with this evidence, the strongest first."""
    evidence = sorted(evidence, key=lambda found: -found.off)
    texts = [found.text for found in evidence]
    return Finding(
        "unsteady",
        WARNING,
        f"The machine was unsteady: {join_words(texts[:_MAX_IN_TEXT])}.",
        " ".join(dict.fromkeys(found.advice for found in evidence)),
        _sentence(texts[_MAX_IN_TEXT:]),
        off=evidence[0].off,
    )


def _wide_interval(summary: Summary) -> Iterator[Finding]:
    """A wide interval on a steady machine: more trials narrow it, unless too many are needed."""
    recording, times = summary.recording, summary.totals.trial
    if times is None or not times.half_width > WIDE_INTERVAL:
        return
    width, needed = format_percent(times.half_width), needed_trials(times)
    if needed > MAX_TRIALS:
        yield _finding([Evidence(f"the 95 % interval is +/- {width}", times.half_width)])
    elif recording.n_trials >= MIN_TRIALS:
        kind, name = "profiled", "trials"
        if summary.totals.clean:
            kind, name = "unprofiled", "clean_trials"
        yield Finding(
            "few-trials",
            WARNING,
            f"The 95 % interval is +/- {width}.",
            f"{plural(needed, f'{kind} trial')} would narrow it to "
            f"{format_percent(WIDE_INTERVAL, 0)}"
            f"{bracketed(option(recording.settings, name, needed))}.",
            off=times.half_width,
        )


def _sentence(clauses: list[str]) -> str:
    text = join_words(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def needed_trials(times: Statistics) -> int:
    """The number of trials that would narrow the interval to :data:`WIDE_INTERVAL`.

    The width falls with the root of the number of trials.
    """
    return math.ceil(times.count * (times.half_width / WIDE_INTERVAL) ** 2)


def _busy(summary: Summary) -> Evidence | None:
    used = summary.recording.conditions.other_cpu
    cores = summary.recording.environment.usable_cores
    text = _busy_text(used, cores)
    return Evidence(text, used / (cores or 1)) if used and text else None


def _busy_text(used: float | None, cores: int | None) -> str:
    if used is None or used < BUSY_CORES:
        return ""
    busy = f"{used:.1f} of {plural(cores, 'core')}" if cores else f"{used:.1f} cores"
    return f"other programs kept {busy} busy"


def busy_warning(used: float | None, cores: int | None) -> str:
    """A warning that other programs kept cores busy; empty if they used few.

    Args:
        used: Mean number of cores that other programs used; None if unknown.
        cores: Number of cores that this process may use; None if unknown.
    """
    text = _busy_text(used, cores)
    return f"{_sentence([text])} Close them and run again." if text else ""


def _drift(summary: Summary) -> Evidence | None:
    walls = _many_trials(summary)
    if walls is None:
        return None
    change, certain = halves_differ(walls)
    if abs(change) < DRIFT or not certain:
        return None
    direction = "slower" if change > 0 else "faster"
    text = f"the trials became {format_percent(abs(change))} {direction} during the run"
    return Evidence(text, abs(change))


def _scatter(summary: Summary) -> Evidence | None:
    trial = summary.totals.profiled
    if trial is None or not trial.spread >= UNSTABLE:  # NaN of one trial
        return None
    text = (
        f"the standard deviation is {format_percent(trial.spread, 0)} of the mean (slowest trial "
        f"{format_duration(trial.max_s)})"
    )
    off = abs(trial.mean_s / trial.median_s - 1) if trial.median_s else math.inf
    return Evidence(text, off)


def _slow_start(summary: Summary) -> Evidence | None:
    walls = _many_trials(summary)
    if walls is None:
        return None
    count = min(50, max(5, len(walls) // 20))
    excess = float(np.median(walls[:count]) / np.median(walls[count:]) - 1)
    # One slow trial is chance, but not if most of the first trials exceed nearly all others.
    high = np.quantile(walls[count:], 0.9)
    if excess < SLOW_START or (walls[:count] > high).mean() <= 0.5:
        return None
    settings = summary.recording.settings
    warmups = len(summary.recording.warmup_ns) or settings.warmups
    more = option(settings, "warmups", max(2 * warmups, warmups + 2 * count))
    advice = "Compare the medians, which the first trials hardly affect."
    if more and warmups >= settings.warmups:
        advice = f"Use more warm-up trials ({more})."
    text = f"the first {count} trials were {format_percent(excess, 0)} slower than the rest"
    return Evidence(text, excess * count / len(walls), advice)


def _many_trials(summary: Summary) -> NDArray[np.int64] | None:
    """Times of the profiled trials in ns, if there are enough to compare two parts of the run."""
    walls = summary.recording.trial_ns
    few = walls is None or len(walls) < 2 * MIN_TRIALS or not np.median(walls)
    return None if few else walls


def _far_mean(summary: Summary) -> Evidence | None:
    """The mean that is farthest from the headline's median, if it is far."""
    totals, counted = summary.totals, trial_counters(summary.recording)
    if totals.trial is None or not totals.trial.median_s:
        return None
    means = {
        "unprofiled trials": totals.clean.mean_s if totals.clean else 0.0,
        "profiled trials": totals.profiled.mean_s if totals.profiled else 0.0,
        "trials that counted CPU time": counted.wall_s if counted else 0.0,
    }
    ratios = {kind: mean_s / totals.trial.median_s for kind, mean_s in means.items() if mean_s > 0}
    kind = max(ratios, key=lambda kind: abs(math.log(ratios[kind])))
    ratio = ratios[kind]
    if 1 / FAR < ratio < FAR:
        return None
    text = f"the mean of the {kind} is {ratio:.3g} times the median"
    return Evidence(text, abs(ratio - 1))


def _preempted(summary: Summary) -> Evidence | None:
    trial = trial_counters(summary.recording)
    if trial is None or not _much_off(summary) or trial.preemptions < trial.waits:
        return None
    text = (
        f"other programs took the processor in {format_percent(trial.off_share, 0)} of the time "
        f"({trial.preemptions:.1f} times a trial)"
    )
    return Evidence(text, trial.off_share)


def _much_off(summary: Summary) -> bool:
    """Whether the thread did not run during a large part of the counters pass."""
    trial = trial_counters(summary.recording)
    # With several threads the calling one waits for the others.
    return (
        trial is not None and blas_threads(summary.recording) == 1 and trial.off_share >= MUCH_OFF
    )


_SIGNS = (_busy, _drift, _scatter, _slow_start, _far_mean, _preempted)


def waiting(summary: Summary) -> Iterator[Finding]:
    """The thread waited for something other than the processor."""
    trial, layers = trial_counters(summary.recording), summary.layers
    if trial is None or not _much_off(summary) or trial.preemptions >= trial.waits:
        return
    off_s, mostly = (layers["counted_s"] - layers["cpu_s"]).clip(lower=0), ""
    row = majority_label(off_s, trial.wall_s - trial.cpu_s)
    if row is not None:
        mostly = f"; most of that in {layers['label'][row]} ({format_duration(off_s[row])})"
    yield Finding(
        "waiting",
        NOTE,
        f"The thread waited for {format_percent(trial.off_share, 0)} of the time "
        f"({trial.waits:.1f} times a trial){mostly}.",
        "It waited for a disk, a lock or another thread, so faster arithmetic would not help.",
    )
