"""The tape: every call of iterations by link and function, whatever they call.

On entering and on leaving a window two numbers are noted, and nothing else: the entry whose time
begins, and the clock. An entry is a row with the shapes of its inputs; on leaving a window it is
that of the window around, as its complement. So the time between two events belongs to the entry
that the first one tells, and NumPy adds up whole iterations at once. What is looked up of a new
call is a window too, whose time is not the iteration's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from chainer import FunctionHook
from chainer.function import FunctionAdapter
from numpy.typing import NDArray

from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool, TimedTrial
from chainer_profile.measure.facts import (
    ACCUMULATION,
    facts_of_gradients,
    facts_of_inputs,
    facts_of_mark,
    facts_of_outputs,
    sums_gradients,
    work_by,
)
from chainer_profile.measure.hooks import hook_of
from chainer_profile.measure.owners import Paths
from chainer_profile.measure.rows import (
    OUTSIDE,
    PAUSED,
    Entry,
    Iteration,
    Rows,
    Sums,
    Taped,
)
from chainer_profile.measure.windows import BACKWARD, FORWARD, Enter, Leave, Mark, Trial
from chainer_profile.record.recording import LinkCalls, Recording

#: Functions that may add up gradients.
_SUMS = ("Add", "MultiAdd")
_NUMBERS = count()
#: A tape with so many events within one iteration is folded there and then.
_MOST_EVENTS = 200_000
#: Of a row that is crowded, shapes whose entry is remembered.
_MOST_REMEMBERED = 10_000
#: Numbers of the entries of a path's calls, by class and shapes; and whether its link holds others.
Table = tuple[dict[Any, dict[Any, int]], bool]


class Codes:
    """A tape's lists; a pass has something else in their place, and reads no clock."""

    def __init__(self, now_ns: NowNs) -> None:
        self.now_ns = now_ns
        self.codes: list[int] = []
        self.stamps: list[int] = []
        self.code, self.stamp = self.codes.append, self.stamps.append

    def arrays(
        self, begin: int = 0, end: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        codes, stamps = self.codes[begin:end], self.stamps[begin:end]
        return np.array(codes, np.int64), np.array(stamps, np.int64)

    def cut(self, begin: int = 0) -> None:
        del self.codes[begin:], self.stamps[begin:]


class _Fresh(NamedTuple):
    """A call whose end tells what is not known of its entry yet."""

    depth: int  # of the open windows with its own
    entry: Entry
    table: dict[Any, int]
    key: Any


class _Callbacks(NamedTuple):
    """What notes windows, and finds all that it needs in closure cells."""

    begin: Callable[[], None]
    enter: Enter
    leave: Leave
    unwind: Callable[[int], None]  # down to so many windows
    raised: Callable[[int, bool], None]  # where so many were open; in a backward
    hook: FunctionHook


class Tape:
    """Notes iterations within ``recording()``, each from ``start()`` to ``stop()``.

    :meth:`fold` gives them by row. Something that raises ends where it raised: :class:`Entries`
    tells of it.
    """

    def __init__(
        self,
        now_ns: NowNs,
        trial: Trial,
        entries: Entries,
        events: EventPool | None = None,
    ) -> None:
        self.rows = Rows()
        #: Begins and ends of the pauses of the iteration that runs or was the last.
        self.pauses: list[tuple[int, int]] = []
        self._now_ns, self._trial, self._events = now_ns, trial, events
        self._entries = entries
        self._list = Codes(now_ns)
        self._windows = [OUTSIDE]  # numbers of the entries of open windows, the innermost last
        self._attribute = f"_chainer_profile_entry_{next(_NUMBERS)}"
        # Numbers of entries: by phase and path of calls, of backwards by those of their forwards,
        # of marks, and of calls that raised, whose next one is to tell what is not known of it yet.
        self._tables: dict[str, dict[str, Table]] = {}
        self._backwards: dict[int | None, int] = {}
        self._of_marks: dict[tuple[str, ...], int] = {}
        # Of sums of gradients by the backward around them and by shapes; and by path and shapes.
        self._of_sums: dict[Any, int] = {}
        self._sums: dict[str, dict[Any, int]] = {}
        self._of_old_graphs: dict[str, int] = {}
        self._untold: dict[Any, Entry] = {}
        self._fresh: list[_Fresh] = []
        self._paths = Paths(trial.roots)
        # The arrays of parameters, with the path of their link: of a shared one the first.
        self._weights: dict[int, tuple[str, Any]] = {}
        self._params: list[tuple[Any, Any]] = []
        self._n_links = 0
        # Calls of links by path, and those that are not folded by identity.
        self._link_calls: Counter[str] = Counter()
        self._called: list[int] = []
        # Iterations that are not folded, where the one that runs begins, and what was folded of it.
        self._taped: list[Taped] = []
        self._begin = self._start_ns = 0
        self._before: Sums | None = None
        self._pauses_before = 0
        #: Events of the longest iteration so far.
        self.most_events = 0
        self._log: Any = self._list
        # The innermost window in which an exception came up.
        self._raised = OUTSIDE
        self._thread = 0
        self._record = None if events is None else events.record
        self._of_list = self._make(self._list, self._record)
        self._now = self._of_list

    # -- iterations

    @contextmanager
    def recording(self, log: Any = None) -> Iterator[None]:
        """Within this, windows are noted; on request in another log, which reads something else."""
        self._thread = get_ident()
        self._know_parameters()
        now = self._now = self._of_list if log is None else self._make(log)
        self._record = None if self._events is None or log is not None else self._events.record
        self._log = self._list if log is None else log
        # Where something else is read in the clock's place no rows are found.
        self.rows.grow = log is None
        entries = self._entries
        now.begin()
        with self._trial.timed(now.enter, now.leave), now.hook:
            before = entries.windows, entries.raised, entries.link_calls
            entries.windows, entries.raised, entries.link_calls = self._windows, now.raised, []
            try:
                yield
            finally:
                entries.windows, entries.raised, entries.link_calls = before

    def start(self) -> None:
        """An iteration begins; one that did not end counts for nothing."""
        events, log = self._events, self._list
        self._begin = self._taped[-1].timed.end if self._taped else 0
        log.cut(self._begin)
        self._before, self._pauses_before = None, 0
        self.pauses.clear()
        # A call that begins the iteration is open already.
        self._entries.link_calls = list(map(id, self._entries.links))
        if events is not None:
            events.clear()
            events.record()
        log.code(OUTSIDE)
        self._start_ns = start_ns = self._now_ns()
        log.stamp(start_ns)

    def close(self) -> None:
        """End what an exception has left open."""
        self._now.unwind(1)

    def stop(self, number: int = 0) -> int:
        """It has ended; gives its number of windows."""
        self._now.unwind(1)
        now_ns, events, log, start_ns = self._now_ns, self._events, self._list, self._start_ns
        end_ns = now_ns()
        log.code(~OUTSIDE)
        log.stamp(end_ns)
        launch_ns, device = 0, None
        if events is not None:
            events.record()
            launch_ns = end_ns - start_ns
            events.wait()
            end_ns = now_ns()
            device = events.times_ns()
        self.most_events = max(self.most_events, len(log.codes) - self._begin)
        timed = TimedTrial(start_ns, end_ns - start_ns, len(log.codes), launch_ns, device)
        self._taped.append(Taped(number, timed, self._before))
        self._called += self._entries.link_calls or ()
        folded = 0 if self._before is None else int(self._before.calls.sum())
        pauses = len(self.pauses) - self._pauses_before
        return folded + (len(log.codes) - self._begin) // 2 - 1 - pauses

    @property
    def hook(self) -> FunctionHook:
        """What tells of functions within ``recording()``."""
        return self._now.hook

    def stamps(self) -> NDArray[np.int64]:
        """The clock reads that are not folded."""
        return self._list.arrays()[1]

    @property
    def length(self) -> int:
        """Events that are not folded."""
        return len(self._list.codes)

    @property
    def paused_ns(self) -> int:
        """What looking up took within the iteration."""
        return sum(end - begin for begin, end in self.pauses)

    def fold(self) -> list[Iteration]:
        """The iterations since the last time, by row; the tape is blank then."""
        taped, self._taped = self._taped, []
        by_link = self._paths.by_link
        for link, calls in Counter(self._called).items():
            if (path := by_link.get(link)) is not None:
                self._link_calls[path] += calls
        self._called.clear()
        end = taped[-1].timed.end if taped else 0
        found = self.rows.fold(*self._list.arrays(0, end), taped)
        self._list.cut()
        return found

    def end(self, number: int = 0) -> Iteration:
        """The same of one iteration, which ends."""
        self.stop(number)
        return self.fold()[-1]

    def know(self, recording: Recording) -> list[Iteration]:
        """Count trials as iterations whose rows are single calls; before all others."""
        trials = recording.n_trials
        for link in recording.links:
            self._link_calls[link.path] += int(link.calls) * trials
        return self.rows.know(recording) if trials else []

    @property
    def open_row(self) -> int | None:
        """Number of the innermost row that runs, or in which an exception was raised."""
        for number in (*reversed(self._windows), self._raised):
            row = self.rows.entries[number].row
            if 0 <= row < len(self.rows):
                return row
        return None

    def links(self) -> tuple[LinkCalls, ...]:
        """The links of the networks, with their mean calls in an iteration."""
        return self._paths.links(self._link_calls, self.rows.iterations or 1)

    def _know_parameters(self) -> None:
        """Know the networks and arrays that are there now, where any is another than before."""
        self._paths.renew(self._trial.roots)
        n_links = len(self._paths.by_link)
        if n_links == self._n_links and all(param.array is was for param, was in self._params):
            return
        self._n_links = n_links
        params = list(self._paths.params())
        self._params = [(param, param.array) for _, param in params]
        self._weights.clear()
        self._weights.update(
            (id(param.array), (path, param))
            for path, param in reversed(params)
            if param.array is not None
        )

    def _fold_within(self) -> None:
        """Fold what the iteration that runs has on the tape so far, in a pause."""
        log = self._list
        if self._log is not log or self._events is not None or self.rows.moves:
            return
        began_ns = self._now_ns()
        log.code(PAUSED)
        log.stamp(began_ns)
        sums = self.rows.sums(*log.arrays(self._begin))
        sums.calls[[OUTSIDE, PAUSED]] = 0  # these are no windows
        self._before = sums if self._before is None else self._before.plus(sums)
        self._pauses_before = len(self.pauses)
        log.cut(self._begin)
        self._pause(began_ns)

    def _pause(self, began: int) -> None:
        """What passed since then was the profiler's."""
        log, record = self._log, self._record
        if record is not None:
            record()
        log.code(PAUSED)
        log.stamp(began)
        end = log.now_ns()
        log.code(~self._windows[-1])
        log.stamp(end)
        if record is not None:
            record()
        self.pauses.append((began, end))

    # -- windows

    def _make(self, log: Any, record: Callable[[], None] | None = None) -> _Callbacks:
        """What notes windows: it runs in every one of them, and takes as few steps as may be."""
        tape, now_ns, code, stamp = self, log.now_ns, log.code, log.stamp
        codes, opened, links = log.codes, self._windows, self._entries.links
        paths, attribute = self._paths.by_link, self._attribute
        is_foreign = self._weights.keys().isdisjoint
        all_tables, of_marks, of_sums = self._tables, self._of_marks, self._of_sums
        of_forwards = self._backwards
        fresh, untold = self._fresh, self._untold
        get_frame, adapter = sys._getframe, FunctionAdapter
        # Numbers of open windows with each backward; and of marks, with the phase around each.
        backwards: list[int] = []
        marks: list[tuple[int, str, str]] = []
        phase, bare = FORWARD.phase, "/"
        tables = all_tables.setdefault(phase, {})

        def begin() -> None:
            nonlocal phase, bare, tables
            opened[:] = [OUTSIDE]
            for known in (backwards, marks, fresh):
                known.clear()
            phase, bare = FORWARD.phase, "/"
            tables = all_tables.setdefault(phase, {})
            tape._raised = OUTSIDE

        def unwind(depth: int) -> None:
            """End the windows beyond so many, the innermost first."""
            if len(opened) <= depth:
                return
            tape._raised = opened[-1]
            while len(opened) > depth:
                at = now_ns()
                opened.pop()
                code(~opened[-1])
                stamp(at)
                if record is not None:
                    record()
            while backwards and backwards[-1] > depth:
                backwards.pop()
            while marks and marks[-1][0] > depth:
                marks.pop()
            while fresh and fresh[-1].depth > depth:
                _, entry, table, key = fresh.pop()
                if table.pop(key, None) is not None:  # the next call is to tell
                    untold[id(table), key] = entry

        def raised(depth: int, in_backward: bool) -> None:
            """Something raised that began with so many open windows."""
            # Of a backward the innermost one is its own.
            if in_backward and depth in backwards:
                depth -= 1
            unwind(max(1, depth))

        def enter(mark: Mark) -> None:
            """Note that a window begins that is no function's."""
            nonlocal phase, bare, tables
            if get_ident() != tape._thread:
                return
            key = mark.phase, mark.path, mark.function, mark.of
            number = of_marks.get(key)
            if number is None:
                number = tape._number_of_mark(mark, key)
            marks.append((len(opened) + 1, phase, bare))
            opened.append(number)
            if not mark.function:
                phase = mark.phase
                if mark == FORWARD:
                    bare = "loss"
                tables = all_tables.setdefault(phase, {})
            if record is not None:
                record()
            code(number)
            stamp(now_ns())

        def leave() -> None:
            nonlocal phase, bare, tables
            if not marks or get_ident() != tape._thread:  # of one that began before
                return
            unwind(marks[-1][0])
            at = now_ns()
            _, phase, bare = marks.pop()
            tables = all_tables[phase]
            opened.pop()
            code(~opened[-1])
            stamp(at)
            if record is not None:
                record()

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            kind = type(function)
            if backwards:  # its own time, but for sums of gradients
                around = opened[backwards[-1] - 1]
                setattr(function, attribute, around)
                if kind.__name__ not in _SUMS or not sums_gradients(get_frame(1)):
                    return
                key = around, len(in_data), in_data[0].shape
                number = of_sums.get(key)
                if number is None:
                    number = tape._number_of_sum(key, in_data, around)
            else:
                if kind is adapter:
                    kind = type(function.function)
                try:
                    numbers, holds = tables[paths[id(links[-1])] if links else bare]
                    n_inputs = len(in_data)
                    if n_inputs == 1:
                        shapes = in_data[0].shape
                    elif n_inputs == 3:
                        x, weight, bias = in_data
                        shapes = x.shape, weight.shape, bias.shape
                    elif n_inputs == 2:
                        x, other = in_data
                        shapes = x.shape, other.shape
                    else:
                        shapes = tuple([array.shape for array in in_data])
                    number = numbers[kind][shapes]
                    if holds and (not is_foreign(map(id, in_data)) or len(codes) > _MOST_EVENTS):
                        number = tape._number_of_call(function, kind, in_data, phase, bare)
                except (KeyError, AttributeError):  # of something new; no array
                    number = tape._number_of_call(function, kind, in_data, phase, bare)
                setattr(function, attribute, number)
            opened.append(number)
            if record is not None:
                record()
            code(number)
            stamp(now_ns())

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            if backwards and backwards[-1] == len(opened):
                return
            at = now_ns()
            opened.pop()
            if not opened:  # it began before
                opened.append(OUTSIDE)
                return
            code(~opened[-1])
            stamp(at)
            if record is not None:
                record()
            if fresh and fresh[-1].depth > len(opened):
                tape._learn_forward(fresh.pop().entry, function, in_data, get_frame(1))

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            number = of_forwards.get(getattr(function, attribute, None))
            if number is None:
                number = tape._number_of_backward(function, out_grad)
            if len(codes) > _MOST_EVENTS:
                tape._fold_within()
            opened.append(number)
            backwards.append(len(opened))
            if record is not None:
                record()
            code(number)
            stamp(now_ns())

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            if not backwards:  # it began before
                return
            at = now_ns()
            backwards.pop()
            opened.pop()
            code(~opened[-1])
            stamp(at)
            if record is not None:
                record()

        hook = hook_of(
            forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess
        )
        return _Callbacks(begin, enter, leave, unwind, raised, hook)

    # -- what is looked up once

    def _number_of_mark(self, mark: Mark, key: tuple[str, ...]) -> int:
        began = self._log.now_ns()
        entry = self._entry_of_mark(mark)
        if entry.number != OUTSIDE:
            self._of_marks[key] = entry.number
        self._pause(began)
        return entry.number

    def _entry_of_mark(self, mark: Mark) -> Entry:
        if not mark.function:
            return self.rows.entry_of_phase(mark.phase)
        entry = self.rows.entry_of(mark.path, mark.function, mark.phase)
        if entry.number != OUTSIDE:
            params = self._paths.parameters(mark.path) if mark.phase == "update" else ()
            entry.facts = facts_of_mark(mark, params)
            if mark.work is not None:
                entry.work = work_by(mark.function, mark.work)
        return entry

    def _path_of_running(self, bare: str) -> str:
        """Path of the innermost running link; a link of no network so far becomes a root."""
        links, by_link = self._entries.links, self._paths.by_link
        above = "/" if links else bare
        for link in links:
            path = by_link.get(id(link))
            if path is None:
                began = self._log.now_ns()
                path = self._paths.adopt(link, above)
                self._renew_holders()
                self._pause(began)
            above = path
        return above

    def _renew_holders(self) -> None:
        """Links that are known now may be below others."""
        holders = self._paths.holders
        for tables in self._tables.values():
            for path, (numbers, _) in tables.items():
                tables[path] = numbers, path in holders

    def _path_of_call(self, path: str, bare: str, in_data: Sequence[Any]) -> str:
        """Path of the link whose parameters a call takes, where that lies below this one."""
        # No entry is passed for link.forward(x), or for functions that are given link.W.
        below = "/" if path == bare else path.rstrip("/") + "/"
        for array in in_data:
            owner, param = self._weights.get(id(array), ("/", None))
            if owner != "/" and owner.startswith(below) and param.array is array:
                return owner
        return path

    def _number_of_call(
        self, function: Any, kind: type, in_data: Sequence[Any], phase: str, bare: str
    ) -> int:
        if self.length > _MOST_EVENTS:
            self._fold_within()
        holders = self._paths.holders
        path = self._path_of_running(bare)
        if path in holders:
            path = self._path_of_call(path, bare, in_data)
        numbers, _ = self._tables[phase].setdefault(path, ({}, path in holders))
        table, shapes = numbers.setdefault(kind, {}), _shapes_of(in_data)
        number = table.get(shapes)
        if number is not None:
            return number
        began, name = self._log.now_ns(), str(function._impl_name)
        # This is called by the hook, and the hook by the function.
        if phase == BACKWARD.phase and name in _SUMS and sums_gradients(sys._getframe(2)):
            name = ACCUMULATION
        around = (self.rows.entries[at].row for at in reversed(self._windows))
        parent = next((row for row in around if 0 <= row < len(self.rows)), None)
        number = self._number_of_new(table, shapes, in_data, path, name, phase, parent)
        self._pause(began)
        return number

    def _number_of_sum(self, key: Any, in_data: Sequence[Any], around: int) -> int:
        """A function that adds up gradients is called within a backward."""
        began, row = self._log.now_ns(), self.rows.row_of(around)
        path = "/" if row is None else row.path
        table = self._sums.setdefault(path, {})
        shapes = _shapes_of(in_data)
        number = table.get(shapes)
        if number is None:
            number = self._number_of_new(
                table, shapes, in_data, path, ACCUMULATION, BACKWARD.phase, None
            )
        if number != OUTSIDE:
            self._of_sums[key] = number
        self._pause(began)
        return number

    def _number_of_new(
        self,
        table: dict[Any, int],
        shapes: Any,
        in_data: Sequence[Any],
        path: str,
        name: str,
        phase: str,
        parent: int | None,
    ) -> int:
        """The entry of a call with shapes that are new in its row."""
        key = shapes
        if self.rows.is_crowded(path, name, phase):
            key = None  # which all further ones share
            if key in table:
                if len(table) < _MOST_REMEMBERED:
                    table[shapes] = table[key]
                return table[key]
        entry = self._untold.pop((id(table), key), None)
        if entry is None:
            entry = self.rows.entry_of(path, name, phase, parent=parent)
        if entry.number != OUTSIDE:
            table[key] = entry.number
            self._fresh.append(_Fresh(len(self._windows) + 1, entry, table, key))
            is_forward = phase == FORWARD.phase
            entry.facts = facts_of_inputs(in_data, self._weights if is_forward else None)
        return entry.number

    def _learn_forward(
        self, entry: Entry, function: Any, in_data: Sequence[Any], frame: FrameType
    ) -> None:
        """A function was called for the first time: its outputs, and its work."""
        began = self._log.now_ns()
        outputs = frame.f_locals.get("outputs", ())
        is_forward = self.rows[entry.row].phase == FORWARD.phase
        entry.facts |= facts_of_outputs(in_data, outputs, is_forward)
        work = partial(forward_work, function, *entry.facts["specs"])
        entry.work = work_by(str(function._impl_name), work)
        self._pause(began)

    def _number_of_backward(self, function: Any, out_grad: Any) -> int:
        began = self._log.now_ns()
        # A function of a graph that was there before has no entry.
        forward: int = getattr(function, self._attribute, OUTSIDE)
        known, of = self.rows.entries[forward], self.rows.row_of(forward)
        path, name = (of.path, of.function) if of else ("/", str(function._impl_name))
        is_new = of is None or of.phase != BACKWARD.phase
        number = self._of_old_graphs.get(name) if of is None else None
        if number is None:
            first = known.row if of is not None and is_new else None
            entry = self.rows.entry_of(path, name, BACKWARD.phase, forward=first)
            number = entry.number
            if number != OUTSIDE and is_new:
                self._learn_gradients(function, entry, known.facts.get("specs"), out_grad)
                if of is None:
                    self._of_old_graphs[name] = number
        if of is not None and number != OUTSIDE:
            self._backwards[forward] = number
        self._pause(began)
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


def _shapes_of(arrays: Sequence[Any]) -> Any:
    """The shapes of a call's inputs, as its hook has them: of one input that shape alone."""
    if len(arrays) == 1:
        return getattr(arrays[0], "shape", None)
    return tuple([getattr(array, "shape", None) for array in arrays])
