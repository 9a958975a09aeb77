"""Summary -> findings: what the reader should know before believing a number, and do next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainer_profile.analyse.changes import whole
from chainer_profile.analyse.counted import trial_counters
from chainer_profile.analyse.findings import (
    LEAST_GAIN,
    Finding,
    bracketed,
    gain_without,
    in_order,
    note,
    option,
    step,
    warning,
)
from chainer_profile.analyse.grouping import OUTSIDE, place_of_most
from chainer_profile.analyse.steps import steps
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import MIN_TRIALS, NS, halves_differ, median_interval
from chainer_profile.basics.units import format_count, format_duration, format_percent, plural
from chainer_profile.record.recording import COMPLETE, FEW_LEFT_OUT, INTERVAL, TIME_LIMIT, Recording

#: Half width of the median trial's 95 % interval, as a fraction of it, above which trials are few.
WIDE_INTERVAL = 0.02
#: No more trials than these are advised; what varies more needs a quieter machine.
MOST_TRIALS = 20_000
#: pyperf's limit: a standard deviation of this part of the mean is called unstable.
UNSTABLE = 0.10
#: Change of the mean over the run, and of the first trials against the others, worth a word.
DRIFT = 0.05
SLOW_START = 0.05
#: A layer is near the clock's resolution below so many empty windows of the recorder.
WINDOWS = 20
HIGH_OVERHEAD = 0.02
BUSY_CORES = 0.25
#: Part of a training step outside of its phases worth a word.
MUCH_OUTSIDE = 0.05
#: Share of matrix products from which a slow rate is worth a word, and what part of the machine's
#: rate is slow.
MANY_PRODUCTS, SLOW_PRODUCTS = 0.2, 0.1
#: Resolution of the times of CUDA's events.
EVENT_S = 0.5e-6
#: Change of a GPU's clock worth a word.
CLOCK_CHANGE = 0.05
#: Places of numbers that are not finite that a finding names.
MOST_NAMED = 3
#: Part of the wall time in which the thread did not run, worth a word.
MUCH_OFF = 0.05
#: A figure of a trial that is so many times the headline, or less than that part of it, is far off.
FAR = 3.0
#: Lower clocks that somebody has chosen are no fault; they make runs comparable.
_CHOSEN = "clocks set by an application"
#: Of the variable that sets a library's threads.
_PREFIXES = {"openblas": "OPENBLAS", "mkl": "MKL", "blis": "BLIS"}


def check(summary: Summary) -> tuple[Finding, ...]:
    """All findings of a run: warnings, then what may take less time, then notes."""
    rules = _OF_PROGRAMS if summary.recording.by_means else _CHECKS
    found = [finding for rule in (*rules, steps) for finding in rule(summary)]
    return in_order(one for one in found if one.gain is None or one.gain >= LEAST_GAIN)


def _ended_early(summary: Summary) -> Iterator[Finding]:
    recording = summary.recording
    wanted, made = recording.settings.trials, recording.all_trials
    if recording.ended == COMPLETE:
        return
    # A program that runs anyway has no number of its own.
    of = f"{format_count(made)} of " if wanted else ""
    text = f"The run ended after {of}{plural(wanted or made, 'trial')}: {recording.ended}."
    if recording.ended in (TIME_LIMIT, INTERVAL):
        yield note("ended-early", text, "You requested this; nothing needs to be done.")
        return
    advice = (
        f"Run it again for {'the full number of trials' if wanted else 'the remaining trials'}."
    )
    if recording.ended.startswith("failed"):
        advice = "Fix that first: the network cannot be profiled as it is."
    yield warning("interrupted", f"{text} The results cover those trials.", advice, off=math.inf)


def _left_out(summary: Summary) -> Iterator[Finding]:
    left_out, of = summary.recording.left_out, summary.recording.all_trials
    if left_out:
        said = warning if left_out / of > FEW_LEFT_OUT else note
        yield said(
            "left-out",
            f"{format_count(left_out)} of {plural(of, 'profiled trial')} "
            f"({format_percent(left_out / of)}) were discarded because their calls differ "
            "from those shown.",
            "Profile it again: rows are then links' functions, which include all trials.",
            off=left_out / of,
        )


def _few_trials(summary: Summary) -> Iterator[Finding]:
    totals, count = summary.totals, summary.recording.n_trials
    settings = summary.recording.settings
    if count < MIN_TRIALS:
        yield warning(
            "few-trials",
            f"{plural(count, 'trial')}: too few for a confidence interval and for reliable "
            "percentiles.",
            f"Run at least {MIN_TRIALS} trials, preferably "
            f"1,000{bracketed(option(settings, 'trials', 1000))}.",
            off=math.inf,
        )
        return
    timed = {"unprofiled": totals.clean, "profiled": totals.profiled}
    wide = {kind: of for kind, of in timed.items() if of and of.half_width > WIDE_INTERVAL}
    if not wide:
        return
    widths = " and ".join(
        f"{format_percent(of.half_width)} of the median of the {plural(of.count, f'{kind} trial')}"
        for kind, of in wide.items()
    )
    # The width falls with the root of the number of trials.
    needed = {
        k: math.ceil(of.count * (of.half_width / WIDE_INTERVAL) ** 2) for k, of in wide.items()
    }
    advice = "They vary too much for more trials to help. Close other programs and run again."
    if max(needed.values()) <= MOST_TRIALS:
        names = {"unprofiled": "clean_trials", "profiled": "trials"}
        options = " ".join(option(settings, names[kind], n) for kind, n in needed.items()).strip()
        more = " and ".join(plural(n, f"{kind} trial") for kind, n in needed.items())
        narrow = f"{format_percent(WIDE_INTERVAL, 0)}{bracketed(options)}"
        advice = f"About {more} would narrow it to {narrow}."
    off = max((of.half_width for of in wide.values() if of is totals.trial), default=0.0)
    yield warning("few-trials", f"The 95 % interval is +/- {widths}.", advice, off)


def _unstable(summary: Summary) -> Iterator[Finding]:
    trial, layers = summary.totals.profiled, summary.layers
    mean_s, std_s = layers["mean_s"].to_numpy(), layers["std_s"].to_numpy()
    unstable = np.flatnonzero((std_s >= UNSTABLE * mean_s) & (mean_s > 0))
    if trial is not None and trial.spread >= UNSTABLE:
        yield warning(
            "unstable",
            f"The trials vary: their standard deviation is {format_percent(trial.spread, 0)} "
            f"of the mean, and the slowest took {format_duration(trial.max_s)} (median "
            f"{format_duration(trial.median_s)}).",
            "Close other programs and run again. Report the median; a few slow trials distort the "
            "mean.",
            off=abs(trial.mean_s / trial.median_s - 1) if trial.median_s else math.inf,
        )
    if len(unstable):
        spread = std_s[unstable] / mean_s[unstable]
        worst = layers["label"][unstable[spread.argmax()]]
        yield note(
            "unstable-layers",
            f"{format_count(len(unstable))} of {plural(len(layers), 'layer')} vary by 10 % of "
            f"their mean or more; the worst is {worst} with {format_percent(spread.max(), 0)}.",
            "Compare the medians of these layers instead of their means.",
        )


def _drift(summary: Summary) -> Iterator[Finding]:
    walls = _many_trials(summary)
    if walls is None:
        return
    change, certain = halves_differ(walls)
    if abs(change) >= DRIFT and certain:
        yield warning(
            "drift",
            f"The second half of the run was {format_percent(abs(change))} "
            f"{'slower' if change > 0 else 'faster'} than the first.",
            "The machine changed during the run (heat, clock frequency, other programs). Run "
            "again on a quiet machine.",
            off=abs(change),
        )


def _slow_start(summary: Summary) -> Iterator[Finding]:
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
    asked = option(settings, "warmups", max(2 * warmups, warmups + 2 * count))
    advice = "Compare the medians."
    if asked and warmups >= settings.warmups:
        advice = f"Use more warm-up trials ({asked})."
    elif not (asked or settings.engine):
        advice = "Compare the medians, or profile later in the training."
    text = (
        f"The first {count} trials were {format_percent(excess, 0)} slower than the rest: "
        f"a warm-up of {plural(warmups, 'trial')} was too short."
    )
    yield warning("short-warmup", text, advice, off=excess * count / len(walls))


def _many_trials(summary: Summary) -> NDArray[np.int64] | None:
    """The profiled trials where they are enough to be held against one another."""
    walls = summary.recording.trial_ns
    few = walls is None or len(walls) < 2 * MIN_TRIALS or not np.median(walls)
    return None if few else walls


def _near_resolution(summary: Summary) -> Iterator[Finding]:
    conditions, layers = summary.recording.conditions, summary.layers
    if summary.recording.on_device:
        window_s, shown_by = EVENT_S, "that events on the GPU can resolve"
    elif conditions.window_ns is not None:
        window_s = max(conditions.window_ns, conditions.clock_resolution_ns or 0) * NS
        shown_by = "that the clock can resolve or an empty function takes"
    else:
        return
    near = layers[layers["median_s"] < WINDOWS * window_s]
    if len(near):
        smallest = layers.loc[layers["median_s"].idxmin()]
        share = window_s / smallest["median_s"] if smallest["median_s"] else 1.0
        yield note(
            "near-resolution",
            f"{plural(len(near), 'layer')} took less than {WINDOWS} times the "
            f"{format_duration(window_s)} {shown_by}, which is up to "
            f"{format_percent(min(share, 1.0), 0)} of the time of {smallest['label']}.",
            "Do not compare these layers with one another; together they take "
            f"{format_percent(near['share'].sum())} of the {whole(summary)[1]}.",
        )


def _overhead(summary: Summary) -> Iterator[Finding]:
    overhead = summary.totals.overhead
    # Without an interval (NaN) a short run's noise would be called overhead.
    if overhead is not None and overhead.low > HIGH_OVERHEAD:
        text = f"Profiling made a trial {format_percent(overhead.fraction)} slower."
        advice = "Report the unprofiled trials; the layers' times are too long by up to this share."
        yield warning("overhead", text, advice, off=0.0)


def _unlike_trials(summary: Summary) -> Iterator[Finding]:
    unlike = summary.recording.conditions.unlike_trials
    if unlike:
        yield warning(
            "unlike-trials",
            f"{plural(unlike, 'trial')} made other calls than those before, and no time is known "
            "of them.",
            "The trials after them are whole: a layer is a function of a link from there on.",
            off=unlike / (unlike + summary.recording.n_trials),
        )


def _threads(summary: Summary) -> Iterator[Finding]:
    recording = summary.recording
    settings, threads = recording.settings, _blas_threads(recording)
    # Another engine than Chainer has threads of its own.
    if not settings.device.startswith("cpu") or settings.engine:
        return
    probe = probed_threads(recording)
    if probe is None:
        if threads > 1 and settings.threads is None:
            yield _several_threads(summary, threads)
    elif threads == 1 and probe.differ:
        asked = option(settings, "threads", probe.many)
        advice = f"Your own programs use {probe.many} unless {_one_thread(recording)} is set"
        advice += f"; {asked} measures that." if asked else "."
        yield note("threads", f"BLAS ran with {probe.text(1)}.", advice)
    # Older versions tried one thread after the trials, and did not take it.
    elif threads > 1 and probe.low > 1:
        yield note("threads", f"BLAS ran with {probe.text(threads)}.", "Run with one thread.")


def _several_threads(summary: Summary, threads: int) -> Finding:
    """That BLAS used several threads, which nobody chose; they may slow a program much."""
    recording, alone = summary.recording, _one_thread(summary.recording)
    share, rate = _products(summary) if recording.of_program else (0.0, 1.0)
    if share >= MANY_PRODUCTS and rate < SLOW_PRODUCTS:
        return step(
            "threads",
            f"Matrix products take {format_percent(share)} of the {whole(summary)[1]}, at "
            f"{format_percent(rate)} of this machine's rate, with {threads} BLAS threads.",
            "To measure one thread, put this before the command and compare the two runs.",
            command=alone,
            gain=gain_without(share),
        )
    text = f"BLAS used {threads} threads; whether one is faster was not measured."
    asked = "" if recording.of_program else option(recording.settings, "threads", 1)
    advice = f"Try {asked}" if asked else f"Set {alone} before Python starts"
    return note("threads", text, f"{advice} and compare the two runs.")


def _products(summary: Summary) -> tuple[float, float]:
    """The share of matrix products, and their part of the machine's rate, if that is known."""
    layers, limits = summary.layers, summary.recording.limits
    # Much of a convolution's time may be a copy.
    products = layers[(layers["macs"] > 0) & ~layers["function"].str.contains("onvolution")]
    time_s = float(products["typical_s"].sum())
    if limits is None or not time_s:
        return 0.0, 1.0
    rate = float(products["flops"].sum()) / time_s / limits.flops_per_s
    return float(products["mean_s"].sum()) / whole(summary)[0], rate


def _one_thread(recording: Recording) -> str:
    """The variable that gives BLAS one thread."""
    return f"{_PREFIXES.get(recording.environment.blas[0].name, 'OMP')}_NUM_THREADS=1"


def _blas_threads(recording: Recording) -> int:
    return max((library.threads for library in recording.environment.blas), default=1)


@dataclass(frozen=True)
class ProbedThreads:
    """How many times as long trials took with several BLAS threads as with one, by turns."""

    many: int
    ratio: float  #: Median of the rounds.
    low: float  #: Ends of its 95 % interval, NaN for fewer than 6 rounds.
    high: float
    rounds: int

    @property
    def differ(self) -> bool:
        """Whether one of the two is faster for sure."""
        return self.low > 1 or self.high < 1

    def text(self, threads: int) -> str:
        """That a run took so many threads, and what the other number would have made of it."""
        if threads == 1:
            took, other = "one thread", f"{self.many}"
            ratio, low, high = self.ratio, self.low, self.high
        else:
            took, other = f"{threads} threads", "one"
            ratio, low, high = 1 / self.ratio, 1 / self.high, 1 / self.low
        rounds = f"{plural(self.rounds, 'round')} by turns"
        if not self.differ:
            return f"{took}; {rounds} told no difference to {other}"
        return (
            f"{took}: with {other}, trials took {ratio:.2f} times as long (95 % interval "
            f"{low:.2f} to {high:.2f}, {rounds})"
        )


def probed_threads(recording: Recording) -> ProbedThreads | None:
    """What the probe of BLAS threads told; None where there was none."""
    threads, walls = recording.probe_threads, recording.probe_ns
    many = int(threads.max(initial=1))
    if many == 1:
        return None
    turns = np.split(np.arange(len(threads)), np.flatnonzero(np.diff(threads)) + 1)
    one, several = (
        [float(np.median(walls[turn])) for turn in turns if threads[turn[0]] == count]
        for count in (1, many)
    )
    pairs = list(zip(several, one, strict=False))  # the last round may be half of one
    if not pairs:
        return None
    ratios = np.array([with_many / max(1.0, with_one) for with_many, with_one in pairs])
    return ProbedThreads(many, float(np.median(ratios)), *median_interval(ratios), len(ratios))


def _held_back(summary: Summary) -> Iterator[Finding]:
    environment = summary.recording.environment
    if environment.variables:
        kernels = ", ".join(library.kernels for library in environment.blas if library.kernels)
        names = [variable.partition("=")[0] for variable in environment.variables]
        yield warning(
            "held-back",
            f"{' and '.join(environment.variables)} {'was' if len(names) == 1 else 'were'} set: "
            "libraries may use slower instructions than this processor has"
            f"{bracketed(f'BLAS ran {kernels} kernels' if kernels else '')}.",
            f"Unset {' and '.join(names)} and run again, unless you want to measure exactly that.",
            off=math.inf,
        )


def _not_finite(summary: Summary) -> Iterator[Finding]:
    if names := summary.recording.conditions.not_finite:
        more = len(names) - MOST_NAMED
        shown = "; ".join(names[:MOST_NAMED])
        shown += f" and {format_count(more)} more" if more > 0 else ""
        yield warning(
            "not-finite",
            f"The network contains NaN or infinite numbers: in {shown}.",
            "They can change the time of functions. chainer.set_debug(True) stops at the "
            "first function that produces NaN. If a training has diverged, profile an earlier "
            "state.",
            off=math.inf,
        )


def _busy(summary: Summary) -> Iterator[Finding]:
    other = summary.recording.conditions.other_cpu
    if other is not None and other >= BUSY_CORES:
        cores = summary.recording.environment.usable_cores
        of = f"of {plural(cores, 'core')}" if cores else "cores"
        text = f"Other programs kept {other:.1f} {of} busy during the trials."
        advice = "They slow the trials and make them vary. Close them and run again."
        yield warning("busy", text, advice, off=other / (cores or 1))


def _disturbed(summary: Summary) -> Iterator[Finding]:
    trial, layers = trial_counters(summary.recording), summary.layers
    # With several threads the calling one waits for the others.
    if trial is None or _blas_threads(summary.recording) > 1 or not trial.off_share >= MUCH_OFF:
        return
    off_s = (layers["counted_s"] - layers["cpu_s"]).clip(lower=0)
    place = place_of_most(off_s, trial.wall_s - trial.cpu_s)
    where = ""
    if place is not None:
        where = f"; most of that in {layers['label'][place]} ({format_duration(off_s[place])})"
    if trial.preemptions >= trial.waits:
        said = warning
        why = f"it was preempted {trial.preemptions:.1f} times a trial"
        advice = (
            "Other programs used the processor. Compare CPU times (cpu_ms), or run on a quiet "
            "machine."
        )
    else:
        said = note
        why = f"it waited {trial.waits:.1f} times a trial"
        advice = (
            "It waited for a disk, a lock or another thread, so faster arithmetic would not help."
        )
    text = (
        f"The thread did not run in {format_percent(trial.off_share, 0)} of the wall time of "
        f"the counters pass: {why}{where}."
    )
    yield said("disturbed", text, advice, trial.off_share)


def _far_from_headline(summary: Summary) -> Iterator[Finding]:
    """The figure of a trial in the report that is farthest from the headline, if it is far."""
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
    if 1 / FAR < ratios[trials] < FAR:
        return
    yield warning(
        "far-off",
        f"The mean of the {trials} is {format_duration(means[trials])}, "
        f"{format_percent(ratios[trials], 0)} of the median of {format_duration(median_s)}.",
        "The machine was disturbed in some of them. Close other programs and run again.",
        off=abs(ratios[trials] - 1),
    )


def _outside_of_phases(summary: Summary) -> Iterator[Finding]:
    recording = summary.recording
    # On a GPU this is the rest of the wall clock beside the device's times: no loop's doing.
    if not recording.phases or recording.trial_ns is None or recording.on_device:
        return
    share = float(summary.phases["share"].get(OUTSIDE, 0.0))
    if share >= MUCH_OUTSIDE:
        yield note(
            "outside-of-phases",
            f"{format_percent(share)} of the trial is spent outside its phases "
            f"({', '.join(summary.phase_names)}).",
            "No layer contains this time. Look at what the training loop does around the step.",
        )


def _gpu_clocks(summary: Summary) -> Iterator[Finding]:
    recording = summary.recording
    found = recording.conditions.gpu_before, recording.conditions.gpu_after
    states = [state for state in found if state is not None]
    reasons = dict.fromkeys(reason for state in states for reason in state.throttle)
    reasons.pop(_CHOSEN, None)
    clocks = [state.sm_mhz for state in states if state.sm_mhz]
    before, after = clocks if len(clocks) == 2 else (0, 0)
    ends = f"{format_count(before)} MHz before the warm-up, {format_count(after)} MHz at the end"
    if reasons:
        yield warning(
            "throttled",
            f"The GPU had lowered its clocks ({', '.join(reasons)})"
            f"{f'; its clock was {ends}' if before else ''}.",
            "Its layers can be faster than this. Cool it, or raise its power limit; to "
            "compare runs, fix a clock that it can hold (nvidia-smi --lock-gpu-clocks).",
            off=abs(after / before - 1) if before else math.inf,
        )
    if abs(after - before) <= CLOCK_CHANGE * before or recording.by_means:
        return
    by = f"by {format_percent(abs(after / before - 1))}: {ends}."
    if after > before:
        yield note(
            "gpu-clock",
            f"The GPU's clock rose {by}",
            "An idle GPU has a low clock and raises it during the warm-up. If the first "
            "trials are slower than later ones, use more warm-up trials.",
        )
    elif not reasons:  # which say so
        yield warning(
            "gpu-clock",
            f"The GPU's clock fell {by}",
            "Times before and after the change differ. Fix the clock (nvidia-smi "
            "--lock-gpu-clocks), or let the GPU warm up longer.",
            off=abs(after / before - 1),
        )


def _no_held_trials(summary: Summary) -> Iterator[Finding]:
    use, recording = summary.device, summary.recording
    # A run that was cut short has not come to them, and one with rows by link makes none.
    if use is None or use.busy_s is not None or recording.ended != COMPLETE or recording.by_link:
        return
    yield note(
        "no-held-trials",
        "No trial could be held back until all of it was launched, so it is unknown how long "
        "the GPU works and how long it waits.",
        "The network waits for the GPU midway, or launches more than the GPU's queue "
        "holds. Read the layers' times as work and waiting together, or look at a trace of "
        "Nsight Systems (docs/gpu.md).",
    )


_CHECKS = (
    *(_ended_early, _few_trials, _left_out, _not_finite, _busy, _disturbed, _unstable, _drift),
    *(_unlike_trials, _far_from_headline, _gpu_clocks, _held_back, _slow_start, _overhead),
    _near_resolution,
    *(_outside_of_phases, _no_held_trials, _threads),
)
#: What is said where trials differ, and of a program's, which it makes anyway.
_OF_PROGRAMS = (
    *(_ended_early, _not_finite, _busy, _gpu_clocks),
    *(_unlike_trials, _overhead, _outside_of_phases, _threads),
)
