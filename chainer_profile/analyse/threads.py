"""BLAS threads: how long trials took with one and with several, and the findings on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chainer_profile.analyse.findings import gain_without, option
from chainer_profile.analyse.rules import Facts, Rules, part_of_whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import median_interval
from chainer_profile.basics.units import format_interval, plural
from chainer_profile.basics.words import same_command_with_try
from chainer_profile.record.recording import Recording

#: Share of matrix products from which a slow rate is worth a finding, and the part of the machine's
#: rate below which it is slow.
MANY_PRODUCTS, SLOW_PRODUCTS = 0.2, 0.1
#: How the variable begins that sets a library's threads.
_PREFIXES = {"openblas": "OPENBLAS", "mkl": "MKL", "blis": "BLIS"}

THREADS = Rules()


@THREADS.note(
    "BLAS ran with {threads}.",
    {
        "single": "Your own programs use {many} unless {single} is set{measures}.",
        "-single": "Run with one thread.",
    },
    of_programs=True,
    code="threads",
)
def _probed(summary: Summary) -> Iterator[Facts]:
    recording, threads = summary.recording, blas_threads(summary.recording)
    probe = probed_threads(recording)
    if probe is None or not _computes_by_blas(recording):
        return
    if threads == 1 and probe.differ:
        several = option(recording.settings, "threads", probe.many)
        measures = f"; {several} measures that" if several else ""
        single = _single_thread(recording)
        yield {"threads": probe.text(1), "many": probe.many, "single": single, "measures": measures}
    # Older versions tried one thread after the trials, and did not take it.
    elif threads > 1 and probe.low > 1:
        yield {"threads": probe.text(threads)}


@THREADS.note(
    "BLAS used {threads} threads; whether one is faster was not measured.",
    {
        "tries": "To measure it, run: {tries}",
        "option -tries": "Try {option} and compare the two runs.",
        "-option -tries": "Set {single} before Python starts and compare the two runs.",
    },
    of_programs=True,
    code="threads",
)
def _not_probed(summary: Summary) -> Iterator[Facts]:
    recording = summary.recording
    if _blas_chose(recording) and _slow_products(summary) is None:
        single = "" if recording.of_program else option(recording.settings, "threads", 1)
        yield {
            "threads": blas_threads(recording),
            "option": single,
            "tries": same_command_with_try(recording.settings.command),
            "single": _single_thread(recording),
        }


@THREADS.step(
    "Matrix products take {share:%} of the {whole}, at {rate:%} of this machine's rate, with "
    "{threads} BLAS threads.",
    {
        "tries": "To measure one thread, run.",
        "-tries": "To measure one thread, put this before the command and compare the two runs.",
    },
    of_programs=True,
    code="threads",
)
def _slow_program(summary: Summary) -> Iterator[Facts]:
    recording, slow = summary.recording, _slow_products(summary)
    if slow is not None and _blas_chose(recording):
        share, rate = slow
        tries = same_command_with_try(recording.settings.command)
        yield {
            "share": share,
            "rate": rate,
            "threads": blas_threads(recording),
            "tries": tries,
            "command": tries or _single_thread(recording),
            "gain": gain_without(share),
        }


def _blas_chose(recording: Recording) -> bool:
    """Whether BLAS took several threads by itself, which may slow a program much."""
    if recording.settings.threads is not None or probed_threads(recording) is not None:
        return False
    return _computes_by_blas(recording) and blas_threads(recording) > 1


def _computes_by_blas(recording: Recording) -> bool:
    # Another engine than Chainer has threads of its own.
    return recording.settings.device.startswith("cpu") and not recording.settings.engine


def _slow_products(summary: Summary) -> tuple[float, float] | None:
    """The share of a program's matrix products and their part of the machine's rate, if slow."""
    layers, limits = summary.layers, summary.recording.limits
    # Much of a convolution's time may be a copy.
    products = layers[(layers["macs"] > 0) & ~layers["function"].str.contains("onvolution")]
    time_s = float(products["typical_s"].sum())
    if limits is None or not time_s or not summary.recording.of_program:
        return None
    rate = float(products["flops"].sum()) / time_s / limits.flops_per_s
    share = part_of_whole(summary, products["mean_s"].sum())
    return (share, rate) if share >= MANY_PRODUCTS and rate < SLOW_PRODUCTS else None


def _single_thread(recording: Recording) -> str:
    """The variable that gives BLAS one thread."""
    return f"{_PREFIXES.get(recording.environment.blas[0].name, 'OMP')}_NUM_THREADS=1"


def blas_threads(recording: Recording) -> int:
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
        """The threads that a run took, and how long trials took with the other number."""
        took, other = f"{threads} threads", "one"
        ratio, low, high = 1 / self.ratio, 1 / self.high, 1 / self.low
        if threads == 1:
            took, other = "one thread", f"{self.many}"
            ratio, low, high = self.ratio, self.low, self.high
        rounds = f"{plural(self.rounds, 'round')} by turns"
        if not self.differ:
            return f"{took}; {rounds} told no difference to {other}"
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
    turns = np.split(np.arange(len(threads)), np.flatnonzero(np.diff(threads)) + 1)
    with_one, with_many = (
        [float(np.median(walls[turn])) for turn in turns if threads[turn[0]] == count]
        for count in (1, many)
    )
    pairs = list(zip(with_many, with_one, strict=False))  # the last round may be half of one
    if not pairs:
        return None
    ratios = np.array([many_ns / max(1.0, one_ns) for many_ns, one_ns in pairs])
    return ProbedThreads(many, float(np.median(ratios)), *median_interval(ratios), len(ratios))
