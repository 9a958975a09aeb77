"""One trial of a recording laid out in time, as nested slices: trial, phases, links, functions.

Lengths are measured, positions are computed. :data:`HOST_PLACES`, :data:`LAUNCH_PLACES` and
:data:`DEVICE_PLACES` are the sentences that explain how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, repeat

import numpy as np

from chainer_profile.analyse.grouping import OUTSIDE, framework_by_phase, parent_of
from chainer_profile.basics.paths import common_length, links_below
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
    """A trial, phase, link, function or waiting time on the time axis."""

    kind: str  #: :data:`TRIAL`, :data:`PHASE`, :data:`LINK`, :data:`FUNCTION` or :data:`WAIT`.
    name: str  #: The path of a link, or the name of a function or phase.
    begin_ns: int = 0  #: From the start of the trial.
    end_ns: int = 0
    layer: int | None = None  #: The index of a function's layer.
    calls_ns: int = 0  #: Self times of all calls within it, itself included, without gaps.
    inner: list[Slice] = field(default_factory=list)  #: The slices within it, in order.

    def edges(self, kinds: Sequence[str]) -> Iterator[tuple[bool, Slice]]:
        """Yield each slice of these kinds twice: with True at its start, with False at its end.

        The order is the order of time, so the pairs are nested like brackets.
        """
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
    """Divide nanoseconds into parts that differ by one at most, the larger ones first."""
    size, rest = divmod(max(0, total), parts)
    return [size + (part < rest) for part in range(parts)]


def limit_framework(framework_ns: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the framework time of each phase, and the time outside; none is negative.

    ``framework_ns`` is the time of each phase and :data:`OUTSIDE`. Its sum does not change, unless
    it is negative.
    """
    # A host's and a device's clock differ a bit, so a phase gets at most the remaining time.
    left = max(0, sum(framework_ns.values()))
    by_phase: dict[str, int] = {}
    for phase, spent in framework_ns.items():
        if phase != OUTSIDE:
            by_phase[phase] = min(max(0, spent), left)
            left -= by_phase[phase]
    return by_phase, left


def lay_out(recording: Recording, trial: int) -> Slice:
    """Lay out a trial on the host's clock.

    For a run on a GPU, calls only launch work; a slice of kind ``wait`` follows them.
    """
    whole = wall_ns(recording)[trial]
    if recording.host_ns is None or recording.launch_ns is None:
        calls = _Calls(recording, recording.self_ns[trial].tolist())
        of_trial = framework_by_phase(recording).items()
        by_phase, left = limit_framework({phase: int(ns[trial]) for phase, ns in of_trial})
        return calls.lay_out(calls.gaps_by_phase(by_phase, left), 0, whole)
    calls = _Calls(recording, recording.host_ns[trial].tolist())
    launched = int(recording.launch_ns[trial])
    slice_ = calls.lay_out(calls.gaps_by_phase({}, launched - sum(calls.own_ns)), 0, whole)
    launched = max(launched, slice_.inner[-1].end_ns)
    if launched < slice_.end_ns:
        slice_.inner.append(Slice(WAIT, "waiting for the device", launched, slice_.end_ns))
    return slice_


def lay_out_device(recording: Recording, trial: int) -> Slice | None:
    """Lay out a trial on the device, with the gaps before its layers; None without a device."""
    if recording.gap_ns is None or recording.span_ns is None:
        return None
    calls = _Calls(recording, recording.self_ns[trial].tolist())
    # The time before a nested call belongs to the outer call. A recorded gap before a nested call
    # is placed before the outermost one.
    before = dict.fromkeys(calls.outermost, 0)
    for outermost, gap in zip(calls.outermost, recording.gap_ns[trial].tolist(), strict=True):
        before[outermost] += max(0, gap)
    span = int(recording.span_ns[trial])
    begin = max(0, wall_ns(recording)[trial] - span)
    return calls.lay_out(calls.gaps(before.values()), begin, span)


#: For each phase: the time before it, and the times before each of its calls and after the last.
_Gaps = list[tuple[int, list[int]]]


class _Calls:
    """The calls of a trial as slices: outermost calls in phases, nested calls in outer calls.

    ``own_ns`` are the self times of the layers in the trial, (layers,).
    """

    def __init__(self, recording: Recording, own_ns: Sequence[int]) -> None:
        self._layers, self.own_ns = recording.layers, own_ns
        self._name = recording.settings.model or "network"
        self._calls = calls = [
            Slice(FUNCTION, layer.function, layer=index, calls_ns=own_ns[index])
            for index, layer in enumerate(recording.layers)
        ]
        parents = [parent_of(layer, index) for index, layer in enumerate(recording.layers)]
        self.outermost = list(range(len(calls)))  # the outermost call around each call
        for index, parent in enumerate(parents):
            if parent is not None:
                calls[parent].inner.append(calls[index])
                self.outermost[index] = self.outermost[parent]
        for call, parent in zip(calls[::-1], parents[::-1], strict=True):
            if parent is not None:
                calls[parent].calls_ns += call.calls_ns
        rows = [index for index, parent in enumerate(parents) if parent is None]
        self._parts = [
            Slice(PHASE, phase, inner=[calls[row] for row in of_phase])
            for phase, of_phase in groupby(rows, lambda row: recording.layers[row].phase)
        ]

    def gaps(self, before_ns: Iterable[int]) -> _Gaps:
        """Make gaps from the time before each outermost call."""
        times = iter(before_ns)
        return [(next(times), [0, *islice(times, len(part.inner) - 1), 0]) for part in self._parts]

    def gaps_by_phase(self, phases_ns: Mapping[str, int], outside_ns: int) -> _Gaps:
        """Spread the framework time of each phase within it, and ``outside_ns`` between phases.

        Without times of phases, spread ``outside_ns`` between all outermost calls.
        """
        if not phases_ns:
            return self.gaps(evenly(outside_ns, 1 + sum(len(part.inner) for part in self._parts)))
        seen = {part.name for part in self._parts}
        self._parts += [Slice(PHASE, phase) for phase in phases_ns if phase not in seen]
        n_gaps = Counter[str]()
        for part in self._parts:
            n_gaps[part.name] += len(part.inner) + 1
        within = {phase: iter(evenly(spent, n_gaps[phase])) for phase, spent in phases_ns.items()}
        outside = evenly(outside_ns, len(self._parts) + 1)
        return [
            (before, list(islice(within.get(part.name, repeat(0)), len(part.inner) + 1)))
            for part, before in zip(self._parts, outside, strict=False)
        ]

    def lay_out(self, gaps: _Gaps, begin_ns: int, length_ns: int) -> Slice:
        """Place all calls after their gaps, and return the trial with its phases and links.

        The trial is longer than ``length_ns`` only if the recording is damaged.
        """
        at = begin_ns
        for part, (before, within) in zip(self._parts, gaps, strict=True):
            part.calls_ns = sum(call.calls_ns for call in part.inner)
            part.begin_ns = at + before
            at = part.end_ns = self._place(part.inner, part.begin_ns, within) + within[-1]
            part.inner = self._in_links(part.inner)
        for call, layer, own_ns in zip(self._calls, self._layers, self.own_ns, strict=True):
            self._place(call.inner, call.begin_ns, evenly(own_ns, len(call.inner) + 1))
            call.inner = self._in_links(call.inner, layer.path)
        end_ns = max(begin_ns + length_ns, at)
        calls_ns = sum(self.own_ns)
        return Slice(TRIAL, self._name, begin_ns, end_ns, calls_ns=calls_ns, inner=self._parts)

    def _place(self, calls: Iterable[Slice], at: int, before: Sequence[int]) -> int:
        """Place calls one after another from ``at``, each after a gap; return the last end."""
        for call, gap in zip(calls, before, strict=False):
            call.begin_ns = at + gap
            at = call.end_ns = call.begin_ns + call.calls_ns
        return at

    def _in_links(self, calls: Iterable[Slice], holder: str = "") -> list[Slice]:
        """Put calls into slices of the links on their paths, and return the outermost slices.

        ``holder`` is the path of the call around them; the links are those below it.
        """
        slices: list[Slice] = []
        opened: list[Slice] = []
        for call in calls:
            chain = links_below(self._layers[call.layer or 0].path, holder)
            # Time between nested calls belongs to the outer call, and to no link.
            shared = 0 if holder else common_length([link.name for link in opened], chain)
            del opened[shared:]
            for name in chain[len(opened) :]:
                link = Slice(LINK, name, call.begin_ns)
                (opened[-1].inner if opened else slices).append(link)
                opened.append(link)
            for link in opened:
                link.end_ns = call.end_ns
                link.calls_ns += call.calls_ns
            (opened[-1].inner if opened else slices).append(call)
        return slices
