"""The calls of an iteration in their order, where others make the same: each of them is a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.measure.owners import Place
from chainer_profile.measure.row import BACKWARD, CALL, INNER, MARK, WORK, Entry, Row, shown
from chainer_profile.measure.stretch import OUTSIDE, Stretch
from chainer_profile.measure.windows import BACKWARD as BACKWARD_MARK
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import Layer


@dataclass(eq=False)
class FirstIteration:
    """What is noted of calls in the iteration that tells their order."""

    #: Of every backward which call it is of, by the order of those; None of an earlier graph.
    ties: list[int | None] = field(default_factory=list)
    #: Of every call its class and where it was, and if its last input is a parameter the identity
    #: of that and the size of its first input; of every backward its class.
    calls: list[tuple[type, Place, int, int]] = field(default_factory=list)
    backwards: list[type] = field(default_factory=list)
    raised: bool = False  # by a function


@dataclass(frozen=True, eq=False)
class Order:
    """The rows of an iteration that makes these calls."""

    layers: tuple[Layer, ...]
    codes: NDArray[np.int64]
    #: Of the time behind each event: a row, behind these a phase, and what is outside of all.
    columns: NDArray[np.int64]
    #: Of the same time: the entry.
    owners: NDArray[np.int64]
    #: Whether an event enters what has a row, a phase or the iteration.
    enters: NDArray[np.bool_]
    first: FirstIteration
    #: Of every row bytes of the outputs that are no views of its inputs; of a forward function that
    #: is within no other one.
    made_nbytes: tuple[int, ...]

    @property
    def moves(self) -> list[int]:
        """The rows of communication."""
        return [layer.index for layer in self.layers if layer.phase == COMMUNICATION]

    def fits(self, stretch: Stretch) -> bool:
        """Whether iterations make these calls."""
        length = len(self.codes)
        alike = (np.diff(stretch.ends, prepend=0) == length).all()
        return bool(alike) and bool((stretch.codes.reshape(-1, length) == self.codes).all())


@dataclass
class _Row:
    """A row while it is made."""

    entry: Entry
    parent: int | None
    forward: int | None
    entries: list[Entry]


def order_of(
    codes: NDArray[np.int64],
    entries: Sequence[Entry],
    n_phases: int,
    first: FirstIteration | None = None,
) -> Order:
    """The rows of an iteration with such codes."""
    first = first or FirstIteration()
    rows: list[_Row] = []
    calls: list[int] = []  # the rows of calls
    # Rows of several windows: backwards by their calls, and marks by their rows.
    shared: dict[Any, int] = {}
    tied = iter(first.ties)
    # Of the open windows the row, below all rows a phase, and the entry.
    opened: list[tuple[int, int]] = []
    columns: list[int] = []
    owners: list[int] = []
    for code in codes.tolist():
        if code < 0:
            opened.pop()
        elif entries[code].kind == INNER:
            opened.append(opened[-1])
        elif not entries[code].kind:
            opened.append((-1 if code == OUTSIDE else entries[code].row - 1, code))
        else:
            opened.append((_row_number(entries[code], rows, calls, shared, tied, opened), code))
        column, owner = opened[-1] if opened else (-1, OUTSIDE)
        columns.append(column)
        owners.append(owner)
    n_rows = len(rows)
    places = np.array(columns, np.int64)
    # Entries of phases have rows from -1 downwards, which are -2 downwards here.
    places = np.where(places < -1, n_rows - 2 - places, places)
    places[places == -1] = n_rows + n_phases
    is_inner = np.array([entry.kind == INNER for entry in entries])
    return Order(
        tuple(_layer(number, row) for number, row in enumerate(rows)),
        codes,
        places,
        np.array(owners, np.int64),
        (codes >= 0) & ~is_inner[np.where(codes < 0, ~codes, codes)],
        first,
        tuple(_made_nbytes(row) for row in rows),
    )


def _row_number(
    entry: Entry,
    rows: list[_Row],
    calls: list[int],
    shared: dict[Any, int],
    tied: Iterator[int | None],
    opened: Sequence[tuple[int, int]],
) -> int:
    """The row of a window that is entered, which may be a new one."""
    row, forward = _row_of(entry), None
    key: Any = len(rows)  # a row of its own
    if entry.kind == BACKWARD:
        tie = next(tied, None)
        if tie is not None:
            key = "backward", calls[tie]
            of_call = _row_of(rows[calls[tie]].entry)
            forward = calls[tie] if of_call.phase != BACKWARD_MARK.phase else None
    elif entry.kind == MARK:
        key = row.path, row.function, row.phase
    number = shared.get(key)
    if number is None:
        number = shared[key] = len(rows)
        around = opened[-1][0] if opened else -1
        nested = around >= 0 and entry.kind == CALL == rows[around].entry.kind
        rows.append(_Row(entry, around if nested else None, forward, []))
    rows[number].entries.append(entry)
    if entry.kind == CALL:
        calls.append(number)
    return number


def _layer(number: int, row: _Row) -> Layer:
    of = _row_of(row.entry)
    work = [entry.work for entry in row.entries]
    sums: dict[str, Any] = dict.fromkeys(WORK)
    counted = [call for call in work if call is not None]
    if counted and len(counted) == len(work):
        sums = {name: sum(getattr(call, name) for call in counted) for name in WORK}
        sums["work_is_about"] = any(call.about for call in counted)
    return Layer(
        number,
        of.path,
        of.function,
        of.phase,
        parent=row.parent,
        forward=row.forward,
        calls=len(row.entries),
        **shown(row.entry.facts),
        **sums,
    )


def _made_nbytes(row: _Row) -> int:
    is_own = row.parent is None and _row_of(row.entry).phase == FORWARD.phase
    return int(row.entry.facts.get("made_nbytes", 0)) if is_own else 0


def _row_of(entry: Entry) -> Row:
    assert entry.of is not None
    return entry.of
