"""What came of the changes: how much each brings, and whether it helps; as JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chainer_profile.advice.changes import AS_IT_IS, CPU, Candidate
from chainer_profile.analyse.changes import Untried
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
#: A gain that is called one is at least this, and its interval leaves out 1.
LEAST_GAIN = 1.015
#: A change that is not called one is said to bring nothing where its interval ends below this.
MISSED = 1.05
#: It is measured again until it is known whether it helps, and its interval is so narrow (half
#: width, relative), in so many pairs of processes; of one alone nothing is called.
PRECISE, PAIRS, LEAST_PAIRS = 0.025, 6, 2


@dataclass(frozen=True)
class LossChange:
    """By which part of the mean loss iterations with a change differ, and the 95 % interval."""

    part: float  #: NaN where a loss is no number.
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return math.isnan(self.part) or not self.low <= 0 <= self.high


@dataclass(frozen=True)
class LayerGain:
    """What became of one layer: medians of the pairs' medians without the change and with it."""

    phase: str
    label: str
    path: str
    before_s: float
    after_s: float


@dataclass(frozen=True)
class Tried:
    """One change, and what came of it. Times are those of one input, of a program an iteration."""

    candidate: Candidate
    wall: Speedup | None = None  #: By wall time; None where nothing was measured.
    cpu: Speedup | None = None  #: By CPU time of all its threads.
    pairs: int = 0  #: Pairs of fresh processes, or rounds, that these come from.
    #: Whether these are of processes begun after the change had been chosen, so that its gain is
    #: not the luck of the first look.
    confirmed: bool = False
    before_s: float = math.nan  #: Median wall time without the change.
    after_s: float = math.nan
    layers: tuple[LayerGain, ...] = ()  #: Those that gained the most; of changes of Chainer's own.
    loss: LossChange | None = None  #: Of iterations of a program; None where it is not known.
    error: str = ""  #: Why it could not be tried to the end, in one line.

    @property
    def gain(self) -> Speedup | None:
        """The gain by what decides."""
        return self.cpu if self.candidate.decides == CPU else self.wall

    @property
    def helps(self) -> bool:
        """Whether it makes the network faster beyond doubt."""
        return self.confirmed and not self.error and self.pairs >= LEAST_PAIRS and helps(self.gain)

    @property
    def open(self) -> bool:
        """Whether a gain may be there all the same, which the time did not suffice to show."""
        if self.helps or self.error or self.gain is None:
            return False
        return not self.gain.high < MISSED


@dataclass(frozen=True)
class Advice:
    tried: tuple[Tried, ...]  #: First those that help, the best first.
    untried: tuple[Untried, ...] = ()
    settings: Settings = field(default_factory=Settings)  #: The network as it is.
    environment: Environment = field(default_factory=Environment)
    budget_s: float = 0.0  #: Seconds that there were.
    took_s: float = 0.0
    ended: str = COMPLETE  #: Or why it ended before.
    #: Of a program that was tried by turns, its name; empty for a network in processes.
    script: str = ""
    trials: int = 0  #: How many of the program's iterations there were, tried or not.
    trials_s: float = 0.0  #: What they took together, as they ran.
    #: What to write into the program and at the terminal for the best, with where, line by line.
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def helping(self) -> tuple[Tried, ...]:
        """Those that help, the best first; of what the run itself has already, at the end."""
        return tuple(change for change in self.tried if change.helps)


def gain(ratios: Sequence[float]) -> Speedup:
    """How many times as fast, with its 95 % interval, from one ratio of each pair of processes."""
    # Pairs are independent; what differs from process to process (where its memory lies) is in
    # their scatter: the mean and Student's t of the ratios' logarithms. Of one ratio there is no
    # interval.
    logs = np.log(np.asarray(ratios, float))
    mean, half = float(logs.mean()), math.nan
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        half = error * student_quantile(len(logs) - 1)
    return Speedup(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def promising(gain: Speedup | None) -> bool:
    return gain is not None and gain.factor >= PROMISING


def helps(gain: Speedup | None) -> bool:
    """Whether a gain is one beyond doubt, and worth a word."""
    return gain is not None and gain.factor >= LEAST_GAIN and gain.low > 1


def settled(gain: Speedup | None, pairs: int) -> bool:
    """Whether a change need not be measured any further: it helps, or cannot."""
    if gain is None or pairs < LEAST_PAIRS:
        return False
    narrow = math.log(gain.high / gain.low) / 2 <= PRECISE
    return gain.high < LEAST_GAIN or (pairs >= PAIRS and narrow and helps(gain))


def ranked(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """Those that help, the best first, then the others by their gain; those that failed last."""

    def place(change: Tried) -> tuple[bool, bool, float]:
        return not change.helps, bool(change.error), -(change.gain.factor if change.gain else 0.0)

    return tuple(sorted(tried, key=place))


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """What helps the most; what the run has already only where nothing else helps."""
    helping = [change for change in tried if change.helps]
    best = next((change for change in helping if change.candidate.against == AS_IT_IS), None)
    return best or next(iter(helping), None)


def write_json(advice: Advice) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(advice)})


def read_advice(folder: Path) -> Advice | None:
    """The advice in a run's folder; None where there is none."""
    return read_beside(folder / ADVICE, Advice, FORMAT, VERSION, words=True)
