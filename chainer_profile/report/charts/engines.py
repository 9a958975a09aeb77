"""A run of several engines -> its bars, as they are drawn: a trial of each, stacked by function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics.units import duration_unit, format_duration, in_unit
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.report.content.engine_nodes import BETWEEN, function_shares
from chainer_profile.report.content.engines import factor_text
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chainer_profile.engines.results import EngineResult, EnginesRun
    from chainer_profile.record.recording import Recording

REST = "other functions"
PLAIN = "no times of its parts"
#: Parts that are no function, in the order of the legend.
_LAST = (REST, BETWEEN, PLAIN)
#: Functions that have a colour, and a function that is nowhere more than this part of a trial has
#: none.
MAX_FUNCTIONS, _LEAST = 6, 0.01


@dataclass(frozen=True)
class Bar:
    """One engine's bar.

    Attributes:
        engine: The engine.
        median_s: Its length: the median of the trials, in seconds.
        parts: Names of the parts with their fractions of it, which add up to 1; :data:`PLAIN`
            where the engine did not time its nodes.
    """

    engine: EngineResult
    median_s: float
    parts: dict[str, float]

    @property
    def name(self) -> str:
        """The engine with its precision."""
        return " ".join(filter(None, (printable(self.engine.name), self.engine.precision)))


@dataclass(frozen=True)
class EnginesChart:
    """A bar an engine, in the order of the tables.

    Attributes:
        bars: The bars.
        lengths: Their lengths in the axis's unit.
        said: What stands beside each: its time, and its speed-up or what is wrong.
        parts: All parts, in the order of the legend; each bar's are in that order too.
        x_label: What the axis below says.
    """

    bars: list[Bar]
    lengths: list[float]
    said: list[str]
    parts: list[str]
    x_label: str

    @property
    def functions(self) -> list[str]:
        """The parts that are functions."""
        return [name for name in self.parts if name not in _LAST]


def engines_chart(run: EnginesRun, recordings: Mapping[str, Recording]) -> EnginesChart:
    """The bars of a run.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
    """
    found = bars(run, recordings)
    unit = duration_unit(max((bar.median_s for bar in found), default=1.0))
    names = dict.fromkeys(name for bar in found for name in bar.parts)
    return EnginesChart(
        found,
        [in_unit(bar.median_s, unit) for bar in found],
        [_said(run, bar) for bar in found],
        [name for name in names if name not in _LAST] + [name for name in _LAST if name in names],
        f"median of the trials [{unit}]",
    )


def bars(run: EnginesRun, recordings: Mapping[str, Recording]) -> list[Bar]:
    """The bars in the order of the tables.

    A node counts for its main function. Functions beyond the largest six, and those that are
    nowhere 1 % of a trial, are one part.
    """
    chainer = recordings.get(BASELINE)
    found = []
    for engine in run.measured:
        statistics = engine.statistics
        assert statistics is not None
        recording = recordings.get(engine.name)
        parts = {PLAIN: 1.0} if recording is None else function_shares(recording, chainer)
        found.append(Bar(engine, statistics.median_s, parts))
    return _without_small_ones(found)


def _without_small_ones(found: Sequence[Bar]) -> list[Bar]:
    """The bars with the functions that matter least in all of them in one part."""
    most: dict[str, float] = {}
    for bar in found:
        for name, part in bar.parts.items():
            if name not in _LAST:
                most[name] = max(most.get(name, 0.0), part)
    large = [name for name in most if most[name] >= _LEAST]
    kept = sorted(large, key=lambda name: -most[name])[:MAX_FUNCTIONS]
    out = []
    for bar in found:
        rest = sum(part for name, part in bar.parts.items() if name not in (*kept, *_LAST))
        parts = bar.parts | ({REST: rest} if rest > 0 else {})
        shown = {name: parts[name] for name in (*kept, *_LAST) if name in parts}
        out.append(Bar(bar.engine, bar.median_s, shown))
    return out


def _said(run: EnginesRun, bar: Bar) -> str:
    """The time, and the speed-up or what is wrong."""
    factor = factor_text(bar.engine, run.baseline or bar.engine)
    return ", ".join(filter(None, (format_duration(bar.median_s), factor)))
