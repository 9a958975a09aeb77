"""Finds which entry of the rows a call is of: in tables, and once for each new one in a pause."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.entries import Running
from chainer_profile.measure.facts import (
    ACCUMULATION,
    facts_of_gradients,
    facts_of_inputs,
    facts_of_mark,
    facts_of_outputs,
    made_nbytes_of,
    sums_gradients,
    work_by,
)
from chainer_profile.measure.order import FirstIteration
from chainer_profile.measure.owners import Paths, Place
from chainer_profile.measure.row import BACKWARD as BACKWARD_KIND
from chainer_profile.measure.row import CALL, MARK, SUM, Entry
from chainer_profile.measure.rows import Rows
from chainer_profile.measure.stretch import OUTSIDE
from chainer_profile.measure.windows import BACKWARD, FORWARD, Mark

#: Functions that may add up gradients.
SUMS = ("Add", "MultiAdd")
#: So many functions and shapes of a link are found fast.
_MOST_REMEMBERED = 10_000
_NUMBERS = count()


class Lookup:
    """Numbers of entries, by what is called.

    What notes windows reads the public tables itself, and asks a method where they have nothing.
    """

    def __init__(
        self,
        rows: Rows,
        paths: Paths,
        running: Running,
        paused: Callable[[], AbstractContextManager[None]],
        open_row: Callable[[], int | None],
    ) -> None:
        self.rows, self.paths = rows, paths
        self._running, self._paused, self._open_row = running, paused, open_row
        #: Where functions keep the numbers of their entries.
        self.attribute = f"_chainer_profile_entry_{next(_NUMBERS)}"
        # While the first iteration tells in which order calls are made, none is found fast: where
        # functions keep which call they are, and which call each backward is of.
        self._call_attribute = f"{self.attribute}_call"
        self.first: FirstIteration | None = None
        #: Of backwards, by the numbers of their forwards.
        self.backwards: dict[int, int] = {}
        self._all_backwards: dict[int, int] = {}
        self._of_old_graphs: dict[str, int] = {}
        #: Of marks by identity, with the mark itself so that no other one gets that.
        self.marks: dict[int, tuple[Mark, int]] = {}
        self._all_marks: dict[tuple[str, ...], int] = {}
        #: Of sums of gradients, by the backward around them and by shapes.
        self.sums: dict[Any, int] = {}
        self._sums_of_paths: dict[str, dict[Any, int]] = {}
        #: Of other functions in backwards, by the backward around them and by class.
        self.inner: dict[tuple[int, type], int] = {}
        #: Entries whose calls have not ended yet for the first time, by number.
        self.fresh: dict[int, Entry] = {}

    def of_mark(self, mark: Mark) -> int:
        key = mark.phase, mark.path, mark.function, mark.of
        number = self._all_marks.get(key)
        if number is None:
            with self._paused():
                number = self._entry_of_mark(mark).number
            if number != OUTSIDE:
                self._all_marks[key] = number
        if number != OUTSIDE and len(self.marks) < _MOST_REMEMBERED:
            self.marks[id(mark)] = mark, number
        return number

    def _entry_of_mark(self, mark: Mark) -> Entry:
        if not mark.function:
            return self.rows.entry_of_phase(mark.phase)
        entry = self.rows.entry_of(MARK, mark.path, mark.function, mark.phase)
        if entry.number != OUTSIDE:
            params = self.paths.parameters(mark.path) if mark.phase == "update" else ()
            entry.facts = facts_of_mark(mark, params)
            if mark.work is not None:
                entry.work = work_by(mark.function, mark.work)
        return entry

    def adopt(self, link: Any) -> Place:
        """The place of a link of no network so far, which becomes one below where it is called."""
        around = self._running.place
        with self._paused():
            self.paths.adopt(link, around.path)
        return self.paths.places(around.phase)[id(link)]

    def of_call(self, function: Any, kind: type, in_data: Sequence[Any]) -> int:
        place, key = self._running.place, (kind, *_shapes_of(in_data))
        owner = place
        if key not in place.of_path:  # arrays may be new, too
            self.paths.know_parameters()
        if place.is_foreign is not None:
            path = self.paths.owner(place.path, in_data, place.outside)
            if path != place.path:
                owner = self.paths.place(path, place.phase)
        number = owner.of_path.get(key)
        if number is None:
            with self._paused():
                name, of = str(function._impl_name), owner.of_path
                # This is called by the hook, and the hook by the function.
                is_backward = place.phase == BACKWARD.phase
                if is_backward and name in SUMS and sums_gradients(sys._getframe(2)):
                    name = ACCUMULATION
                row = owner.path, name, place.phase
                number = self._of_new(CALL, of, key, in_data, row, self._open_row())
                self.rows.entries[number].name = str(function._impl_name)
        if self.first is not None:
            setattr(function, self._call_attribute, len(self.first.calls))
            parameter = self.paths.parameter_id(in_data)
            size = in_data[0].size if parameter else 0
            self.first.calls.append((type(function), place, parameter, size))
        elif owner is place and number != OUTSIDE and len(place) < _MOST_REMEMBERED:
            place[key] = number
        return number

    def of_inner(self, function: Any, kind: type, around: int) -> int:
        """A function that is called in a backward, and has no row of its own."""
        entry = self.rows.inner_entry(str(function._impl_name), around)
        self.inner[around, kind] = entry.number
        return entry.number

    def of_sum(self, key: Any, function: Any, in_data: Sequence[Any], around: int) -> int:
        """A function that adds up gradients is called within a backward."""
        with self._paused():
            of = self.rows.entries[around].of
            path = "/" if of is None else of.path
            table, shapes = self._sums_of_paths.setdefault(path, {}), _shapes_of(in_data)
            number = table.get(shapes)
            if number is None:
                row = path, ACCUMULATION, BACKWARD.phase
                number = self._of_new(SUM, table, shapes, in_data, row)
                self.rows.entries[number].name = str(function._impl_name)
            if number != OUTSIDE:
                self.sums[key] = number
        return number

    def _of_new(
        self,
        kind: str,
        table: dict[Any, int],
        key: Any,
        in_data: Sequence[Any],
        row: tuple[str, str, str],
        parent: int | None = None,
    ) -> int:
        """The entry of a call with shapes that are new in its row: a path, a function, a phase."""
        path, name, phase = row
        if self.rows.is_crowded(path, name, phase):
            key = name, None  # which all further ones share
            if key in table:
                return table[key]
        entry = self.rows.entry_of(kind, path, name, phase, parent=parent)
        if entry.number != OUTSIDE:
            table[key] = entry.number
            self.fresh[entry.number] = entry
            is_forward = phase == FORWARD.phase
            entry.facts = facts_of_inputs(in_data, self.paths.weights if is_forward else None)
        return entry.number

    def learn_forward(
        self, entry: Entry, function: Any, in_data: Sequence[Any], frame: FrameType
    ) -> None:
        """A function was called for the first time: its outputs, and its work."""
        with self._paused():
            outputs = frame.f_locals.get("outputs", ())
            is_forward = entry.of is not None and entry.of.phase == FORWARD.phase
            entry.facts |= facts_of_outputs(outputs, is_forward)
            if is_forward:
                entry.made_nbytes = made_nbytes_of(in_data, outputs)
            entry.specs = specs_of(in_data), specs_of(outputs)
            work = partial(forward_work, function, *entry.specs)
            entry.work = work_by(str(function._impl_name), work)

    def of_backward(self, function: Any, out_grad: Any) -> int:
        if self.first is not None:
            self.first.ties.append(getattr(function, self._call_attribute, None))
            self.first.backwards.append(type(function))
        # A function of a graph that was there before has no entry.
        kept: int = getattr(function, self.attribute, OUTSIDE)
        number = self._all_backwards.get(kept)
        if number is None:
            with self._paused():
                number = self._of_new_backward(function, kept, out_grad)
        if self.first is None and kept in self._all_backwards:
            self.backwards[kept] = number
        return number

    def _of_new_backward(self, function: Any, kept: int, out_grad: Any) -> int:
        forward = kept if kept >= 0 else ~kept  # it was called in a backward
        entry_of_call = self.rows.entries[forward]
        of = entry_of_call.of
        path, name = (of.path, of.function) if of else ("/", str(function._impl_name))
        is_new = of is None or of.phase != BACKWARD.phase
        number = self._of_old_graphs.get(name) if of is None else None
        if number is None:
            first = entry_of_call.row if of is not None and is_new else None
            entry = self.rows.entry_of(BACKWARD_KIND, path, name, BACKWARD.phase, forward=first)
            number = entry.number
            if number != OUTSIDE:
                entry.name = str(function._impl_name)
            if number != OUTSIDE and is_new:
                self._learn_gradients(function, entry, entry_of_call.specs, out_grad)
                if of is None:
                    self._of_old_graphs[name] = number
        if of is not None and number != OUTSIDE:
            self._all_backwards[kept] = number
        return number

    def _learn_gradients(self, function: Any, entry: Entry, specs: Any, out_grad: Any) -> None:
        entry.facts = facts_of_gradients(function, out_grad)
        # Of a graph that was there before its nodes know the inputs.
        before = specs_of(function.inputs), specs_of(out_grad)
        inputs, outputs = specs or before
        if inputs != before[0]:  # of another call: its row has more shapes than are told apart
            inputs, outputs = before
        asked = tuple(bool(node.requires_grad) for node in function.inputs)
        entry.work = work_by(
            str(function._impl_name), lambda: backward_work(function, inputs, outputs, asked)
        )


def _shapes_of(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The shapes of a call's inputs; None where there is no array."""
    return tuple([getattr(array, "shape", None) for array in arrays])
