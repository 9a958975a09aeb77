"""Results of changes: the gain of each, and whether it is significant, as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import numpy as np

from chainer_profile.advice.changes import AS_IT_IS, CPU, Candidate
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import student_quantile
from chainer_profile.basics.files import as_json
from chainer_profile.engines.results import Speedup
from chainer_profile.record.budget import ADVICE
from chainer_profile.record.recording import COMPLETE, Environment, Settings
from chainer_profile.record.versioned import read_beside

FORMAT = "chainer-profile advice"
VERSION = 1

#: After the first look a change is promising from this gain on.
PROMISING = 1.01
#: Only a gain of at least this is called a gain; its interval must leave out 1.
LEAST_GAIN = 1.015
#: A change without a significant gain has no gain if its interval ends below this.
MISSED = 1.05
#: Name of all changes that help, in one.
TOGETHER = "all together"
#: A change is measured until its interval is so narrow (relative half width) in so many pairs of
#: processes. Fewer pairs than the last number call nothing a gain.
PRECISE, PAIRS, LEAST_PAIRS = 0.025, 6, 2


@dataclass(frozen=True)
class LossChange:
    """How much a change moves the mean loss, as a part of it, with a 95 % interval."""

    part: float  #: NaN if a loss is no number.
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return math.isnan(self.part) or not self.low <= 0 <= self.high


@dataclass(frozen=True)
class LayerGain:
    """A layer without the change and with it: medians of the pairs' medians."""

    phase: str
    label: str
    path: str
    before_s: float
    after_s: float


@dataclass(frozen=True)
class Tried:
    """A change and its result. Times are of an input, or of an iteration of a program.

    Times are wall times, and their ratio is the gain in wall time.
    """

    candidate: Candidate
    wall: Speedup | None = None  #: By wall time; None where nothing was measured.
    cpu: Speedup | None = None  #: By CPU time of all its threads.
    pairs: int = 0  #: Pairs of fresh processes, or rounds, that these come from.
    #: Whether these processes began after the change had been chosen, so that its gain is not the
    #: luck of the first look.
    confirmed: bool = False
    before_s: float = math.nan  #: Wall time without the change.
    after_s: float = math.nan
    layers: tuple[LayerGain, ...] = ()  #: The layers that gained most, where Chainer runs them.
    loss: LossChange | None = None  #: In a program; None if unknown.
    error: str = ""  #: Why it could not be tried to the end, in one line.

    @property
    def gain(self) -> Speedup | None:
        """The gain by the time that decides."""
        return self.cpu if self.candidate.decides == CPU else self.wall

    @property
    def helps(self) -> bool:
        """Whether it certainly makes the network faster."""
        return self.confirmed and not self.error and self.pairs >= LEAST_PAIRS and helps(self.gain)

    @property
    def open(self) -> bool:
        """Whether it may gain all the same, though the time was too short to show that."""
        if self.helps or self.error or self.gain is None:
            return False
        return not self.gain.high < MISSED


@dataclass(frozen=True)
class Advice:
    tried: tuple[Tried, ...]  #: Those that help come first, the best before the others.
    untried: tuple[Untried, ...] = ()
    settings: Settings = field(default_factory=Settings)  #: The network as it is.
    environment: Environment = field(default_factory=Environment)
    budget_s: float = 0.0  #: The time that it was given.
    took_s: float = 0.0
    ended: str = COMPLETE  #: Or why it ended before.
    #: Name of the program that was tried by turns; empty for a network in processes.
    script: str = ""
    trials: int = 0  #: How many of the program's iterations there were, tried or not.
    trials_s: float = 0.0  #: The time of all of them together.
    #: For the best change, each line to write or to type, with its place.
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def helping(self) -> tuple[Tried, ...]:
        """Those that help, the best first."""
        return tuple(change for change in self.tried if change.helps)


def gain(ratios: Sequence[float]) -> Speedup:
    """How many times as fast, with a 95 % interval, from the ratio of each pair of processes."""
    # Pairs are independent, and their scatter contains what differs between processes, such as the
    # place of their memory: so this is the mean, with Student's t, of the ratios' logarithms. A
    # single ratio has no interval.
    logs = np.log(np.asarray(ratios, float))
    mean, half = float(logs.mean()), math.nan
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        half = error * student_quantile(len(logs) - 1)
    return Speedup(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def promising(gain: Speedup | None) -> bool:
    return gain is not None and gain.factor >= PROMISING


def helps(gain: Speedup | None) -> bool:
    """Whether a gain is certain, and large enough to be told."""
    return gain is not None and gain.factor >= LEAST_GAIN and gain.low > 1


def settled(gain: Speedup | None, pairs: int) -> bool:
    """Whether a change needs no more measuring: it helps, or cannot."""
    if gain is None or pairs < LEAST_PAIRS:
        return False
    narrow = math.log(gain.high / gain.low) / 2 <= PRECISE
    return gain.high < LEAST_GAIN or (pairs >= PAIRS and narrow and helps(gain))


def ranked(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """Those that help, the best first; then the others by their gain; failed ones last."""

    def place(change: Tried) -> tuple[bool, bool, float]:
        return not change.helps, bool(change.error), -(change.gain.factor if change.gain else 0.0)

    return tuple(sorted(tried, key=place))


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The change that helps most; one that the run has already only if no other helps."""
    helping = [change for change in tried if change.helps]
    best = next((change for change in helping if change.candidate.against == AS_IT_IS), None)
    return best or next(iter(helping), None)


def together(tried: Sequence[Tried]) -> Tried | None:
    """All changes that help, in one; None if fewer than two do.

    It has no interval and no rounds if it was not measured: its gain is then the product of theirs.
    """
    helping = [change for change in tried if change.helps]
    # The best is added last, so it replaces changes that it excludes.
    whole = reduce(Change.with_, (each.candidate.change for each in reversed(helping)), AS_IT_IS)
    for each in tried:
        own = each.candidate
        if (own.change, own.against) == (whole, AS_IT_IS) and each.gain and not each.error:
            return each if len(helping) > 1 else None
    best = best_of(helping)
    if best is None or best.gain is None:
        return None
    factor, made = best.gain.factor, best.candidate.change
    for each in helping:
        change = each.candidate.change
        if each.gain and made.with_(change) != made and whole.with_(change) == whole:
            factor, made = factor * each.gain.factor, made.with_(change)
    if made == best.candidate.change:
        return None
    return Tried(
        replace(best.candidate, name=TOGETHER, change=made),
        wall=Speedup(factor, math.nan, math.nan),
        before_s=best.before_s,
        after_s=best.before_s / factor,
    )


def write_json(advice: Advice) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(advice)})


def read_advice(folder: Path) -> Advice | None:
    """The advice in a run's folder; None where there is none."""
    return read_beside(folder / ADVICE, Advice, FORMAT, VERSION, words=True)
