"""BLAS threads: how long trials took with one and with several, and the findings on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chainer_profile.analyse.findings import (
    NOTE,
    STEP,
    Finding,
    command_that_tries,
    gain_without,
    option,
)
from chainer_profile.analyse.shares import part_of_whole, whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import median_interval
from chainer_profile.basics.units import format_interval, format_percent, plural
from chainer_profile.record.recording import Recording

#: Share of matrix products from which a slow rate is worth a finding, and the part of the machine's
#: rate below which it is slow.
MANY_PRODUCTS, SLOW_PRODUCTS = 0.2, 0.1
#: Beginning of the variable that sets the number of threads, by library.
_PREFIXES = {"openblas": "OPENBLAS", "mkl": "MKL", "blis": "BLIS"}


def used_threads(summary: Summary) -> Iterator[Finding]:
    """The number of threads that the run used, if the probe showed that it matters."""
    recording, threads = summary.recording, blas_threads(summary.recording)
    probe = probed_threads(recording)
    if probe is None or not _computes_by_blas(recording):
        return
    if threads == 1 and probe.differ:
        several = option(recording.settings, "threads", probe.many)
        measures = f"; {several} measures that" if several else ""
        yield Finding(
            "threads",
            NOTE,
            f"BLAS ran with {probe.text(1)}.",
            f"Your own programs use {probe.many} unless {_single_thread(recording)} is set"
            f"{measures}.",
        )
    # Older versions probed one thread after the trials, so the run used several anyway.
    elif threads > 1 and probe.low > 1:
        yield Finding(
            "threads", NOTE, f"BLAS ran with {probe.text(threads)}.", "Run with one thread."
        )


def unmeasured_threads(summary: Summary) -> Iterator[Finding]:
    """Several BLAS threads that were not compared with one."""
    recording = summary.recording
    if not _blas_chose(recording) or _slow_products(summary) is not None:
        return
    single = "" if recording.of_program else option(recording.settings, "threads", 1)
    tries = command_that_tries(recording)
    if tries:
        advice = f"To measure it, run: {tries}"
    elif single:
        advice = f"Try {single} and compare the two runs."
    else:
        variable = _single_thread(recording)
        advice = f"Set {variable} before Python starts and compare the two runs."
    text = f"BLAS used {blas_threads(recording)} threads; whether one is faster was not measured."
    yield Finding("threads", NOTE, text, advice)


def slow_threads(summary: Summary) -> Iterator[Finding]:
    """Matrix products of a program that are slow, probably since several threads share them."""
    recording, slow = summary.recording, _slow_products(summary)
    if slow is None or not _blas_chose(recording):
        return
    share, rate = slow
    tries = command_that_tries(recording)
    advice = "To measure one thread, put this before the command and compare the two runs."
    yield Finding(
        "threads",
        STEP,
        f"Matrix products take {format_percent(share)} of the {whole_time(summary).name}, at "
        f"{format_percent(rate)} of this machine's rate, with {blas_threads(recording)} BLAS "
        "threads.",
        "To measure one thread, run." if tries else advice,
        command=tries or _single_thread(recording),
        gain=gain_without(share),
    )


def _blas_chose(recording: Recording) -> bool:
    """Whether BLAS used several threads that neither the user nor the probe chose."""
    if recording.settings.threads is not None or probed_threads(recording) is not None:
        return False
    return _computes_by_blas(recording) and blas_threads(recording) > 1


def _computes_by_blas(recording: Recording) -> bool:
    # Another engine than Chainer has threads of its own.
    return recording.settings.device.startswith("cpu") and not recording.settings.engine


def _slow_products(summary: Summary) -> tuple[float, float] | None:
    """If a program's matrix products are slow: their share, and their fraction of the peak rate."""
    layers, limits = summary.layers, summary.recording.limits
    # Much of a convolution's time may be a copy.
    products = layers[(layers["macs"] > 0) & ~layers["function"].str.contains("onvolution")]
    time_s = float(products["mean_s"].sum())
    if limits is None or not time_s or not summary.recording.of_program:
        return None
    rate = float(products["flops"].sum()) / time_s / limits.flops_per_s
    share = part_of_whole(summary, products["mean_s"].sum())
    return (share, rate) if share >= MANY_PRODUCTS and rate < SLOW_PRODUCTS else None


def _single_thread(recording: Recording) -> str:
    """The assignment that gives BLAS one thread: ``OPENBLAS_NUM_THREADS=1``."""
    return f"{_PREFIXES.get(recording.environment.blas[0].name, 'OMP')}_NUM_THREADS=1"


def blas_threads(recording: Recording) -> int:
    return max((library.threads for library in recording.environment.blas), default=1)


@dataclass(frozen=True)
class ProbedThreads:
    """How many times as long trials took with several BLAS threads as with one, interleaved."""

    many: int  #: Number of threads of the trials with several.
    ratio: float  #: Median of the rounds.
    low: float  #: Ends of its 95 % interval, NaN for fewer than 6 rounds.
    high: float
    rounds: int

    @property
    def differ(self) -> bool:
        """Whether one of the two is significantly faster."""
        return self.low > 1 or self.high < 1

    def text(self, threads: int) -> str:
        """The number of threads of a run, and how long trials took with the other number."""
        took, other = f"{threads} threads", "one"
        ratio, low, high = 1 / self.ratio, 1 / self.high, 1 / self.low
        if threads == 1:
            took, other = "one thread", f"{self.many}"
            ratio, low, high = self.ratio, self.low, self.high
        rounds = plural(self.rounds, "interleaved round")
        if not self.differ:
            return f"{took}; {rounds} showed no difference from {other}"
        interval = format_interval(low, high, "{:.2f}".format)
        return (
            f"{took}: with {other}, trials took {ratio:.2f} times as long (95 % interval "
            f"{interval}, {rounds})"
        )


def probed_threads(recording: Recording) -> ProbedThreads | None:
    """The result of the probe of BLAS threads; None where there was none."""
    threads, walls = recording.probe_threads, recording.probe_ns
    many = int(threads.max(initial=1))
    if many == 1:
        return None
    blocks = np.split(np.arange(len(threads)), np.flatnonzero(np.diff(threads)) + 1)
    with_one, with_many = (
        [float(np.median(walls[block])) for block in blocks if threads[block[0]] == count]
        for count in (1, many)
    )
    pairs = list(zip(with_many, with_one, strict=False))  # the last round may be incomplete
    if not pairs:
        return None
    ratios = np.array([many_ns / max(1.0, one_ns) for many_ns, one_ns in pairs])
    return ProbedThreads(many, float(np.median(ratios)), *median_interval(ratios), len(ratios))
