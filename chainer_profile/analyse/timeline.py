"""One trial of a recording laid out in time: trial, phases, links and functions, each in the other.

Lengths are measured, places are worked out, as the following sentences say.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.paths import below, shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chainer_profile.record.recording import Layer, Recording

TRIAL, PHASE, LINK, FUNCTION, WAIT = "trial", "phase", "link", "function", "wait"

_NESTED = (
    "A call that was made within another one lies within it; the own time of the outer call is "
    "spread evenly before, between and behind its inner calls.",
    "A layer with several calls in a trial is one slice as long as all of them, at the place of "
    "the first.",
    "A link is as long as its calls and what lies between them.",
)
HOST_PLACES = (
    "The lengths of calls and of the trial are measured. Calls lie in the order in which they were "
    "made.",
    "The framework time of a phase is spread evenly before, between and behind its calls, and what "
    "is outside of all phases before, between and behind the phases. Where it is not known by "
    "phase, it is spread evenly before, between and behind all calls.",
    *_NESTED,
)
LAUNCH_PLACES = (
    "On the host: the lengths of calls, of launching and of the trial are measured. The time "
    "between the calls is spread evenly before, between and behind them.",
    *_NESTED,
)
DEVICE_PLACES = (
    "On the device: the lengths of layers and the gaps between them are measured. The whole is "
    "laid so that it ends with the trial, as the host waits for the device at the end.",
)


@dataclass
class Slice:
    """Something that takes its time in a trial, with what lies within it, in order."""

    kind: str
    name: str  #: Of a link its path.
    begin_ns: int  #: From the begin of the trial.
    end_ns: int
    layer: int | None = None  #: Of a function.
    calls_ns: int = 0  #: Time of calls within it, of its own too; not of what lies between them.
    inner: list[Slice] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.begin_ns

    def walk(self, kinds: Sequence[str]) -> Iterator[tuple[int, Slice]]:
        """The slices of some kinds, each before what is in it, with their depth among those."""
        waiting = [(0, self)]
        while waiting:
            depth, one = waiting.pop()
            taken = one.kind in kinds
            if taken:
                yield depth, one
            waiting.extend((depth + taken, inner) for inner in reversed(one.inner))

    def edges(self, kinds: Sequence[str]) -> Iterator[tuple[bool, Slice]]:
        """Begins (True) and ends of the slices of some kinds, in the order of time, nested."""
        opened: list[Slice] = []
        for depth, one in self.walk(kinds):
            while len(opened) > depth:
                yield False, opened.pop()
            yield True, one
            opened.append(one)
        while opened:
            yield False, opened.pop()


def wall_ns(recording: Recording) -> list[int]:
    """Length of every trial; the sum of its layers where trials were not timed."""
    walls = recording.self_ns.sum(axis=1) if recording.trial_ns is None else recording.trial_ns
    return [int(value) for value in walls]


def median_trial(recording: Recording) -> int:
    """The trial, from 0, whose length is nearest the median; the first of several."""
    lengths = wall_ns(recording)
    if not lengths:
        raise ProfileError("the recording holds no complete profiled trial, so there is no median")
    return int(np.argmin(np.abs(np.array(lengths) - np.median(lengths))))


def parent_of(layer: Layer, index: int) -> int | None:
    """Index of the call that a layer's was made in, which comes before it; None without one."""
    parent = layer.parent
    return parent if parent is not None and 0 <= parent < index else None


def evenly(total: int, parts: int) -> list[int]:
    """A number of nanoseconds in so many parts that differ by one at most, the larger first."""
    size, rest = divmod(max(0, total), parts)
    return [size + (part < rest) for part in range(parts)]


def phase_framework_ns(
    recording: Recording, totals_ns: Sequence[int], between_ns: int
) -> tuple[dict[str, int], int]:
    """Framework time of the phases for which it is known, and what is outside of all phases."""
    # A phase gets no more than there is: the clocks of a host and a device may differ a bit.
    left = max(0, between_ns)
    phases = {layer.phase for layer in recording.layers}
    if not totals_ns:
        return ({phases.pop(): left}, 0) if len(phases) == 1 else ({}, left)
    known: dict[str, int] = {}
    for phase, spent in zip(recording.phases, totals_ns, strict=True):
        known[phase] = min(max(0, spent), left)
        left -= known[phase]
    return known, left


def lay_out(recording: Recording, trial: int) -> Slice:
    """A trial on the host's clock; on a GPU of its launching calls, and a slice ``wait``."""
    whole = wall_ns(recording)[trial]
    if recording.host_ns is None or recording.launch_ns is None:
        calls = _Calls(recording, recording.self_ns[trial].tolist())
        known: Sequence[int] = ()
        if recording.framework_ns is not None and recording.trial_ns is not None:
            known = recording.framework_ns[trial].tolist()
        by_phase, outside = phase_framework_ns(recording, known, whole - calls.total_ns)
        places = _by_phase(calls.runs, by_phase, outside)
        return calls.lay(_name(recording), 0, whole, places)
    calls = _Calls(recording, recording.host_ns[trial].tolist())
    launched = int(recording.launch_ns[trial])
    places = _between_all(calls.runs, launched - calls.total_ns)
    laid = calls.lay(_name(recording), 0, whole, places)
    launched = max(launched, laid.inner[-1].end_ns)
    if launched < laid.end_ns:
        laid.inner.append(Slice(WAIT, "waiting for the device", launched, laid.end_ns))
    return laid


def lay_out_device(recording: Recording, trial: int) -> Slice | None:
    """A trial on the device, ``span_ns`` long, gaps before its layers; None without a device."""
    if recording.gap_ns is None or recording.span_ns is None:
        return None
    calls = _Calls(recording, recording.self_ns[trial].tolist())
    gaps = [max(0, gap) for gap in recording.gap_ns[trial].tolist()]
    # The time before a nested call is the outer call's; what there is of it all the same lies
    # before the outermost.
    before = dict.fromkeys(calls.roots, 0)
    for index, gap in enumerate(gaps):
        before[calls.root[index]] += gap
    span = int(recording.span_ns[trial])
    offset = max(0, wall_ns(recording)[trial] - span)
    return calls.lay(_name(recording), offset, span, _before_each(calls.runs, before, 0))


def _name(recording: Recording) -> str:
    return recording.settings.model or "network"


#: Calls of one phase that follow each other: its name, and the calls that are in no other.
_Run = tuple[str, list[int]]


@dataclass
class _Places:
    """The time that is in no call."""

    outer: list[int]  #: Before every run, and behind the last.
    inner: list[list[int]]  #: Of every run, before each of its calls and behind the last.
    empty: list[tuple[str, int]] = field(default_factory=list)  #: Phases without calls.


def _by_phase(runs: list[_Run], known: dict[str, int], outside: int) -> _Places:
    """Framework time that is known by phase, spread evenly within each."""
    if not known:
        return _between_all(runs, outside)
    parts: dict[str, Iterator[int]] = {}
    for phase, spent in known.items():
        count = sum(len(rows) + 1 for name, rows in runs if name == phase)
        parts[phase] = iter(evenly(spent, count or 1))
    inner = [
        [next(parts[phase]) if phase in parts else 0 for _ in range(len(rows) + 1)]
        for phase, rows in runs
    ]
    seen = {phase for phase, _ in runs}
    empty = [(phase, next(parts[phase])) for phase in known if phase not in seen]
    return _Places(evenly(outside, len(runs) + len(empty) + 1), inner, empty)


def _between_all(runs: list[_Run], between: int) -> _Places:
    """Time spread evenly before, between and behind all calls."""
    calls = [row for _, rows in runs for row in rows]
    *before, behind = evenly(between, len(calls) + 1)
    return _before_each(runs, dict(zip(calls, before, strict=True)), behind)


def _before_each(runs: list[_Run], before: Mapping[int, int], behind: int) -> _Places:
    outer = [before[rows[0]] for _, rows in runs]
    inner = [[0, *(before[row] for row in rows[1:]), 0] for _, rows in runs]
    return _Places([*outer, behind], inner)


class _Calls:
    """The calls of one trial, as a forest: the outermost one of each layer, and those by phase."""

    def __init__(self, recording: Recording, own_ns: Sequence[int]) -> None:
        self._layers = recording.layers
        self._own = own_ns
        self._nested: list[list[int]] = [[] for _ in own_ns]
        self.root = list(range(len(own_ns)))
        for index, layer in enumerate(recording.layers):
            parent = parent_of(layer, index)
            if parent is not None:
                self._nested[parent].append(index)
                self.root[index] = self.root[parent]
        self._length = list(own_ns)
        for index in reversed(range(len(own_ns))):
            self._length[index] += sum(self._length[inner] for inner in self._nested[index])
        self._begin = [0] * len(own_ns)
        self.total_ns = sum(own_ns)
        self.roots = [index for index, root in enumerate(self.root) if index == root]
        self.runs: list[_Run] = [
            (phase, list(rows))
            for phase, rows in itertools.groupby(self.roots, lambda row: self._layers[row].phase)
        ]

    def lay(self, name: str, begin: int, length: int, places: _Places) -> Slice:
        """The trial as slices, with the given time between the calls."""
        trial = Slice(TRIAL, name, begin, begin, calls_ns=self.total_ns)
        at = begin
        outer = iter(places.outer)
        for (phase, rows), inner in zip(self.runs, places.inner, strict=True):
            at += next(outer)
            part = Slice(PHASE, phase, at, at, calls_ns=sum(self._length[row] for row in rows))
            for before, row in zip(inner, rows, strict=False):
                self._begin[row] = at + before
                at = self._end(row)
            at += inner[-1]
            part.end_ns = at
            trial.inner.append(part)
        for phase, spent in places.empty:
            at += next(outer)
            trial.inner.append(Slice(PHASE, phase, at, at + spent))
            at += spent
        # Longer than the trial only in a damaged recording.
        trial.end_ns = max(begin + length, at)
        for index, inner_calls in enumerate(self._nested):
            parts = evenly(self._own[index], len(inner_calls) + 1)
            at = self._begin[index]
            for before, call in zip(parts, inner_calls, strict=False):
                self._begin[call] = at + before
                at = self._end(call)
        for part, (_, rows) in zip(trial.inner, self.runs, strict=False):
            self._fill(part, rows)
        return trial

    def _end(self, row: int) -> int:
        return self._begin[row] + self._length[row]

    def _fill(self, part: Slice, rows: list[int]) -> None:
        """Put the links and the functions of a run into its phase."""
        waiting: list[tuple[Slice, list[int], str]] = [(part, rows, "")]
        while waiting:
            holder, calls, holder_path = waiting.pop()
            opened: list[Slice] = []
            for row in calls:
                layer, begin, end = self._layers[row], self._begin[row], self._end(row)
                chain = below(layer.path, holder_path)
                # What lies between nested calls is the outer call's own time, and no link's.
                kept = shared([link.name for link in opened], chain) if holder is part else 0
                del opened[kept:]
                for path in chain[len(opened) :]:
                    link = Slice(LINK, path, begin, end)
                    (opened[-1] if opened else holder).inner.append(link)
                    opened.append(link)
                for link in opened:
                    link.end_ns = end
                    link.calls_ns += self._length[row]
                call = Slice(FUNCTION, layer.function, begin, end, row, self._length[row])
                (opened[-1] if opened else holder).inner.append(call)
                if self._nested[row]:
                    waiting.append((call, self._nested[row], layer.path))
