"""The calls of an iteration in their order, where others make the same: each of them is a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.measure.owners import Place
from chainer_profile.measure.row import BACKWARD, CALL, INNER, MARK, Entry, Row
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


def order_of(
    codes: NDArray[np.int64],
    entries: Sequence[Entry],
    n_phases: int,
    first: FirstIteration | None = None,
) -> Order:
    """The rows of an iteration with such codes."""
    first = first or FirstIteration()
    rows = _OrderedRows(iter(first.ties))
    # Of the open windows, and behind each event: the row, below all rows a phase, and the entry.
    opened = [(-1, OUTSIDE)]
    owners: list[tuple[int, int]] = []
    for code in codes.tolist():
        if code < 0:
            opened.pop()
        elif entries[code].kind == INNER:
            opened.append(opened[-1])
        elif not entries[code].kind:
            opened.append((-1 if code == OUTSIDE else entries[code].row - 1, code))
        else:
            opened.append((rows.enter(entries[code], opened[-1][0]), code))
        owners.append(opened[-1])
    columns, of_entries = np.array(owners, np.int64).T
    n_rows = len(rows.rows)
    # Entries of phases have rows from -1 downwards, which are -2 downwards here.
    columns = np.where(columns < -1, n_rows - 2 - columns, columns)
    columns[columns == -1] = n_rows + n_phases
    inner = [entry.number for entry in entries if entry.kind == INNER]
    return Order(
        tuple(row.layer_of_calls(number) for number, row in enumerate(rows.rows)),
        codes,
        columns,
        of_entries,
        (codes >= 0) & ~np.isin(codes, inner),
        first,
        tuple(
            row.entries[0].made_nbytes if row.parent is None and row.phase == FORWARD.phase else 0
            for row in rows.rows
        ),
    )


class _OrderedRows:
    """Rows in the order in which their windows are entered."""

    def __init__(self, ties: Iterator[int | None]) -> None:
        self.rows: list[Row] = []
        self._ties = ties
        self._calls: list[int] = []  # the rows of calls
        # Rows of several windows: backwards by their calls, and marks by their rows.
        self._shared: dict[Any, int] = {}

    def enter(self, entry: Entry, around: int) -> int:
        """The row of a window that is entered within another row's, if any."""
        rows, calls, of = self.rows, self._calls, entry.of
        assert of is not None
        key: Any = len(rows)  # a row of its own
        forward = None
        if entry.kind == BACKWARD and (tie := next(self._ties, None)) is not None:
            key = "backward", calls[tie]
            forward = calls[tie] if rows[calls[tie]].phase != BACKWARD_MARK.phase else None
        elif entry.kind == MARK:
            key = of.path, of.function, of.phase
        number = self._shared.setdefault(key, len(rows))
        if number == len(rows):
            nested = around >= 0 and entry.kind == CALL == rows[around].entries[0].kind
            parent = around if nested else None
            rows.append(Row(of.path, of.function, of.phase, parent, forward))
        rows[number].entries.append(entry)
        if entry.kind == CALL:
            calls.append(number)
        return number


def last_row(layers: Sequence[Layer], columns: NDArray[np.int64]) -> tuple[Layer | None, bool]:
    """The row that is open behind the last of some events, or else was; and whether it is."""
    rows = columns[columns < len(layers)]
    if not len(rows):
        return None, False
    return layers[rows[-1]], bool(columns[-1] < len(layers))
