"""Times of iterations by link and function, whatever they call: nothing has to repeat.

Each window is noted in a log, (entry, time) on entering and the time alone on leaving, which is
folded behind the iteration. What is looked up is a window too, whose time is not the iteration's.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

from chainer import Function, FunctionHook, FunctionNode
from chainer.function import FunctionAdapter

from chainer_profile.basics.replacements import Replacements
from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool, Stopwatch
from chainer_profile.measure.facts import (
    ACCUMULATION,
    facts_of_gradients,
    facts_of_inputs,
    facts_of_mark,
    facts_of_outputs,
    sums_gradients,
    work_by,
)
from chainer_profile.measure.hooks import end_when_raising, hook_of, kind_of, windows
from chainer_profile.measure.link_rows import NO_ROW, Entry, Iteration, Rows
from chainer_profile.measure.links import is_running
from chainer_profile.measure.owners import Paths
from chainer_profile.measure.windows import BACKWARD, FORWARD, Mark, Trial
from chainer_profile.record.recording import LinkCalls, Recording

#: Functions that may add up gradients.
_SUMS = ("Add", "MultiAdd")
_NUMBERS = count()


class _Fresh(NamedTuple):
    """A call whose end tells what is not known of its entry yet."""

    function: Any
    entry: Entry
    table: dict[Any, Entry]
    key: Any


class LinkRecorder:
    """Notes the windows of iterations, by link and function."""

    def __init__(
        self,
        now_ns: NowNs,
        trial: Trial,
        entries: Entries,
        events: EventPool | None = None,
    ) -> None:
        self.rows = Rows()
        self.log: Any = []
        self._now_ns, self._trial, self._events = now_ns, trial, events
        self._read = now_ns
        self._entries, self._links = entries, entries.links
        self._attribute = f"_chainer_profile_entry_{next(_NUMBERS)}"
        # Time outside of all windows.
        self._outside = self.rows.outside
        # Of every phase the entries of calls by class, path and shapes.
        self._tables: dict[str, dict[Any, Entry]] = {}
        # Of calls that raised, whose next one is to tell what is not known of it yet.
        self._untold: dict[Any, Entry] = {}
        self._of_marks: dict[tuple[str, ...], Entry] = {}
        self._of_old_graphs: dict[str, Entry] = {}
        self._paths = Paths(trial.roots)
        self._weights: dict[int, tuple[str, Any]] = {}
        self._raising: set[type] = set()
        self._link_calls: dict[str, int] = {}
        self._watch = Stopwatch(now_ns, events)

    # -- an iteration

    @contextmanager
    def recording(self, now_ns: NowNs | None = None, log: Any = None) -> Iterator[None]:
        """Within this, windows are noted; on request by another clock, and in another log."""
        self._paths.renew(self._trial.roots)
        self._begin(now_ns or self._now_ns, [] if log is None else log)
        with ExitStack() as stack:
            self._replacements = stack.enter_context(Replacements())
            end_when_raising(self._replacements, self._raising, self)
            stack.enter_context(self._trial.timed(self.enter, self.leave))
            self.hook = stack.enter_context(self._make_hook())
            # A call that begins the iteration is open already.
            self._entries.link_calls = {id(link): 1 for link in self._links}
            stack.callback(setattr, self._entries, "link_calls", None)
            yield

    def _begin(self, now_ns: NowNs, log: Any) -> None:
        self.log, self._thread = log, get_ident()
        self._read = now_ns
        # Where something else is read in the clock's place no rows are found, and no events made.
        times = self.rows.grow = now_ns is self._now_ns
        # The windows that are open, with the frame that runs each: None for a mark.
        self._opened: list[Entry] = []
        self._frames: list[FrameType | None] = []
        # Of these the backwards.
        self._backwards: list[Entry] = []
        # Calls whose end is to be told of; and the places of marks, with the phase around each.
        self._fresh: list[_Fresh] = []
        self._marks: list[tuple[int, str, str]] = []
        # Of a shared one the first path, as of a shared link.
        self._weights = {
            id(param.array): (path, param)
            for path, param in reversed(list(self._paths.params()))
            if param.array is not None
        }
        self._phase, self._bare = FORWARD.phase, "/"
        self._table = self._tables.setdefault(self._phase, {})
        events = self._events if times else None
        self._record = None if events is None else events.record
        self._note, self._stamp = windows(now_ns, log, self._record, ())

    def start(self) -> None:
        self._watch.begin()

    def close(self) -> None:
        self._end_windows(0)

    def end(self, number: int = 0) -> Iteration:
        """It has ended: how long it took, by row."""
        self.close()
        timed = self._watch.end(len(self.log))
        for link, calls in (self._entries.link_calls or {}).items():
            path = self._paths.by_link.get(link)
            if path is not None:
                self._link_calls[path] = self._link_calls.get(path, 0) + calls
        return self.rows.iteration(number, timed, self.log)

    def know(self, recording: Recording, raising: Collection[type]) -> list[Iteration]:
        """Count trials as iterations whose rows are single calls; before all others."""
        self._raising.update(raising)
        trials = recording.n_trials
        for link in recording.links:
            known = self._link_calls.get(link.path, 0)
            self._link_calls[link.path] = known + int(link.calls) * trials
        return self.rows.know(recording) if trials else []

    @property
    def open_row(self) -> int | None:
        """Number of the innermost row that runs, or in which an exception was raised."""
        rows = [entry.row for entry in self._opened if 0 <= entry.row < len(self.rows)]
        return rows[-1] if rows else None

    def links(self) -> tuple[LinkCalls, ...]:
        """The links of the networks, with their mean calls in an iteration."""
        return self._paths.links(self._link_calls, self.rows.iterations or 1)

    # -- windows

    def enter(self, mark: Mark) -> None:
        """Note that a window begins that is no function's."""
        if get_ident() != self._thread:
            return
        key = (mark.phase, mark.path, mark.function, mark.of)
        entry = self._of_marks.get(key)
        if entry is None:
            began = self._read()
            entry = self._entry_of_mark(mark)
            if entry is not self._outside:
                self._of_marks[key] = entry
            self._pause(began)
        self._marks.append((len(self._frames), self._phase, self._bare))
        self._frames.append(None)
        self._opened.append(entry)
        if not mark.function:
            self._phase = mark.phase
            if mark == FORWARD:
                self._bare = "loss"
            self._table = self._tables.setdefault(mark.phase, {})
        self._note(entry)

    def leave(self) -> None:
        if not self._marks or get_ident() != self._thread:  # of one that began before
            return
        depth, self._phase, self._bare = self._marks[-1]
        self._end_windows(depth)
        self._table = self._tables[self._phase]

    def position(self) -> int:
        return len(self._frames)

    def running(self, position: int) -> int:
        """Number of windows that were left open since then by an exception, which this ends."""
        self._end_windows(position)
        return 0

    def _end_windows(self, depth: int) -> None:
        """End the windows beyond so many, whose functions have raised, the innermost first."""
        while len(self._frames) > depth:
            frame = self._frames.pop()
            if frame is None:
                self._marks.pop()
            else:
                self._note_raising(frame)
            self._opened.pop()
            self._stamp()
        opened = set(map(id, self._opened))
        while self._fresh and id(self._fresh[-1].entry) not in opened:
            one = self._fresh.pop()
            # The next call is to tell.
            if one.table.pop(one.key, None) is not None:
                self._untold[id(one.table), one.key] = one.entry
        self._backwards[:] = [one for one in self._backwards if id(one) in opened]

    def _uncover(self, frame: FrameType) -> bool:
        """End the windows within that of a frame; False where it has none, of before."""
        if frame not in self._frames:
            return False
        self._end_windows(self._frames.index(frame) + 1)
        return True

    def _note_raising(self, frame: FrameType) -> None:
        function = frame.f_locals.get("self")
        kind = kind_of(function)
        if isinstance(function, FunctionNode | Function) and kind not in self._raising:
            self._raising.add(kind)
            end_when_raising(self._replacements, [kind], self)

    def _end_dead(self) -> None:
        depth = len(self._frames)
        while depth and (frame := self._frames[depth - 1]) is not None and not is_running(frame):
            depth -= 1
        self._end_windows(depth)

    def _make_hook(self) -> FunctionHook:
        """The hook of functions: methods that find what they need in closure cells are fastest."""
        recorder, links, now_ns, record = self, self._links, self._read, self._record
        note, stamp = self.log.extend, self.log.append
        frames, opened = self._frames, self._opened
        backwards, fresh = self._backwards, self._fresh
        paths, holders, weights = self._paths.by_link, self._paths.holders, self._weights
        attribute = self._attribute
        get_frame, adapter = sys._getframe, FunctionAdapter

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            frame = get_frame(1)
            if frames and frames[-1] is not None and not is_running(frames[-1]):
                recorder._end_dead()
            kind = type(function)
            if backwards:  # its own time, but for sums of gradients
                setattr(function, attribute, backwards[-1])
                if kind.__name__ in _SUMS and sums_gradients(frame):
                    recorder._within_backward(function, in_data, frame)
                return
            if kind is adapter:
                kind = type(function.function)
            try:
                path = paths[id(links[-1])] if links else recorder._bare
                shapes = tuple([array.shape for array in in_data])
            except (KeyError, AttributeError):  # a link of no network so far; no array
                path = recorder._path_of_running()
                shapes = tuple([getattr(array, "shape", None) for array in in_data])
            if path in holders and not weights.keys().isdisjoint(map(id, in_data)):
                path = recorder._path_of_call(path, in_data)
            entry = recorder._table.get((kind, path, shapes))
            if entry is None:
                entry = recorder._entry_of_call(function, kind, path, shapes, in_data)
            setattr(function, attribute, entry)
            frames.append(frame)
            opened.append(entry)
            if record is not None:
                record()
            note((entry, now_ns()))

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            frame = get_frame(1)
            if backwards and opened[-1] is backwards[-1] and frames[-1] is not frame:
                return
            if (not frames or frames[-1] is not frame) and not recorder._uncover(frame):
                return
            frames.pop()
            opened.pop()
            stamp(now_ns())
            if record is not None:
                record()
            if fresh and fresh[-1].function is function:
                recorder._learn_forward(function, in_data, frame)

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            if frames and frames[-1] is not None and not is_running(frames[-1]):
                recorder._end_dead()
            forward = getattr(function, attribute, None)
            entry = None if forward is None else forward.backward
            if entry is None:
                entry = recorder._entry_of_backward(function, forward, out_grad)
            frames.append(get_frame(1))
            opened.append(entry)
            backwards.append(entry)
            if record is not None:
                record()
            note((entry, now_ns()))

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            frame = get_frame(1)
            if (not frames or frames[-1] is not frame) and not recorder._uncover(frame):
                return
            frames.pop()
            opened.pop()
            backwards.pop()
            stamp(now_ns())
            if record is not None:
                record()

        return hook_of(
            forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess
        )

    def _within_backward(self, function: Any, in_data: Any, frame: FrameType) -> None:
        """A function that adds up gradients is called within a backward."""
        around = self._backwards[-1]
        path = "/" if around is self._outside else self.rows[around.row].path
        shapes = tuple(array.shape for array in in_data)
        entry = self._table.get((ACCUMULATION, path, shapes))
        if entry is None:
            entry = self._entry_of_call(function, ACCUMULATION, path, shapes, in_data)
        self._frames.append(frame)
        self._opened.append(entry)
        self._note(entry)

    # -- what is looked up once

    def _pause(self, began: int) -> None:
        """What passed since then was the profiler's."""
        if self._record is not None:
            self._record()
        self.log.extend((self.rows.paused, began))
        self._stamp()

    def _entry_of_mark(self, mark: Mark) -> Entry:
        if not mark.function:
            return self.rows.entry_of_phase(mark.phase)
        entry = self.rows.entry_of(mark.path, mark.function, mark.phase)
        if entry is not self._outside:
            params = self._paths.parameters(mark.path) if mark.phase == "update" else ()
            entry.facts = facts_of_mark(mark, params)
            if mark.work is not None:
                entry.work = work_by(mark.function, mark.work)
        return entry

    def _path_of_running(self) -> str:
        """Path of the innermost running link; a link of no network so far becomes a root."""
        above = "/" if self._links else self._bare
        for link in self._links:
            path = self._paths.by_link.get(id(link))
            if path is None:
                began = self._read()
                path = self._paths.adopt(link, above)
                self._pause(began)
            above = path
        return above

    def _path_of_call(self, path: str, in_data: Sequence[Any]) -> str:
        """Path of the link whose parameters a call takes, where that lies below this one."""
        # No entry is passed for link.forward(x), or for functions that are given link.W.
        below = "/" if path == self._bare else path.rstrip("/") + "/"
        for array in in_data:
            owner, param = self._weights.get(id(array), ("/", None))
            if owner != "/" and owner.startswith(below) and param.array is array:
                return owner
        return path

    def _entry_of_call(
        self, function: Any, kind: type | str, path: str, shapes: Any, in_data: Sequence[Any]
    ) -> Entry:
        began = self._read()
        name, phase = str(function._impl_name), self._phase
        around = (one.row for one in reversed(self._opened) if 0 <= one.row < NO_ROW)
        parent = next(around, None)
        if kind == ACCUMULATION:  # within a backward, of whichever phase
            name, phase, parent = ACCUMULATION, BACKWARD.phase, None
        elif phase == BACKWARD.phase and name in _SUMS and sums_gradients(sys._getframe(2)):
            name = ACCUMULATION
        key = (kind, path, None if self.rows.is_crowded(path, name, phase) else shapes)
        entry = self._table.get(key)
        if entry is None:
            entry = self._untold.pop((id(self._table), key), None)
            if entry is None:
                entry = self.rows.entry_of(path, name, phase, parent=parent)
            if entry is not self._outside:
                self._table[key] = entry
                self._fresh.append(_Fresh(function, entry, self._table, key))
                is_forward = phase == FORWARD.phase
                entry.facts = facts_of_inputs(in_data, self._weights if is_forward else None)
        self._pause(began)
        return entry

    def _learn_forward(self, function: Any, in_data: Sequence[Any], frame: FrameType) -> None:
        """A function was called for the first time: its outputs, and its work."""
        began = self._read()
        entry = self._fresh.pop().entry
        outputs = frame.f_locals.get("outputs", ())
        is_forward = self.rows[entry.row].phase == FORWARD.phase
        entry.facts |= facts_of_outputs(in_data, outputs, is_forward)
        work = partial(forward_work, function, *entry.facts["specs"])
        entry.work = work_by(str(function._impl_name), work)
        self._pause(began)

    def _entry_of_backward(self, function: Any, forward: Entry | None, out_grad: Any) -> Entry:
        began = self._read()
        of = None if forward is None or forward is self._outside else self.rows[forward.row]
        path, name = (of.path, of.function) if of else ("/", str(function._impl_name))
        first = forward.row if forward is not None and of and of.phase != BACKWARD.phase else None
        # A function of a graph that was there before has no entry.
        entry = self._of_old_graphs.get(name) if of is None else None
        if entry is None:
            entry = self.rows.entry_of(path, name, BACKWARD.phase, forward=first)
            if entry is not self._outside and (of is None or of.phase != BACKWARD.phase):
                self._learn_gradients(function, entry, forward, out_grad)
                if of is None:
                    self._of_old_graphs[name] = entry
        if forward is not None and of is not None and entry is not self._outside:
            forward.backward = entry
        self._pause(began)
        return entry

    def _learn_gradients(
        self, function: Any, entry: Entry, forward: Entry | None, out_grad: Any
    ) -> None:
        entry.facts = facts_of_gradients(function, out_grad)
        # Of a graph that was there before its nodes know the inputs.
        before = specs_of(function.inputs), specs_of(out_grad)
        inputs, outputs = before if forward is None else forward.facts.get("specs", before)
        if inputs != before[0]:  # of another call: its row has more shapes than are told apart
            inputs, outputs = before
        asked = tuple(bool(node.requires_grad) for node in function.inputs)
        entry.work = work_by(
            str(function._impl_name), lambda: backward_work(function, inputs, outputs, asked)
        )
