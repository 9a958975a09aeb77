"""One trial of a recording laid out in time: trial, phases, links and functions, each in the other.

Lengths are measured, places are worked out, as the following sentences say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

import numpy as np

from chainer_profile.analyse.grouping import parent_of
from chainer_profile.basics.paths import below, shared
from chainer_profile.record.recording import Recording

TRIAL, PHASE, LINK, FUNCTION, WAIT = "trial", "phase", "link", "function", "wait"

_NESTED = (
    "A call made within another one lies within it; the outer call's own time is spread "
    "evenly before, between and after its inner calls.",
    "A layer with several calls in a trial is one slice as long as all of them, placed at the "
    "first.",
    "A link is as long as its calls and the time between them.",
)
HOST_PLACES = (
    "The lengths of calls and of the trial are measured. Calls are placed in the order in "
    "which they were made.",
    "The framework time of a phase is spread evenly before, between and after its calls, and "
    "time outside all phases before, between and after the phases. If it is unknown by phase, "
    "it is spread evenly before, between and after all calls.",
    *_NESTED,
)
LAUNCH_PLACES = (
    "On the host, the lengths of calls, of launching and of the trial are measured. The time "
    "between the calls is spread evenly before, between and after them.",
    *_NESTED,
)
DEVICE_PLACES = (
    "On the device, the lengths of layers and the gaps between them are measured. The whole "
    "is placed so that it ends with the trial, because the host waits for the device at the "
    "end.",
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

    def edges(self, kinds: Sequence[str]) -> Iterator[tuple[bool, Slice]]:
        """Begins (True) and ends of the slices of some kinds, in the order of time, nested."""
        waiting = [(True, self)]
        while waiting:
            begins, slice_ = waiting.pop()
            if slice_.kind in kinds:
                yield begins, slice_
            if begins:
                waiting.append((False, slice_))
                waiting.extend((True, inner) for inner in reversed(slice_.inner))


def wall_ns(recording: Recording) -> list[int]:
    """Length of every trial; the sum of its layers where trials were not timed."""
    walls = recording.self_ns.sum(axis=1) if recording.trial_ns is None else recording.trial_ns
    return [int(value) for value in walls]


def median_trial(recording: Recording) -> int:
    """The trial, from 0, whose length is nearest the median; the first of several."""
    lengths = np.array(wall_ns(recording))
    return int(np.argmin(np.abs(lengths - np.median(lengths))))


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
    by_phase: dict[str, int] = {}
    for phase, spent in zip(recording.phases, totals_ns, strict=True):
        by_phase[phase] = min(max(0, spent), left)
        left -= by_phase[phase]
    return by_phase, left


def lay_out(recording: Recording, trial: int) -> Slice:
    """A trial on the host's clock; on a GPU of its launching calls, and a slice ``wait``."""
    whole = wall_ns(recording)[trial]
    if recording.host_ns is None or recording.launch_ns is None:
        calls = _Calls(recording, recording.self_ns[trial].tolist())
        by_phase: Sequence[int] = ()
        if recording.framework_ns is not None and recording.trial_ns is not None:
            by_phase = recording.framework_ns[trial].tolist()
        calls.part_by_phase(*phase_framework_ns(recording, by_phase, whole - calls.total_ns))
        return calls.lay(0, whole)
    calls = _Calls(recording, recording.host_ns[trial].tolist())
    launched = int(recording.launch_ns[trial])
    calls.part_evenly(launched - calls.total_ns)
    laid = calls.lay(0, whole)
    launched = max(launched, laid.inner[-1].end_ns)
    if launched < laid.end_ns:
        laid.inner.append(Slice(WAIT, "waiting for the device", launched, laid.end_ns))
    return laid


def lay_out_device(recording: Recording, trial: int) -> Slice | None:
    """A trial on the device, ``span_ns`` long, gaps before its layers; None without a device."""
    if recording.gap_ns is None or recording.span_ns is None:
        return None
    calls = _Calls(recording, recording.self_ns[trial].tolist())
    # The time before a nested call is the outer call's; what there is of it all the same lies
    # before the outermost.
    before = dict.fromkeys(calls.root, 0)
    for index, gap in enumerate(recording.gap_ns[trial].tolist()):
        before[calls.root[index]] += max(0, gap)
    calls.part(before.values())
    span = int(recording.span_ns[trial])
    return calls.lay(max(0, wall_ns(recording)[trial] - span), span)


@dataclass
class _Run:
    """Calls of one phase that follow each other, and the time that is in none of them."""

    phase: str
    rows: list[int]  #: Of calls that are in no other.
    outer: int  #: Before the phase.
    inner: list[int]  #: In it before each call, and behind the last.


class _Calls:
    """The calls of one trial, as a forest: the outermost one of each layer, and those by phase."""

    def __init__(self, recording: Recording, own_ns: Sequence[int]) -> None:
        self._layers, self._own = recording.layers, own_ns
        self._name = recording.settings.model or "network"
        self.total_ns = sum(own_ns)
        self._slices = [
            Slice(FUNCTION, layer.function, 0, 0, index, own_ns[index])
            for index, layer in enumerate(self._layers)
        ]
        self._nested: list[list[int]] = [[] for _ in own_ns]
        self.root = list(range(len(own_ns)))
        for index, layer in enumerate(self._layers):
            if (parent := parent_of(layer, index)) is not None:
                self._nested[parent].append(index)
                self.root[index] = self.root[parent]
        for call, nested in zip(self._slices[::-1], self._nested[::-1], strict=True):
            call.calls_ns += self._sum_ns(nested)
        outermost = [index for index, root in enumerate(self.root) if index == root]
        self._runs = [
            _Run(phase, rows := list(of_phase), 0, [0] * (len(rows) + 1))
            for phase, of_phase in groupby(outermost, lambda row: self._layers[row].phase)
        ]

    def _sum_ns(self, rows: Sequence[int]) -> int:
        return sum(self._slices[row].calls_ns for row in rows)

    def part(self, before_ns: Iterable[int]) -> None:
        """Put so much time before each of the outermost calls."""
        times = iter(before_ns)
        for run in self._runs:
            run.outer, *within = islice(times, len(run.rows))
            run.inner = [0, *within, 0]

    def part_evenly(self, between_ns: int) -> None:
        """Spread time before, between and behind all calls."""
        self.part(evenly(between_ns, 1 + sum(len(run.rows) for run in self._runs)))

    def part_by_phase(self, known_ns: Mapping[str, int], outside_ns: int) -> None:
        """Spread the time of each phase within it, and the rest between the phases."""
        if not known_ns:
            self.part_evenly(outside_ns)
            return
        seen = {run.phase for run in self._runs}
        self._runs += [_Run(phase, [], 0, [0]) for phase in known_ns if phase not in seen]
        for run, outer in zip(self._runs, evenly(outside_ns, len(self._runs) + 1), strict=False):
            run.outer = outer
        for phase, spent in known_ns.items():
            of_phase = [run for run in self._runs if run.phase == phase]
            times = iter(evenly(spent, sum(len(run.inner) for run in of_phase)))
            for run in of_phase:
                run.inner = list(islice(times, len(run.inner)))

    def lay(self, begin_ns: int, length_ns: int) -> Slice:
        trial = Slice(TRIAL, self._name, begin_ns, begin_ns, calls_ns=self.total_ns)
        at = begin_ns
        for run in self._runs:
            at += run.outer
            part = Slice(PHASE, run.phase, at, at, calls_ns=self._sum_ns(run.rows))
            at = part.end_ns = self._put(run.rows, at, run.inner) + run.inner[-1]
            trial.inner.append(part)
        # Longer than the trial only in a damaged recording.
        trial.end_ns = max(begin_ns + length_ns, at)
        for call, own_ns, nested in zip(self._slices, self._own, self._nested, strict=True):
            self._put(nested, call.begin_ns, evenly(own_ns, len(nested) + 1))
        for part, run in zip(trial.inner, self._runs, strict=True):
            self._fill(part, run.rows)
        return trial

    def _put(self, rows: Sequence[int], at: int, before: Sequence[int]) -> int:
        """Place calls one behind the other, with time before each; gives the end of the last."""
        for row, time in zip(rows, before, strict=False):
            call = self._slices[row]
            call.begin_ns = at + time
            at = call.end_ns = call.begin_ns + call.calls_ns
        return at

    def _fill(self, part: Slice, rows: list[int]) -> None:
        """Put the links and the functions of a run into its phase."""
        waiting: list[tuple[Slice, list[int], str]] = [(part, rows, "")]
        while waiting:
            holder, calls, holder_path = waiting.pop()
            opened: list[Slice] = []
            for row in calls:
                call, path = self._slices[row], self._layers[row].path
                chain = below(path, holder_path)
                # What lies between nested calls is the outer call's own time, and no link's.
                kept = shared([link.name for link in opened], chain) if holder is part else 0
                del opened[kept:]
                for name in chain[len(opened) :]:
                    link = Slice(LINK, name, call.begin_ns, call.end_ns)
                    (opened[-1] if opened else holder).inner.append(link)
                    opened.append(link)
                for link in opened:
                    link.end_ns = call.end_ns
                    link.calls_ns += call.calls_ns
                (opened[-1] if opened else holder).inner.append(call)
                if self._nested[row]:
                    waiting.append((call, self._nested[row], path))
