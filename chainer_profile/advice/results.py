"""Results of changes: the gain of each, and whether it is significant, as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import numpy as np

from chainer_profile.advice.changes import CPU, UNCHANGED, Candidate
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import student_quantile
from chainer_profile.basics.files import as_json
from chainer_profile.engines.results import Speedup
from chainer_profile.record.budget import ADVICE
from chainer_profile.record.recording import COMPLETE, Environment, Settings
from chainer_profile.record.versioned import read_if_exists

FORMAT = "chainer-profile advice"
VERSION = 1

#: A change is promising if the first look shows at least this gain.
PROMISING = 1.01
#: Smallest gain that is reported; its interval must also exclude 1.
MIN_GAIN = 1.015
#: If the interval of a gain ends below this, the change has no gain worth measuring further.
MISSED = 1.05
#: Name of the combination of all changes that help.
TOGETHER = "all together"
#: A change is measured until the relative half width of its interval is at most PRECISE, from at
#: least PAIRS pairs of processes. A gain needs at least MIN_PAIRS pairs.
PRECISE, PAIRS, MIN_PAIRS = 0.025, 6, 2


@dataclass(frozen=True)
class LossChange:
    """Relative difference that a change makes to the mean loss, with a 95 % interval."""

    part: float  #: NaN if a loss is NaN or infinite.
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return math.isnan(self.part) or not self.low <= 0 <= self.high


@dataclass(frozen=True)
class LayerGain:
    """Times of a layer without and with a change: medians over the pairs' medians."""

    phase: str
    label: str
    path: str
    before_s: float
    after_s: float


@dataclass(frozen=True)
class ChangeResult:
    """The measured effect of a change. Times are per input, or per iteration of a program.

    Times are wall times, and their ratio is the gain in wall time.
    """

    candidate: Candidate
    wall: Speedup | None = None  #: Speed-up in wall time; None if nothing was measured.
    cpu: Speedup | None = None  #: Speed-up in CPU time of all threads.
    pairs: int = 0  #: Number of pairs of processes, or of rounds, that were compared.
    #: Whether the processes started after the first look had chosen the change. A gain from the
    #: first look itself would be biased by that choice.
    confirmed: bool = False
    before_s: float = math.nan  #: Wall time without the change.
    after_s: float = math.nan
    layers: tuple[LayerGain, ...] = ()  #: The layers with the largest gains, if Chainer runs them.
    loss: LossChange | None = None  #: For a program; None if unknown.
    error: str = ""  #: Why the measurement failed, in one line.

    @property
    def gain(self) -> Speedup | None:
        """The gain in CPU or wall time, as the candidate requires."""
        return self.cpu if self.candidate.decides == CPU else self.wall

    @property
    def helps(self) -> bool:
        """Whether the change is significantly faster."""
        return self.confirmed and not self.error and self.pairs >= MIN_PAIRS and helps(self.gain)

    @property
    def open(self) -> bool:
        """Whether a gain is still possible, but was not significant in the available time."""
        if self.helps or self.error or self.gain is None:
            return False
        return not self.gain.high < MISSED


@dataclass(frozen=True)
class Advice:
    """The results of all changes that ``advise`` or ``run --try`` measured."""

    tried: tuple[ChangeResult, ...]  #: Changes that help come first, the best one at the top.
    untried: tuple[Untried, ...] = ()
    settings: Settings = field(default_factory=Settings)  #: Settings of the unchanged network.
    environment: Environment = field(default_factory=Environment)
    budget_s: float = 0.0
    took_s: float = 0.0
    ended: str = COMPLETE  #: Or why it ended early.
    #: The program with interleaved changes; empty for a network in separate processes.
    script: str = ""
    trials: int = 0  #: All iterations of the program, with and without changes.
    trials_s: float = 0.0  #: Total time of these iterations.
    #: How to keep the best change: pairs of where to write a line, and the line.
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def helping(self) -> tuple[ChangeResult, ...]:
        """The changes that help, best first."""
        return tuple(change for change in self.tried if change.helps)


def gain(ratios: Sequence[float]) -> Speedup:
    """Geometric mean of the speed-ups of pairs of processes, with a 95 % interval."""
    # Pairs are independent, and their scatter includes differences between processes, such as
    # memory addresses. So Student's t of the logarithms applies. One ratio has no interval.
    logs = np.log(np.asarray(ratios, float))
    mean, half = float(logs.mean()), math.nan
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        half = error * student_quantile(len(logs) - 1)
    return Speedup(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def promising(gain: Speedup | None) -> bool:
    return gain is not None and gain.factor >= PROMISING


def helps(gain: Speedup | None) -> bool:
    """Whether a gain is significant and large enough to report."""
    return gain is not None and gain.factor >= MIN_GAIN and gain.low > 1


def settled(gain: Speedup | None, pairs: int) -> bool:
    """Whether more pairs would not change the verdict: the gain is precise, or too small."""
    if gain is None or pairs < MIN_PAIRS:
        return False
    narrow = math.log(gain.high / gain.low) / 2 <= PRECISE
    return gain.high < MIN_GAIN or (pairs >= PAIRS and narrow and helps(gain))


def ranked(tried: Sequence[ChangeResult]) -> tuple[ChangeResult, ...]:
    """Sort by gain: changes that help, then others, then failed ones."""

    def key(change: ChangeResult) -> tuple[bool, bool, float]:
        return not change.helps, bool(change.error), -(change.gain.factor if change.gain else 0.0)

    return tuple(sorted(tried, key=key))


def best_of(tried: Sequence[ChangeResult]) -> ChangeResult | None:
    """The most helpful change of ranked results; None if none helps.

    Changes that are not compared with :data:`.changes.UNCHANGED` count only if no other helps.
    """
    helping = [change for change in tried if change.helps]
    best = next((change for change in helping if change.candidate.against == UNCHANGED), None)
    return best or next(iter(helping), None)


def together(tried: Sequence[ChangeResult]) -> ChangeResult | None:
    """The combination of all changes that help, from ranked results; None if fewer than two help.

    If it was not measured, its gain is the product of the single gains, without an interval.
    """
    helping = [change for change in tried if change.helps]
    # The best change is added last, so it replaces changes that it excludes.
    whole = reduce(Change.with_, (each.candidate.change for each in reversed(helping)), UNCHANGED)
    for each in tried:
        pair = each.candidate.change, each.candidate.against
        if pair == (whole, UNCHANGED) and each.gain and not each.error:
            return each if len(helping) > 1 else None
    best = best_of(helping)
    if best is None or best.gain is None:
        return None
    factor, combined = best.gain.factor, best.candidate.change
    for each in helping:
        change = each.candidate.change
        if each.gain and combined.with_(change) != combined and whole.with_(change) == whole:
            factor, combined = factor * each.gain.factor, combined.with_(change)
    if combined == best.candidate.change:
        return None
    return ChangeResult(
        replace(best.candidate, name=TOGETHER, change=combined),
        wall=Speedup(factor, math.nan, math.nan),
        before_s=best.before_s,
        after_s=best.before_s / factor,
    )


def write_json(advice: Advice) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(advice)})


def read_advice(folder: Path) -> Advice | None:
    """Read the advice in a run's folder; None if the file is missing."""
    return read_if_exists(folder / ADVICE, Advice, FORMAT, VERSION, text_numbers=True)
