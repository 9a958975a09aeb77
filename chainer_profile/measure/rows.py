"""Rows of a tape: what is known of them, and what an iteration has of each.

A row is a link's function in a phase. Where the calls of iterations repeat, a row is a single call:
see :mod:`.order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.order import FirstIteration, Order, last_row, order_of
from chainer_profile.measure.owned import Owned
from chainer_profile.measure.row import INNER, MOST_SHAPES, Entry, Row
from chainer_profile.measure.stretch import (
    OUTSIDE,
    PAUSED,
    Stretch,
    innermost,
    mended,
    owners_of,
    summed,
)
from chainer_profile.record.recording import Layer

DIFFERENT_CALLS = "its trial made different calls from the earlier ones"
#: In place of the number of a row: behind all of them.
NO_ROW = 2**40


class Iteration(NamedTuple):
    """One iteration, on the rows that are known when it is folded."""

    number: int
    start_ns: int
    wall_ns: int  # without what looking functions up took, and on request recording
    paused_ns: int
    rows_ns: NDArray[np.int64]  # self times; on a device its times there
    calls: NDArray[np.int64]
    phases_ns: NDArray[np.int64]
    # When each row of communication was entered first, 0 where it was not, and left last.
    arrived_ns: NDArray[np.int64]
    left_ns: NDArray[np.int64]
    # Host's time of every row and the gap before it; until all was launched; time on the device.
    device: tuple[NDArray[np.int64], NDArray[np.int64], int, int] | None = None
    # Where rows are single calls.
    order: Order | None = None

    @property
    def launch_ns(self) -> int:
        """Until all was launched on a device; 0 on the host."""
        return 0 if self.device is None else self.device[2]


class Taped(NamedTuple):
    """An iteration that is not folded yet."""

    number: int
    begin: int
    timed: TimedTrial
    rows: Rows
    before: Sums | None = None  # what was folded while it ran
    first: FirstIteration | None = None  # of the one that tells the order


@dataclass(frozen=True, eq=False)
class Sums:
    """Time and calls by number of entry."""

    ns: NDArray[np.int64]
    calls: NDArray[np.int64]

    def plus(self, later: Sums) -> Sums:
        """Both together; there may be more entries later."""
        more = 0, len(later.ns) - len(self.ns)
        return Sums(later.ns + np.pad(self.ns, more), later.calls + np.pad(self.calls, more))


class Rows:
    """The rows that were found so far, and the entries that tapes have of them.

    Where they are to be single calls, the first iteration tells which these are, until another one
    differs. Rows of several networks may share one list of entries.
    """

    def __init__(self, single_calls: bool = False, entries: list[Entry] | None = None) -> None:
        self.phases: list[str] = []
        #: The calls of each iteration; None where they differ, or are not known yet.
        self.order: Order | None = None
        #: Whether the next iteration is to tell in which order calls are made.
        self.is_new = single_calls
        self._inner: list[int] = []  # numbers of those entries that are INNER
        self.iterations = 0
        # Whether there may be new rows and phases; what has none stays outside of all.
        self.grow = True
        self._rows: list[Row] = []
        self._row_of: dict[tuple[str, str, str], int] = {}
        self.entries = [] if entries is None else entries
        self.moves: list[int] = []  #: The rows of communication.
        if not self.entries:
            for _ in (OUTSIDE, PAUSED):
                self._new_entry(NO_ROW)

    def __len__(self) -> int:
        return len(self._rows)

    def _new_entry(self, row: int, kind: str = "") -> Entry:
        of = self._rows[row] if 0 <= row < len(self._rows) else None
        entry = Entry(len(self.entries), self, row, kind, of)
        self.entries.append(entry)
        return entry

    def entry_of(self, kind: str, path: str, function: str, phase: str, **more: Any) -> Entry:
        key = (path, function, phase)
        number = self._row_of.get(key)
        if number is None:
            if not self.grow:
                return self.entries[OUTSIDE]
            number = self._row_of[key] = len(self._rows)
            self._rows.append(Row(path, function, phase, **more))
            if phase == COMMUNICATION:
                self.moves.append(number)
        entry = self._new_entry(number, kind)
        self._rows[number].entries.append(entry)
        return entry

    def entry_of_phase(self, phase: str) -> Entry:
        if phase not in self.phases:
            if not self.grow:
                return self.entries[OUTSIDE]
            self.phases.append(phase)
        return self._new_entry(-1 - self.phases.index(phase))

    def inner_entry(self, name: str, around: int) -> Entry:
        """An entry of a function that is called in a backward, and has no row of its own."""
        entry = self._new_entry(NO_ROW, INNER)
        entry.name, entry.of = name, self.entries[around].of
        self._inner.append(entry.number)
        return entry

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

    # -- tapes

    def _columns(self) -> NDArray[np.int64]:
        """Of every entry its place among rows, phases behind these, and what is outside."""
        n_rows = len(self._rows)
        of = [entry.row if entry.rows is self else NO_ROW for entry in self.entries]
        rows = np.array(of, np.int64)
        columns = np.where(rows < 0, n_rows - 1 - rows, rows)
        columns[rows == NO_ROW] = n_rows + len(self.phases)
        return columns

    def sums(
        self, codes: NDArray[np.int64], stamps: NDArray[np.int64], now_ns: int
    ) -> tuple[Sums, list[int]]:
        """What a stretch of a tape took until now, and the entries that are open."""
        codes, source, opened = mended(codes)
        stamps, count = np.append(stamps[source], now_ns), len(self.entries)
        ns = summed(np.diff(stamps), self._last_owners(codes), count)
        calls = np.bincount(codes[codes >= 0], minlength=count)
        calls[PAUSED] = 0
        # What is open is entered once more behind it.
        np.subtract.at(calls, opened, 1)
        return Sums(ns, calls), opened

    def owned(self, codes: NDArray[np.int64]) -> Owned:
        """Whose what is behind each event of an iteration is, whose windows are all known.

        Raises:
            ProfileError: It made other calls than those whose order is known.
        """
        order, n_rows = self.order, len(self._rows)
        if order is None:
            owners = self._columns()[self._last_owners(codes)]
            owners[owners >= n_rows + len(self.phases)] = -1
            return Owned(self.layers(), tuple(self.phases), owners)
        if len(codes) != len(order.codes) or (codes != order.codes).any():
            raise ProfileError(DIFFERENT_CALLS)
        owners = np.where(order.columns >= len(order.layers) + len(self.phases), -1, order.columns)
        return Owned(order.layers, tuple(self.phases), owners)

    def fold(
        self, stretch: Stretch, taped: Sequence[Taped], call_ns: float = 0.0
    ) -> list[Iteration]:
        """Iterations by these rows, from the tape of all of them; they count from now on.

        ``call_ns``: what recording added to a call, which is taken off.
        """
        stretch, paused_ns = stretch.without_pauses()
        stretch = self._find_order(stretch, taped)
        order = self.order
        if order is None:
            stretch, owners = self._by_link(stretch)
            columns, enters = self._columns()[owners], stretch.codes >= 0
            n_rows, moves = len(self._rows), self.moves
        else:
            owners = np.tile(order.owners, len(taped))
            columns, enters = np.tile(order.columns, len(taped)), np.tile(order.enters, len(taped))
            n_rows, moves = len(order.layers), order.moves
        self.iterations += len(taped)
        folded = _Folded(stretch, taped, columns, enters, n_rows, len(self.phases))
        count = len(self.entries)
        calls = np.bincount(owners[enters], minlength=count)
        self._add(Sums(summed(folded.spans, owners, count), calls))
        for place, iteration in enumerate(taped):
            if iteration.before is not None:
                folded.add(place, self._columns()[: len(iteration.before.ns)], iteration.before)
                paused_ns[place] += iteration.before.ns[PAUSED]
                self._add(iteration.before)
        return folded.iterations(paused_ns, call_ns, moves, order)

    def _find_order(self, stretch: Stretch, taped: Sequence[Taped]) -> Stretch:
        """Know the order if all of these iterations make its calls, which may be new, or else none.

        Gives the iterations with each window left, where that was looked at.
        """
        if any(iteration.before is not None for iteration in taped):  # in pieces
            self.order, self.is_new = None, False
        if self.order is None and not self.is_new:
            return stretch
        if self.order is not None and self.order.fits(stretch):
            return stretch
        if innermost(stretch.codes) is None:
            stretch = stretch.mended()
        if self.is_new:
            self.is_new = False
            codes = stretch.codes[: stretch.ends[0]]
            self.order = order_of(codes, self.entries, len(self.phases), taped[0].first)
        if self.order is not None and not self.order.fits(stretch):
            self.order = None
        return stretch

    def _by_link(self, stretch: Stretch) -> tuple[Stretch, NDArray[np.int64]]:
        """The events of entries with a row, and the innermost entry behind each of them."""
        codes = stretch.codes
        within = np.isin(np.where(codes >= 0, codes, ~codes), self._inner)
        stretch = stretch.without(within) if within.any() else stretch
        owners = owners_of(stretch.codes, stretch.ends)
        if owners is None:
            stretch = stretch.mended()
            owners = owners_of(stretch.codes, stretch.ends)
            assert owners is not None
        return stretch, owners

    def last(
        self, codes: NDArray[np.int64], first: FirstIteration | None
    ) -> tuple[Layer | None, bool]:
        """The row that is open behind the first events of an iteration; see :func:`last_row`."""
        order = self.order
        if order is None and not self.is_new:
            return last_row(self.layers(), self._columns()[self._last_owners(codes)])
        if order is None or not np.array_equal(codes, order.codes[: len(codes)]):
            order = order_of(codes, self.entries, len(self.phases), first)
        return last_row(order.layers, order.columns[: len(codes)])

    def forget(self) -> None:
        """Iterations so far count no more."""
        self.iterations = 0
        for entry in self.entries:
            entry.calls = entry.ns = 0

    def _last_owners(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The innermost entry with a row behind each event; windows may be open at the end."""
        running: list[int] = []
        owners = []
        for code in codes.tolist():
            if code >= 0:
                is_inner = self.entries[code].kind == INNER and running
                running.append(running[-1] if is_inner else code)
            elif running:
                running.pop()
            owners.append(running[-1] if running else OUTSIDE)
        return np.array(owners, np.int64)

    def _add(self, sums: Sums) -> None:
        for at in np.flatnonzero(sums.calls).tolist():
            entry = self.entries[at]
            entry.calls += int(sums.calls[at])
            entry.ns += int(sums.ns[at])


class _Folded:
    """Iterations of one kind, by the columns of their events: rows, phases, and what is outside."""

    def __init__(
        self,
        stretch: Stretch,
        taped: Sequence[Taped],
        columns: NDArray[np.int64],
        enters: NDArray[np.bool_],
        n_rows: int,
        n_phases: int,
    ) -> None:
        self._stretch, self._taped, self._columns = stretch, taped, columns
        self._n_rows, self._n_phases = n_rows, n_phases
        self._width = n_rows + n_phases + 1
        begins = np.repeat(np.arange(len(taped)) * self._width, stretch.ends - stretch.begins)
        self._cells = begins + columns
        host = self.spans = _until_next(stretch.stamps, stretch.ends)
        if stretch.device is not None:
            self.spans = _until_next(stretch.device, stretch.ends)
        self._host_ns = self._by_column(host)
        self._times_ns = self._by_column(self.spans)
        # An iteration itself is entered first: that is no call.
        self._calls = self._by_column(enters.astype(np.int64))

    def _by_column(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        count = len(self._taped)
        return summed(values, self._cells, count * self._width).reshape(count, self._width)

    def add(self, place: int, columns: NDArray[np.int64], sums: Sums) -> None:
        """Add what was folded while an iteration ran."""
        np.add.at(self._times_ns[place], columns, sums.ns)
        np.add.at(self._calls[place], columns, sums.calls)

    def _added_ns(self, call_ns: float) -> NDArray[np.int64]:
        """What recording added to the phases of each iteration, so much a call.

        Rows hold hardly any of it: their clock reads are next to the functions. Which call added
        how much is not known, so that each phase has a part by the time between its functions.
        """
        between_ns = self._times_ns[:, self._n_rows : -1].clip(min=0)
        calls = self._calls[:, : self._n_rows].sum(axis=1)
        part = np.minimum(1.0, call_ns * calls / np.maximum(1, between_ns.sum(axis=1)))
        added_ns: NDArray[np.int64] = (between_ns * part[:, None]).astype(np.int64)
        return added_ns

    def iterations(
        self,
        paused_ns: NDArray[np.int64],
        call_ns: float,
        moves: Sequence[int],
        order: Order | None,
    ) -> list[Iteration]:
        n_rows, phases = self._n_rows, slice(self._n_rows, -1)
        added_ns = self._added_ns(call_ns)
        self._times_ns[:, phases] -= added_ns
        moments = self._stretch.moments
        bounds = zip(
            self._stretch.begins.tolist(),
            self._stretch.ends.tolist(),
            paused_ns.tolist(),
            added_ns.sum(axis=1).tolist(),
            strict=True,
        )
        return [
            Iteration(
                taped.number,
                taped.timed.start_ns,
                taped.timed.wall_ns - paused - added,
                paused,
                self._times_ns[at, :n_rows],
                self._calls[at, :n_rows],
                self._times_ns[at, phases],
                *_collectives(moves, self._columns[begin:end], moments[begin:end]),
                self._of_device(at, begin, end, taped, paused),
                order,
            )
            for at, (taped, (begin, end, paused, added)) in enumerate(
                zip(self._taped, bounds, strict=True)
            )
        ]

    def _of_device(
        self, at: int, begin: int, end: int, taped: Taped, paused_ns: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int] | None:
        device = self._stretch.device
        if device is None:
            return None
        gaps = self._gaps(self.spans[begin:end], self._columns[begin:end])
        span_ns = int(device[end - 1] - device[begin])
        return self._host_ns[at, : self._n_rows], gaps, taped.timed.launch_ns - paused_ns, span_ns

    def _gaps(self, spans: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What passed on the device before each row, since the row before."""
        between = columns >= self._n_rows
        places = np.where(between, len(columns), np.arange(len(columns)))
        following = np.minimum.accumulate(places[::-1])[::-1]
        rows = np.append(columns, self._n_rows)[following]
        return summed(spans[between], rows[between], self._n_rows + 1)[:-1]


def _collectives(
    moves: Sequence[int], columns: NDArray[np.int64], moments: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each row of communication was entered first, and left last, in an iteration."""
    arrived, left = (np.zeros(len(moves), np.int64) for _ in range(2))
    for place, row in enumerate(moves):
        own = np.flatnonzero(columns == row)
        if len(own):
            arrived[place], left[place] = moments[own[0]], moments[own[-1] + 1]
    return arrived, left


def _until_next(stamps: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time behind every event until the next one of its iteration."""
    spans = np.diff(stamps, append=stamps[-1:])
    spans[ends - 1] = 0
    return spans
