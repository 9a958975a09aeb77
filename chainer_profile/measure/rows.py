"""Rows by link, function and phase: what is known of them, and what an iteration has of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.costs.work import Work
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.owners import whole_or_mean
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.journal import Journal
from chainer_profile.record.journal import Rows as RowsTold
from chainer_profile.record.recording import Conditions, Layer, LinkCalls, Recording, Settings

#: Numbers of entries that are no row's: time outside of all windows, and what the profiler takes.
OUTSIDE, PAUSED = 0, 1
#: In place of the number of a row: behind all of them.
NO_ROW = 2**40
#: Shapes of inputs that are told apart in a row; the work of calls with others is their mean.
MOST_SHAPES = 64
_NONE = np.zeros(0, np.int64)
_WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
_SHAPES = ("input_shapes", "output_shapes", "dtype")
_NBYTES = ("input_nbytes", "parameter_nbytes", "output_nbytes")


class Entry:
    """What is entered: calls of a row whose inputs have the same shapes; or a phase."""

    __slots__ = ("calls", "facts", "ns", "number", "row", "work")

    def __init__(self, number: int, row: int) -> None:
        self.number, self.row = number, row  # of a phase -1 - its number
        self.work: Work | None = None
        self.facts: dict[str, Any] = {}
        self.calls = self.ns = 0


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration, on the rows that are known when it is folded."""

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


@dataclass(frozen=True, eq=False)
class Sums:
    """Time and calls by number of entry."""

    ns: NDArray[np.int64]
    calls: NDArray[np.int64]

    def plus(self, later: Sums) -> Sums:
        """Both together; there may be more entries later."""
        more = 0, len(later.ns) - len(self.ns)
        return Sums(later.ns + np.pad(self.ns, more), later.calls + np.pad(self.calls, more))


@dataclass(frozen=True, eq=False)
class Taped:
    """An iteration that is not folded yet: :class:`TimedTrial` says where it ends on the tape."""

    number: int
    timed: TimedTrial
    before: Sums | None = None  # what was folded while it ran


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
    """The rows that were found so far, and the entries that tapes have of them."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.iterations = 0
        # Whether there may be new rows and phases; what has none stays outside of all.
        self.grow = True
        self._rows: list[Row] = []
        self._row_of: dict[tuple[str, str, str], int] = {}
        self.entries: list[Entry] = []
        self.moves: list[int] = []  #: The rows of communication.
        for _ in (OUTSIDE, PAUSED):
            self._new_entry(NO_ROW)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        return self._rows[number]

    def _new_entry(self, row: int) -> Entry:
        entry = Entry(len(self.entries), row)
        self.entries.append(entry)
        return entry

    def entry_of(self, path: str, function: str, phase: str, **more: Any) -> Entry:
        key = (path, function, phase)
        number = self._row_of.get(key)
        if number is None:
            if not self.grow:
                return self.entries[OUTSIDE]
            number = self._row_of[key] = len(self._rows)
            self._rows.append(Row(path, function, phase, **more))
            if phase == COMMUNICATION:
                self.moves.append(number)
        entry = self._new_entry(number)
        self._rows[number].entries.append(entry)
        return entry

    def entry_of_phase(self, phase: str) -> Entry:
        if phase not in self.phases:
            if not self.grow:
                return self.entries[OUTSIDE]
            self.phases.append(phase)
        return self._new_entry(-1 - self.phases.index(phase))

    def row_of(self, entry: int) -> Row | None:
        """The row of an entry, by its number; None of a phase, and outside of all."""
        row = self.entries[entry].row
        return self._rows[row] if 0 <= row < NO_ROW else None

    def is_crowded(self, path: str, function: str, phase: str) -> bool:
        """Whether a row has so many shapes of inputs that no more are told apart."""
        number = self._row_of.get((path, function, phase))
        return number is not None and len(self._rows[number].entries) >= MOST_SHAPES

    def layers(self, begin: int = 0) -> tuple[Layer, ...]:
        """The rows from one on: means over the iterations so far, shapes of most of the time."""
        return tuple(
            row.layer(number, self.iterations or 1)
            for number, row in enumerate(self._rows[begin:], begin)
        )

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

    def structure(self, codes: NDArray[np.int64]) -> Structure:
        """The rows, and what the time behind each event of a tape belongs to."""
        # Owners are an index of rows, behind these one of phases, and -1 for all else.
        owners = self._columns()[_owners(codes)]
        owners[owners >= len(self._rows) + len(self.phases)] = -1
        return Structure(self.layers(), tuple(self.phases), (), owners)

    # -- tapes

    def _columns(self) -> NDArray[np.int64]:
        """Of every entry its place among rows, phases behind these, what is outside, and pauses."""
        n_rows, n_phases = len(self._rows), len(self.phases)
        rows = np.array([entry.row for entry in self.entries], np.int64)
        columns = np.where(rows < 0, n_rows - 1 - rows, rows)
        columns[rows == NO_ROW] = n_rows + n_phases
        columns[PAUSED] = n_rows + n_phases + 1
        return columns

    def sums(self, codes: NDArray[np.int64], stamps: NDArray[np.int64]) -> Sums:
        """A stretch of a tape, until its last event."""
        owners, count = _owners(codes), len(self.entries)
        ns = _summed(np.diff(stamps), owners[:-1], count)
        return Sums(ns, np.bincount(owners[codes >= 0], minlength=count))

    def fold(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], taped: Sequence[Taped]
    ) -> list[Iteration]:
        """Iterations by their rows, from the tape of all of them; they count from now on."""
        if not taped:
            return []
        n_rows, n_phases = len(self._rows), len(self.phases)
        width, paused = n_rows + n_phases + 2, n_rows + n_phases + 1
        columns, owners, enters = self._columns(), _owners(codes), codes >= 0
        ends = np.array([one.timed.end for one in taped])
        begins = np.concatenate([[0], ends[:-1]])
        host = _until_next(stamps, ends)
        cells = np.repeat(np.arange(len(taped)) * width, ends - begins) + columns[owners]

        def by_column(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return _summed(values, cells, len(taped) * width).reshape(-1, width)

        # An iteration itself is entered first: that is no call.
        calls = by_column(enters.astype(np.int64))
        host_ns = times_ns = by_column(host)
        if taped[0].timed.device is not None:
            device = np.concatenate([one.timed.device for one in taped])
            of_device = _until_next(device, ends)
            times_ns = by_column(of_device)
            self._count(owners, enters, of_device)
        else:
            self._count(owners, enters, host)
        for at, one in enumerate(taped):
            if one.before is not None:
                known = columns[: len(one.before.ns)]
                np.add.at(host_ns[at], known, one.before.ns)
                np.add.at(calls[at], known, one.before.calls)
                self._add(one.before.ns, one.before.calls)
        self.iterations += len(taped)
        found = []
        for at, (one, begin, end) in enumerate(zip(taped, begins, ends, strict=True)):
            timed, paused_ns = one.timed, int(host_ns[at, paused])
            whole = None
            if timed.device is not None:
                whole = (
                    host_ns[at, :n_rows],
                    self._gaps(of_device[begin:end], columns[owners[begin:end]]),
                    timed.launch_ns - paused_ns,
                    int(timed.device[-1] - timed.device[0]) - int(times_ns[at, paused]),
                )
            found.append(
                Iteration(
                    one.number,
                    timed.start_ns,
                    timed.wall_ns - paused_ns,
                    paused_ns,
                    times_ns[at, :n_rows],
                    calls[at, :n_rows],
                    times_ns[at, n_rows : n_rows + n_phases],
                    *self._collectives(codes[begin:end], stamps[begin:end]),
                    whole,
                )
            )
        return found

    def _count(
        self, owners: NDArray[np.int64], enters: NDArray[np.bool_], ns: NDArray[np.int64]
    ) -> None:
        count = len(self.entries)
        self._add(_summed(ns, owners, count), np.bincount(owners[enters], minlength=count))

    def _add(self, ns: NDArray[np.int64], calls: NDArray[np.int64]) -> None:
        for at in np.flatnonzero(calls).tolist():
            entry = self.entries[at]
            entry.calls += int(calls[at])
            entry.ns += int(ns[at])

    def _gaps(self, spans: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What passed on the device before each row, since the row before."""
        n_rows = len(self._rows)
        between = columns >= n_rows
        places = np.where(between, len(columns), np.arange(len(columns)))
        following = np.minimum.accumulate(places[::-1])[::-1]
        rows = np.append(columns, n_rows)[following]
        counts = between & (columns != n_rows + len(self.phases) + 1)
        return _summed(spans[counts], rows[counts], n_rows + 1)[:-1]

    def _collectives(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When each row of communication was entered first, and left last."""
        moves = self.moves
        if not moves:
            return _NONE, _NONE
        places = {row: place for place, row in enumerate(moves)}
        arrived, left = (np.zeros(len(places), np.int64) for _ in range(2))
        running: list[int | None] = []
        for code, stamp in zip(codes.tolist(), stamps.tolist(), strict=True):
            if code >= 0:
                place = places.get(self.entries[code].row)
                running.append(place)
                if place is not None and not arrived[place]:
                    arrived[place] = stamp
            elif (place := running.pop()) is not None:
                left[place] = stamp
        return arrived, left


def _owners(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The entries that the time behind each event belongs to."""
    return np.where(codes >= 0, codes, ~codes)


def _until_next(stamps: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time behind every event until the next one of its iteration."""
    spans = np.diff(stamps, append=stamps[-1:])
    spans[ends - 1] = 0
    return spans


def _summed(values: NDArray[Any], places: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Values added up by their places."""
    # As floats they are exact below 2**53 ns, which are 104 days.
    return np.bincount(places, values, count).astype(np.int64)


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


class ToldRows:
    """Writes iterations to a journal, and before each of them the rows that it found."""

    def __init__(
        self,
        journal: Journal,
        rows: Rows,
        links: Callable[[], tuple[LinkCalls, ...]],
        settings: Callable[[], Settings],
    ) -> None:
        self._journal, self._rows, self._links, self._settings = journal, rows, links, settings
        self._written = (0, 0)

    def add(self, *iterations: Iteration) -> None:
        rows, written = self._rows, self._written
        self._written = len(rows), len(rows.phases)
        try:
            if self._written != written:
                layers, phases = rows.layers(written[0]), tuple(rows.phases[written[1] :])
                self._journal.add_rows(RowsTold(layers, phases, self._links(), self._settings()))
        finally:
            self._journal.add_iterations(map(_record_of, iterations))

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All iterations so far, with rows as they are by now, without those of none here."""
        found = self._journal.recording(conditions, ended)
        layers = self._rows.layers()[: len(found.layers)]
        return replace(found, layers=layers, links=self._links())


def _record_of(one: Iteration) -> tuple[int, int, tuple[int, int, int, int], bytes]:
    parts = [one.rows_ns, one.calls, one.phases_ns, one.arrived_ns, one.left_ns]
    if one.device is not None:
        host, gaps, launch_ns, span_ns = one.device
        parts += [host, gaps, np.array([launch_ns, span_ns], np.int64)]
    counts = one.number, len(one.rows_ns), len(one.phases_ns), len(one.arrived_ns)
    return one.start_ns, one.wall_ns, counts, b"".join(part.tobytes() for part in parts)
