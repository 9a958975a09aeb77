"""The layout of a trial: the owner of the time after each of its events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.measure.attribution import OUTSIDE, Context
from chainer_profile.measure.call_sites import CallSite
from chainer_profile.measure.rows import FORWARD, RowIndex
from chainer_profile.measure.spans import Spans
from chainer_profile.record.recording import Layer

Ints = NDArray[np.int64]


class Layout:
    """Assigns the time after each event to a row or phase; trials with equal events share it.

    A cell is a pair of an owner (a row, a phase or neither; see :class:`.Context`) and a call
    site. Times are added up by cell.

    Args:
        spans: The spans of the trial.
        contexts: The context of each span.
        index: The rows and phases.
    """

    def __init__(self, spans: Spans, contexts: Sequence[Context], index: RowIndex) -> None:
        self.index = index
        self.spans, self.contexts = spans, contexts
        distinct = {context: number for number, context in enumerate(dict.fromkeys(contexts))}
        context_of_span = np.array([distinct[context] for context in contexts])
        owner_of_span = np.array([context.owner for context in distinct])[context_of_span]
        innermost = np.array(spans.innermost)
        #: For each event, the owner of the time after it.
        self.owners: Ints = np.where(innermost < 0, OUTSIDE, owner_of_span[innermost])
        sites = {(context.owner, id(context.site)): context.site for context in distinct}
        numbers = {cell: number for number, cell in enumerate(sites)}
        self.cell_owners = np.array([owner for owner, _ in sites], np.int64)
        self.cell_sites = [*sites.values()]
        cells = np.array([numbers[context.owner, id(context.site)] for context in distinct])
        cell_of_span = cells[context_of_span]
        is_call = np.array([context.is_call for context in distinct])[context_of_span]
        self.cell_calls = np.bincount(cell_of_span[is_call], minlength=len(numbers))
        #: For each event but the last, the cell of the time after it.
        self._cells = cell_of_span[np.maximum(innermost[:-1], 0)]
        self._order = np.argsort(self._cells, kind="stable")
        ordered = self._cells[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._present = ordered[self._starts]

    def sums(self, values: Ints) -> Ints:
        """Add up the time after each event by cell: (trials, events) to (trials, cells).

        Other readings of counters can be added up as well.
        """
        sums = np.zeros((len(values), len(self.cell_owners)), np.int64)
        if self._starts.size:
            passed = np.diff(values, axis=1)[:, self._order]
            sums[:, self._present] = np.add.reduceat(passed, self._starts, axis=1)
        return sums

    def by_owner(self, cell_sums: Ints, n_rows: int, n_phases: int) -> tuple[Ints, Ints]:
        """Add up cells by row and by phase: (trials, rows) and (trials, phases).

        Cells outside of all rows and phases are left out.
        """
        columns = np.where(self.cell_owners >= 0, self.cell_owners, n_rows - 2 - self.cell_owners)
        columns[self.cell_owners == OUTSIDE] = n_rows + n_phases
        table = np.zeros((len(cell_sums), n_rows + n_phases + 1), np.int64)
        np.add.at(table.T, columns, cell_sums.T)
        return table[:, :n_rows], table[:, n_rows:-1]

    def gaps(self, values: Ints, n_rows: int) -> Ints:
        """Add up the time outside of rows by the row after it: (trials, events) to (trials, rows).

        Time after the last row is left out.
        """
        owners = self.owners[:-1]
        outside = owners < 0
        following = np.where(outside, len(owners), np.arange(len(owners)))
        following = np.minimum.accumulate(following[::-1])[::-1]
        rows = np.append(owners, n_rows)[following[outside]]
        table = np.zeros((len(values), n_rows + 1), np.int64)
        np.add.at(table.T, rows, np.diff(values, axis=1)[:, outside].T)
        return table[:, :-1]

    def collectives(self) -> list[tuple[int, int]]:
        """For each row of communication, the indices of its first begin and its last end event.

        Both are -1 for a row without a call in this layout.
        """
        rows = [n for n, row in enumerate(self.index.rows) if row.phase == COMMUNICATION]
        if not rows:
            return []
        spans: dict[int, list[int]] = {}
        for span, context in enumerate(self.contexts):
            if context.is_call:
                spans.setdefault(context.owner, []).append(span)
        found = [spans.get(row, []) for row in rows]
        return [
            (self.spans.begins[of_row[0]], self.spans.ends[of_row[-1]]) if of_row else (-1, -1)
            for of_row in found
        ]

    def layers(self) -> tuple[Layer, ...]:
        """Describe the rows, which must be single calls."""
        sites: dict[int, list[CallSite | None]] = {}
        for context in self.contexts:
            if context.is_call:
                sites.setdefault(context.owner, []).append(context.site)
        return tuple(
            row.layer_of_calls(number, sites[number]) for number, row in enumerate(self.index.rows)
        )

    def new_nbytes(self) -> tuple[int, ...]:
        """Bytes of the new outputs of each row; 0 for nested calls and outside of the forward."""
        nbytes = dict.fromkeys(range(len(self.index.rows)), 0)
        for context in self.contexts:
            if context.owner >= 0 and context.site is not None:
                row = self.index.rows[context.owner]
                if row.parent is None and row.phase == FORWARD:
                    nbytes[context.owner] = context.site.new_nbytes
        return tuple(nbytes.values())
