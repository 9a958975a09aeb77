"""Rows by link, function and phase: what is known of them, and what an iteration has of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.costs.work import Work
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.owners import whole_or_mean
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import Layer, Recording

#: In place of the number of a row: behind all of them.
NO_ROW = 2**40
#: Shapes of inputs that are told apart in a row; the work of calls with others is their mean.
MOST_SHAPES = 64
_WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
_SHAPES = ("input_shapes", "output_shapes", "dtype")
_NBYTES = ("input_nbytes", "parameter_nbytes", "output_nbytes")


class Entry:
    """What is entered: calls of a row whose inputs have the same shapes; or a phase."""

    __slots__ = ("backward", "calls", "facts", "ns", "number", "row", "work")

    def __init__(self, number: int, row: int) -> None:
        self.number, self.row = number, row  # of a phase -1 - its number
        self.work: Work | None = None
        self.facts: dict[str, Any] = {}
        self.calls = self.ns = 0
        self.backward: Entry | None = None


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration, on the rows that are known at its end."""

    number: int
    start_ns: int
    wall_ns: int  # without what looking functions up took
    paused_ns: int
    rows_ns: NDArray[np.int64]  # self times; on a device its times there
    calls: NDArray[np.int64]
    phases_ns: NDArray[np.int64]
    # When each row of communication was entered first, 0 where it was not, and left last.
    arrived_ns: NDArray[np.int64]
    left_ns: NDArray[np.int64]
    # Host's time of every row and the gap before it; until all was launched; time on the device.
    device: tuple[NDArray[np.int64], NDArray[np.int64], int, int] | None = None


class Folded(NamedTuple):
    """A log by its clock reads."""

    stamps: NDArray[np.int64]
    owners: NDArray[np.intp]  # numbers of entries that the time behind each read belongs to
    enters: NDArray[np.bool_]


@dataclass
class Row:
    """A link's function in a phase, with the entries of its calls."""

    path: str
    function: str
    phase: str
    parent: int | None = None
    forward: int | None = None
    entries: list[Entry] = field(default_factory=list)

    def layer(self, number: int, iterations: int) -> Layer:
        """What is known of it: means over so many iterations, shapes of most of its time."""
        main = max(self.entries, key=lambda entry: entry.ns)
        calls = sum(entry.calls for entry in self.entries)
        facts = {name: value for name, value in main.facts.items() if name != "specs"}
        if len(self.entries) > 1 or calls != iterations:
            facts |= {
                name: round(value * calls / iterations)
                for name, value in facts.items()
                if name.endswith("_nbytes") and self.phase == FORWARD.phase
            }
        return Layer(
            number,
            self.path,
            self.function,
            self.phase,
            parent=self.parent,
            forward=self.forward,
            calls=whole_or_mean(calls / iterations) if calls else 1,
            **facts,
            **self._work(calls, iterations),
        )

    def _work(self, calls: int, iterations: int) -> dict[str, Any]:
        """The mean work of an iteration; calls with shapes of their own count as the others do."""
        known = [(entry.work, entry.calls) for entry in self.entries if entry.work is not None]
        counted = sum(n for _, n in known)
        if not counted:
            return dict.fromkeys(_WORK)
        scale = calls / counted / iterations
        sums: dict[str, Any] = {
            name: round(sum(getattr(work, name) * n for work, n in known) * scale) for name in _WORK
        }
        about = counted < calls or len(self.entries) > MOST_SHAPES
        return {**sums, "work_is_about": about or any(work.about for work, _ in known)}


class Rows:
    """The rows that were found so far, and the entries that logs have of them."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.iterations = 0
        # Whether there may be new rows and phases; what has none stays outside of all.
        self.grow = True
        self._rows: list[Row] = []
        self._row_of: dict[tuple[str, str, str], int] = {}
        self._entries: list[Entry] = []
        self.outside, self.paused = self._new_entry(NO_ROW), self._new_entry(NO_ROW)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        return self._rows[number]

    def _new_entry(self, row: int) -> Entry:
        entry = Entry(len(self._entries), row)
        self._entries.append(entry)
        return entry

    def entry_of(self, path: str, function: str, phase: str, **more: Any) -> Entry:
        key = (path, function, phase)
        number = self._row_of.get(key)
        if number is None:
            if not self.grow:
                return self.outside
            number = self._row_of[key] = len(self._rows)
            self._rows.append(Row(path, function, phase, **more))
        entry = self._new_entry(number)
        self._rows[number].entries.append(entry)
        return entry

    def entry_of_phase(self, phase: str) -> Entry:
        if phase not in self.phases:
            if not self.grow:
                return self.outside
            self.phases.append(phase)
        return self._new_entry(-1 - self.phases.index(phase))

    def is_crowded(self, path: str, function: str, phase: str) -> bool:
        """Whether a row has so many shapes of inputs that no more are told apart."""
        number = self._row_of.get((path, function, phase))
        return number is not None and len(self._rows[number].entries) >= MOST_SHAPES

    def know(self, recording: Recording) -> list[Iteration]:
        """Count trials as iterations whose rows are single calls; before all others."""
        times, trials = recording.self_ns, recording.n_trials
        entries: dict[Any, Entry] = {}
        rows: list[int] = []
        for layer, ns in zip(recording.layers, times.sum(axis=0).tolist(), strict=True):
            key = layer.path, layer.function, layer.phase, layer.input_shapes
            if key not in entries:
                refers: dict[str, Any] = {
                    name: None if (index := getattr(layer, name)) is None else rows[index]
                    for name in ("parent", "forward")
                }
                entry = self.entry_of(layer.path, layer.function, layer.phase, **refers)
                entries[key] = entry
                facts = {name: getattr(layer, name) for name in (*_SHAPES, *_NBYTES)}
                entry.facts = {name: value for name, value in facts.items() if value is not None}
                if layer.flops is not None:
                    of_call = {name: round(getattr(layer, name) / layer.calls) for name in _WORK}
                    entry.work = Work(**of_call, about=layer.work_is_about)
            entries[key].calls += int(layer.calls) * trials
            entries[key].ns += ns
            rows.append(entries[key].row)
        self.iterations += trials
        self.phases += recording.phases
        return iterations_of(recording, rows, self._rows)

    def layers(self, begin: int = 0) -> tuple[Layer, ...]:
        """The rows from one on: means over the iterations so far, shapes of most of the time."""
        return tuple(
            row.layer(number, self.iterations or 1)
            for number, row in enumerate(self._rows[begin:], begin)
        )

    def structure(self, log: Iterable[Any]) -> Structure:
        """The rows, and what the time behind each read of the log belongs to."""
        # Owners are an index of rows, behind these one of phases, and -1 for all else.
        rows = self._row_numbers()
        of_entries = np.where(rows < 0, len(self._rows) - 1 - rows, rows)
        of_entries[rows == NO_ROW] = -1
        owners = of_entries[self.fold(log).owners]
        return Structure(self.layers(), tuple(self.phases), (), owners)

    # -- logs

    def fold(self, log: Iterable[Any]) -> Folded:
        stamps: list[int] = []
        owners: list[int] = []
        enters: list[bool] = []
        running = [self.outside.number]
        items = iter(log)
        for item in items:
            is_entry = type(item) is Entry
            if is_entry:
                running.append(item.number)
                stamps.append(next(items))
            else:
                running.pop()
                stamps.append(item)
            owners.append(running[-1])
            enters.append(is_entry)
        return Folded(
            np.array(stamps, np.int64), np.array(owners, np.intp), np.array(enters, np.bool_)
        )

    def pauses(self, log: Sequence[Any]) -> NDArray[np.int64]:
        """When looking functions up began and ended in an iteration, (pauses, 2)."""
        folded = self.fold(log)
        at = np.flatnonzero(folded.enters & (folded.owners == self.paused.number))
        return np.stack([folded.stamps[at], folded.stamps[at + 1]], axis=1)

    def iteration(self, number: int, timed: TimedTrial, log: Sequence[Any]) -> Iteration:
        """An iteration by its rows, from its log; it counts from now on."""
        folded = self.fold(log)
        rows = self._row_numbers()
        host = self._by_entry(folded.stamps, folded.owners)
        paused_ns = int(host[self.paused.number])
        calls = np.bincount(folded.owners[folded.enters], minlength=len(self._entries))
        times, device = host, None
        if timed.device is not None:
            stamps, owners = timed.device, np.concatenate([[self.outside.number], folded.owners])
            times = self._by_entry(stamps, owners)
            waited_ns = int(times[self.paused.number])
            device = (
                self._by_row(host, rows),
                self._gaps(stamps, owners),
                timed.launch_ns - paused_ns,
                int(stamps[-1] - stamps[0]) - waited_ns,
            )
        self.iterations += 1
        for at in np.flatnonzero(calls).tolist():
            entry = self._entries[at]
            entry.calls += int(calls[at])
            entry.ns += int(times[at])
        phases = _summed(times[rows < 0], -1 - rows[rows < 0], len(self.phases))
        arrived, left = self._collectives(folded)
        return Iteration(
            number,
            timed.start_ns,
            timed.wall_ns - paused_ns,
            paused_ns,
            self._by_row(times, rows),
            self._by_row(calls, rows),
            phases,
            arrived,
            left,
            device,
        )

    def _row_numbers(self) -> NDArray[np.int64]:
        """The row of every entry; below 0 for phases."""
        return np.array([entry.row for entry in self._entries], np.int64)

    def _by_entry(self, stamps: NDArray[np.int64], owners: NDArray[np.intp]) -> NDArray[np.int64]:
        return _summed(np.diff(stamps), owners[: len(stamps) - 1], len(self._entries))

    def _by_row(self, values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        of_rows = (rows >= 0) & (rows < NO_ROW)
        return _summed(values[of_rows], rows[of_rows], len(self._rows))

    def _gaps(self, stamps: NDArray[np.int64], owners: NDArray[np.intp]) -> NDArray[np.int64]:
        """What passed on the device before each row, since the row before."""
        gaps = np.zeros(len(self._rows) + 1, np.int64)
        following = len(self._rows)
        for owner, span in zip(owners[::-1].tolist(), np.diff(stamps)[::-1].tolist(), strict=True):
            row = self._entries[owner].row
            if 0 <= row < NO_ROW:
                following = row
            elif owner != self.paused.number:
                gaps[following] += span
        return gaps[:-1]

    def _collectives(self, folded: Folded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When each row of communication was entered first, and left last."""
        rows = [n for n, row in enumerate(self._rows) if row.phase == COMMUNICATION]
        arrived, left = (np.zeros(len(rows), np.int64) for _ in range(2))
        if not rows:
            return arrived, left
        places = {row: place for place, row in enumerate(rows)}
        running: list[int | None] = []
        for stamp, owner, enters in zip(*(part.tolist() for part in folded), strict=True):
            if enters:
                place = places.get(self._entries[owner].row)
                running.append(place)
                if place is not None and not arrived[place]:
                    arrived[place] = stamp
            elif (place := running.pop()) is not None:
                left[place] = stamp
        return arrived, left


def _summed(values: NDArray[Any], places: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Values added up by their places."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, places, values)
    return sums


def iterations_of(
    recording: Recording, numbers: Sequence[int], rows: Sequence[Row]
) -> list[Iteration]:
    """Trials whose rows are single calls, as iterations: row by row the number of that by link."""
    n_trials = recording.n_trials

    def by_link(samples: NDArray[np.int64]) -> NDArray[np.int64]:
        sums = np.zeros((n_trials, len(rows)), np.int64)
        np.add.at(sums.T, numbers, samples.T)
        return sums

    # Of communication when a row was entered first, and left last.
    places = [number for number, row in enumerate(rows) if row.phase == COMMUNICATION]
    arrived = np.full((n_trials, len(places)), np.iinfo(np.int64).max)
    left = np.zeros((n_trials, len(places)), np.int64)
    if recording.arrived_ns is not None and recording.left_ns is not None:
        of = [places.index(number) for number in numbers if number in places]
        np.minimum.at(arrived.T, of, recording.arrived_ns.T)
        np.maximum.at(left.T, of, recording.left_ns.T)
    device: Iterable[Any] = [None] * n_trials
    if recording.host_ns is not None and recording.gap_ns is not None:
        whole: Any = (recording.launch_ns, recording.span_ns)
        rows_of = by_link(recording.host_ns), by_link(recording.gap_ns)
        device = zip(*rows_of, *(values.tolist() for values in whole), strict=True)
    framework = recording.framework_ns
    by_trial: tuple[Any, ...] = (
        by_link(recording.self_ns),
        by_link(np.array([[int(layer.calls) for layer in recording.layers]] * n_trials)),
        np.zeros((n_trials, 0), np.int64) if framework is None else framework,
        *(arrived, left, device),
    )
    begun: Any = recording.start_ns, recording.trial_ns
    return [
        Iteration(0, int(start_ns), int(wall_ns), 0, *of_trial)
        for start_ns, wall_ns, *of_trial in zip(*begun, *by_trial, strict=True)
    ]
